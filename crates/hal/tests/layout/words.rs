//! Rules of names and words: the glossary of CONTRIBUTING.md, as far as a test can check it.
//!
//! The lists contain only words without a legitimate use here. To ban another word, name or type, extend its list.

use std::collections::BTreeMap;
use std::process::Command;

use super::{read, root, sources};

/// Words and phrases that must not occur, in lower case. Each has an equivalent in the glossary.
const BANNED_PHRASES: &[&str] = &[
    "anew",
    "bend",
    "bends",
    "bent",
    "foretell",
    "foretells",
    "foretold",
    "go together",
    "goes together",
    "is no good",
    "lately",
    "lies across",
    "on its way",
    "on their way",
    "serves nobody",
    "somebody",
    "tame",
    "tamed",
    "tames",
    "truth value",
    "truth values",
    "whoever",
];

/// Names that say nothing about what a constant counts, or in which unit.
const BANNED_CONSTANT_NAMES: &[&str] = &[
    "AHEAD", "BLOCK", "BUSY", "EACH", "ENOUGH", "EXTRA", "FEW", "HELD", "LARGE", "LATELY", "LEAST",
    "LINE", "LONG", "LONGEST", "MANY", "MOST", "NARROW", "NEAR", "PART", "PLAIN", "ROOM", "SHARED",
    "SHORT", "SMALL", "STRETCH", "TASK", "TOGETHER", "USUAL", "WHOLE", "WIDE", "WIDEST", "WOVEN",
];

/// Last words of constants that lack a unit: of alignments, sizes and limits somebody asks "in what?".
const BANNED_LAST_WORDS: &[&str] = &[
    "ALIGN",
    "ALIGNMENT",
    "BATCH",
    "CAPACITY",
    "COST",
    "COUNT",
    "INTERLEAVED",
    "LENGTH",
    "LIMIT",
    "LISTED",
    "PITCH",
    "SIZE",
    "WORK",
];

/// Type names that a crate defines more than once, because it is one idea each time: package, name, reason.
const SHARED_TYPE_NAMES: &[(&str, &str, &str)] = &[
    ("crates/bench", "Options", "the arguments of each command"),
    ("crates/engine", "CallMemory", "one for each backend"),
    ("crates/engine", "ConvProblem", "one for each backend"),
    (
        "crates/engine",
        "Signature",
        "of what is called: a traced function, a custom kernel",
    ),
    (
        "crates/engine",
        "Input",
        "of an op, and the same on a Metal device",
    ),
    (
        "crates/engine",
        "Output",
        "of an op, and the same on a Metal device",
    ),
    (
        "crates/hal",
        "Argument",
        "of a kernel, in the source and in its pipeline",
    ),
    (
        "crates/hal",
        "ArgumentKind",
        "of a kernel, in the source and in its pipeline",
    ),
    (
        "crates/hal",
        "Buffer",
        "the front's type, the driver's trait and its implementations",
    ),
    (
        "crates/hal",
        "Device",
        "the front's type, the driver's trait and its implementations",
    ),
    (
        "crates/hal",
        "Library",
        "the front's type, the driver's trait and its implementations",
    ),
    ("crates/hal", "Matrix", "the front's type and the driver's"),
    (
        "crates/hal",
        "Pipeline",
        "the front's type, the driver's trait and its implementations",
    ),
    ("crates/hal", "Prepared", "one for each driver"),
    ("crates/hal", "Queue", "one for each driver"),
    (
        "crates/hal",
        "Residency",
        "the front's type and the driver's",
    ),
    (
        "crates/llm",
        "Options",
        "the options of each module's main call",
    ),
];

/// Paths of files whose names are those of another specification: the instruction set of programs.
const EXEMPT_NAME_PATHS: &[&str] = &["/program"];

fn is_exempt(file: &str) -> bool {
    EXEMPT_NAME_PATHS.iter().any(|path| file.contains(path))
}

/// Files that may contain banned words: history, and the rules themselves.
const EXEMPT_FILES: &[&str] = &[
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "crates/hal/tests/layout/words.rs",
];

/// Extensions of the checked files.
const CHECKED_EXTENSIONS: [&str; 4] = ["rs", "metal", "h", "md"];

/// Tracked files with a checked extension, relative to the root; without git, the Rust files of the crates.
fn checked_files() -> Vec<String> {
    let git = Command::new("git")
        .arg("ls-files")
        .current_dir(root())
        .output();
    let files = match git {
        Ok(output) if output.status.success() => {
            let list = String::from_utf8(output.stdout).expect("file names are UTF-8");
            list.lines().map(str::to_owned).collect()
        }
        _ => sources(),
    };
    let is_checked = |file: &String| {
        let extension = file.rsplit('.').next().unwrap_or_default();
        // A tracked file may have been deleted in the working tree.
        CHECKED_EXTENSIONS.contains(&extension)
            && !EXEMPT_FILES.contains(&file.as_str())
            && root().join(file).exists()
    };
    files.into_iter().filter(is_checked).collect()
}

/// The words of a text in lower case, with their lines; `_` separates words, so that identifiers are checked too.
fn words(text: &str) -> Vec<(String, usize)> {
    let mut words = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let parts = line.split(|c: char| !c.is_alphanumeric());
        words.extend(
            parts
                .filter(|w| !w.is_empty())
                .map(|w| (w.to_lowercase(), number)),
        );
    }
    words
}

