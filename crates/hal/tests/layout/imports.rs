//! The order of imports: `std`, then external crates, then this crate; groups are separated by an empty line.

use super::{read, root, sources};

/// The groups of imports, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Std,
    External,
    Local,
}

impl Group {
    /// The group of an import that starts with this name; `None` for the variants of an enum.
    fn of(first: &str) -> Option<Self> {
        match first {
            "std" | "core" | "alloc" => Some(Self::Std),
            "crate" | "self" | "super" => Some(Self::Local),
            _ if first.starts_with(char::is_uppercase) => None,
            _ => Some(Self::External),
        }
    }
}

/// The first name of the private import on a line, and its indentation.
fn import(line: &str) -> Option<(&str, usize)> {
    let rest = line.trim_start();
    let path = rest.strip_prefix("use ")?.trim_start_matches("::");
    let end = path.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    Some((&path[..end], line.len() - rest.len()))
}

/// Lines of a file with imports that are out of order. Reexports may stand on their own.
fn problems(text: &str) -> Vec<usize> {
    let is_own = |name: &str| {
        let declared = [format!("mod {name};"), format!("mod {name} {{")];
        let mut lines = text.lines().map(str::trim);
        lines.any(|l| declared.iter().any(|d| l.ends_with(d.as_str())))
    };
    let mut found = Vec::new();
    let mut previous: Option<(Group, usize)> = None;
    let (mut gap, mut continues) = (false, false);
    for (number, line) in (1..).zip(text.lines()) {
        if continues {
            continues = !line.contains(';');
        } else if let Some((name, indent)) = import(line) {
            continues = !line.contains(';');
            let Some(group) = Group::of(name) else {
                continue;
            };
            if let Some((before, same)) = previous
                && same == indent
                && (group < before || (group != before && !gap))
            {
                found.push(number);
            }
            if group == Group::External && is_own(name) {
                // `self::` says that it is a module of this file.
                found.push(number);
            }
            previous = Some((group, indent));
            gap = false;
        } else if line.trim().is_empty() {
            gap = true;
        } else if !line.trim_start().starts_with(['#', '/']) {
            previous = None;
            gap = false;
        }
    }
    found
}

#[test]
fn imports_are_std_then_external_crates_then_this_crate() {
    let mut all = Vec::new();
    for file in sources() {
        let found = problems(&read(&root().join(&file)));
        all.extend(found.iter().map(|line| format!("{file}:{line}")));
    }
    assert!(
        all.is_empty(),
        "std, external crates, then crate, self and super, with an empty line between: {all:#?}"
    );
}

#[test]
fn imports_out_of_order_are_found() {
    let ordered =
        "use std::fmt;\n\nuse bytemuck::Pod;\n\nuse self::a::B;\nuse crate::{\n    c,\n};\n";
    assert_eq!(problems(ordered), [0; 0]);
    assert_eq!(problems("use crate::a;\n\nuse std::fmt;\n"), [3]);
    assert_eq!(problems("use std::fmt;\nuse crate::a;\n"), [2]);
    assert_eq!(problems("use bytemuck::Pod;\n\nuse std::fmt;\n"), [3]);
    assert_eq!(problems("    use super::*;\n    use std::fmt;\n"), [2]);
    assert_eq!(problems("mod a;\nuse a::B;\n"), [2]);
    // Another scope, and the variants of an enum.
    assert_eq!(
        problems("use crate::a;\nfn f() {\n    use std::fmt;\n}\n"),
        [0; 0]
    );
    assert_eq!(
        problems("use super::*;\nuse Access::{Read, Write};\n"),
        [0; 0]
    );
}
