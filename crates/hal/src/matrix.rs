//! Matrix multiplication by the device's own library: Metal Performance Shaders.

use std::ops::Range;

use crate::access::Access;
use crate::buffer::BufferSlice;
use crate::commands::Commands;
use crate::device::DeviceShared;
use crate::driver::{self, Command, ProductCommand, ProductObjects};
use crate::error::{Error, Result};

/// Name of the operation in errors.
const OPERATION_NAME: &str = "matrix product";

/// Element type of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatrixElement {
    /// `half`
    F16,
    /// `float`
    F32,
}

impl MatrixElement {
    /// Bytes of an element.
    pub const fn size(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

/// A row-major matrix in a buffer, with a row stride.
#[derive(Debug, Clone)]
pub struct Matrix {
    slice: BufferSlice,
    rows: usize,
    columns: usize,
    row_bytes: usize,
    transposed: bool,
}

impl Matrix {
    /// A row-major matrix at the start of the slice, with `row_bytes` from one row to the next.
    pub fn new(
        slice: impl Into<BufferSlice>,
        rows: usize,
        columns: usize,
        row_bytes: usize,
    ) -> Self {
        Self {
            slice: slice.into(),
            rows,
            columns,
            row_bytes,
            transposed: false,
        }
    }

    /// The transpose, for a factor of a product.
    pub fn transposed(mut self) -> Self {
        self.transposed = !self.transposed;
        self
    }

    /// A range of its rows, after transposition.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn rows(&self, rows: Range<usize>, element: MatrixElement) -> Result<Self> {
        let skipped = if self.transposed {
            rows.start.saturating_mul(element.size())
        } else {
            rows.start.saturating_mul(self.row_bytes)
        };
        let (slice, count) = (&self.slice, rows.len());
        if rows.end > self.shape()[0] || rows.start > rows.end || skipped > slice.length {
            return Err(slice.buffer.out_of_bounds(slice.offset, skipped));
        }
        let slice = BufferSlice {
            offset: slice.offset + skipped,
            length: slice.length - skipped,
            ..slice.clone()
        };
        let (rows, columns) = if self.transposed {
            (self.rows, count)
        } else {
            (count, self.columns)
        };
        Ok(Self {
            slice,
            rows,
            columns,
            ..*self
        })
    }

    /// Rows and columns after transposition.
    fn shape(&self) -> [usize; 2] {
        if self.transposed {
            [self.columns, self.rows]
        } else {
            [self.rows, self.columns]
        }
    }

    fn check(&self, size: usize) -> Result<()> {
        let misaligned = |what: &str, value: usize| Error::Misaligned {
            what: format!("{what} of a matrix in {}", self.slice.buffer.describe()),
            value,
            alignment: size,
        };
        if !self.row_bytes.is_multiple_of(size) {
            return Err(misaligned("the row length", self.row_bytes));
        }
        if !self.slice.offset.is_multiple_of(size) {
            return Err(misaligned("the offset", self.slice.offset));
        }
        let row = self.columns.checked_mul(size);
        let Some(row) = row.filter(|row| *row <= self.row_bytes) else {
            return Err(refused(format!(
                "{} columns are longer than rows of {} bytes",
                self.columns, self.row_bytes
            )));
        };
        if self.rows == 0 || self.columns == 0 {
            return Ok(());
        }
        let last_row = (self.rows - 1).checked_mul(self.row_bytes);
        let bytes = last_row.and_then(|offset| offset.checked_add(row));
        match bytes {
            Some(bytes) if bytes <= self.slice.length => Ok(()),
            _ => Err(self
                .slice
                .buffer
                .out_of_bounds(self.slice.offset, bytes.unwrap_or(usize::MAX))),
        }
    }

    /// The bytes from the first element to the last.
    fn touched(&self, size: usize) -> BufferSlice {
        let length = match [self.rows, self.columns] {
            // `check` accepts any row length then.
            [0, _] | [_, 0] => 0,
            [rows, columns] => (rows - 1) * self.row_bytes + columns * size,
        };
        BufferSlice {
            length,
            ..self.slice.clone()
        }
    }

    fn command(&self, size: usize) -> driver::Matrix {
        driver::Matrix {
            region: self.touched(size).region(),
            rows: self.rows,
            columns: self.columns,
            row_bytes: self.row_bytes,
        }
    }
}

/// `result = alpha · left · right + beta · result`, for [`Commands::multiply`].
///
/// Sums are at least as precise as the elements; their order and rounding depend on the device and may
/// change with the system version. If `beta` is 0, the result is not read.
#[derive(Debug, Clone)]
pub struct MatrixProduct {
    /// Element type of all three matrices.
    pub element: MatrixElement,
    /// The first factor.
    pub left: Matrix,
    /// The second factor.
    pub right: Matrix,
    /// The result; not transposed.
    pub result: Matrix,
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of the previous contents of the result.
    pub beta: f64,
}

impl MatrixProduct {
    /// The product with `alpha` 1 and `beta` 0.
    pub fn new(element: MatrixElement, left: Matrix, right: Matrix, result: Matrix) -> Self {
        Self {
            element,
            left,
            right,
            result,
            alpha: 1.0,
            beta: 0.0,
        }
    }

