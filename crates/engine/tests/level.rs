//! All SIMD levels of this processor. The level is a property of the process, so this is a separate process with one
//! test.
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use bessemer::DType;
use bessemer::simd::{Level, set_level};

#[path = "ops/formula.rs"]
mod formula;

#[test]
fn fused_formulas_are_bit_identical_at_every_simd_level() {
    for level in Level::ALL {
        if !set_level(level) {
            continue;
        }
        for (i, dtype) in [DType::F32, DType::F64, DType::F16, DType::I32, DType::U8]
            .into_iter()
            .enumerate()
        {
            for seed in 0..4 {
                formula::joined_is_single(1000 + i as u64 * 10 + seed, 9, 1031, dtype);
                formula::joined_is_single(2000 + i as u64 * 10 + seed, 130, 70, dtype);
            }
        }
    }
}
