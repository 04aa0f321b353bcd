//! Prints the public API of a crate, one item per line, from the JSON that rustdoc wrote: `bessemer-public-api FILE.json`.
//!
//! The implementation of a trait is one line: its methods are the trait's. Blanket implementations and auto traits are left
//! out, and so is everything that is `#[doc(hidden)]`, which rustdoc does not write.

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::process::ExitCode;

use serde::Deserialize;

#[derive(Deserialize)]
struct Header {
    format_version: u32,
}

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: bessemer-public-api FILE.json");
        return ExitCode::FAILURE;
    };
    match list(&path) {
        Ok(lines) => {
            for line in lines {
                println!("{line}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{path}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn list(path: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let Header { format_version } = serde_json::from_str(&fs::read_to_string(path)?)?;
    let expected = rustdoc_types::FORMAT_VERSION;
    if format_version != expected {
        return Err(format!(
            "rustdoc wrote format {format_version}, this program reads format {expected}: change the versions in \
             tools/public-api/Cargo.toml to those that read {format_version}"
        )
        .into());
    }
    let api = public_api::Builder::from_rustdoc_json(path)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build()?;

    // The associated types of each implementation of a trait.
    let mut trait_impls = HashMap::new();
    for item in api.items() {
        if self_type(&item.to_string()).is_some() {
            trait_impls.insert(item.id(), Vec::new());
        }
    }
    let mut lines = Vec::new();
    for item in api.items() {
        let line = item.to_string();
        if let Some(types) = item.parent_id().and_then(|id| trait_impls.get_mut(&id)) {
            let path_and_type = line
                .strip_prefix("pub type ")
                .and_then(|rest| rest.split_once(" = "));
            if let Some((path, associated)) = path_and_type {
                let name = path.rsplit("::").next().unwrap_or(path);
                types.push(format!("{name} = {associated}"));
            }
        } else if !is_plain_impl(&line) && !line.contains("core::marker::StructuralPartialEq") {
            lines.push((item.id(), line));
        }
    }
    let mut lines: Vec<String> = lines
        .into_iter()
        .map(|(id, line)| match trait_impls.get(&id) {
            Some(types) if !types.is_empty() => format!("{line} {{ {} }}", types.join(", ")),
            _ => line,
        })
        .collect();
    lines.sort_by_cached_key(|line| (item_path(line), is_impl(line), line.clone()));
    lines.dedup();
    Ok(lines)
}

fn is_impl(line: &str) -> bool {
    line.starts_with("impl") || line.starts_with("unsafe impl")
}

/// The type in `impl Trait for Type`.
fn self_type(line: &str) -> Option<&str> {
    let at = line.rfind(" for ").filter(|_| is_impl(line))?;
    Some(&line[at + " for ".len()..])
}

/// Tells `impl Type`, which says nothing, from `impl<T: Bound> Type<T>`. A type may have many.
fn is_plain_impl(line: &str) -> bool {
    line.starts_with("impl ") && self_type(line).is_none()
}

/// The path of an item, or of the type that an `impl` is for, without generics. Sorted by it, a type is followed by what
/// belongs to it.
fn item_path(line: &str) -> Vec<String> {
    const QUALIFIERS: [&str; 17] = [
        "#[non_exhaustive]",
        "pub",
        "unsafe",
        "const",
        "async",
        "impl",
        "fn",
        "struct",
        "enum",
        "mod",
        "trait",
        "type",
        "use",
        "static",
        "macro",
        "union",
        "mut",
    ];
    let mut plain = String::new();
    let mut depth = 0;
    for c in self_type(line).unwrap_or(line).chars() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let words = plain
        .split([' ', '(', ';'])
        .map(|word| word.trim_start_matches(['&', '[']));
    let mut items = words
        .filter(|word| !word.is_empty() && !word.starts_with('\'') && !QUALIFIERS.contains(word));
    let path = items
        .next()
        .unwrap_or_default()
        .trim_end_matches([':', ']']);
    path.split("::").map(str::to_owned).collect()
}
