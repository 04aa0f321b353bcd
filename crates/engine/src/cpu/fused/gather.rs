//! Elements of any layout, brought together a block at a time.

use bytemuck::Pod;

use crate::Shape;
use crate::shape::MAX_RANK;

/// The axes of a result, as few as say where the elements of all inputs lie: neighbours that every input
/// walks through as one are one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axes {
    dims: [usize; MAX_RANK],
    rank: usize,
}

/// How far an input goes for each of the [`Axes`].
pub(crate) type Strides = [isize; MAX_RANK];

impl Axes {
    /// Joins what axes of `shape` can be joined; `strides` are those of the inputs for `shape`, and become
    /// those for the result.
    pub(crate) fn collapse(shape: &Shape, strides: &mut [Strides]) -> Self {
        let mut axes = Self {
            dims: [1; MAX_RANK],
            rank: 0,
        };
        for (from, &len) in shape.iter().enumerate() {
            if len == 1 {
                continue;
            }
            let joins = axes.rank > 0
                && strides
                    .iter()
                    .all(|s| s[axes.rank - 1] == s[from].wrapping_mul(len as isize));
            if !joins {
                axes.rank += 1;
                axes.dims[axes.rank - 1] = 1;
            }
            let to = axes.rank - 1;
            axes.dims[to] *= len;
            for s in &mut *strides {
                s[to] = s[from];
            }
        }
        if axes.rank == 0 {
            axes.rank = 1;
            strides.iter_mut().for_each(|s| s[0] = 0);
        }
        axes
    }

    /// The length of the innermost axis.
    pub(crate) fn inner(&self) -> usize {
        self.dims[self.rank - 1]
    }

    /// Number of axes, at least one.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// The index of an element of the result along each axis.
    fn index(&self, mut at: usize) -> [usize; MAX_RANK] {
        let mut index = [0; MAX_RANK];
        for (i, &len) in index.iter_mut().zip(self.dims()).rev() {
            *i = at % len;
            at /= len;
        }
        index
    }
}

/// The way through an input: element number `offset` of its storage is the first, and each of the axes
/// goes as far as its stride says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk<'a> {
    pub(crate) axes: &'a Axes,
    pub(crate) offset: usize,
    pub(crate) strides: &'a Strides,
}

impl Walk<'_> {
    /// Where the storage has element number `start` of the result.
    pub(crate) fn place(&self, start: usize) -> usize {
        self.place_of(&self.axes.index(start))
    }

    fn place_of(&self, index: &[usize]) -> usize {
        let mut at = self.offset;
        for (&i, &s) in index[..self.axes.rank].iter().zip(self.strides) {
            at = at.wrapping_add_signed(i as isize * s);
        }
        at
    }

    /// Writes the elements from number `start` on, as many as `out` has room for, one after the other.
    /// `from` is the whole storage; elements have `size` bytes.
    pub(crate) fn gather(&self, size: usize, from: &[u8], start: usize, out: &mut [u8]) {
        use bytemuck::{cast_slice, cast_slice_mut};
        match size {
            1 => self.gather_all(from, start, out),
            2 => self.gather_all::<u16>(cast_slice(from), start, cast_slice_mut(out)),
            4 => self.gather_all::<u32>(cast_slice(from), start, cast_slice_mut(out)),
            _ => self.gather_all::<u64>(cast_slice(from), start, cast_slice_mut(out)),
        }
    }

    fn gather_all<T: Pod>(&self, from: &[T], start: usize, out: &mut [T]) {
        let Self { axes, strides, .. } = *self;
        let mut index = axes.index(start);
        let mut at = self.place_of(&index);
        let inner = axes.rank - 1;
        let step = strides[inner];
        let mut rest = out;
        loop {
            let len = (axes.dims[inner] - index[inner]).min(rest.len());
            let (row, next) = std::mem::take(&mut rest).split_at_mut(len);
            match step {
                1 => row.copy_from_slice(&from[at..at + len]),
                0 => row.fill(from[at]),
                _ => {
                    let mut i = at;
                    for y in row {
                        *y = from[i];
                        i = i.wrapping_add_signed(step);
                    }
                }
            }
            if next.is_empty() {
                return;
            }
            rest = next;
            // To the start of the next row.
            at = at.wrapping_add_signed(-(index[inner] as isize) * step);
            index[inner] = 0;
            for axis in (0..inner).rev() {
                index[axis] += 1;
                at = at.wrapping_add_signed(strides[axis]);
                if index[axis] < axes.dims[axis] {
                    break;
                }
                at = at.wrapping_add_signed(-(axes.dims[axis] as isize) * strides[axis]);
                index[axis] = 0;
            }
        }
    }
}

/// Fills a block with one element, given by its bytes.
pub(crate) fn splat(element: &[u8], out: &mut [u8]) {
    match element.len() {
        1 => out.fill(element[0]),
        2 => fill::<u16>(element, out),
        4 => fill::<u32>(element, out),
        _ => fill::<u64>(element, out),
    }
}

fn fill<T: Pod>(element: &[u8], out: &mut [u8]) {
    bytemuck::cast_slice_mut(out).fill(bytemuck::pod_read_unaligned::<T>(element));
}
