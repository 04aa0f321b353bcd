//! Instruction sets that kernels are compiled for.
//!
//! A kernel gives the same bits whichever of them it is compiled for, so that results do not depend on the host:
//!
//! - every operation is rounded as written, in every math mode: no contraction, reordering or reciprocal estimates (`rcpps`
//!   alone differs between AMD and Intel). `fma` and the functions made of it round once everywhere; where there is no
//!   instruction, the C library's function does;
//! - conversions to `bfloat` are ours, in integers: `vcvtneps2bf16` flushes subnormal results in any mode;
//! - `half` is computed in `float` and rounded, as no set listed here computes in half precision;
//! - elementary functions are ours or the runtime's: the C library has others for processors with `fma`.
//!
//! AVX-512 is not among them: nothing that it has is needed for speed here, and every feature more would have to be shown
//! to change no bits.

use std::fmt;
use std::str::FromStr;

/// An instruction set that kernels are compiled for. The bits of results are the same for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InstructionSet {
    /// What every x86-64 processor has: SSE2.
    X86_64,
    /// AVX2, FMA, F16C and BMI, which x86-64 processors since 2013 have.
    X86_64V3,
    /// What every 64-bit ARM processor has: NEON.
    Armv8,
}

impl InstructionSet {
    /// All of them, larger ones later.
    pub const ALL: [Self; 3] = [Self::X86_64, Self::X86_64V3, Self::Armv8];

    /// The largest that this machine runs.
    pub fn native() -> Self {
        let mut supported = Self::ALL.into_iter().filter(|set| set.is_supported());
        // The software device exists on these two architectures only, each with a first set that all machines have.
        supported.next_back().unwrap_or(Self::X86_64)
    }

    /// Whether this machine runs it.
    pub fn is_supported(self) -> bool {
        match self {
            Self::X86_64 => cfg!(target_arch = "x86_64"),
            Self::X86_64V3 => has_v3(),
            Self::Armv8 => cfg!(target_arch = "aarch64"),
        }
    }

    /// The name that clang's `-march` and the environment use.
    pub fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86-64",
            Self::X86_64V3 => "x86-64-v3",
            Self::Armv8 => "armv8-a",
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn has_v3() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("f16c")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("movbe")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_v3() -> bool {
    false
}

impl fmt::Display for InstructionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for InstructionSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|set| set.name() == text);
        let set = known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("unknown instruction set `{text}`; known are {names}")
        })?;
        match set.is_supported() {
            true => Ok(set),
            false => Err(format!("this machine does not have {set}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_native_set_is_the_largest_that_runs() {
        let native = InstructionSet::native();
        assert!(native.is_supported());
        for set in InstructionSet::ALL {
            match set.is_supported() {
                true => assert_eq!(set.to_string().parse(), Ok(set)),
                false => assert!(set.name().parse::<InstructionSet>().is_err()),
            }
        }
        assert!("x86-64-v9".parse::<InstructionSet>().is_err());
    }
}
