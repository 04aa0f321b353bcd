//! Regions of a tensor, copied as they are.

use super::elementwise::{Elementwise, same_size_uint};
use super::input::{Input, Output};
use super::kernel::Kernel;
use super::msl_struct::msl_struct;
use super::record::Recorder;
use crate::shape::MAX_RANK;
use crate::{Layout, Result, Shape};

msl_struct! {
    /// A region of a larger result: its first index and its length along each axis.
    pub(super) struct Region {
        start: [u32; MAX_RANK],
        len: [u32; MAX_RANK],
    }
}

impl Region {
    /// The region of a shape that begins at these indices.
    pub(super) fn new(start: &[usize], shape: &Shape) -> Self {
        let mut region = Self {
            start: [0; MAX_RANK],
            len: [1; MAX_RANK],
        };
        for (axis, &len) in shape.iter().enumerate() {
            (region.start[axis], region.len[axis]) = (start[axis] as u32, len as u32);
        }
        region
    }
}

/// Copies an input, which has an element, to a region of the result, with a kernel that calls `copy_region`.
pub(super) fn write(
    file: &'static str,
    entry: &'static str,
    recorder: &mut Recorder<'_>,
    input: &Input<'_>,
    region: &Layout,
    output: &Output,
) -> Result<()> {
    let span = input.span(output);
    let target = Input {
        block: None,
        dtype: input.dtype,
        layout: *region,
        constant: None,
    };
    // Bound from its first element on, so that writes to disjoint regions need not wait for each other.
    let (range, offset) = output.region_slice(region);
    let elementwise = Elementwise::new(
        input.layout.shape(),
        &[(input, span.offset), (&target, offset)],
    );
    let kernel = Kernel::new(file, entry)
        .with_type("T", same_size_uint(input.dtype))
        .flag("VECTOR_INPUT", elementwise.is_vector(&elementwise.views[0]))
        .flag(
            "VECTOR_OUTPUT",
            elementwise.is_vector(&elementwise.views[1]),
        );
    let launch = recorder
        .launch(&kernel)?
        .read(span)
        .write(range)
        .value(&elementwise.extent)
        .values(&elementwise.views);
    elementwise.launch(launch, recorder);
    Ok(())
}
