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

/// Rows and columns of a tile: a cache line of 4-byte elements.
const TILE: usize = 16;

/// Elements of a chunk of tiles, at most: they should stay in a cache of 512 KiB.
const MOST: usize = 64 << 10;

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

    /// The lengths of the axes.
    pub(crate) fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// Number of axes, at least one.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// The axis along which an input that is not dense along the innermost axis is densest, where it
    /// pays to go along both at once.
    pub(crate) fn turned(&self, strides: &Strides) -> Option<usize> {
        let inner = self.rank - 1;
        let step = strides[inner].unsigned_abs();
        if step < 2 || self.dims[inner] < TILE / 2 {
            return None;
        }
        (0..inner)
            .filter(|&a| self.dims[a] >= TILE / 2)
            .filter(|&a| (1..step).contains(&strides[a].unsigned_abs()))
            .min_by_key(|&a| strides[a].unsigned_abs())
    }

    /// Elements between neighbours of an axis in the result.
    fn step(&self, axis: usize) -> usize {
        self.dims[axis + 1..self.rank].iter().product()
    }

    /// Elements of about `chunk`, but so many rows that whole tiles fit, if that is not far more.
    pub(crate) fn chunk(&self, chunk: usize) -> usize {
        let tiles = TILE * self.step(0);
        match tiles {
            _ if self.rank < 2 => chunk,
            t if t <= chunk => chunk - chunk % t,
            t if t <= MOST.max(chunk) => t,
            _ => chunk,
        }
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
        let Some(axis) = self.axes.turned(self.strides) else {
            return self.gather_rows(from, start, out);
        };
        // By tiles where the elements between two neighbours of the other axis are all wanted.
        let step = self.axes.step(axis);
        let (mut at, mut rest) = (start, out);
        while !rest.is_empty() {
            let within = at % step;
            let len = if within == 0 && rest.len() >= step {
                let left = self.axes.dims[axis] - at / step % self.axes.dims[axis];
                (rest.len() / step).min(left) * step
            } else {
                (step - within).min(rest.len())
            };
            let (here, next) = std::mem::take(&mut rest).split_at_mut(len);
            if len.is_multiple_of(step) && within == 0 {
                self.gather_tiles(axis, from, at, here);
            } else {
                self.gather_rows(from, at, here);
            }
            at += len;
            rest = next;
        }
    }

    /// Whole neighbours of an axis: `out` has all elements of the axes inside it.
    fn gather_tiles<T: Pod>(&self, axis: usize, from: &[T], start: usize, out: &mut [T]) {
        let Self { axes, strides, .. } = *self;
        let (inner, step) = (axes.rank - 1, axes.step(axis));
        let (rows, columns) = (out.len() / step, axes.dims[inner]);
        let (down, right) = (strides[axis], strides[inner]);
        let mut index = axes.index(start);
        for middle in (0..step).step_by(columns) {
            let at = self.place_of(&index);
            let mut tile = [[T::zeroed(); TILE]; TILE];
            for row in (0..rows).step_by(TILE) {
                let height = TILE.min(rows - row);
                for column in (0..columns).step_by(TILE) {
                    let width = TILE.min(columns - column);
                    let corner = at
                        .wrapping_add_signed(row as isize * down)
                        .wrapping_add_signed(column as isize * right);
                    let place = |c: usize| corner.wrapping_add_signed(c as isize * right);
                    for (c, line) in tile[..width].iter_mut().enumerate() {
                        let at = place(c);
                        match down {
                            // The length is said so that it is a constant where it is the usual one.
                            1 if height == TILE => line.copy_from_slice(&from[at..at + TILE]),
                            1 => line[..height].copy_from_slice(&from[at..at + height]),
                            _ => {
                                let mut i = at;
                                for x in &mut line[..height] {
                                    *x = from[i];
                                    i = i.wrapping_add_signed(down);
                                }
                            }
                        }
                    }
                    for r in 0..height {
                        let to = &mut out[(row + r) * step + middle + column..];
                        if width == TILE {
                            for (y, line) in to[..TILE].iter_mut().zip(&tile) {
                                *y = line[r];
                            }
                        } else {
                            for (y, line) in to[..width].iter_mut().zip(&tile) {
                                *y = line[r];
                            }
                        }
                    }
                }
            }
            for a in (axis + 1..inner).rev() {
                index[a] += 1;
                if index[a] < axes.dims[a] {
                    break;
                }
                index[a] = 0;
            }
        }
    }

    fn gather_rows<T: Pod>(&self, from: &[T], start: usize, out: &mut [T]) {
        let Self { axes, strides, .. } = *self;
        let mut index = axes.index(start);
        let mut at = self.place_of(&index);
        let inner = axes.rank - 1;
        let step = strides[inner];
        let mut rest = out;
        loop {
            let len = (axes.dims[inner] - index[inner]).min(rest.len());
            let (row, next) = std::mem::take(&mut rest).split_at_mut(len);
            pick(from, at, step, row);
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

/// Every `step`th element from number `at` on.
fn pick<T: Pod>(from: &[T], at: usize, step: isize, out: &mut [T]) {
    match step {
        1 => out.copy_from_slice(&from[at..at + out.len()]),
        0 => out.fill(from[at]),
        -1 => {
            let from = &from[at + 1 - out.len()..=at];
            for (y, x) in out.iter_mut().zip(from.iter().rev()) {
                *y = *x;
            }
        }
        2.. => {
            for (y, x) in out.iter_mut().zip(from[at..].iter().step_by(step as usize)) {
                *y = *x;
            }
        }
        _ => {
            let from = from[..=at].iter().rev().step_by(step.unsigned_abs());
            for (y, x) in out.iter_mut().zip(from) {
                *y = *x;
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
