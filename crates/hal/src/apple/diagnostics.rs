//! Parsing of Metal's error texts and codes.

use crate::error::{Error, Fault};
use crate::msl::{Diagnostic, DiagnosticKind, Severity};

/// Metal's file name for source passed as a string.
const METAL_SOURCE_NAME: &str = "program_source";

/// Parses the errors in the text of a failed compilation; the library's label replaces Metal's file name.
/// A text in another format becomes one diagnostic without a location.
pub(super) fn diagnostics(text: &str, label: &str, source: &str) -> Vec<Diagnostic> {
    let found: Vec<_> = text
        .lines()
        .filter_map(|line| diagnostic(line, label, source))
        .collect();
    if !found.is_empty() {
        return found;
    }
    vec![Diagnostic {
        severity: Severity::Error,
        kind: DiagnosticKind::Compiler,
        message: text.trim().to_owned(),
        file: file(METAL_SOURCE_NAME, label),
        line: 0,
        column: 0,
        flag: None,
        source_line: None,
    }]
}

/// Reads `FILE:LINE:COLUMN: error: MESSAGE`. Warnings, notes and quoted source are not errors.
fn diagnostic(line: &str, label: &str, source: &str) -> Option<Diagnostic> {
    let (location, message) = line
        .split_once(": fatal error: ")
        .or_else(|| line.split_once(": error: "))?;
    let (rest, column) = location.rsplit_once(':')?;
    let (name, number) = rest.rsplit_once(':')?;
    let name = name.trim();
    let number: u32 = number.parse().ok()?;
    let index = number.checked_sub(1).filter(|_| name == METAL_SOURCE_NAME);
    Some(Diagnostic {
        severity: Severity::Error,
        kind: DiagnosticKind::Compiler,
        message: message.trim().to_owned(),
        file: file(name, label),
        line: number,
        column: column.parse().ok()?,
        flag: None,
        source_line: index
            .and_then(|index| source.lines().nth(index as usize))
            .map(str::to_owned),
    })
}

fn file(name: &str, label: &str) -> String {
    if name == METAL_SOURCE_NAME && !label.is_empty() {
        label.to_owned()
    } else {
        name.to_owned()
    }
}

/// The error for a pipeline that could not be built: `Launch` for a kernel that exceeds a limit of the device,
/// `Compile` for all others.
pub(super) fn pipeline_error(text: &str, label: &str, kernel: &str) -> Error {
    let lower = text.to_lowercase();
    let exceeds = lower.contains("exceeds") || lower.contains("too large");
    if exceeds && (lower.contains("threadgroup") || lower.contains("maximum")) {
        return Error::Launch {
            kernel: kernel.to_owned(),
            message: text.trim().to_owned(),
        };
    }
    Error::Compile {
        library: label.to_owned(),
        diagnostics: diagnostics(text, label, ""),
    }
}

/// The fault of a failed command buffer: `code` is an `MTLCommandBufferError`, and the text distinguishes
/// several faults that Metal reports as internal errors.
pub(super) fn fault(code: usize, text: &str) -> Fault {
    match code {
        2 => Fault::Timeout,
        3 => Fault::PageFault,
        // Access revoked, not permitted.
        4 | 7 => Fault::Refused,
        // Memory, and tile memory for memoryless resources.
        8 | 10 => Fault::OutOfMemory,
        11 => Fault::DeviceLost,
        // Stack overflow.
        12 => Fault::Crash,
        _ => fault_by_text(text),
    }
}

