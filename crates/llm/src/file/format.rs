//! How the numbers of a tensor are stored.

use std::fmt;

/// How the numbers of a tensor are stored: plain, or in blocks along the innermost axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(
    non_camel_case_types,
    reason = "the names that everybody knows these formats by"
)]
#[expect(
    missing_docs,
    reason = "a name says all there is to say; the table below has the sizes"
)]
pub enum Format {
    F32,
    F16,
    BF16,
    F64,
    I8,
    U8,
    I16,
    I32,
    I64,
    Bool,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_K,
    IQ2_XXS,
    IQ2_XS,
    IQ3_XXS,
    IQ1_S,
    IQ4_NL,
    IQ3_S,
    IQ2_S,
    IQ4_XS,
    IQ1_M,
    TQ1_0,
    TQ2_0,
    MXFP4,
}

/// A format's name, its id in GGUF files, and the numbers and bytes of one block.
struct Row(Format, &'static str, Option<u32>, usize, usize);

const TABLE: [Row; 34] = {
    use Format::*;
    [
        Row(F32, "f32", Some(0), 1, 4),
        Row(F16, "f16", Some(1), 1, 2),
        Row(BF16, "bf16", Some(30), 1, 2),
        Row(F64, "f64", Some(28), 1, 8),
        Row(I8, "i8", Some(24), 1, 1),
        Row(U8, "u8", None, 1, 1),
        Row(I16, "i16", Some(25), 1, 2),
        Row(I32, "i32", Some(26), 1, 4),
        Row(I64, "i64", Some(27), 1, 8),
        Row(Bool, "bool", None, 1, 1),
        Row(Q4_0, "q4_0", Some(2), 32, 18),
        Row(Q4_1, "q4_1", Some(3), 32, 20),
        Row(Q5_0, "q5_0", Some(6), 32, 22),
        Row(Q5_1, "q5_1", Some(7), 32, 24),
        Row(Q8_0, "q8_0", Some(8), 32, 34),
        Row(Q8_1, "q8_1", Some(9), 32, 36),
        Row(Q2_K, "q2_k", Some(10), 256, 84),
        Row(Q3_K, "q3_k", Some(11), 256, 110),
        Row(Q4_K, "q4_k", Some(12), 256, 144),
        Row(Q5_K, "q5_k", Some(13), 256, 176),
        Row(Q6_K, "q6_k", Some(14), 256, 210),
        Row(Q8_K, "q8_k", Some(15), 256, 292),
        Row(IQ2_XXS, "iq2_xxs", Some(16), 256, 66),
        Row(IQ2_XS, "iq2_xs", Some(17), 256, 74),
        Row(IQ3_XXS, "iq3_xxs", Some(18), 256, 98),
        Row(IQ1_S, "iq1_s", Some(19), 256, 50),
        Row(IQ4_NL, "iq4_nl", Some(20), 32, 18),
        Row(IQ3_S, "iq3_s", Some(21), 256, 110),
        Row(IQ2_S, "iq2_s", Some(22), 256, 82),
        Row(IQ4_XS, "iq4_xs", Some(23), 256, 136),
        Row(IQ1_M, "iq1_m", Some(29), 256, 56),
        Row(TQ1_0, "tq1_0", Some(34), 256, 54),
        Row(TQ2_0, "tq2_0", Some(35), 256, 66),
        Row(MXFP4, "mxfp4", Some(39), 32, 17),
    ]
};

impl Format {
    fn row(self) -> &'static Row {
        // The table is in the order of the enum; a test says so.
        &TABLE[self as usize]
    }

    /// All formats.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    /// The name, in lower case: `f32`, `q4_k`.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The format of a name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::all().find(|f| f.name().eq_ignore_ascii_case(name))
    }

    /// The number that GGUF files have for it.
    pub fn ggml_id(self) -> Option<u32> {
        self.row().2
    }

    /// The format that GGUF files have this number for.
    pub fn of_ggml_id(id: u32) -> Option<Self> {
        Self::all().find(|f| f.ggml_id() == Some(id))
    }

    /// Numbers in a block; 1 where there are no blocks.
    pub fn block_len(self) -> usize {
        self.row().3
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        self.row().4
    }

    /// Whether numbers are stored in blocks with scales.
    pub fn is_quantised(self) -> bool {
        self.block_len() > 1
    }

    /// Bytes of a tensor, unless that is more than can be counted or the innermost axis is no whole number
    /// of blocks.
    pub fn bytes(self, shape: &[usize]) -> Option<usize> {
        let inner = shape.last().copied().unwrap_or(1);
        if inner % self.block_len() != 0 {
            return None;
        }
        let count = shape.iter().try_fold(1_usize, |n, &d| n.checked_mul(d))?;
        (count / self.block_len()).checked_mul(self.block_bytes())
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_formats() {
        for (i, format) in Format::all().enumerate() {
            assert_eq!(format as usize, i);
            assert_eq!(Format::of_name(format.name()), Some(format));
            if let Some(id) = format.ggml_id() {
                assert_eq!(Format::of_ggml_id(id), Some(format));
            }
        }
        assert_eq!(Format::of_ggml_id(4), None, "a format that ggml took back");
    }

    #[test]
    fn blocks_lie_along_the_innermost_axis() {
        assert_eq!(Format::Q4_1.bytes(&[2, 64]), Some(80));
        assert_eq!(Format::Q4_1.bytes(&[64, 2]), None);
        assert_eq!(Format::F16.bytes(&[]), Some(2));
        assert_eq!(Format::F32.bytes(&[usize::MAX, 2]), None);
        assert_eq!(Format::F32.bytes(&[usize::MAX / 2]), None);
    }
}
