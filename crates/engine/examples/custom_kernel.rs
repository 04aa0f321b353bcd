//! A kernel of your own on tensors: `cargo run --release -p bessemer --example custom_kernel`.
//!
//! It runs on the GPU of a Mac, elsewhere on the software Metal device, which needs clang.
#![expect(clippy::print_stdout, reason = "an example prints its results")]
#![expect(unsafe_code, reason = "promises that its kernel is sound")]

use bessemer::custom::MetalKernel;
use bessemer::{DType, Device, Result, Tensor};

/// Game of Life on a torus: each thread computes a cell from its eight neighbours.
const LIFE: &str = "
    const uint3 p = thread_position_in_grid;
    const uint rows = cells_shape[0];
    const uint columns = cells_shape[1];
    uint alive = 0;
    for (uint dy = rows - 1; dy <= rows + 1; dy++) {
        for (uint dx = columns - 1; dx <= columns + 1; dx++) {
            alive += cells[(p.y + dy) % rows * columns + (p.x + dx) % columns];
        }
    }
    const uint at = p.y * columns + p.x;
    next[at] = alive == 3 || (alive == 4 && cells[at]);
";

fn main() -> Result<()> {
    let life = MetalKernel::body("life", LIFE)
        .input("cells")
        .dtype("cells", DType::U8)
        .output("next")
        .build()?;

    // A glider, which moves one cell to the right and one down in four generations.
    let device = Device::metal().or_else(|_| Device::software())?;
    let glider = [[0_u8, 1, 0], [0, 0, 1], [1, 1, 1]].concat();
    let first = Tensor::zeros([8, 8], DType::U8)
        .slice_update(&Tensor::from_slice(&glider, [3, 3]), &[1, 1])
        .to(&device);

    // The checking device finds races and accesses out of bounds, if there are any.
    let call = |cells: &Tensor| life.call(&[cells]).threads((8, 8));
    #[cfg(target_os = "linux")]
    assert!(call(&first).check()?.is_empty(), "the kernel has a defect");

    let mut cells = first.clone();
    for _ in 0..4 {
        // SAFETY: there is a thread for each cell, which writes that cell only.
        cells = unsafe { call(&cells).trust() }.run()?;
    }
    println!("on {}:\n{cells}", device.name());
    let moved = first.slice_update(&Tensor::from_slice(&glider, [3, 3]), &[2, 2]);
    let expected = moved
        .slice_update(&Tensor::zeros([1, 8], DType::U8), &[1, 0])
        .slice_update(&Tensor::zeros([8, 1], DType::U8), &[0, 1]);
    assert_eq!(cells.to_vec::<u8>()?, expected.to_vec::<u8>()?);
    Ok(())
}
