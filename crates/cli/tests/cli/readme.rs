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
            let words = words(call).into_iter().skip(1);
            (words.collect(), comment.trim().to_owned())
        })
        .collect()
}

/// The words of a command; what is between quotes is one.
fn words(call: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (i, part) in call.split('"').enumerate() {
        match i % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// Commands that are about models: they use what was pulled, and may write files.
const MODELS: [&str; 6] = [
    "generate",
    "perplexity",
    "pull",
    "models",
    "inspect",
    "quantize",
];

#[test]
fn every_command_of_the_readme_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let commands = commands(&readme);
    assert!(commands.len() >= 4, "{commands:?}");
    for (words, comment) in commands {
        let desk = tempfile::tempdir().unwrap();
        let mut command = command();
        if MODELS.contains(&&*words[0]) {
            let models = bessemer_llm::pull::directory().unwrap();
            command.env("BESSEMER_CACHE_DIR", models.parent().unwrap());
            let beginning: String = readme.chars().take(1000).collect();
            std::fs::write(desk.path().join("README.md"), beginning).unwrap();
            command.current_dir(desk.path());
        } else {
            command.current_dir(&root);
        }
        let output = command.args(&words).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let shown = format!("bessemer {}\n{stdout}{stderr}", words.join(" "));
        if comment.contains("a data race") {
            assert_eq!(output.status.code(), Some(3), "{shown}");
            assert!(stdout.contains("race.metal:10:"), "{shown}");
        } else {
            assert_eq!(output.status.code(), Some(0), "{shown}");
        }
        if words[0] == "generate" {
            assert!(stdout.contains("Berlin"), "{shown}");
        }
    }
}
