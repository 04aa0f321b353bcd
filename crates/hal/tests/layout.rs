//! Repository rules that no compiler checks.
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

#[path = "layout/imports.rs"]
mod imports;
#[path = "layout/links.rs"]
mod links;
#[path = "layout/systems.rs"]
mod systems;
#[path = "layout/words.rs"]
mod words;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bessemer_hal::env::{TEST_VARIABLES, VARIABLES, Variable};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate is two directories below the root")
        .to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// All Rust files of the crates, sorted, relative to the root.
fn sources() -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![root().join("crates")];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let relative = path.strip_prefix(root()).unwrap();
                found.push(relative.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn every_file_with_unsafe_code_is_listed() {
    let list = read(&root().join("docs/unsafe.md"));
    let mark = ["unsafe", "_code,"].concat();
    let unlisted: Vec<_> = sources()
        .into_iter()
        .filter(|f| read(&root().join(f)).contains(&mark))
        .filter(|f| !list.contains(&format!("| `{f}`")))
        .collect();
    assert!(unlisted.is_empty(), "docs/unsafe.md lacks {unlisted:#?}");
}

#[test]
fn the_unsafe_list_names_only_files_that_exist() {
    for line in read(&root().join("docs/unsafe.md")).lines() {
        if let Some(rest) = line.strip_prefix("| `") {
            let file = rest.split('`').next().unwrap();
            assert!(root().join(file).exists(), "docs/unsafe.md names {file}");
        }
    }
}

#[test]
fn every_row_of_the_systems_table_has_a_state_and_a_test_if_done() {
    let page = read(&root().join("docs/systems.md"));
    let problems = systems::problems(&page, &|file| fs::read_to_string(root().join(file)).ok());
    assert!(problems.is_empty(), "docs/systems.md: {problems:#?}");
}

#[test]
fn no_module_file_has_a_vague_name() {
    const VAGUE_FILE_NAMES: [&str; 5] =
        ["mod.rs", "base.rs", "utils.rs", "common.rs", "helpers.rs"];
    let hidden: Vec<_> = sources()
        .into_iter()
        .filter(|f| {
            VAGUE_FILE_NAMES
                .iter()
                .any(|name| f.ends_with(&format!("/{name}")))
        })
        .collect();
    assert!(hidden.is_empty(), "{hidden:#?}");
}

#[test]
fn crates_depend_in_one_direction() {
    // Every crate with the workspace crates that it may use.
    let allowed = [
        ("hal", &[][..]),
        // `bessemer-testing` only for its tests.
        ("engine", &["bessemer-hal", "bessemer-testing"]),
        ("compat", &["bessemer", "bessemer-hal"]),
        ("testing", &["bessemer"]),
        ("llm", &["bessemer"]),
        (
            "cli",
            &[
                "bessemer",
                "bessemer-compat",
                "bessemer-hal",
                "bessemer-llm",
            ],
        ),
        ("bench", &["bessemer", "bessemer-hal", "bessemer-llm"]),
    ];
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().file_name().to_string_lossy().into_owned();
        let Some((_, allowed)) = allowed.iter().find(|(name, _)| *name == folder) else {
            panic!("crates/{folder} has no line in this test");
        };
        let manifest = read(&root().join("crates").join(&folder).join("Cargo.toml"));
        for line in manifest.lines() {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if name.starts_with("bessemer") {
                assert!(allowed.contains(&name), "crates/{folder} depends on {name}");
            }
        }
    }
}

#[test]
fn the_page_of_environment_variables_is_that_of_the_code() {
    let table = |variables: &[Variable]| {
        let rows = variables.iter().map(|v| {
            format!(
                "| `{}` | {} | {} | {} |\n",
                v.name, v.meaning, v.values, v.default
            )
        });
        rows.collect::<String>()
    };
    let page = read(&root().join("docs/environment.md"));
    for variables in [VARIABLES, TEST_VARIABLES] {
        let table = table(variables);
        assert!(page.contains(&table), "docs/environment.md lacks\n{table}");
    }
    let rows = page.lines().filter(|l| l.starts_with("| `")).count();
    assert_eq!(rows, VARIABLES.len() + TEST_VARIABLES.len());
}