    /// The driver's command.
    fn command(&self) -> ProductCommand {
        let size = self.element.size();
        ProductCommand {
            element: self.element,
            left: self.left.command(size),
            transpose_left: self.left.transposed,
            right: self.right.command(size),
            transpose_right: self.right.transposed,
            result: self.result.command(size),
            alpha: self.alpha,
            beta: self.beta,
            objects: None,
        }
    }

    /// Returns whether there is nothing to compute.
    fn is_empty(&self) -> bool {
        self.result.shape().contains(&0)
    }

    /// Elements of the result.
    pub fn sums(&self) -> usize {
        let [rows, columns] = self.result.shape();
        rows.saturating_mul(columns)
    }

    /// Length of the inner dimension.
    pub fn depth(&self) -> usize {
        self.left.shape()[1]
    }

    fn check(&self) -> Result<()> {
        let ([m, k], [rows, n]) = (self.left.shape(), self.right.shape());
        let result = self.result.shape();
        if self.result.transposed || k != rows || result != [m, n] {
            return Err(refused(format!(
                "{m}x{k} times {rows}x{n} does not match a result of {}x{}",
                result[0], result[1]
            )));
        }
        if k == 0 {
            return Err(refused("the inner dimension is 0; use `fill`".to_owned()));
        }
        let size = self.element.size();
        for matrix in [&self.left, &self.right, &self.result] {
            matrix.check(size)?;
        }
        let target = self.result.touched(size);
        for factor in [&self.left, &self.right] {
            let source = factor.touched(size);
            let overlaps = source.buffer.is(&target.buffer)
                && source.offset < target.offset + target.length
                && target.offset < source.offset + source.length;
            if overlaps {
                return Err(refused(format!(
                    "a factor and the result overlap in {}",
                    target.buffer.describe()
                )));
            }
        }
        Ok(())
    }
}

/// A matrix product with the library's objects for it; from [`crate::Device::prepare_product`].
#[derive(Debug, Clone)]
pub struct PreparedProduct {
    product: MatrixProduct,
    objects: Option<ProductObjects>,
}

impl PreparedProduct {
    pub(crate) fn new(device: &DeviceShared, product: MatrixProduct) -> Result<Self> {
        if !device.raw.multiplies_matrices() {
            return Err(Error::Unsupported {
                what: "matrix multiplication by a library".to_owned(),
                device: device.name().to_owned(),
            });
        }
        product.check()?;
        for matrix in [&product.left, &product.right, &product.result] {
            device.expect_usable(&matrix.slice.buffer)?;
        }
        let objects = if product.is_empty() {
            None
        } else {
            device.raw.prepare(&product.command())?
        };
        Ok(Self { product, objects })
    }

    /// The product.
    pub fn product(&self) -> &MatrixProduct {
        &self.product
    }
}

fn refused(message: String) -> Error {
    Error::Launch {
        kernel: OPERATION_NAME.to_owned(),
        message,
    }
}

impl Commands {
    /// Multiplies matrices with the device's own library, which on Apple's systems is Metal Performance Shaders.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a device without one ([`crate::Device::multiplies_matrices`]), [`Error::Launch`] for
    /// shapes that do not match and for a result that overlaps a factor, [`Error::Misaligned`],
    /// [`Error::OutOfBounds`], [`Error::WrongDevice`]. Nothing is recorded then.
    pub fn multiply(&mut self, product: &MatrixProduct) -> Result<()> {
        let prepared = PreparedProduct::new(self.device(), product.clone())?;
        self.multiply_prepared(&prepared)
    }

    /// As [`Commands::multiply`], for a prepared product.
    ///
    /// # Errors
    /// [`Error::WrongDevice`]. Nothing is recorded then.
    pub fn multiply_prepared(&mut self, prepared: &PreparedProduct) -> Result<()> {
        let PreparedProduct { product, objects } = prepared;
        if product.is_empty() {
            return Ok(());
        }
        let size = product.element.size();
        let access = if product.beta == 0.0 {
            Access::Write
        } else {
            Access::ReadWrite
        };
        let slices = [&product.left, &product.right, &product.result].map(|m| m.touched(size));
        let [left, right, result] = &slices;
        self.touch(&[
            (left, Access::Read),
            (right, Access::Read),
            (result, access),
        ])?;
        self.push(Command::Product(ProductCommand {
            objects: objects.clone(),
            ..product.command()
        }));
        Ok(())
    }
}
