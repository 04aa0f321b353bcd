//! `msl check --summary`, including compiler failures.
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt as _;

use crate::harness::{RunOutput, TestDir};

const GOOD_SOURCE: &[u8] = b"kernel void one(device int* p [[buffer(0)]]) { p[0] = 1; }\n\
    kernel void two(device int* p [[buffer(0)]]) { p[0] = 2; }\n";

/// A directory with a file for every reason of rejection.
fn collection() -> TestDir {
    let test_dir = TestDir::new();
    test_dir.write("kernels/good.metal", GOOD_SOURCE);
    test_dir.write("kernels/sub/header.h", b"#define ONE 1\n");
    test_dir.write(
        "kernels/sub/own.metal",
        b"#include \"header.h\"\nkernel void k(device int* p [[buffer(0)]]) { p[0] = ONE; }",
    );
    test_dir.write("kernels/alone.metal", b"#include \"header.h\"\n");
    test_dir.write(
        "kernels/wrong.metal",
        b"kernel void k(device int* p [[buffer(0)]]) { p[0] = none; }",
    );
    test_dir.write(
        "kernels/double.metal",
        b"kernel void k(device float* p [[buffer(0)]]) { double x = 1; p[0] = x; }",
    );
    test_dir.write(
        "kernels/trace.metal",
        b"#include <metal_stdlib>\nusing namespace metal;\n\
          kernel void k(raytracing::intersector<> i [[buffer(0)]]) {}",
    );
    test_dir
}

#[test]
fn a_directory_is_counted_with_the_reasons() {
    let test_dir = collection();
    let json = test_dir
        .bessemer("msl check kernels --summary --json")
        .exits(1)
        .json();
    assert_eq!(json["exit_code"], 1);
    let files = &json["files"];
    assert_eq!(
        [&files["total"], &files["accepted"], &files["rejected"]],
        [6, 2, 4],
        "{json}"
    );
    assert_eq!(json["kernels"]["accepted"], 3, "{json}");
    let reason = |file: &str| {
        let rejected = json["rejected"].as_array().unwrap();
        let found = rejected.iter().find(|r| r["file"] == file);
        found.unwrap_or_else(|| panic!("{file}: {json}"))["reason"].clone()
    };
    assert_eq!(reason("kernels/alone.metal"), "missing include");
    assert_eq!(reason("kernels/wrong.metal"), "error");
    assert_eq!(reason("kernels/trace.metal"), "unsupported: ray tracing");
    let refused = reason("kernels/double.metal");
    assert_eq!(refused, "error: rejected by Apple's compiler");
    let reasons = json["reasons"].as_array().unwrap();
    let counted: u64 = reasons.iter().map(|r| r["files"].as_u64().unwrap()).sum();
    assert_eq!(counted, 4);

    // With the include directory, one more file compiles.
    let result = test_dir
        .bessemer("msl check kernels --summary -I kernels/sub")
        .exits(1);
    let rows: Vec<Vec<&str>> = result
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[1], ["files", "6", "3", "3"], "{result:?}");
    assert!(
        result.stdout.contains("unsupported: ray tracing"),
        "{result:?}"
    );
    test_dir
        .bessemer("msl check kernels --summary --format sarif")
        .exits(2);
}

#[test]
fn failing_instantiations_are_counted_one_by_one() {
    let mut source = String::from(
        "template <typename T> kernel void first(device T* in [[buffer(0)]]) { in[0] = in[1].x; }\n",
    );
    for i in 0..40 {
        let scalar = if i % 20 == 3 { "float" } else { "float2" };
        source += &format!(
            "template [[host_name(\"k{i}\")]] kernel void first<{scalar}>(device {scalar}*);\n"
        );
    }
    let test_dir = TestDir::with("many.metal", &source);
    let json = test_dir
        .bessemer("msl check many.metal --summary --quick --json")
        .exits(1)
        .json();
    assert_eq!(json["kernels"]["total"], 40, "{json}");
    assert_eq!(json["kernels"]["rejected"], 2, "{json}");
}

