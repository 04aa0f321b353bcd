//! Maps clang's diagnostics back to the user's source.
//!
//! clang compiles text that went through the preprocessor and the rewriter, against headers the user never sees.
//! Line markers preserve the lines; columns are mapped back through the rewriter's column map, and then across the
//! whitespace and the macros that preprocessing changed. Errors inside the headers move to the location in the
//! user's text that instantiated or called them, notes inside the headers are dropped, and types get their Metal
//! names back.

use std::collections::HashMap;
use std::path::Path;

use crate::msl::{ColumnMap, Diagnostic, DiagnosticKind, Severity, SourceLines};

/// Maximum number of errors shown; later ones usually follow from the first.
pub(crate) const MAX_ERRORS: usize = 20;
/// Maximum number of warnings shown per run.
const MAX_WARNINGS: usize = 100;
/// Maximum number of notes kept per error or warning.
const MAX_NOTES: usize = 4;

/// Maps locations in the compiled text back to the user's source.
#[derive(Debug)]
pub(crate) struct SourceMap<'a> {
    columns: &'a ColumnMap,
    /// Lines of the preprocessed text, by file and line.
    expanded: HashMap<(&'a str, u32), &'a str>,
    label: &'a str,
    source: SourceLines,
    /// Lines of the other files, read on demand; `None` if a file cannot be read.
    others: HashMap<String, Option<Vec<String>>>,
}

impl<'a> SourceMap<'a> {
    /// Builds the map of one library from its file name, its text, and that text preprocessed.
    pub(crate) fn new(
        label: &'a str,
        source: &'a str,
        expanded: &'a str,
        columns: &'a ColumnMap,
    ) -> Self {
        Self {
            columns,
            expanded: lines_by_location(expanded),
            label,
            source: SourceLines::new(label, source),
            others: HashMap::new(),
        }
    }

    /// The line as the user wrote it.
    pub(crate) fn line(&mut self, file: &str, line: u32) -> Option<String> {
        if self.source.has_file(file) {
            return self.source.get(file, line).map(str::to_owned);
        }
        let index = (line as usize).checked_sub(1)?;
        let read = || {
            let text = std::fs::read_to_string(Path::new(file)).ok()?;
            Some(text.lines().map(str::to_owned).collect::<Vec<_>>())
        };
        let other = self.others.entry(file.to_owned()).or_insert_with(read);
        other.as_ref()?.get(index).cloned()
    }

    /// Maps a location in the compiled text to the user's column.
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

    /// Builds an error for code that clang itself accepts.
    pub(crate) fn error_at(
        &mut self,
        file: &str,
        line: u32,
        column: u32,
        message: &str,
    ) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            kind: DiagnosticKind::Refused,
            message: with_metal_names(message),
            file: file.to_owned(),
            line,
            column: self.column(file, line, column),
            flag: None,
            source_line: self.line(file, line),
        }
    }
}

/// Indexes lines by file and number, following the line markers in the text.
fn lines_by_location(text: &str) -> HashMap<(&str, u32), &str> {
    let mut by_location = HashMap::new();
    let (mut file, mut number) = ("", 0_u32);
    for line in text.lines() {
        if let Some((at, name)) = marker(line) {
            (file, number) = (name, at);
            continue;
        }
        // A macro may expand one line into several; the first one has the tokens that the user wrote.
        by_location.entry((file, number)).or_insert(line);
        number = number.saturating_add(1);
    }
    by_location
}

/// Parses `# 12 "file" 1` as (12, file).
fn marker(line: &str) -> Option<(u32, &str)> {
    let rest = line.strip_prefix("# ")?;
    let (number, rest) = rest.split_once(' ')?;
    let name = rest.strip_prefix('"')?;
    Some((number.parse().ok()?, &name[..name.rfind('"')?]))
}

/// Finds the token at `column` of `expanded` in `original`: the same token with the same number of occurrences
/// before it. If a macro hides it, falls back to the column itself.
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
        Some((location, _)) => {
            let inside = (at - start).min(token.len().saturating_sub(1));
            u32::try_from(location + inside + 1).unwrap_or(column)
        }
        None => column.min(u32::try_from(original.len()).unwrap_or(u32::MAX).max(1)),
    }
}

/// Splits a line into words and single other characters with their offsets, up to a comment.
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

