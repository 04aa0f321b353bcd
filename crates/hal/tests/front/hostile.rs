//! Hostile sizes, indices and ranges: each call returns an error or a result, and none panics or overflows.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bessemer_hal::{Matrix, MatrixElement, MatrixProduct};

use super::*;

const SIZES: [usize; 9] = [
    0,
    1,
    3,
    u32::MAX as usize,
    1 << 40,
    usize::MAX / 2,
    isize::MAX as usize + 1,
    usize::MAX - 1,
    usize::MAX,
];

/// The limit of a buffer of the recording device.
const MAX_BUFFER_BYTES: usize = 1 << 40;

/// Calls of `body` with each size and each pair of sizes that panic.
fn panics(body: impl Fn(usize, usize)) -> Vec<(usize, usize)> {
    let pairs = SIZES.into_iter().flat_map(|a| SIZES.map(|b| (a, b)));
    let panics = |&(a, b): &(usize, usize)| catch_unwind(AssertUnwindSafe(|| body(a, b))).is_err();
    pairs.filter(panics).collect()
}

#[test]
fn buffers_of_hostile_lengths_and_ranges_do_not_panic() {
    let device = recording();
    let buffer = labelled(&device, 64, "buffer");
    let found = panics(|a, b| {
        for mode in [
            StorageMode::Shared,
            StorageMode::Private,
            StorageMode::Managed,
        ] {
            // In between, the host's memory would be used up.
            if a <= 3 || a > MAX_BUFFER_BYTES {
                assert_eq!(device.buffer(a, mode).is_ok(), a <= 3, "{a}");
            }
        }
        let _ = buffer.slice(a..b);
        let _ = buffer.did_modify_range(a..b);
        let _ = buffer.write(a, &[1_u8, 2]);
        let _ = buffer.write::<u64>(a, &[]);
        let _ = buffer.read(a, &mut [0_u32; 2]);
        device.set_memory_limit(b);
        let _ = device.buffer_uninit(a, StorageMode::Private);
        device.set_memory_limit(usize::MAX);
    });
    assert_eq!(found, []);
}

#[test]
fn a_buffer_that_the_host_has_no_memory_for_is_an_error() {
    let made = recording().buffer(MAX_BUFFER_BYTES, StorageMode::Shared);
    assert!(matches!(made, Err(Error::OutOfMemory { .. })), "{made:?}");
}

#[test]
fn launches_of_hostile_grids_and_bindings_do_not_panic() {
    let device = recording();
    let pipeline = pipeline(&device, "k");
    let buffer = labelled(&device, 64, "buffer");
    let found = panics(|a, b| {
        for (grid, group) in [
            (Size::x(a), Size::x(b)),
            (Size::xy(a, b), Size::xy(b, a)),
            (Size::new(a, b, a), Size::x(1)),
            (Size::x(1), Size::new(b, a, b)),
        ] {
            let _ = (grid.total(), grid.is_empty());
            let _ = pipeline.launch().threads(grid, group);
            let _ = pipeline.launch().threadgroups(grid, group);
            let mut commands = device.commands();
            let _ = commands.dispatch(&pipeline).threads(grid, group);
            let index = a as u32;
            let dispatch = commands.dispatch(&pipeline).read(index, &buffer);
            let dispatch = dispatch
                .threadgroup_memory(index, b)
                .set_bytes(index, &[0; 5]);
            let _ = dispatch.work(a as u64).threadgroups(grid, group);
            let _ = commands
                .commit()
                .map(|s| s.wait_for(Duration::MAX).is_some());
        }
    });
    assert_eq!(found, []);
}

#[test]
fn matrices_of_hostile_sizes_do_not_panic() {
    let device = recording();
    let buffer = labelled(&device, 64, "buffer");
    let found = panics(|a, b| {
        for row_bytes in SIZES {
            for element in [MatrixElement::F32, MatrixElement::F16] {
                let matrix = |rows, columns| Matrix::new(&buffer, rows, columns, row_bytes);
                let _ = matrix(a, b).rows(a..b, element);
                let _ = matrix(a, b).rows(0..1, element);
                let factors = [matrix(a, b), matrix(b, a).transposed(), matrix(2, 2)];
                for left in &factors {
                    for right in &factors {
                        let product =
                            MatrixProduct::new(element, left.clone(), right.clone(), matrix(a, a));
                        let _ = (product.depth(), product.sums());
                        let _ = device.commands().multiply(&product);
                        let _ = device.prepare_product(product);
                    }
                }
            }
        }
    });
    assert_eq!(found, []);
}