fn fault_by_text(text: &str) -> Fault {
    let table = [
        ("Timeout", Fault::Timeout),
        ("Hang", Fault::Timeout),
        ("Interactivity", Fault::Timeout),
        ("PageFault", Fault::PageFault),
        ("Address Fault", Fault::PageFault),
        ("OutOfMemory", Fault::OutOfMemory),
        ("Insufficient Memory", Fault::OutOfMemory),
        // Another process's work failed on the same GPU, or this process's so often that the system ignores it.
        ("InnocentVictim", Fault::Refused),
        ("Innocent Victim", Fault::Refused),
        ("Ignored", Fault::Refused),
    ];
    table
        .iter()
        .find(|(part, _)| text.contains(part))
        .map_or(Fault::Other, |(_, fault)| *fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(file: &str, line: u32, column: u32, message: &str) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            kind: DiagnosticKind::Compiler,
            message: message.to_owned(),
            file: file.to_owned(),
            line,
            column,
            flag: None,
            source_line: None,
        }
    }

    #[test]
    fn errors_carry_the_library_s_label_and_warnings_are_skipped() {
        let text = "Compilation failed: \n\n\
            program_source:3:5: warning: unused variable 'x' [-Wunused-variable]\n    int x;\n        ^\n\
            program_source:5:17: error: use of undeclared identifier 'foo'\n    out[i] = foo;\n             ^\n\
            program_source:2:8: note: declared here\n\
            program_source:9:1: fatal error: too many errors\n";
        assert_eq!(
            diagnostics(text, "kernels/add.metal", ""),
            [
                at(
                    "kernels/add.metal",
                    5,
                    17,
                    "use of undeclared identifier 'foo'"
                ),
                at("kernels/add.metal", 9, 1, "too many errors"),
            ]
        );
    }

    #[test]
    fn names_from_line_directives_and_names_with_colons_are_kept() {
        let text = "C:/k.metal:7:2: error: expected ';'\nother.h:1:1: error: a: error: b";
        assert_eq!(
            diagnostics(text, "lib", ""),
            [
                at("C:/k.metal", 7, 2, "expected ';'"),
                at("other.h", 1, 1, "a: error: b"),
            ]
        );
    }

    #[test]
    fn a_library_without_a_label_keeps_metal_s_name() {
        assert_eq!(
            diagnostics("program_source:1:2: error: x", "", ""),
            [at("program_source", 1, 2, "x")]
        );
    }

    #[test]
    fn the_line_is_quoted_if_it_is_in_the_source() {
        let quoted = |text: &str| diagnostics(text, "lib", "one\ntwo")[0].source_line.clone();
        assert_eq!(
            quoted("program_source:2:1: error: x"),
            Some("two".to_owned())
        );
        for elsewhere in [
            "program_source:3:1: error: x",
            "program_source:0:1: error: x",
            "other.h:1:1: error: x",
        ] {
            assert_eq!(quoted(elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn any_other_text_is_one_diagnostic_without_a_location() {
        for text in [
            "",
            "  Compiler encountered an internal error\n",
            "a: error: b",
        ] {
            assert_eq!(diagnostics(text, "lib", ""), [at("lib", 0, 0, text.trim())]);
        }
    }

    #[test]
    fn a_kernel_that_exceeds_a_limit_is_a_launch_error() {
        let text = "Threadgroup memory size (49152) exceeds the maximum threadgroup memory allowed (32768)";
        assert_eq!(
            pipeline_error(text, "lib", "k"),
            Error::Launch {
                kernel: "k".into(),
                message: text.into()
            }
        );
        assert!(matches!(
            pipeline_error("Undefined symbols", "lib", "k"),
            Error::Compile { .. }
        ));
    }

    #[test]
    fn faults_are_derived_from_the_code_and_for_internal_errors_from_the_text() {
        struct Case(usize, &'static str, Fault);
        let cases = [
            Case(2, "", Fault::Timeout),
            Case(3, "", Fault::PageFault),
            Case(4, "", Fault::Refused),
            Case(7, "", Fault::Refused),
            Case(8, "", Fault::OutOfMemory),
            Case(11, "", Fault::DeviceLost),
            Case(12, "", Fault::Crash),
            Case(1, "Caused GPU Hang Error (00000003)", Fault::Timeout),
            Case(1, "Impacting Interactivity (0000000e)", Fault::Timeout),
            Case(
                1,
                "Ignored (for causing prior/excessive GPU errors)",
                Fault::Refused,
            ),
            Case(1, "Internal Error (0000000e:Internal Error)", Fault::Other),
            Case(99, "", Fault::Other),
        ];
        for Case(code, text, expected) in cases {
            assert_eq!(fault(code, text), expected, "{code} {text}");
        }
    }
}