/// Parses clang's stderr into errors and warnings, each followed by its notes. If the result has no error although
/// clang failed, then clang itself is broken, not the program.
pub(crate) fn read(
    stderr: &str,
    hidden: &[&Path],
    source_map: &mut SourceMap<'_>,
) -> Vec<Diagnostic> {
    let label = source_map.label;
    let is_hidden = |file: &str| file != label && is_hidden(file, hidden);
    let mut found = DiagnosticList::default();
    for line in stderr.lines() {
        found.extend(unknown_option(line, label));
    }
    let mut instantiation: Option<ClangMessage<'_>> = None;
    for group in groups(stderr) {
        let Some((head, notes)) = group.split_first() else {
            continue;
        };
        if is_hidden(head.file) && head.severity != Severity::Error {
            continue;
        }
        // An error in the headers is reported at its cause in the user's text. clang prints that location only once
        // for all errors of one instantiation.
        let location = std::iter::once(head)
            .chain(notes.iter().filter(|n| n.message.starts_with("in ")))
            .chain(notes)
            .find(|clang| !is_hidden(clang.file))
            .or(instantiation.as_ref())
            .copied();
        instantiation = location.filter(|_| is_hidden(head.file));
        let mut at = |clang: &ClangMessage<'_>, at: &ClangMessage<'_>| {
            let column = source_map.column(at.file, at.line, at.column);
            let text = source_map.line(at.file, at.line);
            diagnostic(clang, at.file, at.line, column, text)
        };
        let Some(location) = location else {
            found.extend([diagnostic(head, label, 0, 0, None)]);
            continue;
        };
        let head = at(head, &location);
        let notes = notes
            .iter()
            .filter(|note| !is_hidden(note.file) && **note != location)
            .take(MAX_NOTES);
        let notes: Vec<Diagnostic> = notes.map(|note| at(note, note)).collect();
        found.extend(std::iter::once(head).chain(notes));
    }
    found.more_errors |= stderr.contains("too many errors emitted");
    found.finish(label)
}

/// Deduplicated diagnostics, up to the limits.
#[derive(Debug, Default)]
struct DiagnosticList {
    diagnostics: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
    more_errors: bool,
}

impl DiagnosticList {
    /// Adds an error or a warning with its notes, unless it is a duplicate: clang repeats it for every
    /// instantiation of a template.
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

    /// Returns the diagnostics, with notes about omitted ones.
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

/// Parses clang's message about an unknown warning option, which has no location.
fn unknown_option(line: &str, label: &str) -> Option<Diagnostic> {
    let (severity, message) = match line.split_once(": ")? {
        ("warning", message) => (Severity::Warning, message),
        ("error", message) => (Severity::Error, message),
        _ => return None,
    };
    let clang = ClangMessage {
        severity,
        file: label,
        line: 0,
        column: 0,
        message,
    };
    message
        .starts_with("unknown warning option ")
        .then(|| diagnostic(&clang, label, 0, 0, None))
}

/// Returns whether a file belongs to the headers rather than to the user.
pub(crate) fn is_hidden(file: &str, hidden: &[&Path]) -> bool {
    file.starts_with('<') || hidden.iter().any(|dir| Path::new(file).starts_with(dir))
}

/// Maps the rewriter's diagnostics, whose columns are those of the preprocessed text, to the user's columns and
/// lines.
pub(crate) fn align(
    diagnostics: Vec<Diagnostic>,
    source_map: &mut SourceMap<'_>,
) -> Vec<Diagnostic> {
    let mut found = DiagnosticList::default();
    for mut diagnostic in diagnostics {
        let Diagnostic {
            file, line, column, ..
        } = &mut diagnostic;
        *column = source_map.column(file, *line, *column);
        diagnostic.source_line = source_map.line(file, *line);
        found.extend([diagnostic]);
    }
    found.finish(source_map.label)
}

/// Returns whether clang complains about a precompiled header, which is then rebuilt.
pub(crate) fn is_about_precompiled_header(stderr: &str) -> bool {
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
    clang: &ClangMessage<'_>,
    file: &str,
    line: u32,
    column: u32,
    source_line: Option<String>,
) -> Diagnostic {
    let (message, flag) = split_flag(clang.message);
    let (kind, message) = match unsupported_header(message) {
        Some(message) => (DiagnosticKind::Unsupported, message),
        None => (DiagnosticKind::Compiler, with_metal_names(message)),
    };
    Diagnostic {
        severity: clang.severity,
        kind,
        message,
        file: file.to_owned(),
        line,
        column,
        flag: flag.map(str::to_owned),
        source_line,
    }
}

/// Splits `message [-Wname]` or `message [-Werror,-Wname]` into (message, name).
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

/// Replaces clang's "file not found" for headers that Metal has and the software device does not. The stubs omit
/// such headers, so that `__has_include` is false for them.
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

/// One line of clang's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClangMessage<'a> {
    severity: Severity,
    file: &'a str,
    line: u32,
    column: u32,
    message: &'a str,
}

