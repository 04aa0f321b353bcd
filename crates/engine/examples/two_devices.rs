//! The same program on two devices, the CPU and Metal: `cargo run --release -p bessemer --example two_devices`.
//!
//! Metal is the GPU on a Mac. Elsewhere it is the software Metal device, which runs the same kernels and needs clang.
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use bessemer::{DType, Device, Result, Tensor, random};

/// A two-layer perceptron with random weights on a batch of random rows.
fn mlp(device: &Device) -> Result<Tensor> {
    let [x_key, up_key, down_key] = random::Key::new(7).split_into();
    let x = random::normal(&x_key, [16, 32], DType::F32).to(device);
    let up = (random::normal(&up_key, [32, 64], DType::F32) * 0.1).to(device);
    let down = (random::normal(&down_key, [64, 8], DType::F32) * 0.1).to(device);
    // Recorded lazily for the device of the inputs; the activation is fused into the first matmul on Metal.
    let y = x.matmul(&up).gelu().matmul(&down).softmax(-1);
    y.eval()?;
    Ok(y)
}

fn main() -> Result<()> {
    let metal = Device::metal().or_else(|_| Device::software())?;
    let on_cpu = mlp(&Device::cpu())?;
    let on_metal = mlp(&metal)?;
    println!("on the CPU, first row:\n{:.4}", on_cpu.narrow(0, 0, 1));
    println!("on {}:\n{:.4}", metal.name(), on_metal.narrow(0, 0, 1));

    let difference = (on_cpu - on_metal.to(&Device::cpu())).abs();
    let largest = difference.max(&[], false).item::<f32>()?;
    println!("largest difference: {largest:e}");
    assert!(largest < 1e-5, "the devices disagree");
    Ok(())
}
