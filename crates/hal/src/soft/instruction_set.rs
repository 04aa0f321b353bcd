//! Instruction sets that kernels are compiled for.
//!
//! A kernel gives the same bits on every one of them, so that results do not depend on the host:
//!
//! - every operation is rounded as written, in every math mode: no contraction, reassociation or reciprocal
//!   estimates (`rcpps` alone differs between AMD and Intel). `fma` and the functions made of it round once
//!   everywhere, through the C library if there is no instruction;
//! - conversions to `bfloat` are ours, in integer arithmetic: `vcvtneps2bf16` always flushes subnormal results;
//! - `half` is computed in `float` and rounded, since none of these instruction sets computes in half precision;
//! - elementary functions are ours or the runtime's: the C library picks others for processors with `fma`.
//!
//! AVX-512 is not supported: speed does not need it here, and every additional feature would have to be shown to
//! change no bits.

use std::fmt;
use std::str::FromStr;

/// An instruction set that kernels are compiled for. The bits of results are the same for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InstructionSet {
    /// The x86-64 baseline: SSE2.
    X86_64,
    /// AVX2, FMA, F16C and BMI, available on x86-64 processors since 2013.
    X86_64V3,
    /// The AArch64 baseline: NEON.
    Armv8,
}

impl InstructionSet {
    /// All instruction sets, larger ones later.
    pub const ALL: [Self; 3] = [Self::X86_64, Self::X86_64V3, Self::Armv8];

    /// The largest that this machine supports.
    pub fn native() -> Self {
        let mut supported = Self::ALL.into_iter().filter(|set| set.is_supported());
        // The software device exists on these two architectures only, each with a baseline that all machines have.
        supported.next_back().unwrap_or(Self::X86_64)
    }

    /// Returns whether this machine supports it.
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
        if set.is_supported() {
            Ok(set)
        } else {
            Err(format!("this machine does not have {set}"))
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
            if set.is_supported() {
                assert_eq!(set.to_string().parse(), Ok(set));
            } else {
                assert!(set.name().parse::<InstructionSet>().is_err());
            }
        }
        assert!("x86-64-v9".parse::<InstructionSet>().is_err());
    }
}
