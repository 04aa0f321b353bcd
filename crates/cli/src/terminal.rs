//! Terminal output: colours if supported, and a closed pipe is not an error.

use std::io::{self, BufWriter, Write};

use anstream::AutoStream;

/// Text styles.
pub(crate) mod style {
    use anstyle::{AnsiColor, Style};

    pub(crate) const STRONG: Style = Style::new().bold();
    pub(crate) const QUIET: Style = Style::new().dimmed();
    pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
    pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
    pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
}

/// Standard output, locked and buffered. Styles written to it are dropped unless it is a terminal and
/// `NO_COLOR` is unset.
pub(crate) type Out = BufWriter<AutoStream<io::StdoutLock<'static>>>;

/// Locks standard output.
pub(crate) fn stdout() -> Out {
    BufWriter::new(AutoStream::auto(io::stdout()).lock())
}

/// Locks standard error; unbuffered, so that messages appear immediately.
pub(crate) fn stderr() -> AutoStream<io::StderrLock<'static>> {
    AutoStream::auto(io::stderr()).lock()
}

/// Writes one line to standard error; errors are ignored, as there is nowhere to report them.
pub(crate) fn write_message(prefix: &str, prefix_style: anstyle::Style, text: &str) {
    let _ = writeln!(stderr(), "{prefix_style}{prefix}{prefix_style:#}: {text}");
}

/// Formats an error and its causes on one line, without duplicates: some errors already include their cause.
pub(crate) fn error_text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Returns whether an error means that the output pipe was closed.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Writes a JSON value, indented, with a newline.
pub(crate) fn write_json(out: &mut impl Write, value: &serde_json::Value) -> anyhow::Result<()> {
    // `serde_json` wraps the writer's error; unwrapped, a broken pipe is recognised.
    serde_json::to_writer_pretty(&mut *out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

/// `1 kernel`, `2 kernels`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}

/// `once`, `3 times`.
pub(crate) fn times(count: usize) -> String {
    match count {
        1 => "once".to_owned(),
        n => format!("{n} times"),
    }
}

/// Bytes in the largest binary unit that keeps the number readable.
pub(crate) fn bytes(count: usize) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count as f64;
    let mut unit = "bytes";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if value.fract() == 0.0 {
        format!("{value:.0} {unit}")
    } else {
        format!("{value:.1} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_text_has_no_duplicates() {
        let twice = anyhow::anyhow!("no clang").context("decoder: no clang");
        assert_eq!(error_text(&twice), "decoder: no clang");
        let apart = anyhow::anyhow!("no clang").context("decoder");
        assert_eq!(error_text(&apart), "decoder: no clang");
    }

    #[test]
    fn bytes_are_written_in_binary_units() {
        assert_eq!(bytes(0), "0 bytes");
        assert_eq!(bytes(1023), "1023 bytes");
        assert_eq!(bytes(32 << 10), "32 KiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(bytes(usize::MAX), "16384 PiB");
    }

    #[test]
    fn a_broken_pipe_is_recognised_through_context() {
        let error = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe)).context("x");
        assert!(is_broken_pipe(&error));
        assert!(!is_broken_pipe(&anyhow::anyhow!("x")));
    }
}
