//! What clang says, in the user's own words and places.
//!
//! clang compiles text that went through the preprocessor and the rewriter, against headers the user has never
//! seen. Lines survive that way by line markers; columns are led back through the rewriter's column map and then
//! across the blanks and macros that preprocessing changed. Errors inside the headers move to the place in the
//! user's text that led there, notes inside the headers vanish, and types get their Metal names back.

use crate::msl::{ColumnMap, Diagnostic, DiagnosticKind, Severity};
use std::collections::HashMap;
use std::path::Path;

/// Errors that a user will read; more follow from the first ones.
pub(crate) const MAX_ERRORS: usize = 20;
/// Warnings shown of one run.
const MAX_WARNINGS: usize = 100;
/// Notes kept for one error or warning.
const MAX_NOTES: usize = 4;

/// Leads places of the compiled text back to the user's.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    columns: &'a ColumnMap,
    /// Lines of the preprocessed text, by file and line.
    expanded: HashMap<(&'a str, u32), &'a str>,
    label: &'a str,
    source: Vec<&'a str>,
    /// Files other than the main one, as far as they were looked at.
    others: HashMap<String, Option<Vec<String>>>,
}

impl<'a> Places<'a> {
    /// For one library: its file name, its text, and that text preprocessed.
    pub(crate) fn new(
        label: &'a str,
        source: &'a str,
        expanded: &'a str,
        columns: &'a ColumnMap,
    ) -> Self {
        Self {
            columns,
            expanded: lines_by_place(expanded),
            label,
            source: source.lines().collect(),
            others: HashMap::new(),
        }
    }

    /// The line as the user wrote it.
    pub(crate) fn line(&mut self, file: &str, line: u32) -> Option<String> {
        let index = (line as usize).checked_sub(1)?;
        if file == self.label {
            return self.source.get(index).map(|&text| text.to_owned());
        }
        let read = || {
            let text = std::fs::read_to_string(Path::new(file)).ok()?;
            Some(text.lines().map(str::to_owned).collect::<Vec<_>>())
        };
        let other = self.others.entry(file.to_owned()).or_insert_with(read);
        other.as_ref()?.get(index).cloned()
    }

    /// The user's column of a place in the compiled text.
    pub(crate) fn column(&mut self, file: &str, line: u32, column: u32) -> u32 {
        let column = self.columns.original(file, line, column);
        let Some(expanded) = self.expanded.get(&(file, line)).copied() else {
            return column;
        };
        match self.line(file, line) {
            Some(original) => realign(expanded, &original, column),
            None => column,
        }
    }

    /// An error at a place of the compiled text that clang does not call one.
    pub(crate) fn refuse(
        &mut self,
        file: &str,
        line: u32,
        column: u32,
        message: &str,
    ) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            kind: DiagnosticKind::Refused,
            message: clean(message),
            file: file.to_owned(),
            line,
            column: self.column(file, line, column),
            flag: None,
            source_line: self.line(file, line),
        }
    }
}

/// Lines by file and number, from the line markers in the text.
fn lines_by_place(text: &str) -> HashMap<(&str, u32), &str> {
    let mut places = HashMap::new();
    let (mut file, mut number) = ("", 0_u32);
    for line in text.lines() {
        if let Some((at, name)) = marker(line) {
            (file, number) = (name, at);
            continue;
        }
        // A macro may spread one line over several: the first has the tokens the user wrote.
        places.entry((file, number)).or_insert(line);
        number = number.saturating_add(1);
    }
    places
}

/// `# 12 "file" 1` as (12, file).
fn marker(line: &str) -> Option<(u32, &str)> {
    let rest = line.strip_prefix("# ")?;
    let (number, rest) = rest.split_once(' ')?;
    let name = rest.strip_prefix('"')?;
    Some((number.parse().ok()?, &name[..name.rfind('"')?]))
}

