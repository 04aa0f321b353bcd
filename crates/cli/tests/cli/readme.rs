//! The README's commands do what it says.

use crate::harness::command;
use std::path::Path;

/// The `bessemer` commands of the README, continued lines joined, with what its comments say.
fn commands(readme: &str) -> Vec<(Vec<String>, String)> {
    let joined = readme.replace("\\\n", " ");
    joined
        .lines()
        .filter(|line| line.starts_with("bessemer "))
        .map(|line| {
            let (call, comment) = line.split_once(" #").unwrap_or((line, ""));
            let words = call.split_whitespace().skip(1).map(str::to_owned);
            (words.collect(), comment.trim().to_owned())
        })
        .collect()
}

#[test]
fn every_command_of_the_readme_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let commands = commands(&readme);
    assert!(commands.len() >= 4, "{commands:?}");
    for (words, comment) in commands {
        let output = command().args(&words).current_dir(&root).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let shown = format!("bessemer {}\n{stdout}{stderr}", words.join(" "));
        if comment.contains("a data race") {
            assert_eq!(output.status.code(), Some(1), "{shown}");
            assert!(stdout.contains("race.metal:10:"), "{shown}");
        } else {
            assert_eq!(output.status.code(), Some(0), "{shown}");
        }
    }
}
