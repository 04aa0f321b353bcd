//! The `os_log` messages of kernels.

use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// One message from a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelLogLine {
    /// The level, by Metal's numbers (0 undefined, 1 debug, 2 info, 3 notice, 4 error, 5 fault).
    pub level: u32,
    /// The `os_log` object's subsystem.
    pub subsystem: String,
    /// Its category.
    pub category: String,
    /// The formatted text.
    pub text: String,
    /// The kernel's host name.
    pub kernel: String,
    /// The threadgroup that logged it.
    pub threadgroup: [u32; 3],
}

/// Collects messages from all threads of a device.
#[derive(Debug)]
pub struct Log {
    lines: Mutex<LogBuffer>,
    capacity: usize,
}

#[derive(Debug, Default)]
struct LogBuffer {
    kept: Vec<KernelLogLine>,
    dropped: u64,
}

impl Default for Log {
    fn default() -> Self {
        Self::new(Self::MAX_LINES)
    }
}

impl Log {
    /// Maximum number of lines kept until they are taken; about as much as Metal's default log buffer of one
    /// megabyte.
    pub const MAX_LINES: usize = 10_000;

    /// Creates a log of at most `capacity` lines.
    pub fn new(capacity: usize) -> Self {
        Self {
            lines: Mutex::default(),
            capacity,
        }
    }

    /// Adds a line, or counts it as dropped if the log is full.
    pub fn push(&self, line: KernelLogLine) {
        let mut lines = self.lock();
        if lines.kept.len() < self.capacity {
            lines.kept.push(line);
        } else {
            lines.dropped += 1;
        }
    }

    /// Counts lines that were lost before they reached the log.
    pub(super) fn count_dropped(&self, lines: u64) {
        self.lock().dropped += lines;
    }

    /// Takes the lines since the last call, and returns them with the number of dropped ones.
    pub fn take(&self) -> (Vec<KernelLogLine>, u64) {
        let lines = std::mem::take(&mut *self.lock());
        (lines.kept, lines.dropped)
    }

