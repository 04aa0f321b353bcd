//! Which instruction set each family of kernels uses, on every processor.
//!
//! The table is fixed: a kernel's choice depends on the processor's features alone, never on a measurement at run
//! time, so results do not change from run to run. An entry is lower than its column where the lower kernels were
//! measured to be faster, or where the family has none for the features of the column.
//!
//! # Measurements
//!
//! All on Zen 4 (AMD EPYC), two threads, by `bessemer-bench ops` and `llm` with `--simd avx2`.
//!
//! | entries | source |
//! |---|---|
//! | AVX2 over scalar, all families | unmeasured level against level; AVX2 is measured against peers on Zen 3 |
//! | AVX-512 for elementwise | long functions (`exp`, `log`, …) 1.3 to 2.0 times AVX2, softmax 1.3, RoPE 1.05. Short ones (`a + b`) are [`Family::Streaming`]: the same at 10K, 0.6 to 0.9 at 16M; row norms 0.78 to 1.07 |
//! | AVX-512 for attention, GEMM | attention 1.1 times AVX2; GEMM 1.07 in the mean of 33 shapes, 0.92 to 0.98 in five (1024³ and larger), up to 1.9 with packed weights. Products that fit AVX2's tiles better use those (`gemm/problem.rs`) |
//! | VNNI for decode | as fast as AVX2, limited by memory; two to four rows 1.1 to 2 times |
//! | VNNI for prefill | 1.3 to 1.6 times AVX2 |
//! | AVX2 for f16/bf16 weights with AVX-512 | the fixed-point kernels of prefill are AVX2's; decode is limited by memory |
//! | all of NEON | unmeasured; tested by emulation |

use super::Level;

/// A set of instructions that kernels are chosen by: a [`Level`], with extensions that some processors have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Features {
    /// The target's baseline.
    Scalar,
    /// [`Level::Avx2`]
    Avx2,
    /// [`Level::Avx512`]
    Avx512,
    /// [`Level::Avx512`] with 8-bit dot products.
    Avx512Vnni,
    /// [`Level::Neon`]
    Neon,
    /// [`Level::Neon`] with 8-bit dot products.
    NeonDotprod,
    /// [`Level::Neon`] with 8-bit dot products and matrix multiplication.
    NeonI8mm,
}

impl Features {
    /// All of them, lower ones of an architecture first.
    pub(crate) const ALL: [Self; 7] = [
        Self::Scalar,
        Self::Avx2,
        Self::Avx512,
        Self::Avx512Vnni,
        Self::Neon,
        Self::NeonDotprod,
        Self::NeonI8mm,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Avx512Vnni => "avx512+vnni",
            Self::NeonDotprod => "neon+dotprod",
            Self::NeonI8mm => "neon+i8mm",
            _ => self.level().name(),
        }
    }

    /// The level they belong to.
    pub(crate) const fn level(self) -> Level {
        match self {
            Self::Scalar => Level::Scalar,
            Self::Avx2 => Level::Avx2,
            Self::Avx512 | Self::Avx512Vnni => Level::Avx512,
            Self::Neon | Self::NeonDotprod | Self::NeonI8mm => Level::Neon,
        }
    }

    /// The features that this processor has at an available level.
    pub(super) fn of(level: Level) -> Self {
        Self::ALL
            .into_iter()
            .rev()
            .find(|f| f.level() == level && f.is_available())
            .unwrap_or(Self::Scalar)
    }

    /// Returns true if this processor has them.
    pub(crate) fn is_available(self) -> bool {
        self.level().is_available()
            && match self {
                #[cfg(target_arch = "x86_64")]
                Self::Avx512Vnni => std::arch::is_x86_feature_detected!("avx512vnni"),
                #[cfg(target_arch = "aarch64")]
                Self::NeonDotprod => std::arch::is_aarch64_feature_detected!("dotprod"),
                #[cfg(target_arch = "aarch64")]
                Self::NeonI8mm => {
                    std::arch::is_aarch64_feature_detected!("dotprod")
                        && std::arch::is_aarch64_feature_detected!("i8mm")
                }
                _ => true,
            }
    }
}

/// A group of kernels that use the same features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Elementwise functions of many instructions, softmax, RoPE, pooling, convolution, random numbers.
    Elementwise,
    /// Loops limited by memory bandwidth: elementwise ops of few instructions and fused pairs of them, casts, reductions,
    /// arg-reductions, row norms, activations of language models, KV-cache writes, quantisation of activations,
    /// dequantisation of rows. Never compiled above AVX2: there are many of them.
    Streaming,
    /// Attention over the KV cache and over tensors.
    Attention,
    /// Matrix multiplication of tensors of any dtype.
    Gemm,
    /// Packed f16 and bf16 weights of language models: GEMV, GEMM and the fixed-point i16 kernels.
    HalfWeights,
    /// Quantised weights times at most [`MAX_MATVEC_ROWS`] rows of activations: decode.
    QuantMatvec,
    /// Quantised weights times more rows: prefill.
    QuantMatmul,
}

