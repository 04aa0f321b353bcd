//! Matrices of which the threads write blocks of columns.
#![expect(
    unsafe_code,
    reason = "blocks of columns interleave in memory, so slices cannot say that they are disjoint"
)]

use super::pool::{self, DisjointSlice};

/// Some neighbouring columns of a row-major matrix, to be written.
pub(crate) struct Block<'a, T> {
    whole: &'a DisjointSlice<'a, T>,
    /// Where the block begins, and the length of the matrix's rows.
    start: usize,
    stride: usize,
    rows: usize,
    /// The number of the matrix.
    pub(crate) matrix: usize,
    /// The first column of the block.
    pub(crate) column: usize,
    /// Columns of the block.
    pub(crate) width: usize,
}

impl<T> Block<'_, T> {
    /// A row of the block.
    pub(crate) fn row(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.rows, "row outside the block");
        // SAFETY: `blocks` made no other block of this matrix with these columns, and this one is
        // borrowed as long as the row is in use.
        unsafe { self.whole.range(self.start + row * self.stride, self.width) }
    }
}

/// Cuts `data`, matrices of `rows` times `cols` elements one after the other, into blocks of `width`
/// columns (the last of a matrix may be narrower) and calls `body` with each, on all threads.
pub(crate) fn blocks<T: Send>(
    data: &mut [T],
    (rows, cols): (usize, usize),
    width: usize,
    body: impl Fn(Block<'_, T>) + Sync,
) {
    let (size, width) = (rows * cols, width.max(1));
    if size == 0 {
        return;
    }
    assert_eq!(data.len() % size, 0, "whole matrices");
    let matrices = data.len() / size;
    let whole = DisjointSlice::new(data);
    let count = cols.div_ceil(width);
    pool::run(matrices * count, |i| {
        let (matrix, column) = (i / count, i % count * width);
        body(Block {
            whole: &whole,
            start: matrix * size + column,
            stride: cols,
            rows,
            matrix,
            column,
            width: width.min(cols - column),
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_every_matrix_once() {
        let mut data = vec![0; 2 * 3 * 10];
        blocks(&mut data, (3, 10), 4, |mut block| {
            for r in 0..3 {
                let mark = 100 * block.matrix + 10 * r + block.column;
                for v in block.row(r) {
                    *v += mark + 1;
                }
            }
        });
        for (i, &v) in data.iter().enumerate() {
            let (matrix, row, column) = (i / 30, i / 10 % 3, i % 10);
            assert_eq!(v, 100 * matrix + 10 * row + column / 4 * 4 + 1);
        }
    }

    #[test]
    #[should_panic(expected = "row outside the block")]
    fn rows_of_the_next_matrix_are_refused() {
        blocks(&mut [0; 8], (2, 2), 1, |mut block| {
            block.row(2).fill(1);
        });
    }
}