/// Groups errors and warnings with the notes that follow them.
fn groups(stderr: &str) -> Vec<Vec<ClangMessage<'_>>> {
    let mut groups: Vec<Vec<ClangMessage<'_>>> = Vec::new();
    for clang in stderr.lines().filter_map(parse) {
        match (clang.severity, groups.last_mut()) {
            (Severity::Note, Some(group)) => group.push(clang),
            (Severity::Note, None) => {}
            _ => groups.push(vec![clang]),
        }
    }
    groups
}

/// Parses `file:line:column: error: message`.
fn parse(text: &str) -> Option<ClangMessage<'_>> {
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
    Some(ClangMessage {
        severity,
        file,
        line: line.parse().ok()?,
        column: column.parse().ok()?,
        message,
    })
}

/// C++ and Metal names of the scalar types.
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

/// clang's names of the address spaces that `abi.h` defines, and Metal's.
const ADDRESS_SPACES: [(&str, &str); 3] = [
    ("__global_device", "device"),
    ("__global_host", "constant"),
    ("__local", "threadgroup"),
];

/// Replaces the headers' C++ names with Metal's.
fn with_metal_names(message: &str) -> String {
    let mut text = message.to_owned();
    for space in ["::metal::", "metal::", "::sm::", "sm::", "vectors::"] {
        text = text.replace(space, "");
    }
    for (clang, metal) in ADDRESS_SPACES {
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

/// Reduces `'float3' (aka 'float3')` to `'float3'`.
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
        let mut source_map = SourceMap::new("k.metal", SOURCE, EXPANDED, &columns);
        read(stderr, &[Path::new("/cache/shim-1")], &mut source_map)
            .into_iter()
            .map(|d| (d.file, d.line, d.column, d.message))
            .collect()
    }

    #[test]
    fn columns_map_across_whitespace_and_macros() {
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
        // Another error of the same instantiation, and one elsewhere.
        let stderr = format!(
            "{stderr}/cache/shim-1/include/math.h:8:3: error: no type\n\
             k.metal:2:1: error: unrelated\n\
             /cache/shim-1/include/math.h:8:3: error: no location\n"
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
    fn missing_metal_headers_are_reported_as_unsupported() {
        let message = |name: &str| {
            let stderr = format!("k.metal:1:10: fatal error: '{name}' file not found\n");
            read_all(&stderr)[0].3.clone()
        };
        let clang = message("MetalPerformancePrimitives/MetalPerformancePrimitives.h");
        assert!(clang.contains("not supported by the software device"));
        assert!(clang.contains("Metal 4 tensors"));
        assert!(clang.ends_with("'MetalPerformancePrimitives/MetalPerformancePrimitives.h'"));
        assert_eq!(message("mine.h"), "'mine.h' file not found");
    }

    #[test]
    fn types_get_their_metal_names() {
        for (clang, expected) in [
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
            assert_eq!(with_metal_names(clang), expected);
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
    fn warnings_keep_their_flag_and_are_deduplicated() {
        let columns = ColumnMap::default();
        let mut source_map = SourceMap::new("k.metal", SOURCE, EXPANDED, &columns);
        let stderr = "k.metal:3:3: warning: unused variable 'x' [-Wunused-variable]\n\
                      k.metal:3:3: note: in instantiation of function template specialization 'f<int>' requested here\n\
                      k.metal:3:3: warning: unused variable 'x' [-Wunused-variable]\n\
                      k.metal:3:9: error: comparison of integers [-Werror,-Wsign-compare]\n\
                      warning: unknown warning option '-Wfoo' [-Wunknown-warning-option]\n";
        let found = read(stderr, &[], &mut source_map);
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
    fn warnings_past_the_limit_are_counted() {
        let stderr: String = (0..MAX_WARNINGS + 5)
            .map(|line| format!("k.metal:{line}:1: warning: w{line} [-Wunused]\n"))
            .collect();
        let found = read_all(&stderr);
        assert_eq!(found.len(), MAX_WARNINGS + 1);
        assert_eq!(found[MAX_WARNINGS].3, "5 more warnings are not shown");
    }

    #[test]
    fn text_from_standard_input_is_user_source() {
        let columns = ColumnMap::default();
        let mut source_map = SourceMap::new("<stdin>", SOURCE, "", &columns);
        let found = read("<stdin>:3:5: error: x\n", &[], &mut source_map);
        assert_eq!((found[0].line, found[0].column), (3, 5));
    }

    #[test]
    fn a_file_name_may_contain_colons() {
        let clang = parse("a:b.metal:3:4: error: x: note: y").unwrap();
        assert_eq!((clang.file, clang.line, clang.column), ("a:b.metal", 3, 4));
        assert_eq!(clang.message, "x: note: y");
    }
}