/// Maximum rows of 8-bit activations for which a product with quantised weights is [`Family::QuantMatvec`]. A token is one
/// row, or two if its activations are quantised to two terms; i8mm multiplies two rows at a time.
pub(crate) const MAX_MATVEC_ROWS: usize = if cfg!(target_arch = "aarch64") { 1 } else { 2 };

impl Family {
    /// All of them, in the order of the table.
    #[cfg(test)]
    const ALL: [Self; 7] = [
        Self::Elementwise,
        Self::Streaming,
        Self::Attention,
        Self::Gemm,
        Self::HalfWeights,
        Self::QuantMatvec,
        Self::QuantMatmul,
    ];

    /// The features that its kernels use on a processor with `features`.
    #[inline]
    pub(crate) const fn choose(self, features: Features) -> Features {
        TABLE[self as usize][features as usize]
    }
}

const TABLE: [[Features; 7]; 7] = {
    use Features::{
        Avx2, Avx512, Avx512Vnni, Neon, NeonDotprod as Dotprod, NeonI8mm as I8mm, Scalar,
    };
    // scalar, avx2, avx512, avx512 + vnni, neon, neon + dotprod, neon + i8mm
    [
        // Elementwise
        [Scalar, Avx2, Avx512, Avx512, Neon, Neon, Neon],
        // Streaming
        [Scalar, Avx2, Avx2, Avx2, Neon, Neon, Neon],
        // Attention
        [Scalar, Avx2, Avx512, Avx512, Neon, Neon, Neon],
        // Gemm
        [Scalar, Avx2, Avx512, Avx512, Neon, Neon, Neon],
        // HalfWeights
        [Scalar, Avx2, Avx2, Avx2, Neon, Neon, Neon],
        // QuantMatvec
        [Scalar, Avx2, Avx2, Avx512Vnni, Neon, Dotprod, Dotprod],
        // QuantMatmul
        [Scalar, Avx2, Avx2, Avx512Vnni, Neon, Dotprod, I8mm],
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_available_if_its_column_is_and_never_above_it() {
        for family in Family::ALL {
            for features in Features::ALL {
                let entry = family.choose(features);
                let name = format!("{family:?} with {features:?}: {entry:?}");
                assert!(entry <= features, "{name} is above the column");
                let arch = |f: Features| f >= Features::Neon;
                let same = entry == Features::Scalar || arch(entry) == arch(features);
                assert!(same, "{name} is of another architecture");
                assert!(entry.level() <= features.level(), "{name} is above the cap");
                assert!(entry.is_available() || !features.is_available(), "{name}");
                // Vector units are used if there are any.
                let scalar = features == Features::Scalar;
                assert_eq!(entry == Features::Scalar, scalar, "{name}");
            }
        }
    }

    #[test]
    fn a_higher_column_never_chooses_lower_features() {
        for family in Family::ALL {
            for columns in [&Features::ALL[..4], &Features::ALL[4..]] {
                for pair in columns.windows(2) {
                    let [low, high] = [pair[0], pair[1]].map(|f| family.choose(f));
                    assert!(low <= high, "{family:?}: {low:?} then {high:?}");
                }
            }
        }
    }

    #[test]
    fn entries_are_kernels_that_the_family_has() {
        for features in Features::ALL {
            // Compiled for AVX2 at most.
            assert_ne!(Family::Streaming.choose(features).level(), Level::Avx512);
            for family in [
                Family::Elementwise,
                Family::Streaming,
                Family::Attention,
                Family::Gemm,
                Family::HalfWeights,
            ] {
                // Only 8-bit integer kernels use extensions of a level.
                let entry = family.choose(features);
                let levels = [
                    Features::Scalar,
                    Features::Avx2,
                    Features::Avx512,
                    Features::Neon,
                ];
                assert!(levels.contains(&entry), "{family:?}: {entry:?}");
            }
            // The fixed-point kernels of f16 and bf16 weights are AVX2's alone.
            if features < Features::Neon && features != Features::Scalar {
                assert_eq!(Family::HalfWeights.choose(features), Features::Avx2);
            }
            // AVX-512 without VNNI has no kernels for them.
            for family in [Family::QuantMatvec, Family::QuantMatmul] {
                assert_ne!(family.choose(features), Features::Avx512, "{family:?}");
            }
        }
    }

    #[test]
    fn the_rows_of_the_table_are_in_the_order_of_the_families() {
        for (i, family) in Family::ALL.into_iter().enumerate() {
            assert_eq!(family as usize, i);
        }
        for (i, features) in Features::ALL.into_iter().enumerate() {
            assert_eq!(features as usize, i);
        }
    }
}