/// Finds the token at `column` of `expanded` in `original`: the same token, as often repeated before it. Where
/// a macro hides it, the best guess is the column itself.
fn realign(expanded: &str, original: &str, column: u32) -> u32 {
    if expanded == original {
        return column;
    }
    let at = (column as usize).saturating_sub(1);
    let tokens = tokens(expanded);
    let Some(&(start, token)) = tokens.iter().rev().find(|(start, _)| *start <= at) else {
        return column;
    };
    let before = tokens
        .iter()
        .filter(|(other, text)| *other < start && *text == token)
        .count();
    let found = self::tokens(original)
        .into_iter()
        .filter(|(_, text)| *text == token)
        .nth(before);
    match found {
        Some((place, _)) => {
            let inside = (at - start).min(token.len().saturating_sub(1));
            u32::try_from(place + inside + 1).unwrap_or(column)
        }
        None => column.min(u32::try_from(original.len()).unwrap_or(u32::MAX).max(1)),
    }
}

/// Words and single other characters with their offsets, up to a comment.
fn tokens(line: &str) -> Vec<(usize, &str)> {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let code = &line[..line.find("//").unwrap_or(line.len())];
    let mut found = Vec::new();
    let mut start = None;
    for (at, c) in code.char_indices() {
        if word(c) {
            start.get_or_insert(at);
            continue;
        }
        if let Some(from) = start.take() {
            found.push((from, &code[from..at]));
        }
        if !c.is_whitespace() {
            found.push((at, &code[at..at + c.len_utf8()]));
        }
    }
    if let Some(from) = start {
        found.push((from, &code[from..]));
    }
    found
}

/// Turns clang's text into errors and warnings, each followed by its notes. Without an error where clang says nothing
/// about the program: then it is clang itself that failed.
pub(crate) fn read(stderr: &str, hidden: &[&Path], places: &mut Places<'_>) -> Vec<Diagnostic> {
    let label = places.label;
    let is_hidden = |file: &str| file != label && is_hidden(file, hidden);
    let mut found = Found::default();
    for line in stderr.lines() {
        found.extend(unknown_option(line, label));
    }
    let mut instantiation: Option<Said<'_>> = None;
    for group in groups(stderr) {
        let Some((head, notes)) = group.split_first() else {
            continue;
        };
        if is_hidden(head.file) && head.severity != Severity::Error {
            continue;
        }
        // An error in the headers belongs where the user's text asked for it. clang says where once, for all errors that it
        // finds in one instantiation.
        let place = std::iter::once(head)
            .chain(notes.iter().filter(|n| n.message.starts_with("in ")))
            .chain(notes)
            .find(|said| !is_hidden(said.file))
            .or(instantiation.as_ref())
            .copied();
        instantiation = place.filter(|_| is_hidden(head.file));
        let mut at = |said: &Said<'_>, at: &Said<'_>| {
            let column = places.column(at.file, at.line, at.column);
            let text = places.line(at.file, at.line);
            diagnostic(said, at.file, at.line, column, text)
        };
        let Some(place) = place else {
            found.extend([diagnostic(head, label, 0, 0, None)]);
            continue;
        };
        let head = at(head, &place);
        let notes = notes
            .iter()
            .filter(|note| !is_hidden(note.file) && **note != place)
            .take(MAX_NOTES);
        let notes: Vec<Diagnostic> = notes.map(|note| at(note, note)).collect();
        found.extend(std::iter::once(head).chain(notes));
    }
    found.more_errors |= stderr.contains("too many errors emitted");
    found.finish(label)
}

/// Diagnostics up to a limit.
#[derive(Debug, Default)]
struct Found {
    diagnostics: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
    more_errors: bool,
}

