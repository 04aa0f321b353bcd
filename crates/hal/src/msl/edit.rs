//! Edits of the preprocessed text, and the map from columns of the result back to the user's columns.
//!
//! Line structure is preserved: an edit never adds or removes a newline or a line marker, so clang's line numbers
//! are the user's.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::token_stream::TokenStream;

/// Replacements of byte ranges. If two overlap, the one that starts first (then the longer one) wins.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    list: Vec<Edit>,
    sorted: bool,
}

#[derive(Debug, Clone)]
struct Edit {
    range: Range<usize>,
    text: String,
}

impl Edits {
    pub(crate) fn replace(&mut self, range: Range<usize>, text: impl Into<String>) {
        self.sorted = false;
        self.list.push(Edit {
            range,
            text: text.into(),
        });
    }

    pub(crate) fn insert(&mut self, at: usize, text: impl Into<String>) {
        self.replace(at..at, text);
    }

    /// Deletes text, but keeps its newlines and line markers.
    pub(crate) fn delete(&mut self, source: &TokenStream<'_>, range: Range<usize>) {
        self.replace_lines(source, range, String::new());
    }

    /// Replaces text with one line, followed by the newlines and line markers of the old text.
    pub(crate) fn replace_lines(
        &mut self,
        source: &TokenStream<'_>,
        range: Range<usize>,
        mut text: String,
    ) {
        let old = source.text.get(range.clone()).unwrap_or_default();
        let mut lines = old.split('\n');
        lines.next();
        for line in lines {
            text.push('\n');
            if line.trim_start().starts_with('#') {
                text.push_str(line);
            }
        }
        self.replace(range, text);
    }

    /// Sorts the edits; required before [`Edits::render`].
    pub(crate) fn sort(&mut self) {
        if !self.sorted {
            self.list.sort_by_key(|edit| {
                // Insertions come before replacements; then the longer edit comes first.
                let Range { start, end } = edit.range;
                (start, start != end, Reverse(end))
            });
            self.sorted = true;
        }
    }

    /// The edited text of a byte range on one line, without markers.
    pub(crate) fn render(&self, source: &TokenStream<'_>, range: Range<usize>) -> String {
        let mut out = String::new();
        let mut at = range.start;
        let first = self
            .list
            .partition_point(|edit| edit.range.start < range.start);
        for edit in &self.list[first..] {
            if edit.range.start >= range.end {
                break;
            }
            if edit.range.start < at || edit.range.end > range.end {
                continue;
            }
            out.push_str(source.text.get(at..edit.range.start).unwrap_or_default());
            out.push_str(&edit.text);
            at = edit.range.end;
        }
        out.push_str(source.text.get(at..range.end).unwrap_or_default());
        one_line(&out)
    }

    /// Applies all edits to the whole text.
    pub(crate) fn apply(&mut self, source: &TokenStream<'_>) -> (String, ColumnMap) {
        self.sort();
        let mut writer = EditWriter {
            source,
            out: String::with_capacity(source.text.len() + source.text.len() / 8),
            lines: vec![Vec::new()],
            out_line: 0,
            in_line: 0,
        };
        let mut at = 0;
        for edit in &self.list {
            if edit.range.start < at {
                continue;
            }
            writer.verbatim(at..edit.range.start);
            writer.edited(edit);
            at = edit.range.end;
        }
        writer.verbatim(at..source.text.len());
        let map = ColumnMap::new(source, &writer.lines);
        (writer.out, map)
    }
}

/// Joins text to one line: runs of white space become one space, markers are dropped.
pub(crate) fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split('\n') {
        if line.trim_start().starts_with('#') {
            continue;
        }
        for word in line.split_ascii_whitespace() {
            if !out.is_empty() {
                out.push(' ');
            }
            out.push_str(word);
        }
    }
    out
}

struct EditWriter<'s, 'a> {
    source: &'s TokenStream<'a>,
    out: String,
    /// For every line of the output: (output column, input column) wherever the offset changes.
    lines: Vec<Vec<(u32, u32)>>,
    /// Start of the current line in the output and in the input.
    out_line: usize,
    in_line: usize,
}

impl EditWriter<'_, '_> {
    fn push(&mut self, text: &str) {
        let start = self.out.len();
        self.out.push_str(text);
        for (i, _) in text.bytes().enumerate().filter(|&(_, b)| b == b'\n') {
            self.lines.push(Vec::new());
            self.out_line = start + i + 1;
        }
    }

    fn consume(&mut self, range: &Range<usize>) {
        let text = &self.source.text.as_bytes()[range.clone()];
        if let Some(newline) = text.iter().rposition(|&b| b == b'\n') {
            self.in_line = range.start + newline + 1;
        }
    }

    fn verbatim(&mut self, range: Range<usize>) {
        let text = self.source.text.get(range.clone()).unwrap_or_default();
        self.push(text);
        self.consume(&range);
    }

    fn edited(&mut self, edit: &Edit) {
        if !edit.text.contains('\n') {
            self.mark(edit.range.start);
        }
        self.push(&edit.text);
        self.consume(&edit.range);
        self.mark(edit.range.end);
    }

    /// Records that the end of the output corresponds to byte `at` of the input.
    fn mark(&mut self, at: usize) {
        let point = (
            column(self.out.len(), self.out_line),
            column(at, self.in_line),
        );
        if let Some(line) = self.lines.last_mut() {
            line.push(point);
        }
    }
}

fn column(at: usize, line_start: usize) -> u32 {
    u32::try_from(at.saturating_sub(line_start) + 1).unwrap_or(u32::MAX)
}

/// Maps `(file, line, column of the C++ text)` to the column that the user wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnMap {
    files: HashMap<String, HashMap<u32, Vec<(u32, u32)>>>,
}

impl ColumnMap {
    fn new(source: &TokenStream<'_>, lines: &[Vec<(u32, u32)>]) -> Self {
        let mut map = Self::default();
        for (segments, &(file, line)) in lines.iter().zip(&source.lines) {
            if segments.is_empty() {
                continue;
            }
            let name = source.files.get(file as usize).cloned().unwrap_or_default();
            // A macro may map several lines of the text to one line of the file; the first is used.
            map.files
                .entry(name)
                .or_default()
                .entry(line)
                .or_insert_with(|| segments.clone());
        }
        map
    }

    /// The user's column for a column of the C++ text, both in bytes from 1.
    pub fn original(&self, file: &str, line: u32, column: u32) -> u32 {
        let Some(segments) = self.files.get(file).and_then(|lines| lines.get(&line)) else {
            return column;
        };
        let next = segments.partition_point(|&(out, _)| out <= column);
        let Some(&(out, original)) = next.checked_sub(1).and_then(|i| segments.get(i)) else {
            return column;
        };
        let moved = original.saturating_add(column - out);
        // Inside replaced text, columns map to its start or, at most, to what follows.
        match segments.get(next) {
            Some(&(_, limit)) => moved.min(limit.max(original)),
            None => moved,
        }
    }
}
