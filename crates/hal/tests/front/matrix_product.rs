//! Matrix multiplication by a device's library: validation and recording.

use bessemer_hal::noop::{self, Event};
use bessemer_hal::{Buffer, Error, Matrix, MatrixElement, MatrixProduct, Result};

use super::{labelled, launch, misaligned, out_of_bounds, recording};

const OPERATION_NAME: &str = "matrix product";

/// A contiguous `f32` matrix at the start of a buffer.
fn dense(buffer: &Buffer, rows: usize, columns: usize) -> Matrix {
    Matrix::new(buffer, rows, columns, 4 * columns)
}

fn product(left: Matrix, right: Matrix, result: Matrix) -> MatrixProduct {
    MatrixProduct::new(MatrixElement::F32, left, right, result)
}

#[test]
fn shapes_rows_ranges_and_overlap_are_checked_before_anything_is_recorded() {
    let device = recording();
    let [a, b, c] = ["a", "b", "c"].map(|name| labelled(&device, 1024, name));
    let (left, right, result) = (dense(&a, 4, 6), dense(&b, 6, 8), dense(&c, 4, 8));
    let with = |left: &Matrix, right: &Matrix, result: &Matrix| {
        product(left.clone(), right.clone(), result.clone())
    };
    let slice = |buffer: &Buffer, range| buffer.slice(range).expect("a part of it");
    let cases: Vec<(&str, MatrixProduct, Error)> = vec![
        (
            "inner sizes differ",
            with(&left, &left, &result),
            launch(
                OPERATION_NAME,
                "4x6 times 4x6 does not match a result of 4x8",
            ),
        ),
        (
            "the result has another shape",
            with(&left, &right, &dense(&c, 8, 4)),
            launch(
                OPERATION_NAME,
                "4x6 times 6x8 does not match a result of 8x4",
            ),
        ),
        (
            "a transposed factor has its other shape",
            with(&left.clone().transposed(), &right, &result),
            launch(
                OPERATION_NAME,
                "6x4 times 6x8 does not match a result of 4x8",
            ),
        ),
        (
            "no inner dimension",
            with(&dense(&a, 4, 0), &dense(&b, 0, 8), &result),
            launch(OPERATION_NAME, "the inner dimension is 0; use `fill`"),
        ),
        (
            "rows shorter than their columns",
            with(&Matrix::new(&a, 4, 6, 20), &right, &result),
            launch(OPERATION_NAME, "6 columns are longer than rows of 20 bytes"),
        ),
        (
            "rows of broken elements",
            with(&Matrix::new(&a, 4, 6, 26), &right, &result),
            misaligned("the row length of a matrix in buffer `a`", 26, 4),
        ),
        (
            "a broken element at the beginning",
            with(&Matrix::new(slice(&a, 2..1024), 4, 6, 24), &right, &result),
            misaligned("the offset of a matrix in buffer `a`", 2, 4),
        ),
        (
            "more rows than the slice has",
            with(&left, &Matrix::new(slice(&b, 512..700), 6, 8, 32), &result),
            out_of_bounds("b", 512, 192, 1024),
        ),
        (
            "more rows than can be counted",
            with(
                &Matrix::new(&a, usize::MAX, 6, 24),
                &right,
                &Matrix::new(&c, usize::MAX, 8, 32),
            ),
            out_of_bounds("a", 0, usize::MAX, 1024),
        ),
        (
            "the result over a factor",
            with(&left, &right, &Matrix::new(slice(&a, 92..1024), 4, 8, 32)),
            launch(
                OPERATION_NAME,
                "a factor and the result overlap in buffer `a`",
            ),
        ),
    ];
    for (name, product, expected) in cases {
        let mut commands = device.commands();
        assert_eq!(commands.multiply(&product), Err(expected), "{name}");
        assert!(commands.is_empty(), "{name}");
    }
    let other = recording();
    let foreign = with(&left, &right, &dense(&labelled(&other, 1024, "far"), 4, 8));
    let error = device.commands().multiply(&foreign).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
    // The last row needs no padding, and a result may be next to a factor in the same buffer.
    let mut commands = device.commands();
    let tight = Matrix::new(slice(&a, 0..24 + 3 * 40), 4, 6, 40);
    let beside = Matrix::new(slice(&a, 144..1024), 4, 8, 32);
    assert_eq!(commands.multiply(&with(&tight, &right, &beside)), Ok(()));
    // An empty result records nothing.
    let empty = with(&dense(&a, 0, 6), &right, &dense(&c, 0, 8));
    assert_eq!(commands.multiply(&empty), Ok(()));
    let far_apart = |buffer: &Buffer, rows| Matrix::new(buffer, rows, 0, usize::MAX - 3);
    let empty = with(&left, &far_apart(&b, 6), &far_apart(&c, 4));
    assert_eq!(commands.multiply(&empty), Ok(()));
    assert_eq!(commands.len(), 1);
}

#[test]
fn products_take_part_in_hazards_and_counts() -> Result<()> {
    let device = recording();
    assert!(device.multiplies_matrices());
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| labelled(&device, 1024, name));
    let mut commands = device.commands();
    noop::clear(&device);
    // Two that only read the same buffers, then one that reads a result, then one that accumulates.
    commands.multiply(&product(dense(&a, 4, 6), dense(&b, 6, 8), dense(&c, 4, 8)))?;
    commands.multiply(&product(
        dense(&a, 6, 4).transposed(),
        dense(&b, 8, 6).transposed(),
        dense(&d, 4, 8),
    ))?;
    let mut sum = product(dense(&c, 4, 8), dense(&b, 8, 2), dense(&d, 4, 2));
    commands.multiply(&sum)?;
    sum.beta = 0.5;
    commands.multiply(&sum)?;
    commands.commit()?.wait()?;
    let record = noop::record(&device).expect("a recording device");
    let counts = record.counts;
    assert_eq!((counts.products, counts.barriers), (4, 2));
    let read = 2 * (96 + 192) + (128 + 64) + (128 + 64 + 32);
    assert_eq!(counts.bytes_read, read);
    assert_eq!(counts.bytes_written, 2 * 128 + 2 * 32);
    let event = |sizes: [usize; 3], transposed: [bool; 2]| Event::Product {
        element: MatrixElement::F32,
        sizes,
        transposed,
    };
    let expected = [
        event([4, 8, 6], [false; 2]),
        event([4, 8, 6], [true; 2]),
        Event::Barrier,
        event([4, 2, 8], [false; 2]),
        Event::Barrier,
        event([4, 2, 8], [false; 2]),
    ];
    assert_eq!(record.events[..6], expected);
    Ok(())
}
