//! `random::…` on Metal: the bits of the CPU.

use super::elementwise::{Elementwise, same_size_uint};
use super::input::{Input, Output};
use super::kernel::Kernel;
use super::msl_struct::msl_struct;
use super::record::Recorder;
use crate::ops::random::{Distribution, Random};
use crate::{DType, Result};

msl_struct! {
    /// Arguments of the random number kernel.
    #[derive(Default)]
    pub(super) struct RandomArgs {
        key: [u32; 2],
        /// Of uniform floats: random bits used, lower bound, range and last value.
        bits: u32,
        low: f32,
        range: f32,
        last: f32,
        /// Of integers; of booleans, `width` is how many of 2^32 words are true.
        start: u64,
        width: u64,
    }
}

pub(crate) fn record(
    op: &Random,
    recorder: &mut Recorder<'_>,
    _inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let mut law = RandomArgs {
        key: op.key,
        ..RandomArgs::default()
    };
    // Integers of a size are the same bits, signed or not.
    let (kind, dtype) = match &op.distribution {
        Distribution::Bits => (0, op.dtype),
        Distribution::Uniform { low, range, last } => {
            law.bits = match op.dtype {
                DType::F16 => 11,
                DType::BF16 => 8,
                _ => 24,
            };
            [law.low, law.range, law.last] = [low, range, last].map(|x| x.to_f64() as f32);
            (1, op.dtype)
        }
        Distribution::Normal => (2, op.dtype),
        Distribution::Integer { low, range } => {
            (law.start, law.width) = (*low, *range);
            (3, same_size_uint(op.dtype))
        }
        Distribution::Bernoulli { below } => {
            law.width = *below;
            (4, same_size_uint(op.dtype))
        }
    };
    let elementwise = Elementwise::new(&output.shape, &[]);
    let kernel = Kernel::new("random", "random").with_type("T", dtype);
    let launch = recorder
        .launch(&kernel.constant("KIND", kind))?
        .write(&output.slice)
        .value(&elementwise.extent)
        .value(&law);
    elementwise.launch(launch, recorder);
    Ok(())
}