impl Found {
    /// Adds an error or a warning and its notes, unless it is there already: every instantiation of a template repeats it.
    fn extend(&mut self, group: impl IntoIterator<Item = Diagnostic>) {
        let mut group = group.into_iter();
        let Some(head) = group.next() else {
            return;
        };
        if self.diagnostics.contains(&head) {
            return;
        }
        if head.severity == Severity::Error {
            self.errors += 1;
            if self.errors > MAX_ERRORS {
                self.more_errors = true;
                return;
            }
        } else {
            self.warnings += 1;
            if self.warnings > MAX_WARNINGS {
                return;
            }
        }
        self.diagnostics.push(head);
        self.diagnostics.extend(group);
    }

    /// All of them, and what is left out.
    fn finish(mut self, label: &str) -> Vec<Diagnostic> {
        let mut note = |message: String| {
            self.diagnostics.push(Diagnostic {
                severity: Severity::Note,
                kind: DiagnosticKind::Compiler,
                message,
                file: label.to_owned(),
                line: 0,
                column: 0,
                flag: None,
                source_line: None,
            });
        };
        if self.more_errors {
            note(format!("stopped after {MAX_ERRORS} errors"));
        }
        if let Some(more @ 1..) = self.warnings.checked_sub(MAX_WARNINGS) {
            note(format!("{more} more warnings are not shown"));
        }
        self.diagnostics
    }
}

/// What clang says about a warning option that it does not know: that has no place.
fn unknown_option(line: &str, label: &str) -> Option<Diagnostic> {
    let (severity, message) = match line.split_once(": ")? {
        ("warning", message) => (Severity::Warning, message),
        ("error", message) => (Severity::Error, message),
        _ => return None,
    };
    let said = Said {
        severity,
        file: label,
        line: 0,
        column: 0,
        message,
    };
    message
        .starts_with("unknown warning option ")
        .then(|| diagnostic(&said, label, 0, 0, None))
}

/// Whether a file is not the user's.
pub(crate) fn is_hidden(file: &str, hidden: &[&Path]) -> bool {
    file.starts_with('<') || hidden.iter().any(|dir| Path::new(file).starts_with(dir))
}

/// Gives the rewriter's diagnostics, whose columns are those of the preprocessed text, the user's columns and lines.
pub(crate) fn align(diagnostics: Vec<Diagnostic>, places: &mut Places<'_>) -> Vec<Diagnostic> {
    let mut found = Found::default();
    for mut diagnostic in diagnostics {
        let Diagnostic {
            file, line, column, ..
        } = &mut diagnostic;
        *column = places.column(file, *line, *column);
        diagnostic.source_line = places.line(file, *line);
        found.extend([diagnostic]);
    }
    found.finish(places.label)
}

/// Whether clang complains about a precompiled header, which is ours to make again.
pub(crate) fn about_precompiled(stderr: &str) -> bool {
    [
        "PCH file",
        "AST file",
        "precompiled",
        "has been modified since",
    ]
    .iter()
    .any(|text| stderr.contains(text))
}

fn diagnostic(
    said: &Said<'_>,
    file: &str,
    line: u32,
    column: u32,
    source_line: Option<String>,
) -> Diagnostic {
    let (message, flag) = split_flag(said.message);
    let (kind, message) = match unsupported_header(message) {
        Some(message) => (DiagnosticKind::Unsupported, message),
        None => (DiagnosticKind::Compiler, clean(message)),
    };
    Diagnostic {
        severity: said.severity,
        kind,
        message,
        file: file.to_owned(),
        line,
        column,
        flag: flag.map(str::to_owned),
        source_line,
    }
}

/// `message [-Wname]` or `message [-Werror,-Wname]` as (message, name).
fn split_flag(message: &str) -> (&str, Option<&str>) {
    let flagged = message
        .strip_suffix(']')
        .and_then(|rest| rest.rsplit_once(" [-W"))
        .filter(|(_, flag)| !flag.contains(' '));
    match flagged {
        Some((message, flag)) => (message, Some(flag.strip_prefix("error,-W").unwrap_or(flag))),
        None => (message, None),
    }
}