/// Lines of a text with the banned phrases in them. A phrase may continue on the next line.
fn banned_phrases(text: &str) -> Vec<(usize, &'static str)> {
    let words = words(text);
    let mut found = Vec::new();
    for phrase in BANNED_PHRASES {
        let phrase_words: Vec<&str> = phrase.split(' ').collect();
        for window in words.windows(phrase_words.len()) {
            if window
                .iter()
                .map(|(word, _)| word.as_str())
                .eq(phrase_words.iter().copied())
            {
                found.push((window[0].1, *phrase));
            }
        }
    }
    found
}

/// The name that a line defines after one of these keywords: `const`, `struct`, …
fn defined_name<'a>(line: &'a str, keywords: &[&str]) -> Option<&'a str> {
    let mut words = line
        .split_whitespace()
        .skip_while(|word| word.starts_with("pub"));
    // `pub(in a::b)` has a second word.
    let keyword = words.find(|word| !word.ends_with(')'))?;
    let name = words.next()?;
    let end = name
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(name.len());
    keywords.contains(&keyword).then_some(&name[..end])
}

#[test]
fn no_file_contains_words_outside_the_glossary() {
    let mut problems = Vec::new();
    for file in checked_files() {
        for (line, phrase) in banned_phrases(&read(&root().join(&file))) {
            problems.push(format!("{file}:{line}: {phrase}"));
        }
    }
    assert!(
        problems.is_empty(),
        "see the glossary in CONTRIBUTING.md: {problems:#?}"
    );
}

/// Whether a constant has a name that says neither what it counts nor in which unit.
fn is_vague(line: &str) -> bool {
    let Some(name) = defined_name(line, &["const", "static"]) else {
        return false;
    };
    // A duration has its unit in its type.
    let is_number = NUMBER_TYPES
        .iter()
        .any(|ty| line.contains(&format!("{name}: {ty} =")));
    let last = name.rsplit('_').next().unwrap_or_default();
    BANNED_CONSTANT_NAMES.contains(&name) || (is_number && BANNED_LAST_WORDS.contains(&last))
}

/// Types of numbers without a unit.
const NUMBER_TYPES: [&str; 10] = [
    "usize", "isize", "u8", "u16", "u32", "u64", "i32", "i64", "f32", "f64",
];

#[test]
fn constants_are_named_after_what_they_count() {
    let mut problems = Vec::new();
    for file in checked_files().iter().filter(|file| file.ends_with(".rs")) {
        for (number, line) in (1..).zip(read(&root().join(file)).lines()) {
            if is_vague(line) && !is_exempt(file) {
                problems.push(format!("{file}:{number}: {}", line.trim()));
            }
        }
    }
    assert!(
        problems.is_empty(),
        "a constant says of what it is the limit, length or threshold, and in which unit: {problems:#?}"
    );
}

/// The package of a source file whose types count; `None` for tests.
fn package_of_types(file: &str) -> Option<&str> {
    let (package, path) = file.split_once("/src/")?;
    let is_test = path.contains("tests/") || path.ends_with("tests.rs");
    (!is_test && !is_exempt(file) && file.ends_with(".rs")).then_some(package)
}

/// The locations of the types that the modules of each package define; those inside of functions and of test modules
/// are indented, and do not count.
fn type_definitions() -> BTreeMap<(String, String), Vec<String>> {
    let mut definitions: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for file in checked_files() {
        let Some(package) = package_of_types(&file) else {
            continue;
        };
        for (number, line) in (1..).zip(read(&root().join(&file)).lines()) {
            let name = defined_name(line, &["struct", "enum", "union", "trait", "type"]);
            if let Some(name) = name.filter(|_| !line.starts_with(' ')) {
                let key = (package.to_owned(), name.to_owned());
                definitions
                    .entry(key)
                    .or_default()
                    .push(format!("{file}:{number}"));
            }
        }
    }
    definitions.retain(|_, locations| locations.len() > 1);
    definitions
}

#[test]
fn type_names_are_defined_once_per_crate() {
    let mut definitions = type_definitions();
    for (package, name, _) in SHARED_TYPE_NAMES {
        let shared = definitions.remove(&((*package).to_owned(), (*name).to_owned()));
        assert!(
            shared.is_some(),
            "{package} defines {name} once: remove it from the list"
        );
    }
    assert!(
        definitions.is_empty(),
        "a type name stands for one idea in a crate: {definitions:#?}"
    );
}

#[test]
fn phrases_are_found_in_identifiers_and_across_lines() {
    let text = "fn range_is_tame() {}\n/// A name.\n/// The work on\n/// its way.\nTamed, untamed";
    let expected = [(3, "on its way"), (1, "tame"), (5, "tamed")];
    assert_eq!(banned_phrases(text), expected);
}

#[test]
fn names_are_found_after_their_visibility() {
    let constant = |line| defined_name(line, &["const"]);
    assert_eq!(constant("    const FEW: usize = 4;"), Some("FEW"));
    assert_eq!(constant("pub(super) const FEW: usize = 4;"), Some("FEW"));
    assert_eq!(constant("pub(in a::b) const FEW: usize = 4;"), Some("FEW"));
    assert_eq!(constant("// const FEW"), None);
    assert_eq!(constant("let few = FEW;"), None);
    assert_eq!(
        defined_name("pub struct Row<'a> {", &["struct"]),
        Some("Row")
    );
}

#[test]
fn constants_without_a_unit_are_vague() {
    assert!(is_vague("const FEW: usize = 4;"));
    assert!(is_vague("    pub(crate) const MAX_LINE_LENGTH: usize = 4;"));
    assert!(!is_vague("const MAX_LINE_CHARS: usize = 4;"));
    assert!(!is_vague(
        "const DEFAULT_LIMIT: Duration = Duration::from_secs(60);"
    ));
    assert!(!is_vague("let LIMIT: usize = 4;"));
}
