//! Lines of a source, by the file and number that `#line` directives give them.

use std::collections::HashMap;

/// Lines of a source text as the compiler numbers them.
///
/// Without directives these are the lines of one file. Text that was generated around a user's code names that code's
/// own lines by `#line` directives, and messages about it quote those.
#[derive(Debug, Default)]
pub(crate) struct SourceLines {
    files: HashMap<String, HashMap<u32, String>>,
}

impl SourceLines {
    /// Indexes a text that begins at line 1 of a file.
    pub(crate) fn new(file: &str, text: &str) -> Self {
        let mut lines = Self::default();
        let (mut file, mut number) = (file.to_owned(), 1_u32);
        lines.files.entry(file.clone()).or_default();
        for line in text.lines() {
            if let Some((next, name)) = directive(line) {
                number = next;
                if let Some(name) = name {
                    file = name.to_owned();
                }
                continue;
            }
            // The first line of a number stays: generated text may use one again.
            let of_file = match lines.files.get_mut(&file) {
                Some(known) => known,
                None => lines.files.entry(file.clone()).or_default(),
            };
            of_file.entry(number).or_insert_with(|| line.to_owned());
            number = number.saturating_add(1);
        }
        lines
    }

    /// Returns whether the text has lines of a file.
    pub(crate) fn has_file(&self, file: &str) -> bool {
        self.files.contains_key(file)
    }

    /// The line with this number, from 1.
    pub(crate) fn get(&self, file: &str, line: u32) -> Option<&str> {
        Some(self.files.get(file)?.get(&line)?.as_str())
    }
}

/// Parses `#line 7` and `#line 7 "file"`.
fn directive(line: &str) -> Option<(u32, Option<&str>)> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start();
    let rest = rest.strip_prefix("line")?;
    let number = rest.strip_prefix([' ', '\t'])?.trim_start();
    let end = number
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(number.len());
    let (number, rest) = number.split_at(end);
    let name = rest
        .trim()
        .strip_prefix('"')
        .and_then(|n| n.split('"').next());
    Some((number.parse().ok()?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_from_one() {
        let lines = SourceLines::new("a.metal", "one\ntwo");
        assert_eq!(lines.get("a.metal", 2), Some("two"));
        for (file, line) in [("a.metal", 0), ("a.metal", 3), ("b.metal", 1)] {
            assert_eq!(lines.get(file, line), None, "{file}:{line}");
        }
        assert!(lines.has_file("a.metal") && !lines.has_file("b.metal"));
    }

    #[test]
    fn directives_change_the_file_and_the_number() {
        let text = "generated\n#line 1 \"body\"\nmine\n  # line 7\nseventh\n#line 1 \"a\"\nagain";
        let lines = SourceLines::new("a", text);
        assert_eq!(lines.get("a", 1), Some("generated"));
        assert_eq!(lines.get("body", 1), Some("mine"));
        assert_eq!(lines.get("body", 7), Some("seventh"));
        assert_eq!(lines.get("a", 2), None);
    }

    #[test]
    fn other_lines_are_no_directives() {
        for line in ["#line", "#line x", "#linear 1", "#pragma line 1", "line 1"] {
            assert_eq!(directive(line), None, "{line}");
        }
    }
}
