//! Floating-point literals: MSL has no `double`, and has suffixes that C++ lacks.

/// The C++ spelling of a literal, if it differs.
///
/// Unsuffixed floating literals are `float`; `1.0h` is a half (`f16` is clang's suffix, which rounds the decimal once);
/// `1.0bf` is a bfloat.
pub(super) fn rewrite(text: &str) -> Option<String> {
    let hexadecimal = text.starts_with("0x") || text.starts_with("0X");
    if hexadecimal {
        let exponent = text.find(['p', 'P'])?;
        let digits = text[exponent + 1..].trim_start_matches(['+', '-']);
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        return plain.then(|| format!("{text}f"));
    }
    let length = decimal_length(text);
    let (number, suffix) = text.split_at(length);
    let floating = number.contains(['.', 'e', 'E']);
    let point = if floating { "" } else { ".0" };
    match suffix {
        "" if floating => Some(format!("{text}f")),
        "h" | "H" => Some(format!("{number}{point}f16")),
        "bf" | "BF" => Some(format!("((__bf16){number}{point})")),
        _ => None,
    }
}

/// Magnitude of a `float` or `bfloat` literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Magnitude {
    /// Subnormal: flushed to zero.
    Subnormal,
    /// Below 2^-63: the product of two such numbers can be subnormal, while that of two larger ones cannot.
    Small,
    /// Anything else.
    Normal,
}

/// Classifies a literal; integers and halves are [`Magnitude::Normal`].
pub(super) fn magnitude(text: &str) -> Magnitude {
    let value = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => hexadecimal(digits),
        None => {
            let (number, suffix) = text.split_at(decimal_length(text));
            let float = matches!(suffix, "" | "f" | "F" | "bf" | "BF");
            float
                .then(|| number.replace('\'', "").parse::<f64>().ok())
                .flatten()
        }
    };
    match value {
        Some(0.0) => Magnitude::Normal,
        Some(value) if value < f64::from(f32::MIN_POSITIVE) => Magnitude::Subnormal,
        Some(value) if value < 2_f64.powi(-63) => Magnitude::Small,
        _ => Magnitude::Normal,
    }
}

/// The value of a hexadecimal floating-point literal, without its `0x`.
fn hexadecimal(digits: &str) -> Option<f64> {
    let (mantissa, exponent) = digits.split_once(['p', 'P'])?;
    let exponent: i32 = exponent.trim_end_matches(['f', 'F']).parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut value = 0.0;
    for digit in whole.chars().chain(fraction.chars()).filter(|c| *c != '\'') {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let places = i32::try_from(fraction.len()).ok()?;
    Some(value * 2_f64.powi(exponent.saturating_sub(4 * places).max(-1000)))
}

/// Length in bytes of the digits, point and exponent of a decimal literal.
fn decimal_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |mut at: usize| {
        while bytes
            .get(at)
            .is_some_and(|&b| b.is_ascii_digit() || b == b'\'')
        {
            at += 1;
        }
        at
    };
    let mut at = digits(0);
    if bytes.get(at) == Some(&b'.') {
        at = digits(at + 1);
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let mut exponent = at + 1;
        if matches!(bytes.get(exponent), Some(b'+' | b'-')) {
            exponent += 1;
        }
        let end = digits(exponent);
        if end > exponent {
            at = end;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::{Magnitude, magnitude, rewrite};

    #[test]
    fn classifies_small_and_subnormal_literals() {
        for (text, expected) in [
            ("1e-40f", Magnitude::Subnormal),
            ("1e-40", Magnitude::Subnormal),
            ("0x1p-127f", Magnitude::Subnormal),
            ("0x1.8p-149", Magnitude::Subnormal),
            ("1e-39bf", Magnitude::Subnormal),
            ("0x1p-126f", Magnitude::Small),
            ("1e-20", Magnitude::Small),
            ("0x0.8p-80f", Magnitude::Small),
            ("0.0", Magnitude::Normal),
            ("0", Magnitude::Normal),
            ("0x0p0", Magnitude::Normal),
            ("1e-5h", Magnitude::Normal),
            ("1e-12f", Magnitude::Normal),
            ("0x10", Magnitude::Normal),
            ("0x1f", Magnitude::Normal),
            ("7u", Magnitude::Normal),
            ("1e-99999999999f", Magnitude::Normal),
            ("0x1p-99999999999f", Magnitude::Normal),
        ] {
            assert_eq!(magnitude(text), expected, "{text}");
        }
    }

    #[test]
    fn gives_every_literal_its_type() {
        for (msl, cpp) in [
            ("1.0", Some("1.0f")),
            (".5", Some(".5f")),
            ("1.", Some("1.f")),
            ("1e-5", Some("1e-5f")),
            ("0x1p3", Some("0x1p3f")),
            ("1.5h", Some("1.5f16")),
            ("2h", Some("2.0f16")),
            ("1e2H", Some("1e2f16")),
            ("1.5bf", Some("((__bf16)1.5)")),
            ("1.0f", None),
            ("1.0F", None),
            ("1", None),
            ("1u", None),
            ("0xe", None),
            ("0x1p3f", None),
            ("0x", None),
            ("1.0_x", None),
            ("1e", None),
        ] {
            assert_eq!(rewrite(msl).as_deref(), cpp, "{msl}");
        }
    }
}