    fn lock(&self) -> MutexGuard<'_, LogBuffer> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An argument of a message, typed by its kind letter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum LogArgument<'a> {
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Text(&'a [u8]),
    Pointer(u64),
}

/// A `%…` conversion of a format string.
#[derive(Debug, Clone, Copy, Default)]
struct FormatSpec {
    left: bool,
    zero: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
    /// Size of an integer in bytes, if a length modifier gives it.
    bytes: Option<u32>,
}

/// Limit of widths and precisions in characters.
const MAX_FIELD_WIDTH: usize = 512;
/// Limit of a line in bytes.
const MAX_LINE_BYTES: usize = 4096;

/// Formats like `printf`. The arguments carry their own types, so a mismatched format only gives odd text; a missing
/// argument is printed as `(missing)`.
pub(super) fn format(format: &[u8], arguments: &[LogArgument<'_>]) -> String {
    let mut out = String::new();
    let mut arguments = arguments.iter();
    let mut rest = format;
    while let Some(position) = rest.iter().position(|&byte| byte == b'%') {
        out.push_str(&String::from_utf8_lossy(&rest[..position]));
        let (used, formatted) = convert(&rest[position + 1..], &mut arguments);
        out.push_str(&formatted);
        rest = &rest[position + 1 + used..];
        if out.len() > MAX_LINE_BYTES {
            break;
        }
    }
    if out.len() <= MAX_LINE_BYTES {
        out.push_str(&String::from_utf8_lossy(rest));
    }
    if out.len() > MAX_LINE_BYTES {
        let end = (0..=MAX_LINE_BYTES)
            .rev()
            .find(|&end| out.is_char_boundary(end))
            .unwrap_or(0);
        out.truncate(end);
        out.push('…');
    }
    out
}

/// Formats one conversion; `spec` starts after the `%`. Returns how much of it was consumed.
fn convert<'a>(
    spec: &[u8],
    arguments: &mut impl Iterator<Item = &'a LogArgument<'a>>,
) -> (usize, String) {
    let mut conversion = FormatSpec::default();
    let mut at = 0;
    let byte = |at: usize| spec.get(at).copied().unwrap_or(0);
    // `%{public}s`: Apple's privacy annotations have no meaning here.
    if byte(at) == b'{' {
        match spec.iter().position(|&b| b == b'}') {
            Some(end) => at = end + 1,
            None => return (0, "%".into()),
        }
    }
    loop {
        match byte(at) {
            b'-' => conversion.left = true,
            b'0' => conversion.zero = true,
            b'+' => conversion.plus = true,
            b' ' => conversion.space = true,
            b'#' => conversion.alternate = true,
            _ => break,
        }
        at += 1;
    }
    let number = |at: &mut usize, arguments: &mut dyn Iterator<Item = &'a LogArgument<'a>>| {
        if byte(*at) == b'*' {
            *at += 1;
            return arguments.next().map_or(0, |argument| integer(argument).0);
        }
        let mut value = 0_i64;
        while byte(*at).is_ascii_digit() {
            value = (value * 10 + i64::from(byte(*at) - b'0')).min(1 << 20);
            *at += 1;
        }
        value
    };
    let width = number(&mut at, arguments);
    conversion.left |= width < 0;
    conversion.width = (width.unsigned_abs() as usize).min(MAX_FIELD_WIDTH);
    if byte(at) == b'.' {
        at += 1;
        let precision = number(&mut at, arguments);
        conversion.precision = usize::try_from(precision)
            .ok()
            .map(|p| p.min(MAX_FIELD_WIDTH));
    }
    // `%v4f`: one argument per vector component.
    let mut components = 1;
    if byte(at) == b'v' && matches!(byte(at + 1), b'2'..=b'4') {
        components = usize::from(byte(at + 1) - b'0');
        at += 2;
    }
    let modifiers = at;
    while matches!(byte(at), b'h' | b'l' | b'L' | b'j' | b'z' | b't' | b'q') {
        at += 1;
    }
    conversion.bytes = match &spec[modifiers..at] {
        b"hh" => Some(1),
        b"h" => Some(2),
        b"" | b"L" => None,
        _ => Some(8),
    };
    let letter = byte(at);
    if letter == b'%' {
        return (at + 1, "%".into());
    }
    if !letter.is_ascii_alphabetic() {
        // Not a conversion: keep the text.
        return (0, "%".into());
    }
    let formatted: Vec<String> = (0..components)
        .map(|_| match arguments.next() {
            Some(argument) => conversion.render(letter, argument),
            None => "(missing)".into(),
        })
        .collect();
    (at + 1, formatted.join(","))
}

/// An argument as an integer, and whether it was signed.
fn integer(argument: &LogArgument<'_>) -> (i64, bool) {
    match *argument {
        LogArgument::Signed(value) => (value, true),
        LogArgument::Unsigned(value) | LogArgument::Pointer(value) => (value as i64, false),
        LogArgument::Float(value) => (value as i64, true),
        LogArgument::Text(_) => (0, true),
    }
}

impl FormatSpec {
    fn render(&self, letter: u8, argument: &LogArgument<'_>) -> String {
        match (letter, argument) {
            (b's', LogArgument::Text(text)) => {
                let text = String::from_utf8_lossy(text);
                let truncated: String = match self.precision {
                    Some(precision) => text.chars().take(precision).collect(),
                    None => text.into_owned(),
                };
                self.pad("", &truncated, false)
            }
            (_, LogArgument::Text(text)) => self.pad("", &String::from_utf8_lossy(text), false),
            (b'c', _) => {
                let code = integer(argument).0 as u8;
                self.pad("", &char::from(code).to_string(), false)
            }
            (b'p', _) => self.pad("0x", &format!("{:x}", integer(argument).0), false),
            (b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A', _) => {
                let value = match *argument {
                    LogArgument::Float(value) => value,
                    LogArgument::Signed(value) => value as f64,
                    LogArgument::Unsigned(value) | LogArgument::Pointer(value) => value as f64,
                    LogArgument::Text(_) => 0.0,
                };
                self.float(letter, value)
            }
            (b'x' | b'X' | b'o' | b'u', _) => self.unsigned(letter, argument),
            (_, LogArgument::Float(value)) => self.float(b'g', *value),
            (_, LogArgument::Unsigned(value)) if !matches!(letter, b'd' | b'i') => {
                self.pad("", &value.to_string(), true)
            }
            _ => self.signed(argument),
        }
    }

    fn signed(&self, argument: &LogArgument<'_>) -> String {
        let (value, _) = integer(argument);
        let value = match self.bytes {
            Some(1) => i64::from(value as i8),
            Some(2) => i64::from(value as i16),
            Some(_) => value,
            // Without a modifier it is an int, but a 64-bit argument is printed in full.
            None => value,
        };
        self.pad(
            self.sign(value < 0),
            &self.digits(value.unsigned_abs().to_string()),
            self.precision.is_none(),
        )
    }

    fn unsigned(&self, letter: u8, argument: &LogArgument<'_>) -> String {
        let (value, signed) = integer(argument);
        let value = match self.bytes {
            Some(1) => u64::from(value as u8),
            Some(2) => u64::from(value as u16),
            // A negative int in an unsigned conversion has 32 bits.
            None if signed && i32::try_from(value).is_ok() => u64::from(value as u32),
            _ => value as u64,
        };
        let (prefix, text) = match letter {
            b'x' => ("0x", format!("{value:x}")),
            b'X' => ("0X", format!("{value:X}")),
            b'o' => ("0", format!("{value:o}")),
            _ => ("", value.to_string()),
        };
        let prefix = if self.alternate && value != 0 {
            prefix
        } else {
            ""
        };
        self.pad(prefix, &self.digits(text), self.precision.is_none())
    }

    fn float(&self, letter: u8, value: f64) -> String {
        let sign = self.sign(value.is_sign_negative() && !value.is_nan());
        let magnitude = value.abs();
        if !magnitude.is_finite() {
            let name = if magnitude.is_nan() { "nan" } else { "inf" };
            return self.pad(sign, name, false);
        }
        let precision = self.precision.unwrap_or(6);
        let mut text = match letter.to_ascii_lowercase() {
            b'e' => scientific(magnitude, precision),
            b'g' => general(magnitude, precision.max(1), self.alternate),
            b'a' => format!("{magnitude:e}"),
            _ => format!("{magnitude:.precision$}"),
        };
        if letter.is_ascii_uppercase() {
            text.make_ascii_uppercase();
        }
        self.pad(sign, &text, true)
    }

    fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.space) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        }
    }

    /// Pads digits with zeros up to the precision.
    fn digits(&self, text: String) -> String {
        let precision = self.precision.unwrap_or(0);
        format!("{text:0>precision$}")
    }

    fn pad(&self, prefix: &str, text: &str, zeroes: bool) -> String {
        let width = self.width;
        let fill = width.saturating_sub(prefix.len() + text.chars().count());
        if self.left {
            format!("{prefix}{text}{:fill$}", "")
        } else if self.zero && zeroes {
            format!("{prefix}{:0>fill$}{text}", "")
        } else {
            format!("{:fill$}{prefix}{text}", "")
        }
    }
}

