//! Finds the failing kernels of a file by bisection, because many kernels are checked in one compilation.

use std::collections::{BTreeSet, VecDeque};

use anyhow::Result;
use bessemer_hal::{Error, Library};

use super::Opened;
use crate::msl::parallel::{Progress, in_parallel};

/// Maximum number of checks of one file. Beyond it, all kernels of a failing chunk count as failing: the error is most
/// likely in code that all instantiations share.
const MAX_CHECKS: usize = 32;

/// Finds the failing kernels of every file with errors.
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
        let failing = failing(names, |chunk| match library.check(chunk) {
            // A compiler failure says nothing about these kernels.
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
    while let Some(chunk) = pending.pop_front() {
        if checks < MAX_CHECKS {
            checks += 1;
            if is_correct(chunk)? {
                continue;
            }
            if chunk.len() > 1 {
                let (left, right) = chunk.split_at(chunk.len() / 2);
                pending.extend([left, right]);
                continue;
            }
        }
        failing.extend(chunk.iter().map(|name| (*name).to_owned()));
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
        let found = failing(&names, |chunk| {
            Ok::<_, ()>(!chunk.contains(&"k3") && !chunk.contains(&"k77"))
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
