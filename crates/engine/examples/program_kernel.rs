//! A kernel in the typed instruction set, on tensors: `cargo run --release -p bessemer --example program_kernel`.
//!
//! The same program runs on the CPU and on Metal: the GPU of a Mac, or the software Metal device, which needs clang.
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;

use bessemer::custom::ProgramKernel;
use bessemer::{DType, Device, Tensor};

/// `out = x if x > 0, otherwise slope * x`. R1 is x, R2 is the result, R4 the number of elements.
const LEAKY_RELU: &str = "
    setcc.u64.ge p0, %global, r4
    bra.p0 @end
    mov_imm.u32 r10, 2
    shl.u64 r11, %global, r10       ; the offset of the element in bytes
    ldg.f32 r12, [r1 + r11]
    mov_imm.f32 r13, 0
    setcc.f32.gt p1, r12, r13
    bra.p1 @store
    mov_imm.f32 r14, 0.125
    mul.f32 r12, r12, r14
store:
    stg.f32 [r2 + r11], r12
end:
";

fn main() -> Result<(), Box<dyn Error>> {
    let leaky_relu = ProgramKernel::new("leaky_relu", &LEAKY_RELU.parse()?)?;
    let metal = Device::metal().or_else(|_| Device::software())?;
    for device in [Device::cpu(), metal] {
        let x = Tensor::linspace(-2.0, 2.0, 5, DType::F32).to(&device);
        // Lazy, as every op: the sum is computed with the program when it is read.
        let y = leaky_relu.call(&[&x]).run()? + 1.0;
        println!("on {}: {y}", device.name());
        assert_eq!(y.to_vec::<f32>()?, [0.75, 0.875, 1.0, 2.0, 3.0]);
    }
    Ok(())
}
