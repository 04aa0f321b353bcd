//! Tests the commands of the README and of pages in docs/.

use std::path::{Path, PathBuf};

use crate::harness::{TestDir, example, program_example};

/// The `bessemer` commands of a page, with continued lines joined, and their comments.
fn commands(page: &str) -> Vec<(Vec<String>, String)> {
    let joined = page.replace("\\\n", " ");
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

/// Splits a command into words; a quoted text is one word.
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

/// Commands for models: they use pulled models, and may write files.
const MODEL_COMMANDS: [&str; 6] = [
    "generate",
    "perplexity",
    "pull",
    "models",
    "inspect",
    "quantize",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs the commands of a page for models, or the others.
fn run_page(name: &str, for_models: bool) {
    let page = std::fs::read_to_string(root().join(name)).unwrap();
    let commands: Vec<_> = commands(&page)
        .into_iter()
        .filter(|(words, _)| MODEL_COMMANDS.contains(&&*words[0]) == for_models)
        .collect();
    assert!(commands.len() >= 4, "{commands:?}");
    // Commands may read files written by earlier ones.
    let test_dir = TestDir::new();
    let beginning: String = page.chars().take(1000).collect();
    test_dir.write("README.md", beginning.as_bytes());
    for (folder, path) in [("msl", example("")), ("program", program_example(""))] {
        for entry in std::fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let contents = std::fs::read(&path).unwrap();
            test_dir.write(&format!("examples/{folder}/{name}"), &contents);
        }
    }
    for (words, comment) in commands {
        let mut command = test_dir.command();
        if for_models {
            let models = bessemer_llm::pull::directory().unwrap();
            command.env("BESSEMER_CACHE_DIR", models.parent().unwrap());
        }
        let output = command.args(&words).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let shown = format!("bessemer {}\n{stdout}{stderr}", words.join(" "));
        let is_race = comment.contains("a data race");
        let code = if is_race { 3 } else { 0 };
        assert_eq!(output.status.code(), Some(code), "{shown}");
        let locations = ["race.metal:10:", "race.metal,line=10,"];
        assert_eq!(
            is_race,
            locations.iter().any(|p| stdout.contains(p)),
            "{shown}"
        );
        if words[0] == "generate" {
            assert!(stdout.contains("Berlin"), "{shown}");
        }
    }
}

#[test]
fn commands_of_the_readme_about_models_run() {
    run_page("README.md", true);
}

#[test]
fn commands_of_the_readme_about_kernels_run() {
    run_page("README.md", false);
}

#[test]
fn commands_of_the_ci_page_run() {
    run_page("docs/metal-ci.md", false);
}

#[test]
fn commands_of_the_page_about_programs_run() {
    run_page("docs/program-command.md", false);
}

#[test]
fn the_test_on_the_ci_page_passes() {
    let page = std::fs::read_to_string(root().join("docs/metal-ci.md")).unwrap();
    let (_, block) = page.split_once("```toml\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let test_dir = TestDir::with("page.toml", block);
    let kernel = std::fs::read(example("reduce.metal")).unwrap();
    test_dir.write("reduce.metal", &kernel);
    let result = test_dir.bessemer("msl test page.toml").exits(0);
    assert!(result.stdout.contains("1 passed, 0 failed"), "{result:?}");
}

/// The value of `name: value # comment` in a workflow.
fn workflow_value<'a>(workflow: &'a str, name: &str) -> &'a str {
    let mut lines = workflow.lines().map(str::trim);
    let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap().split(" #").next().unwrap()
}

#[test]
fn the_workflow_of_the_ci_example_passes_and_fails_for_a_race() {
    let files = [
        ".github/workflows/metal-kernels.yml",
        "kernels/row_max.metal",
        "tests/row_max.toml",
    ];
    let [workflow, kernel, test] = files
        .map(|file| std::fs::read_to_string(root().join("examples/metal-ci").join(file)).unwrap());
    let test_dir = TestDir::with(files[1], &kernel);
    test_dir.write(files[2], test.as_bytes());
    let steps: Vec<String> = workflow
        .lines()
        .filter_map(|line| line.trim().strip_prefix("run: bessemer "))
        .map(|step| {
            step.replace("\"$KERNELS\"", workflow_value(&workflow, "KERNELS"))
                .replace("\"$TESTS\"", workflow_value(&workflow, "TESTS"))
        })
        .collect();
    assert_eq!(steps.len(), 2, "{steps:?}");
    for step in &steps {
        test_dir.bessemer(step).exits(0);
    }
    let barrier = "    threadgroup_barrier(mem_flags::mem_threadgroup);\n";
    assert!(kernel.contains(barrier));
    test_dir.write(files[1], kernel.replace(barrier, "").as_bytes());
    let result = test_dir.bessemer(&steps[1]).exits(3);
    assert!(result.stdout.contains("race"), "{result:?}");
}
