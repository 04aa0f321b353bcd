//! Messages with an excerpt of the source.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use anstyle::Style;

use crate::terminal::style;

/// Maximum number of characters of a line that are shown.
const MAX_LINE_CHARS: usize = 160;
/// Maximum size of a file that is read for an excerpt.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Texts of the files that messages point into, read once.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    files: BTreeMap<String, Option<Vec<String>>>,
}

/// A message and its location. Line and column count from 1; line 0 is an unknown location, column 0 the whole line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) file: &'a str,
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// `error`, `warning`, `race`, …
    pub(crate) kind: &'a str,
    pub(crate) style: Style,
    pub(crate) text: &'a str,
}

impl Sources {
    /// Adds a text under a name, for sources that are not files.
    pub(crate) fn insert(&mut self, name: &str, text: &str) {
        let lines = text.lines().map(str::to_owned).collect();
        self.files.insert(name.to_owned(), Some(lines));
    }

    /// Returns a line by its number, from 1.
    pub(crate) fn line(&mut self, file: &str, line: u32) -> Option<&str> {
        let lines = self
            .files
            .entry(file.to_owned())
            .or_insert_with(|| read_lines(Path::new(file)));
        let index = usize::try_from(line).ok()?.checked_sub(1)?;
        lines.as_ref()?.get(index).map(String::as_str)
    }

    /// Writes `file:line:column: kind: text`, the line, and a caret under the column.
    pub(crate) fn write(&mut self, out: &mut impl Write, message: Message<'_>) -> io::Result<()> {
        let Message {
            file,
            line,
            column,
            kind,
            style: colour,
            text,
        } = message;
        let location = match (line, column) {
            (0, _) if file.is_empty() => String::new(),
            (0, _) => format!("{file}: "),
            (_, 0) => format!("{file}:{line}: "),
            _ => format!("{file}:{line}:{column}: "),
        };
        let bold = style::STRONG;
        writeln!(
            out,
            "{bold}{location}{bold:#}{colour}{kind}{colour:#}: {text}"
        )?;
        let Some(source) = self.line(file, line) else {
            return Ok(());
        };
        let (shown, caret) = excerpt(source, column);
        let quiet = style::QUIET;
        writeln!(out, "{quiet}{line:>5} |{quiet:#} {shown}")?;
        if let Some(caret) = caret {
            let accent = style::GOOD;
            writeln!(
                out,
                "{quiet}      |{quiet:#} {:caret$}{accent}^{accent:#}",
                ""
            )?;
        }
        Ok(())
    }
}

fn read_lines(path: &Path) -> Option<Vec<String>> {
    let size = std::fs::metadata(path).ok().filter(|m| m.is_file())?.len();
    if size > MAX_FILE_BYTES {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    Some(text.lines().map(str::to_owned).collect())
}

/// Returns the part of a line around a column (in bytes, from 1), with tabs as four spaces and control characters
/// as `?`, and the number of spaces before the caret.
fn excerpt(line: &str, column: u32) -> (String, Option<usize>) {
    let mut shown: Vec<char> = Vec::new();
    let mut caret = None;
    let target = usize::try_from(column).ok().and_then(|c| c.checked_sub(1));
    for (offset, c) in line.char_indices() {
        if target.is_some_and(|t| offset <= t && t < offset + c.len_utf8()) {
            caret = Some(shown.len());
        }
        match c {
            '\t' => shown.extend([' '; 4]),
            c if c.is_control() => shown.push('?'),
            c => shown.push(c),
        }
    }
    if caret.is_none() && target == Some(line.len()) {
        caret = Some(shown.len());
    }
    if shown.len() <= MAX_LINE_CHARS {
        return (shown.into_iter().collect(), caret);
    }
    let start = caret.unwrap_or(0).saturating_sub(MAX_LINE_CHARS / 2);
    let start = start.min(shown.len() - MAX_LINE_CHARS);
    let text = shown[start..start + MAX_LINE_CHARS].iter().collect();
    (text, caret.map(|c| c - start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(message: Message<'_>, source: &str) -> String {
        let mut sources = Sources::default();
        sources.insert("k.metal", source);
        let mut out = Vec::new();
        sources.write(&mut out, message).unwrap();
        anstream::adapter::strip_str(std::str::from_utf8(&out).unwrap()).to_string()
    }

    fn message(line: u32, column: u32) -> Message<'static> {
        Message {
            file: "k.metal",
            line,
            column,
            kind: "error",
            style: Style::new(),
            text: "no",
        }
    }

    #[test]
    fn the_caret_is_under_the_column() {
        assert_eq!(
            written(message(2, 3), "a\n\tx = é;\n"),
            "k.metal:2:3: error: no\n    2 |     x = é;\n      |      ^\n"
        );
    }

    #[test]
    fn unknown_locations_are_omitted() {
        assert_eq!(written(message(9, 1), "a"), "k.metal:9:1: error: no\n");
        assert_eq!(written(message(0, 0), "a"), "k.metal: error: no\n");
        assert_eq!(
            written(message(1, 0), "a"),
            "k.metal:1: error: no\n    1 | a\n"
        );
        assert_eq!(
            written(message(1, 99), "a"),
            "k.metal:1:99: error: no\n    1 | a\n"
        );
    }

    #[test]
    fn long_lines_are_cut_around_the_caret() {
        let line = "x".repeat(1000) + "!" + &"y".repeat(1000);
        let (shown, caret) = excerpt(&line, 1001);
        assert_eq!(shown.len(), MAX_LINE_CHARS);
        assert_eq!(&shown[caret.unwrap()..=caret.unwrap()], "!");
        assert_eq!(excerpt("\u{1b}[31m", 1), ("?[31m".to_owned(), Some(0)));
    }
}
