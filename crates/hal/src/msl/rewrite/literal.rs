//! Floating-point literals: MSL has no `double`, and has suffixes that C++ lacks.

/// The C++ spelling of a literal, where it differs.
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

/// How many bytes belong to the digits, point and exponent of a decimal literal.
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
    use super::rewrite;

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
