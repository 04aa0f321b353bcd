//! Flushes subnormal constants of `float` and `bfloat`.
//!
//! The processor flushes subnormals in arithmetic, and so does the optimiser when it folds `float` arithmetic. What
//! remains are constants that clang's front end folded or that the source contains, and rounding to `bfloat`, for
//! which processors have no instruction or one with different rules.

use super::FissionError;
use super::lex::{IrToken, IrTokenKind, tokens};

/// The shim function that rounds to `bfloat`.
const ROUND_BFLOAT_FN: &str = "sm_round_bfloat";

/// Replaces subnormal constants with zeros, and conversions to `bfloat` with calls.
pub(super) fn flush(text: &str) -> Result<String, FissionError> {
    let has_shim = text.contains(&format!("@{ROUND_BFLOAT_FN}("));
    let mut out = String::with_capacity(text.len());
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if has_shim && line.contains("= fptrunc float ") && line.contains(" to bfloat") {
            out.push_str(&as_call(line));
        } else if may_contain_subnormal(line) {
            out.push_str(&without_subnormals(line, index + 1)?);
        } else {
            out.push_str(line);
        }
    }
    Ok(out)
}

/// Rewrites `%y = fptrunc float %x to bfloat, !dbg !7` as a call.
fn as_call(line: &str) -> String {
    line.replacen(
        "= fptrunc float ",
        "= call bfloat @sm_round_bfloat(float ",
        1,
    )
    .replacen(" to bfloat", ")", 1)
}

/// Returns whether a line may contain a subnormal constant. LLVM prints constants without a short decimal form in
/// hexadecimal, among them all subnormals.
fn may_contain_subnormal(line: &str) -> bool {
    line.contains("float") && line.contains("0x") && !line.starts_with('!')
}

fn without_subnormals(line: &str, number: usize) -> Result<String, FissionError> {
    let mut out = String::with_capacity(line.len());
    let (mut kept, mut kind) = (0, "");
    for token in tokens(line, number)? {
        if token.kind != IrTokenKind::Word {
            continue;
        }
        if let "float" | "bfloat" | "double" | "half" = token.text {
            kind = token.text;
        } else if let Some(zero) = zero_for(kind, token) {
            out.push_str(&line[kept..token.start]);
            out.push_str(zero);
            kept = token.end();
        }
    }
    out.push_str(&line[kept..]);
    Ok(out)
}

/// Returns the zero that replaces a subnormal constant of this type. LLVM prints a `float` as the bits of the equal
/// `double`.
fn zero_for(kind: &str, token: IrToken<'_>) -> Option<&'static str> {
    const MIN_NORMAL_BITS: u64 = (1023 - 126) << 52;
    let digits = token.text.strip_prefix("0x")?;
    let (negative, magnitude, subnormal) = match kind {
        "float" => {
            let bits = u64::from_str_radix(digits, 16).ok()?;
            let magnitude = bits & !(1 << 63);
            (bits >> 63 == 1, magnitude, magnitude < MIN_NORMAL_BITS)
        }
        "bfloat" => {
            let bits = u16::from_str_radix(digits.strip_prefix('R')?, 16).ok()?;
            let magnitude = bits & 0x7fff;
            (bits >> 15 == 1, magnitude.into(), magnitude < 0x80)
        }
        _ => return None,
    };
    (subnormal && magnitude != 0).then_some(match (kind, negative) {
        ("bfloat", false) => "0xR0000",
        ("bfloat", true) => "0xR8000",
        (_, false) => "0.000000e+00",
        (_, true) => "-0.000000e+00",
    })
}

#[cfg(test)]
mod tests {
    use super::flush;

    #[test]
    fn only_subnormal_constants_of_float_and_bfloat_become_zero() {
        for (input, expected) in [
            (
                "  store float 0x36A0000000000000, ptr %p, align 4\n",
                "  store float 0.000000e+00, ptr %p, align 4\n",
            ),
            (
                "  %3 = phi float [ 0xB7A16C2620000000, %1 ], [ 0x3FB99999A0000000, %2 ]\n",
                "  %3 = phi float [ -0.000000e+00, %1 ], [ 0x3FB99999A0000000, %2 ]\n",
            ),
            (
                "@t = internal constant [2 x float] [float 0x3800000000000000, float 0x3810000000000000]",
                "@t = internal constant [2 x float] [float 0.000000e+00, float 0x3810000000000000]",
            ),
            (
                "  store bfloat 0xR807F, ptr %p, align 2\n  store bfloat 0xR0080, ptr %p\n",
                "  store bfloat 0xR8000, ptr %p, align 2\n  store bfloat 0xR0080, ptr %p\n",
            ),
            (
                "  call void @f(double 0x36A0000000000000, float 0x36A0000000000000, half 0xH0001)\n",
                "  call void @f(double 0x36A0000000000000, float 0.000000e+00, half 0xH0001)\n",
            ),
        ] {
            assert_eq!(flush(input).unwrap(), expected);
        }
        for kept in [
            "  %float = fmul double %a, 0x36A0000000000000\n",
            "  %x = fadd float %y, 0x7FF0000000000000\n",
            "  store i32 1, ptr @float.0x36A0000000000000\n",
        ] {
            assert_eq!(flush(kept).unwrap(), kept);
        }
    }

    #[test]
    fn roundings_to_bfloat_become_calls_if_the_shim_is_present() {
        let line = "  %2 = fptrunc float %1 to bfloat, !dbg !7\n";
        assert_eq!(flush(line).unwrap(), line);
        let shim = "define bfloat @sm_round_bfloat(float %x) {\n";
        assert_eq!(
            flush(&format!("{shim}{line}")).unwrap(),
            format!("{shim}  %2 = call bfloat @sm_round_bfloat(float %1), !dbg !7\n")
        );
    }
}