/// C's `%e`: an exponent with a sign and at least two digits.
fn scientific(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let mut out = mantissa.to_owned();
    let sign = if exponent < 0 { '-' } else { '+' };
    // Writing to a string cannot fail.
    let _ = write!(out, "e{sign}{:02}", exponent.abs());
    out
}

/// C's `%g`: the shorter of the two other forms, without trailing zeros unless `#` is given.
fn general(value: f64, precision: usize, alternate: bool) -> String {
    let rounded = format!("{value:.*e}", precision - 1);
    let exponent: i32 = rounded
        .split_once('e')
        .and_then(|(_, exponent)| exponent.parse().ok())
        .unwrap_or(0);
    let text = if exponent < -4 || exponent >= precision as i32 {
        scientific(value, precision - 1)
    } else {
        let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
        format!("{value:.decimals$}")
    };
    if alternate {
        return text;
    }
    let (mantissa, exponent) = match text.find('e') {
        Some(at) => text.split_at(at),
        None => (text.as_str(), ""),
    };
    if !mantissa.contains('.') {
        return text;
    }
    let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
    format!("{mantissa}{exponent}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_as_printf_does() {
        struct Case {
            format: &'static str,
            arguments: &'static [LogArgument<'static>],
            text: &'static str,
        }
        use LogArgument::{Float, Pointer, Signed, Text, Unsigned};
        let cases = [
            Case {
                format: "plain",
                arguments: &[],
                text: "plain",
            },
            Case {
                format: "%d|%5d|%-5d|%05d",
                arguments: &[Signed(1), Signed(-2), Signed(3), Signed(-4)],
                text: "1|   -2|3    |-0004",
            },
            Case {
                format: "%u %x %X %#x %o",
                arguments: &[
                    Unsigned(7),
                    Unsigned(255),
                    Unsigned(255),
                    Unsigned(255),
                    Unsigned(8),
                ],
                text: "7 ff FF 0xff 10",
            },
            Case {
                format: "%x",
                arguments: &[Signed(-1)],
                text: "ffffffff",
            },
            Case {
                format: "%f %.2f %8.3f|%-8.1f|",
                arguments: &[Float(1.5), Float(2.005), Float(-3.25), Float(4.0)],
                text: "1.500000 2.00   -3.250|4.0     |",
            },
            Case {
                format: "%e %g %g %g",
                arguments: &[
                    Float(12345.678),
                    Float(0.0001),
                    Float(1e10),
                    Float(100000.0),
                ],
                text: "1.234568e+04 0.0001 1e+10 100000",
            },
            Case {
                format: "%g %f",
                arguments: &[Float(f64::NAN), Float(f64::NEG_INFINITY)],
                text: "nan -inf",
            },
            Case {
                format: "%s|%6s|%-6s|%.2s",
                arguments: &[Text(b"ab"), Text(b"ab"), Text(b"ab"), Text(b"abcd")],
                text: "ab|    ab|ab    |ab",
            },
            Case {
                format: "%c%c",
                arguments: &[Signed(72), Unsigned(105)],
                text: "Hi",
            },
            Case {
                format: "%p",
                arguments: &[Pointer(0xabc)],
                text: "0xabc",
            },
            Case {
                format: "%ld %lu %lld %llu %hhd",
                arguments: &[
                    Signed(-5),
                    Unsigned(u64::MAX),
                    Signed(i64::MIN),
                    Unsigned(1),
                    Signed(257),
                ],
                text: "-5 18446744073709551615 -9223372036854775808 1 1",
            },
            Case {
                format: "100%% %d",
                arguments: &[Signed(1)],
                text: "100% 1",
            },
            Case {
                format: "%*d|%-*d|%.*f",
                arguments: &[
                    Signed(4),
                    Signed(7),
                    Signed(3),
                    Signed(7),
                    Signed(1),
                    Float(0.25),
                ],
                text: "   7|7  |0.2",
            },
            Case {
                format: "%{public}s",
                arguments: &[Text(b"x")],
                text: "x",
            },
            Case {
                format: "%d %d",
                arguments: &[Signed(1)],
                text: "1 (missing)",
            },
            Case {
                format: "50%",
                arguments: &[],
                text: "50%",
            },
            Case {
                format: "%+d % d",
                arguments: &[Signed(1), Signed(2)],
                text: "+1  2",
            },
            Case {
                format: "%.3d",
                arguments: &[Signed(5)],
                text: "005",
            },
            Case {
                format: "%d",
                arguments: &[Float(2.5)],
                text: "2.5",
            },
            Case {
                format: "%s",
                arguments: &[Signed(3)],
                text: "3",
            },
        ];
        for case in cases {
            assert_eq!(
                format(case.format.as_bytes(), case.arguments),
                case.text,
                "{}",
                case.format
            );
        }
    }

    #[test]
    fn any_bytes_are_a_valid_format() {
        for first in 0..=255 {
            for second in 0..=255 {
                let text = [b'%', first, second, b'%', second, first];
                format(&text, &[LogArgument::Signed(-1), LogArgument::Float(1.0)]);
            }
        }
        let wide = format(b"%999999999999d", &[LogArgument::Signed(1)]);
        assert_eq!(wide.len(), MAX_FIELD_WIDTH);
        let long = format(&[b'x'; 10_000], &[]);
        assert!(long.len() < MAX_LINE_BYTES + 8);
    }

    #[test]
    fn a_full_log_counts_dropped_lines() {
        let log = Log::new(2);
        let line = KernelLogLine {
            level: 2,
            subsystem: String::new(),
            category: String::new(),
            text: "x".into(),
            kernel: "k".into(),
            threadgroup: [0; 3],
        };
        for _ in 0..5 {
            log.push(line.clone());
        }
        let (lines, dropped) = log.take();
        assert_eq!((lines.len(), dropped), (2, 3));
        assert_eq!(log.take(), (vec![], 0));
    }
}
