//! Copies into a rectangular region of a row-major tensor, for `concat`, `pad` and `slice_update`.
#![expect(
    unsafe_code,
    reason = "threads write different rows of one region, which are not contiguous slices"
)]

use bytemuck::Pod;

use super::pool::{self, DisjointSlice};
use super::reduce::plan::StridedAxes;
use crate::dispatch::{Dense, Input};
use crate::{Layout, Result};

/// Copies an input to `region` of `out`; `region` has the input's shape and is a block of a row-major tensor.
pub(super) fn write(
    op: &'static str,
    input: Input<'_>,
    region: &Layout,
    out: &mut [u8],
) -> Result<()> {
    if input.layout.count() == 0 {
        return Ok(());
    }
    let rows = ContiguousRows::new(&input.layout, region);
    // Rows of single elements are gathered faster by the strided copy.
    if rows.len == 1 && !input.layout.is_contiguous() {
        let copy = Dense::new(op, input)?;
        let rows = ContiguousRows::new(&Layout::contiguous(*input.layout.shape()), region);
        dispatch(&rows, input.dtype.size(), copy.bytes(), out);
    } else {
        dispatch(&rows, input.dtype.size(), input.bytes, out);
    }
    Ok(())
}

fn dispatch(rows: &ContiguousRows, size: usize, from: &[u8], to: &mut [u8]) {
    match size {
        1 => rows.copy(from, to),
        2 => rows.copy::<u16>(bytemuck::cast_slice(from), bytemuck::cast_slice_mut(to)),
        4 => rows.copy::<u32>(bytemuck::cast_slice(from), bytemuck::cast_slice_mut(to)),
        _ => rows.copy::<u64>(bytemuck::cast_slice(from), bytemuck::cast_slice_mut(to)),
    }
}

/// Rows that are contiguous in both layouts.
struct ContiguousRows {
    len: usize,
    from: StridedAxes,
    to: StridedAxes,
    /// Offsets of the first row in the source and in the target.
    offsets: [usize; 2],
}

impl ContiguousRows {
    fn new(from: &Layout, to: &Layout) -> Self {
        let shape = from.shape();
        let (mut len, mut axis) = (1, shape.rank());
        while axis > 0 {
            let step = len as isize;
            let follows = from.strides()[axis - 1] == step && to.strides()[axis - 1] == step;
            if shape[axis - 1] != 1 && !follows {
                break;
            }
            len *= shape[axis - 1];
            axis -= 1;
        }
        let (mut walk_from, mut walk_to) = (StridedAxes::new(), StridedAxes::new());
        for a in 0..axis {
            walk_from.push(shape[a], from.strides()[a]);
            walk_to.push(shape[a], to.strides()[a]);
        }
        Self {
            len,
            from: walk_from,
            to: walk_to,
            offsets: [from.offset(), to.offset()],
        }
    }

    fn copy<T: Pod + Send + Sync>(&self, from: &[T], to: &mut [T]) {
        let [first, target] = self.offsets;
        let piece = pool::grain(2 * size_of::<T>());
        // A row is one segment, or several if it is long.
        let (segments, segment) = if self.len > piece {
            (self.len.div_ceil(piece), piece)
        } else {
            (1, self.len)
        };
        let step = (piece / self.len).max(1);
        let rows = self.from.count;
        let to = DisjointSlice::new(to);
        pool::run(rows.div_ceil(step) * segments, |i| {
            let (group, start) = (i / segments, i % segments * segment);
            let len = segment.min(self.len - start);
            for row in group * step..rows.min((group + 1) * step) {
                let at = first.wrapping_add_signed(self.from.at(row)) + start;
                let to_at = target.wrapping_add_signed(self.to.at(row)) + start;
                // SAFETY: rows of a block of a row-major tensor do not overlap, nor do segments of a row, and each
                // segment of each row is copied by one call.
                let to = unsafe { to.range(to_at, len) };
                to.copy_from_slice(&from[at..][..len]);
            }
        });
    }
}