/// What to say instead of clang's "file not found" about a header that Metal has and the software device has not.
/// There is no such header in view, so that `__has_include` says no.
fn unsupported_header(message: &str) -> Option<String> {
    let header = message.strip_suffix(" file not found")?;
    header
        .trim_start_matches('\'')
        .starts_with("MetalPerformancePrimitives/")
        .then(|| {
            format!(
                "Metal performance primitives (Metal 4 tensors) are not supported by the software device: {header}"
            )
        })
}

/// One line of clang's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Said<'a> {
    severity: Severity,
    file: &'a str,
    line: u32,
    column: u32,
    message: &'a str,
}

/// Errors and warnings, each with the notes after it.
fn groups(stderr: &str) -> Vec<Vec<Said<'_>>> {
    let mut groups: Vec<Vec<Said<'_>>> = Vec::new();
    for said in stderr.lines().filter_map(parse) {
        match (said.severity, groups.last_mut()) {
            (Severity::Note, Some(group)) => group.push(said),
            (Severity::Note, None) => {}
            _ => groups.push(vec![said]),
        }
    }
    groups
}

/// `file:line:column: error: message`
fn parse(text: &str) -> Option<Said<'_>> {
    let kinds = [
        (": error: ", Severity::Error),
        (": fatal error: ", Severity::Error),
        (": warning: ", Severity::Warning),
        (": note: ", Severity::Note),
    ];
    let (at, mark, severity) = kinds
        .iter()
        .filter_map(|(mark, severity)| Some((text.find(mark)?, *mark, *severity)))
        .min_by_key(|(at, ..)| *at)?;
    let message = &text[at + mark.len()..];
    let (rest, column) = text[..at].rsplit_once(':')?;
    let (file, line) = rest.rsplit_once(':')?;
    Some(Said {
        severity,
        file,
        line: line.parse().ok()?,
        column: column.parse().ok()?,
        message,
    })
}

/// C++ names of Metal's scalar types.
const SCALARS: [(&str, &str); 13] = [
    ("unsigned char", "uchar"),
    ("unsigned short", "ushort"),
    ("unsigned int", "uint"),
    ("unsigned long", "ulong"),
    ("signed char", "char"),
    ("_Float16", "half"),
    ("__bf16", "bfloat"),
    ("bool", "bool"),
    ("char", "char"),
    ("short", "short"),
    ("int", "int"),
    ("long", "long"),
    ("float", "float"),
];

/// Clang's names of the address spaces that `abi.h` defines.
const SPACES: [(&str, &str); 3] = [
    ("__global_device", "device"),
    ("__global_host", "constant"),
    ("__local", "threadgroup"),
];

/// Metal's names for what the headers call otherwise.
fn clean(message: &str) -> String {
    let mut text = message.to_owned();
    for space in ["::metal::", "metal::", "::sm::", "sm::", "vectors::"] {
        text = text.replace(space, "");
    }
    for (clang, metal) in SPACES {
        text = text.replace(clang, metal);
    }
    for (long, short) in SCALARS {
        for size in 2..=4 {
            let vector = format!("{short}{size}");
            for (class, named) in [
                (
                    format!("packed_vector<{long}[{size}]>"),
                    format!("packed_{vector}"),
                ),
                (
                    format!("packed_vec<{long}, {size}>"),
                    format!("packed_{vector}"),
                ),
                (format!("vector<{long}[{size}]>"), vector.clone()),
                (format!("vec<{long}, {size}>"), vector.clone()),
            ] {
                text = text.replace(&class, &named);
            }
            for rows in 2..=4 {
                let matrix = format!("{vector}x{rows}");
                text = text.replace(&format!("columns_of<{long}[{size}][{rows}]>"), &matrix);
                text = text.replace(&format!("matrix<{long}, {size}, {rows}>"), &matrix);
            }
        }
    }
    for (long, short) in &SCALARS[..7] {
        text = text.replace(long, short);
    }
    without_repeated_aka(&text)
}

