//! Which kernels of a file fail, where only the file's errors are known because many were checked at once.

use super::Opened;
use crate::msl::parallel::{Progress, in_parallel};
use anyhow::Result;
use bessemer_hal::{Error, Library};
use std::collections::{BTreeSet, VecDeque};

/// Checks of one file at most. If they do not suffice, all kernels of a part that fails count as failing: a mistake in
/// code that all instantiations share, most likely.
const MAX_CHECKS: usize = 32;

/// Finds the failing kernels of every file with errors by halving.
pub(super) fn find_failing(files: &mut [Opened], jobs: usize) -> Result<()> {
    let tasks: Vec<(usize, &Library, Vec<&str>)> = files
        .iter()
        .enumerate()
        .filter(|(_, (_, checked))| checked.errors() > 0)
        .filter_map(|(file, (opened, _))| Some((file, opened.as_ref()?)))
        .map(|(file, (library, names))| (file, library, names.iter().map(String::as_str).collect()))
        .collect();
    let progress = Progress::new("searching", tasks.len());
    let found = in_parallel(jobs, &tasks, |(_, library, names)| {
        let failing = failing(names, |part| match library.check(part) {
            // What is known of the rest stays true.
            Ok(()) | Err(Error::Toolchain { .. }) => Ok(true),
            Err(Error::Compile { .. } | Error::Launch { .. } | Error::Unsupported { .. }) => {
                Ok(false)
            }
            Err(error) => Err(error),
        });
        progress.step(1);
        failing
    });
    let found: Vec<_> = tasks.iter().map(|(file, ..)| *file).zip(found).collect();
    for (file, failing) in found {
        files[file].1.failed.extend(failing?);
    }
    Ok(())
}

fn failing<E>(
    names: &[&str],
    mut is_correct: impl FnMut(&[&str]) -> Result<bool, E>,
) -> Result<BTreeSet<String>, E> {
    let mut failing = BTreeSet::new();
    let mut pending = VecDeque::from([names]);
    let mut checks = 0;
    while let Some(part) = pending.pop_front() {
        if checks < MAX_CHECKS {
            checks += 1;
            if is_correct(part)? {
                continue;
            }
            if part.len() > 1 {
                let (left, right) = part.split_at(part.len() / 2);
                pending.extend([left, right]);
                continue;
            }
        }
        failing.extend(part.iter().map(|name| (*name).to_owned()));
    }
    Ok(failing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_failures_are_found_and_many_are_bounded() {
        let names: Vec<String> = (0..100).map(|i| format!("k{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let found = failing(&names, |part| {
            Ok::<_, ()>(!part.contains(&"k3") && !part.contains(&"k77"))
        });
        assert_eq!(
            found.unwrap().into_iter().collect::<Vec<_>>(),
            ["k3", "k77"]
        );
        let mut checks = 0;
        let found = failing(&names, |_| {
            checks += 1;
            Ok::<_, ()>(false)
        });
        assert_eq!(found.unwrap().len(), 100);
        assert_eq!(checks, MAX_CHECKS);
    }
}
