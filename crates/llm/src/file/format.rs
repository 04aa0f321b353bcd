//! Storage formats of tensors.

use std::fmt;

/// Storage format of a tensor: unquantised, or in blocks along the innermost axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(
    non_camel_case_types,
    reason = "the names that these formats are known by"
)]
#[expect(
    missing_docs,
    reason = "the names are self-explanatory; the table below has the sizes"
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

/// A format's name, its ggml type id, and the elements and bytes of a block.
struct FormatInfo(Format, &'static str, Option<u32>, usize, usize);

const FORMAT_TABLE: [FormatInfo; 34] = {
    use Format::*;
    [
        FormatInfo(F32, "f32", Some(0), 1, 4),
        FormatInfo(F16, "f16", Some(1), 1, 2),
        FormatInfo(BF16, "bf16", Some(30), 1, 2),
        FormatInfo(F64, "f64", Some(28), 1, 8),
        FormatInfo(I8, "i8", Some(24), 1, 1),
        FormatInfo(U8, "u8", None, 1, 1),
        FormatInfo(I16, "i16", Some(25), 1, 2),
        FormatInfo(I32, "i32", Some(26), 1, 4),
        FormatInfo(I64, "i64", Some(27), 1, 8),
        FormatInfo(Bool, "bool", None, 1, 1),
        FormatInfo(Q4_0, "q4_0", Some(2), 32, 18),
        FormatInfo(Q4_1, "q4_1", Some(3), 32, 20),
        FormatInfo(Q5_0, "q5_0", Some(6), 32, 22),
        FormatInfo(Q5_1, "q5_1", Some(7), 32, 24),
        FormatInfo(Q8_0, "q8_0", Some(8), 32, 34),
        FormatInfo(Q8_1, "q8_1", Some(9), 32, 36),
        FormatInfo(Q2_K, "q2_k", Some(10), 256, 84),
        FormatInfo(Q3_K, "q3_k", Some(11), 256, 110),
        FormatInfo(Q4_K, "q4_k", Some(12), 256, 144),
        FormatInfo(Q5_K, "q5_k", Some(13), 256, 176),
        FormatInfo(Q6_K, "q6_k", Some(14), 256, 210),
        FormatInfo(Q8_K, "q8_k", Some(15), 256, 292),
        FormatInfo(IQ2_XXS, "iq2_xxs", Some(16), 256, 66),
        FormatInfo(IQ2_XS, "iq2_xs", Some(17), 256, 74),
        FormatInfo(IQ3_XXS, "iq3_xxs", Some(18), 256, 98),
        FormatInfo(IQ1_S, "iq1_s", Some(19), 256, 50),
        FormatInfo(IQ4_NL, "iq4_nl", Some(20), 32, 18),
        FormatInfo(IQ3_S, "iq3_s", Some(21), 256, 110),
        FormatInfo(IQ2_S, "iq2_s", Some(22), 256, 82),
        FormatInfo(IQ4_XS, "iq4_xs", Some(23), 256, 136),
        FormatInfo(IQ1_M, "iq1_m", Some(29), 256, 56),
        FormatInfo(TQ1_0, "tq1_0", Some(34), 256, 54),
        FormatInfo(TQ2_0, "tq2_0", Some(35), 256, 66),
        FormatInfo(MXFP4, "mxfp4", Some(39), 32, 17),
    ]
};

impl Format {
    fn info(self) -> &'static FormatInfo {
        // The table is in the order of the enum, which a test checks.
        &FORMAT_TABLE[self as usize]
    }

    /// All formats.
    pub fn all() -> impl Iterator<Item = Self> {
        FORMAT_TABLE.iter().map(|info| info.0)
    }

    /// The name, in lower case: `f32`, `q4_k`.
    pub fn name(self) -> &'static str {
        self.info().1
    }

    /// Looks up a format by name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::all().find(|f| f.name().eq_ignore_ascii_case(name))
    }

    /// Its ggml type id, which GGUF files use.
    pub fn ggml_id(self) -> Option<u32> {
        self.info().2
    }

    /// Looks up a format by its ggml type id.
    pub fn of_ggml_id(id: u32) -> Option<Self> {
        Self::all().find(|f| f.ggml_id() == Some(id))
    }

    /// Elements of a block; 1 for unquantised formats.
    pub fn block_len(self) -> usize {
        self.info().3
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        self.info().4
    }

    /// Returns whether elements are stored in blocks with scales.
    pub fn is_quantised(self) -> bool {
        self.block_len() > 1
    }

    /// Bytes of a tensor; `None` if they overflow or the innermost axis is not a whole number
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
        assert_eq!(Format::of_ggml_id(4), None, "a format that ggml removed");
    }

    #[test]
    fn blocks_are_along_the_innermost_axis() {
        assert_eq!(Format::Q4_1.bytes(&[2, 64]), Some(80));
        assert_eq!(Format::Q4_1.bytes(&[64, 2]), None);
        assert_eq!(Format::F16.bytes(&[]), Some(2));
        assert_eq!(Format::F32.bytes(&[usize::MAX, 2]), None);
        assert_eq!(Format::F32.bytes(&[usize::MAX / 2]), None);
    }
}
