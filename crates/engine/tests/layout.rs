//! The law of names: op X is `ops/x.rs`, `cpu/x.rs`, `metal/x.rs`, `metal/msl/x.metal` and `tests/ops/x.rs`.
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use std::fs;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The modules of `ops.rs` that declare an op with a kernel.
fn kernels() -> Vec<String> {
    let text = fs::read_to_string(folder("src/ops.rs")).unwrap();
    let list = text.split("\nops! {").nth(1).unwrap();
    let list = list.split("\n}").next().unwrap();
    let lines = list
        .lines()
        .map(str::trim)
        .filter(|l| !l.starts_with("///"));
    let mut modules: Vec<_> = lines
        .filter_map(|l| Some(l.split_once("::")?.0.to_owned()))
        .collect();
    modules.dedup();
    modules
}

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
fn every_op_with_a_kernel_has_a_file_of_its_name_for_its_kernel() {
    // An alias copies nothing, so there is nothing to run.
    let missing: Vec<_> = kernels()
        .into_iter()
        .filter(|m| m != "alias" && !folder(&format!("src/cpu/{m}.rs")).exists())
        .collect();
    assert!(missing.is_empty(), "src/cpu lacks {missing:?}");
}

#[test]
fn every_op_with_a_kernel_has_files_of_its_name_for_metal() {
    // The kernels of joined ops are written when they are met, of functions in the files of single ones; a
    // packed matrix is multiplied by the kernels of matmul; where the extreme is, is a fold of reduce, and orders
    // are kept by sort.
    let written = ["fused", "packed_matmul", "arg_reduce", "arg_sort", "top_k"];
    for m in kernels().iter().filter(|m| *m != "alias") {
        let path = folder(&format!("src/metal/{m}.rs"));
        assert!(path.exists(), "src/metal lacks {m}.rs");
        let path = folder(&format!("src/metal/msl/{m}.metal"));
        assert!(
            path.exists() || written.contains(&m.as_str()),
            "src/metal/msl lacks {m}.metal"
        );
    }
}

#[test]
fn every_op_has_a_file_of_its_name_for_its_tests() {
    let tests = names("tests/ops");
    let missing: Vec<_> = names("src/ops")
        .into_iter()
        .filter(|op| op != "alias" && !tests.contains(op))
        .collect();
    assert!(missing.is_empty(), "tests/ops lacks {missing:?}");
    let binary = fs::read_to_string(folder("tests/ops.rs")).unwrap();
    for test in tests {
        assert!(
            binary.contains(&format!("mod {test};")),
            "tests/ops.rs lacks {test}"
        );
    }
}

#[test]
fn only_dispatch_knows_the_kernels_of_ops() {
    for op in names("src/ops") {
        let text = fs::read_to_string(folder(&format!("src/ops/{op}.rs"))).unwrap();
        for backend in ["cpu::", "metal::"] {
            assert!(!text.contains(backend), "src/ops/{op}.rs names {backend}");
        }
    }
}