/// A fake compiler that runs `failure` for sources that contain `word`.
fn failing_compiler(test_dir: &TestDir, word: &str, failure: &str) -> std::path::PathBuf {
    let dir = test_dir.path("texts");
    std::fs::create_dir_all(&dir).unwrap();
    let dir = dir.display();
    let script = format!(
        "#!/bin/sh
for name in \"$REAL_CLANG\" clang++-20 clang++-19 clang++-18 clang++-17 clang++; do
    real=$(command -v \"$name\") && break
done
case \"$*\" in *--version*) exec \"$real\" --version;; esac
text=$(mktemp -p {dir})
cat > \"$text\"
grep -q {word} \"$text\" && {failure}
\"$real\" \"$@\" < \"$text\"
"
    );
    test_dir.write("clang++", script.as_bytes());
    let path = test_dir.path("clang++");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Runs a command with [`failing_compiler`].
fn run_failing(test_dir: &TestDir, word: &str, failure: &str, line: &str) -> RunOutput {
    let mut command = test_dir.command();
    if let Some(clang) = std::env::var_os("BESSEMER_CLANG") {
        command.env("REAL_CLANG", clang);
    }
    command.env("BESSEMER_CLANG", failing_compiler(test_dir, word, failure));
    command.env("BESSEMER_CACHE_DIR", test_dir.path("cache"));
    let output = command.args(line.split_whitespace()).output().unwrap();
    RunOutput::from(output).exits(4)
}

#[test]
fn a_compiler_that_fails_on_one_file_does_not_end_the_rest() {
    let test_dir = TestDir::new();
    test_dir.write(
        "kernels/a_slow.metal",
        b"kernel void slow(device int* p [[buffer(0)]]) { p[0] = 1; }",
    );
    test_dir.write("kernels/good.metal", GOOD_SOURCE);
    test_dir.write("kernels/wrong.metal", b"kernel void k() { none(); }");
    for (failure, reason) in [
        ("kill -XCPU $$", "time limit of the compiler"),
        ("kill -9 $$", "compiler failed"),
    ] {
        let run = |line: &str| run_failing(&test_dir, "slow", failure, line);
        let json = run("msl check kernels --summary --json").json();
        assert_eq!(json["exit_code"], 4, "{json}");
        assert_eq!(json["files"]["accepted"], 1, "{json}");
        assert_eq!(json["rejected"][0]["reason"], reason, "{json}");
        assert_eq!(json["rejected"][1]["reason"], "error", "{json}");

        let json = run("msl check kernels --json").json();
        assert_eq!(json["exit_code"], 4, "{json}");
        assert_eq!(json["files"][0]["failures"].as_array().unwrap().len(), 1);
        assert_eq!(json["diagnostics"][0]["file"], "kernels/wrong.metal");
        let result = run("msl check kernels");
        let message = "kernels/a_slow.metal: compiler failed: ";
        assert!(result.stdout.contains(message), "{result:?}");
        let closing = "the compiler failed on 1 file";
        assert!(result.stdout.contains(closing), "{result:?}");
        let result = run("msl check kernels --format github");
        assert!(
            result
                .stdout
                .contains("::error title=bessemer::kernels/a_slow.metal: ")
        );
    }
}

#[test]
fn unchecked_kernels_are_not_accepted() {
    let kernels: String = (0..40)
        .map(|i| format!("kernel void k{i}(device int* p [[buffer(0)]]) {{ p[0] = 1; }}\n"))
        .collect();
    let test_dir = TestDir::with("many.metal", &kernels);
    // The pragma that ends the user's warnings is only in the text when kernels are checked.
    let line = "msl check many.metal --summary --quick --json";
    let json = run_failing(&test_dir, "Weverything", "kill -9 $$", line).json();
    assert_eq!(json["kernels"]["total"], 40, "{json}");
    assert_eq!(json["kernels"]["accepted"], 0, "{json}");
}
