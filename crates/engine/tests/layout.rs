//! Naming rules: op X is `ops/x.rs`, `cpu/x.rs`, `metal/x.rs`, `metal/msl/x.metal` and `tests/ops/x.rs`.
//!
//! `for_each_op!` lists the ops with a kernel, declares their modules and embeds the MSL files: a missing one does not
//! compile. These tests check what the compiler does not.
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use std::fs;
use std::path::{Path, PathBuf};

/// The modules of the ops with a kernel, each with its file of MSL kernels.
macro_rules! kernels {
    ($($(#[$doc:meta])* $module:ident::$name:ident $($boxed:ident)? $(=> $msl:ident)?,)*) => {
        const KERNELS: &[(&str, &str)] =
            &[$((stringify!($module), [$(stringify!($msl),)? stringify!($module)][0])),*];
    };
}

bessemer::for_each_op!(kernels);

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(path: &str) -> String {
    fs::read_to_string(folder(path)).unwrap()
}

/// The names of the `.rs` files in a folder.
fn names(path: &str) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder(path))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter_map(|n| n.strip_suffix(".rs").map(str::to_owned))
        .collect();
    names.sort();
    names
}

#[test]
fn every_op_with_a_kernel_has_all_its_files() {
    assert!(KERNELS.len() > 30);
    for (op, msl) in KERNELS {
        for path in [
            format!("src/ops/{op}.rs"),
            format!("src/cpu/{op}.rs"),
            format!("src/metal/{op}.rs"),
            format!("src/metal/msl/{msl}.metal"),
            format!("tests/ops/{op}.rs"),
        ] {
            assert!(folder(&path).exists(), "{op} lacks {path}");
        }
    }
}

#[test]
fn ops_refer_to_another_msl_file_only_if_they_have_none() {
    for (op, msl) in KERNELS {
        let own = folder(&format!("src/metal/msl/{op}.metal"));
        assert_eq!(op == msl, own.exists(), "{op}");
    }
}

#[test]
fn every_op_has_a_test_file() {
    let tests = names("tests/ops");
    let missing: Vec<_> = names("src/ops")
        .into_iter()
        .filter(|op| !["alias", "argument"].contains(&&**op) && !tests.contains(op))
        .collect();
    assert!(missing.is_empty(), "tests/ops lacks {missing:?}");
    let binary = read("tests/ops/main.rs");
    for test in tests.iter().filter(|t| *t != "main") {
        let listed = KERNELS.iter().any(|(op, _)| op == test);
        assert!(
            listed || binary.contains(&format!("mod {test};")),
            "tests/ops/main.rs lacks {test}"
        );
    }
}

#[test]
fn no_other_file_lists_the_ops() {
    for path in [
        "src/ops.rs",
        "src/cpu.rs",
        "src/metal.rs",
        "src/dispatch.rs",
        "tests/ops/main.rs",
    ] {
        let text = read(path);
        for (op, _) in KERNELS {
            assert!(!text.contains(&format!("mod {op};")), "{path} lists {op}");
        }
    }
}

/// The Rust files in a folder, recursively.
fn files(path: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder(path)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            files.extend(self::files(&format!("{path}/{name}")));
        } else if name.ends_with(".rs") {
            files.push(entry.path());
        }
    }
    files
}

#[test]
fn the_graph_the_ops_and_the_programs_are_device_independent() {
    let mut paths = Vec::new();
    for name in ["compile", "graph", "ops", "program"] {
        paths.push(folder(&format!("src/{name}.rs")));
        paths.extend(files(&format!("src/{name}")));
    }
    assert!(paths.len() > 50);
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            // `use crate::{cpu, …}` reaches a backend as well as `cpu::…` does.
            let import = line.starts_with("use crate::");
            let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            let imported = words
                .filter(|w| import && ["cpu", "metal"].contains(w))
                .count()
                > 0;
            let named = ["is_cpu", "metal_backend", "cpu::", "metal::"]
                .iter()
                .any(|name| line.contains(name));
            assert!(
                !named && !imported,
                "{}:{} names a device: `{}`; ask its `Capabilities` or go through `dispatch`",
                path.display(),
                number + 1,
                line.trim()
            );
        }
    }
}

/// The number that a line compares with, if it is written as a power of ten.
fn compared_literal(line: &str) -> Option<&str> {
    let literal = |rest: &str| {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || ".e-".contains(c)));
        end.unwrap_or(rest.len())
    };
    line.match_indices('<').find_map(|(at, _)| {
        let rest = line[at + 1..].trim_start_matches('=').trim_start();
        let found = &rest[..literal(rest)];
        (found.contains("e-") && found.parse::<f64>().is_ok()).then_some(found)
    })
}

#[test]
fn tests_compare_within_the_bounds_of_the_tables() {
    for path in files("tests") {
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            assert_eq!(
                compared_literal(line),
                None,
                "{}:{}: bounds are in crates/testing/src/tolerance.rs, or in tolerance/bound.rs with a reason",
                path.display(),
                number + 1
            );
        }
    }
    assert_eq!(
        compared_literal(&["assert!(off <", " 1e-5);"].concat()),
        Some("1e-5")
    );
    assert_eq!(
        compared_literal("x.rms_norm(&w, 1e-5) < bound::F32_SUM"),
        None
    );
}

#[test]
fn the_hunks_of_the_page_about_adding_an_op_are_in_the_code() {
    let page = read("../../docs/adding-an-op.md");
    let mut lines = 0;
    for hunk in page.split("```diff\n").skip(1) {
        let (hunk, _) = hunk.split_once("\n```").unwrap();
        let (file, hunk) = hunk.split_once('\n').unwrap();
        let text = read(&format!("../../{}", file.strip_prefix("+++ ").unwrap()));
        let is_head = |line: &&str| line.starts_with("@@");
        for line in hunk.lines().filter(|line| !is_head(line)) {
            // Added lines and context alike.
            let line = &line[1..];
            assert!(text.lines().any(|l| l == line), "{file} lacks `{line}`");
            lines += 1;
        }
    }
    assert!(lines > 20);
}
