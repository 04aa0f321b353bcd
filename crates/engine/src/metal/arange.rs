//! `arange` and `linspace` on Metal.

use super::elementwise::Elementwise;
use super::input::{Input, Output};
use super::kernel::Kernel;
use super::msl_struct::msl_struct;
use super::record::Recorder;
use crate::ops::arange::Arange;
use crate::{Result, Scalar};

msl_struct! {
    /// An `f64` unpacked for devices without doubles: `significand 2^exponent`.
    #[derive(Default)]
    pub(super) struct Double {
        /// 0, or with bit 52 as its highest.
        significand: u64,
        exponent: i32,
        negative: u32,
    }
}

impl Double {
    fn new(x: f64) -> Self {
        let bits = x.to_bits();
        let negative = (bits >> 63) as u32;
        let fraction = bits & ((1 << 52) - 1);
        let exponent = (bits >> 52 & 0x7ff) as i32;
        if x == 0.0 {
            return Self::default();
        }
        if exponent == 0 {
            let shift = fraction.leading_zeros() - 11;
            return Self {
                significand: fraction << shift,
                exponent: -1074 - shift as i32,
                negative,
            };
        }
        Self {
            significand: fraction | 1 << 52,
            exponent: exponent - 1075,
            negative,
        }
    }
}

msl_struct! {
    /// Arguments of the arange kernel.
    #[derive(Default)]
    pub(super) struct ArangeArgs {
        start: Double,
        step: Double,
        /// First element and step, for integers.
        first: i64,
        distance: i64,
        /// Bits of the last element.
        last: u64,
    }
}

pub(crate) fn record(
    op: &Arange,
    recorder: &mut Recorder<'_>,
    _inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let mut range = ArangeArgs::default();
    let integers = match (op.start, op.step) {
        (Scalar::Int(start), Scalar::Int(step)) => {
            let last = start + (op.len as i128 - 1) * step;
            let fits = |x: i128| i64::try_from(x).is_ok();
            if op.dtype.is_float() && !(fits(start) && fits(last)) {
                // Floats that begin beyond 64 bits.
                recorder.no_kernel = true;
                return Ok(());
            }
            // Integers keep their low bits.
            (range.first, range.distance) = (start as i64, step as i64);
            true
        }
        (start, step) => {
            range.start = Double::new(start.to_f64());
            range.step = Double::new(step.to_f64());
            false
        }
    };
    if let Some(last) = op.last {
        range.last = u64::from_ne_bytes(last.to_bytes(op.dtype));
    }
    let elementwise = Elementwise::new(&output.shape, &[]);
    let kernel = Kernel::new("arange", "arange")
        .with_type("T", op.dtype)
        .flag("INTEGERS", integers)
        .flag("LAST", op.last.is_some());
    let launch = recorder
        .launch(&kernel)?
        .write(&output.slice)
        .value(&elementwise.extent)
        .value(&range);
    elementwise.launch(launch, recorder);
    Ok(())
}