#[test]
fn no_file_names_an_environment_variable_that_is_not_in_the_table() {
    let known = |name: &str| {
        let mut all = VARIABLES.iter().chain(TEST_VARIABLES);
        // Those are variables of a single test.
        all.any(|v| v.name == name) || name.starts_with("BESSEMER_TEST_")
    };
    let mut files = sources();
    // These have names that are wrong on purpose.
    files.retain(|f| !f.ends_with("hal/src/env.rs") && !f.ends_with("engine/tests/environment.rs"));
    for folder in [
        "docs",
        "scripts",
        ".ci",
        ".github/workflows",
        "examples/metal-ci",
    ] {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        let paths = entries.map(|e| e.unwrap().path()).filter(|p| p.is_file());
        let relative = |p: PathBuf| {
            p.strip_prefix(root())
                .unwrap()
                .to_string_lossy()
                .into_owned()
        };
        files.extend(paths.map(relative));
    }
    files.extend(["README.md", "CONTRIBUTING.md"].map(str::to_owned));
    let mut unknown = Vec::new();
    for file in files {
        let text = read(&root().join(&file));
        for (start, _) in text.match_indices("BESSEMER_") {
            let rest = &text[start..];
            let end =
                rest.find(|c: char| !(c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit()));
            let name = &rest[..end.unwrap_or(rest.len())];
            // A name that goes on in lower case, or a prefix, is no variable.
            if name != "BESSEMER_" && !known(name) {
                unknown.push(format!("{file}: {name}"));
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn a_build_without_the_feature_does_not_depend_on_tracing() {
    let tree = {
        let output = Command::new(env!("CARGO"))
            .args([
                "tree",
                "--locked",
                "--offline",
                "-e",
                "normal",
                "--prefix",
                "none",
            ])
            .args(["-p", "bessemer-cli"])
            .current_dir(root())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(
        tree.contains("bessemer-hal ") && !tree.contains("\ntracing"),
        "{tree}"
    );
    // The feature exists, under the name that is looked for.
    let manifest = read(&root().join("Cargo.toml"));
    assert!(manifest.contains("\ntracing = ") && manifest.contains("\ntracing-subscriber = "));
}

/// The commands of a script, each on one line, without comments.
fn script(name: &str) -> Vec<String> {
    let text = read(&root().join(name)).replace("\\\n", " ");
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

/// Returns whether a script has a command with all of these words.
fn runs(script: &[String], words: &[&str]) -> bool {
    let has = |line: &String| words.iter().all(|word| line.contains(word));
    script.iter().any(has)
}

/// CI type-checks code for other systems with scripts that no test can run here. This tests that the scripts check all
/// packages, stop at an error, and are run.
#[test]
fn apple_code_is_compiled_for_macos_and_ios() {
    let check = script("scripts/apple-check");
    let clippy = ["cargo-clippy", "-Zbuild-std", "-D warnings"];
    let checks = |words: &[&str]| runs(&check, &[&clippy[..], words].concat());
    assert!(checks(&["--workspace", "--target aarch64-apple-darwin"]));
    assert!(checks(&[
        "--package bessemer-hal",
        "--target aarch64-apple-ios"
    ]));
    assert!(runs(&check, &["set -euo pipefail"]));
    assert!(runs(&script(".ci/run"), &["scripts/apple-check"]));
    // The driver itself must be compiled there.
    let library = read(&root().join("crates/hal/src/lib.rs"));
    assert!(library.contains("target_vendor = \"apple\""));
}

#[test]
fn libraries_and_the_command_are_compiled_for_windows() {
    let check = script("scripts/windows-check");
    let clippy = ["cargo-clippy", "-Zbuild-std", "-D warnings"];
    let packages = ["bessemer-hal", "bessemer", "bessemer-llm", "bessemer-cli"];
    let packages = packages.map(|name| format!("--package {name} "));
    let words: Vec<_> = packages.iter().map(String::as_str).collect();
    assert!(runs(&check, &[&clippy[..], &words].concat()));
    assert!(runs(&check, &["target=x86_64-pc-windows-msvc"]));
    assert!(runs(&check, &["set -euo pipefail"]));
    assert!(runs(&script(".ci/run"), &["scripts/windows-check"]));
}

#[cfg(unix)]
#[test]
fn scripts_refuse_an_unknown_value_of_long_tests() {
    for name in ["scripts/test", "scripts/apple-check", ".ci/run"] {
        // Without this line the script would go on for an hour.
        assert!(runs(&script(name), &["check_long_tests"]), "{name}");
        let output = Command::new(root().join(name))
            .env("BESSEMER_LONG_TESTS", "yes")
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && message.contains("must be 1, part or unset"),
            "{name}: {output:?}"
        );
    }
}
