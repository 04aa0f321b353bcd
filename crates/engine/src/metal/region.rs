//! Regions of a tensor, copied as they are.

use super::elementwise::{Each, moved};
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
        let mut inside = Self {
            start: [0; MAX_RANK],
            len: [1; MAX_RANK],
        };
        for (axis, &len) in shape.iter().enumerate() {
            (inside.start[axis], inside.len[axis]) = (start[axis] as u32, len as u32);
        }
        inside
    }
}

/// Copies an input, which has an element, to a region of the result, with a kernel that calls `copy_region`.
pub(super) fn write(
    file: &'static str,
    entry: &'static str,
    recorder: &mut Recorder<'_>,
    input: &Input<'_>,
    place: &Layout,
    output: &Output,
) -> Result<()> {
    let span = input.span(output);
    let target = Input {
        block: None,
        dtype: input.dtype,
        layout: *place,
        constant: None,
    };
    // Bound from its first element on, so that writes to disjoint regions need not wait for each other.
    let (range, offset) = output.part(place);
    let each = Each::new(
        input.layout.shape(),
        &[(input, span.offset), (&target, offset)],
    );
    let kernel = Kernel::new(file, entry)
        .of("T", moved(input.dtype))
        .flag("VECTOR_INPUT", each.is_vector(&each.steps[0]))
        .flag("VECTOR_OUTPUT", each.is_vector(&each.steps[1]));
    let launch = recorder
        .launch(&kernel)?
        .read(span)
        .write(range)
        .value(&each.extent)
        .values(&each.steps);
    each.launch(launch, recorder);
    Ok(())
}
