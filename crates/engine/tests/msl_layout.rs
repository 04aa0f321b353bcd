//! Rules for shared definitions: structs that kernels share with the host come from `msl_struct!`, and function
//! constants are identified by name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(path)
}

/// The files below a folder with one of these endings, with their contents.
fn files(folder: &Path, endings: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the crate") {
        let path = entry.expect("an entry").path();
        let name = path.display().to_string();
        if path.is_dir() {
            found.extend(files(&path, endings));
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push((name, fs::read_to_string(&path).expect("a text")));
        }
    }
    found
}

fn host() -> Vec<(String, String)> {
    let mut all = files(&source("metal"), &[".rs"]);
    all.extend(files(&source("decoder"), &[".rs"]));
    for file in ["metal.rs", "decoder.rs"] {
        let text = fs::read_to_string(source(file)).expect("a text");
        all.push((file.to_owned(), text));
    }
    all
}

fn kernels() -> Vec<(String, String)> {
    files(&source("metal/msl"), &[".metal", ".h"])
}

/// The word at the beginning of a text.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

/// Names of the structs that `msl_struct!` defines.
fn shared() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, text) in host() {
        for block in text.split("msl_struct! {\n").skip(1) {
            let (_, rest) = block.split_once("struct ").expect("a struct");
            names.insert(word(rest).to_owned());
        }
    }
    assert!(names.len() > 40, "the macro is found: {names:?}");
    names
}

#[test]
fn structs_with_a_fixed_layout_come_from_the_macro() {
    for (file, text) in host() {
        let allowed = usize::from(file.ends_with("metal/msl_struct.rs"));
        let found = text
            .lines()
            .filter(|line| line.trim() == "#[repr(C)]")
            .count();
        assert!(found <= allowed, "{file}: use msl_struct!");
    }
}

#[test]
fn kernels_do_not_redefine_shared_structs() {
    let shared = shared();
    for (file, text) in kernels() {
        for line in text.lines() {
            if let Some(rest) = line.trim_start().strip_prefix("struct ") {
                let name = word(rest);
                assert!(!shared.contains(name), "{file}: include \"host/{name}.h\"");
            }
        }
    }
}

#[test]
fn structs_in_constant_memory_are_shared() {
    let shared = shared();
    for (file, text) in kernels() {
        for (at, _) in text.match_indices("constant ") {
            let rest = &text[at + "constant ".len()..];
            let name = word(rest);
            let is_argument = rest[name.len()..].starts_with(['&', '*']);
            // Type parameters are one letter.
            let is_struct = name.len() > 1 && name.starts_with(|c: char| c.is_ascii_uppercase());
            if is_argument && is_struct {
                assert!(
                    shared.contains(name),
                    "{file}: define {name} by msl_struct!"
                );
            }
        }
    }
}

#[test]
fn every_shared_struct_is_included_and_defined() {
    let mut shared = shared();
    let mut used = BTreeSet::new();
    for (_, text) in kernels() {
        for rest in text.split("#include \"host/").skip(1) {
            used.insert(word(rest).to_owned());
        }
    }
    assert!(used.is_subset(&shared), "{used:?}");
    shared.retain(|name| !used.contains(name));
    assert!(shared.is_empty(), "no kernel includes {shared:?}");
}

#[test]
fn function_constants_are_named_not_numbered() {
    let mut all = kernels();
    all.extend(files(&source("metal/fused"), &[".rs"]));
    for (file, text) in all {
        for rest in text.split("function_constant(").skip(1) {
            let numbered = rest.starts_with(|c: char| c.is_ascii_digit());
            assert!(!numbered, "{file}: declare FUNCTION_CONSTANT(type, NAME)");
        }
    }
}
