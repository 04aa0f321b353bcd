//! Parallel writes to blocks of columns of row-major matrices.
#![expect(
    unsafe_code,
    reason = "blocks of columns interleave in memory, so slices cannot say that they are disjoint"
)]

use super::pool::{self, DisjointSlice};

/// Neighbouring columns of a row-major matrix, writable by one thread.
pub(crate) struct ColumnBlock<'a, T> {
    matrices: &'a DisjointSlice<'a, T>,
    /// Index of the first element of the block.
    start: usize,
    /// Row length of the matrix.
    stride: usize,
    rows: usize,
    /// The index of the matrix.
    pub(crate) matrix: usize,
    /// The first column of the block.
    pub(crate) column: usize,
    /// Columns of the block.
    pub(crate) width: usize,
}

impl<T> ColumnBlock<'_, T> {
    /// Returns a row of the block.
    pub(crate) fn row(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.rows, "row outside the block");
        // SAFETY: `for_each_column_block` makes no other block of this matrix with these columns, and this one is
        // borrowed as long as the row is in use.
        unsafe {
            self.matrices
                .range(self.start + row * self.stride, self.width)
        }
    }
}

/// The size of each matrix in a batch.
#[derive(Clone, Copy)]
pub(crate) struct MatrixSize {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// Splits `data`, a batch of row-major matrices, into blocks of `width` columns (the last of a matrix may be narrower)
/// and calls `body` with each, on all threads.
pub(crate) fn for_each_column_block<T: Send>(
    data: &mut [T],
    matrix: MatrixSize,
    width: usize,
    body: impl Fn(ColumnBlock<'_, T>) + Sync,
) {
    let MatrixSize { rows, columns } = matrix;
    let (size, width) = (rows * columns, width.max(1));
    if size == 0 {
        return;
    }
    assert_eq!(data.len() % size, 0, "whole matrices");
    let batch = data.len() / size;
    let matrices = DisjointSlice::new(data);
    let count = columns.div_ceil(width);
    pool::run(batch * count, |i| {
        let (matrix, column) = (i / count, i % count * width);
        body(ColumnBlock {
            matrices: &matrices,
            start: matrix * size + column,
            stride: columns,
            rows,
            matrix,
            column,
            width: width.min(columns - column),
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_every_matrix_once() {
        let mut data = vec![0; 2 * 3 * 10];
        let size = MatrixSize {
            rows: 3,
            columns: 10,
        };
        for_each_column_block(&mut data, size, 4, |mut block| {
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
    fn rejects_rows_of_the_next_matrix() {
        let size = MatrixSize {
            rows: 2,
            columns: 2,
        };
        for_each_column_block(&mut [0; 8], size, 1, |mut block| {
            block.row(2).fill(1);
        });
    }
}