/// `'float3' (aka 'float3')` says it once.
fn without_repeated_aka(text: &str) -> String {
    let mut out = text.to_owned();
    let mut from = 0;
    while let Some(at) = out[from..].find(" (aka '").map(|at| from + at) {
        let inside = at + " (aka '".len();
        let Some(end) = out[inside..].find("')").map(|end| inside + end) else {
            break;
        };
        let name = format!("'{}'", &out[inside..end]);
        if out[..at].ends_with(&name) {
            out.replace_range(at..end + 2, "");
            from = at;
        } else {
            from = end;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "#define N 4\nkernel void k(device   float* a) {\n  a[N]  =   b;\n}\n";
    const EXPANDED: &str =
        "# 1 \"<stdin>\"\n# 1 \"k.metal\"\n\nkernel void k(device float* a) {\n  a[4] = b;\n}\n";

    fn read_all(stderr: &str) -> Vec<(String, u32, u32, String)> {
        let columns = ColumnMap::default();
        let mut places = Places::new("k.metal", SOURCE, EXPANDED, &columns);
        read(stderr, &[Path::new("/cache/shim-1")], &mut places)
            .into_iter()
            .map(|d| (d.file, d.line, d.column, d.message))
            .collect()
    }

    #[test]
    fn columns_cross_blanks_and_macros() {
        let found = read_all("k.metal:3:10: error: use of undeclared identifier 'b'\n");
        let message = "use of undeclared identifier 'b'".to_owned();
        assert_eq!(found, [("k.metal".to_owned(), 3, 13, message)]);
        assert_eq!(read_all("k.metal:3:5: error: x\n")[0].2, 5);
    }

    #[test]
    fn errors_in_the_headers_move_to_the_users_text() {
        let stderr = "/cache/shim-1/include/math.h:7:3: error: no matching function\n\
                      /cache/shim-1/include/math.h:9:1: note: candidate\n\
                      k.metal:3:3: note: in instantiation of function template specialization 'metal::dot<metal::vec<float, 3>>' requested here\n";
        let message = "no matching function".to_owned();
        assert_eq!(read_all(stderr), [("k.metal".to_owned(), 3, 3, message)]);
        // Another error of the same instantiation, and one of another place.
        let stderr = format!(
            "{stderr}/cache/shim-1/include/math.h:8:3: error: no type\n\
             k.metal:2:1: error: of the user's\n\
             /cache/shim-1/include/math.h:8:3: error: from nowhere\n"
        );
        let lines: Vec<u32> = read_all(&stderr).iter().map(|found| found.1).collect();
        assert_eq!(lines, [3, 3, 2, 0]);
    }

    #[test]
    fn notes_in_the_users_text_stay() {
        let stderr = "k.metal:3:3: error: no matching function for call to 'f'\n\
                      k.metal:2:13: note: candidate function not viable\n\
                      k.metal:2:1: warning: unused\n\
                      k.metal:2:1: note: of the warning\n\
                      /cache/shim-1/include/math.h:9:1: warning: not the user's\n\
                      k.metal:2:1: note: in instantiation of\n";
        assert_eq!(read_all(stderr).len(), 4);
    }

    #[test]
    fn headers_of_metal_that_are_missing_are_called_unsupported() {
        let message = |name: &str| {
            let stderr = format!("k.metal:1:10: fatal error: '{name}' file not found\n");
            read_all(&stderr)[0].3.clone()
        };
        let said = message("MetalPerformancePrimitives/MetalPerformancePrimitives.h");
        assert!(said.contains("not supported by the software device"));
        assert!(said.contains("Metal 4 tensors"));
        assert!(said.ends_with("'MetalPerformancePrimitives/MetalPerformancePrimitives.h'"));
        assert_eq!(message("mine.h"), "'mine.h' file not found");
    }

    #[test]
    fn types_get_their_metal_names() {
        for (said, clean_text) in [
            (
                "no viable conversion from 'metal::vec<float, 3>' to 'vec<unsigned int, 2>'",
                "no viable conversion from 'float3' to 'uint2'",
            ),
            ("'float3' (aka 'vec<float, 3>') and 'T'", "'float3' and 'T'"),
            (
                "'T' (aka 'vec<_Float16, 4>') has no member",
                "'T' (aka 'half4') has no member",
            ),
            ("matrix<float, 4, 4>", "float4x4"),
            (
                "'sm::vectors::vector<unsigned int[3]>' and 'sm::vectors::columns_of<float[3][2]>'",
                "'uint3' and 'float3x2'",
            ),
            (
                "initialization of 'float4' (aka 'vec<float, 4>')",
                "initialization of 'float4'",
            ),
        ] {
            assert_eq!(clean(said), clean_text);
        }
    }

    #[test]
    fn the_number_of_diagnostics_is_bounded_and_other_text_is_ignored() {
        let mut stderr = "In file included from x:1:\n20 errors generated.\n".to_owned();
        assert!(read_all(&stderr).is_empty());
        for line in 0..100 {
            stderr.push_str(&format!("k.metal:{line}:1: error: e{line}\n"));
        }
        let found = read_all(&stderr);
        assert_eq!(found.len(), MAX_ERRORS + 1);
        assert_eq!(found[MAX_ERRORS].3, "stopped after 20 errors");
    }

    #[test]
    fn a_warning_has_its_flag_and_is_said_once() {
        let columns = ColumnMap::default();
        let mut places = Places::new("k.metal", SOURCE, EXPANDED, &columns);
        let stderr = "k.metal:3:3: warning: unused variable 'x' [-Wunused-variable]\n\
                      k.metal:3:3: note: in instantiation of function template specialization 'f<int>' requested here\n\
                      k.metal:3:3: warning: unused variable 'x' [-Wunused-variable]\n\
                      k.metal:3:9: error: comparison of integers [-Werror,-Wsign-compare]\n\
                      warning: unknown warning option '-Wfoo' [-Wunknown-warning-option]\n";
        let found = read(stderr, &[], &mut places);
        let found: Vec<_> = found
            .iter()
            .map(|d| (d.severity, d.line, d.message.as_str(), d.flag.as_deref()))
            .collect();
        assert_eq!(found.len(), 4, "{found:?}");
        let unknown = "unknown warning option '-Wfoo'";
        let option = Some("unknown-warning-option");
        assert_eq!(found[0], (Severity::Warning, 0, unknown, option));
        let unused = "unused variable 'x'";
        assert_eq!(
            found[1],
            (Severity::Warning, 3, unused, Some("unused-variable"))
        );
        assert_eq!(found[2].0, Severity::Note);
        let compared = "comparison of integers";
        assert_eq!(
            found[3],
            (Severity::Error, 3, compared, Some("sign-compare"))
        );
    }

    #[test]
    fn many_warnings_are_cut_and_counted() {
        let stderr: String = (0..MAX_WARNINGS + 5)
            .map(|line| format!("k.metal:{line}:1: warning: w{line} [-Wunused]\n"))
            .collect();
        let found = read_all(&stderr);
        assert_eq!(found.len(), MAX_WARNINGS + 1);
        assert_eq!(found[MAX_WARNINGS].3, "5 more warnings are not shown");
    }

    #[test]
    fn a_text_from_standard_input_is_the_users() {
        let columns = ColumnMap::default();
        let mut places = Places::new("<stdin>", SOURCE, "", &columns);
        let found = read("<stdin>:3:5: error: x\n", &[], &mut places);
        assert_eq!((found[0].line, found[0].column), (3, 5));
    }

    #[test]
    fn a_file_name_may_contain_colons() {
        let said = parse("a:b.metal:3:4: error: x: note: y").unwrap();
        assert_eq!((said.file, said.line, said.column), ("a:b.metal", 3, 4));
        assert_eq!(said.message, "x: note: y");
    }
}
