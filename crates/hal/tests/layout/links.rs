//! The pages of the documentation name files, packages, tests and commands that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{read, root, sources};

/// Documentation pages, relative to the root. The changelog is history: it names what was there then.
fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    for folder in ["docs", "examples/metal-ci", ".github"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().to_string_lossy().into_owned();
            if name.ends_with(".md") {
                pages.push(format!("{folder}/{name}"));
            }
        }
    }
    pages.sort();
    pages
}

/// The targets of the links of a page, `[text](target)`, without those to other sites.
fn links(page: &str) -> impl Iterator<Item = &str> {
    page.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.contains("://") && !target.contains('\n'))
}

/// The anchor of a heading, as forges make it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The text between backticks, and the lines of blocks of code.
fn code(page: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (i, block) in page.split("```").enumerate() {
        if i % 2 == 1 {
            found.extend(block.lines().skip(1));
        } else {
            found.extend(block.split('`').skip(1).step_by(2));
        }
    }
    found
}

/// Folders at the root that documentation names paths in.
const ROOT_FOLDERS: [&str; 9] = [
    ".ci/",
    ".github/",
    "bench/",
    "crates/",
    "docs/",
    "examples/",
    "fuzz/",
    "scripts/",
    "tools/",
];

/// The paths of the repository in a piece of code: words that start with one of its folders.
fn paths(code: &str) -> impl Iterator<Item = &str> {
    let words = code.split(|c: char| c.is_whitespace() || "\"'(),;=".contains(c));
    words
        .map(|word| {
            word.trim_start_matches("./")
                .trim_end_matches(['.', ':', '/'])
        })
        .filter(|word| ROOT_FOLDERS.iter().any(|folder| word.starts_with(folder)))
        // A pattern, or a placeholder for a name.
        .filter(|word| !word.contains(['*', '<', '>', '$', '{', '…', '|']))
        .filter(|word| !word.contains("/x.") && !word.ends_with("/TARGET"))
        .map(|word| word.split("::").next().unwrap_or(word))
        .map(|word| word.split_once(':').map_or(word, |(path, _)| path))
}

/// Names of the targets and packages of the workspace, by the option of cargo that takes them.
struct Targets {
    packages: BTreeSet<String>,
    tests: BTreeSet<String>,
    examples: BTreeSet<String>,
}

impl Targets {
    fn of_the_workspace() -> Self {
        let mut targets = Self {
            packages: BTreeSet::new(),
            tests: BTreeSet::new(),
            examples: BTreeSet::new(),
        };
        for entry in fs::read_dir(root().join("crates")).unwrap() {
            let folder = entry.unwrap().path();
            let manifest = read(&folder.join("Cargo.toml"));
            let name = manifest.lines().find_map(|l| l.strip_prefix("name = "));
            targets
                .packages
                .extend(name.map(|n| n.trim_matches('"').to_owned()));
            targets.tests.extend(names(&folder.join("tests")));
            targets.examples.extend(names(&folder.join("examples")));
            // Programs and tests with a path of their own.
            let named = manifest.lines().filter_map(|l| l.strip_prefix("name = "));
            targets
                .tests
                .extend(named.map(|n| n.trim_matches('"').to_owned()));
        }
        targets
    }

    /// The options of a cargo command that name nothing.
    fn unknown<'a>(&self, command: &'a str) -> Vec<&'a str> {
        let words: Vec<_> = command.split_whitespace().collect();
        let pairs = words.windows(2).take_while(|pair| pair[0] != "--");
        let is_unknown = |pair: &&[&str]| match pair[0] {
            "-p" | "--package" => !self.packages.contains(pair[1]),
            "--test" => !self.tests.contains(pair[1]),
            "--example" => !self.examples.contains(pair[1]),
            _ => false,
        };
        let unknown = pairs.filter(is_unknown).map(|pair| pair[1]);
        unknown
            .filter(|name| !name.contains(['<', '…', '$']))
            .collect()
    }
}

/// The names of the Rust files in a folder, and of its folders.
fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let name = |e: fs::DirEntry| e.file_name().to_string_lossy().into_owned();
    entries
        .map(|e| name(e.unwrap()))
        .map(|n| n.strip_suffix(".rs").unwrap_or(&n).to_owned())
        .collect()
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = read(&root().join(&page));
        let folder = Path::new(&page).parent().expect("a file").to_owned();
        for target in links(&text) {
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = match path {
                "" => root().join(&page),
                path => root().join(&folder).join(path),
            };
            let has_heading = || {
                let text = read(&file);
                let mut headings = text.lines().filter(|l| l.starts_with('#'));
                headings.any(|l| anchor(l) == heading)
            };
            if !file.exists() || (!heading.is_empty() && !has_heading()) {
                broken.push(format!("{page}: {target}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn paths_in_the_documentation_exist() {
    let mut missing = BTreeSet::new();
    for page in pages() {
        let text = read(&root().join(&page));
        for path in code(&text).into_iter().flat_map(paths) {
            if !root().join(path).exists() {
                missing.insert(format!("{page}: {path}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn cargo_commands_in_the_documentation_name_packages_and_targets_that_exist() {
    let targets = Targets::of_the_workspace();
    let mut unknown = BTreeSet::new();
    for page in pages() {
        let text = read(&root().join(&page));
        for command in code(&text).into_iter().filter(|c| c.contains("cargo ")) {
            let names = targets.unknown(command);
            unknown.extend(names.iter().map(|name| format!("{page}: {name}")));
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
}

#[test]
fn tests_named_in_the_documentation_exist() {
    // `docs/systems.md` has a test of its own, which knows which tests run.
    let all: String = sources()
        .iter()
        .map(|file| read(&root().join(file)))
        .collect();
    let mut missing = BTreeSet::new();
    for page in pages().iter().filter(|page| *page != "docs/systems.md") {
        let text = read(&root().join(page));
        for name in code(&text).into_iter().filter(|c| is_a_sentence(c)) {
            if !all.contains(&format!("fn {name}(")) {
                missing.insert(format!("{page}: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Whether a piece of code looks like the name of a test: a sentence of at least five words.
fn is_a_sentence(code: &str) -> bool {
    let words = code.split('_');
    words.clone().count() >= 5
        && words.clone().all(|w| {
            !w.is_empty()
                && w.chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        })
}

#[test]
fn paths_and_commands_are_found_in_code() {
    let page = "See [a](docs/a.md#b), `crates/y.rs:7` and [c](https://d.e).\n\n```sh\nscripts/test -p bessemer  # all\n```\n";
    assert_eq!(links(page).collect::<Vec<_>>(), ["docs/a.md#b"]);
    assert_eq!(
        code(page),
        ["crates/y.rs:7", "scripts/test -p bessemer  # all"]
    );
    let found: Vec<_> = code(page).into_iter().flat_map(paths).collect();
    assert_eq!(found, ["crates/y.rs", "scripts/test"]);
    assert_eq!(paths("crates/<name>/src docs/*.md").count(), 0);
    assert_eq!(anchor("## The inner loop, `again`"), "the-inner-loop-again");
    assert!(is_a_sentence("links_lead_to_files_that_exist") && !is_a_sentence("two_words"));
    let targets = Targets {
        packages: BTreeSet::from(["a".to_owned()]),
        tests: BTreeSet::from(["b".to_owned()]),
        examples: BTreeSet::new(),
    };
    assert_eq!(
        targets.unknown("cargo test -p a --test b -- --test c"),
        [""; 0]
    );
    assert_eq!(
        targets.unknown("cargo test -p x --test y --example z"),
        ["x", "y", "z"]
    );
}
