//! Placement of ops: an explicit choice, then the dispatch table, then the default device. The software Metal device
//! stands in for an automatically selected GPU.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use std::process::Command;

use bessemer::dispatch_table::DispatchTable;
use bessemer::{DType, Device, Tensor};
use bessemer_hal::soft::{self, Mode, SoftOptions};

const TABLE: &str = "\
elementwise 0 cpu
elementwise 100 metal
matmul 0 metal
matmul 400 cpu
reduction 0 cpu
";

/// A vector that is not pinned to a device.
fn vector(count: usize) -> Tensor {
    Tensor::from_slice(&vec![1.5_f32; count], [count])
}

fn gpu() -> Device {
    let options = SoftOptions {
        mode: Mode::Fast,
        ..SoftOptions::from_env().unwrap()
    };
    Device::on(soft::device(options).unwrap())
}

// The table is the process's, so all of this is one test.
#[test]
fn the_table_places_ops_of_unpinned_tensors() {
    let gpu = gpu();
    DispatchTable::parse(TABLE).unwrap().apply(&gpu);
    let cpu = Device::cpu();

    // By the op, and by the number of elements of its largest input.
    let (small, large) = (vector(99), vector(100));
    let sum = &small + &small;
    assert_eq!(sum.device(), &cpu);
    assert_eq!(sum.to_vec::<f32>().unwrap(), [3.0; 99]);
    let sum = &large * 2.0;
    assert_eq!(sum.device(), &gpu);
    assert_eq!(sum.to_vec::<f32>().unwrap(), [3.0; 100]);
    assert_eq!((&large + &vector(1)).device(), &gpu);
    let square = |n: usize| vector(n * n).reshape([n, n]);
    let product = square(4).matmul(&square(4));
    assert_eq!(product.device(), &gpu);
    assert_eq!(product.to_vec::<f32>().unwrap(), [9.0; 16]);
    assert_eq!(square(20).matmul(&square(20)).device(), &cpu);
    assert_eq!(large.sum(&[], false).device(), &cpu);
    // Ops that are not measured run on the default device.
    assert_eq!(small.softmax(0).device(), &gpu);

    // An op with an input that is pending on the GPU stays there, so that the CPU does not wait for it.
    let pending = square(4).matmul(&square(4));
    let total = pending.sum(&[], false) + 1.0;
    assert_eq!(total.device(), &gpu);
    assert_eq!(total.item::<f32>().unwrap(), 145.0);
    let total = product.sum(&[], false) + 1.0;
    assert_eq!(total.device(), &cpu, "the product is there already");
    assert_eq!(total.item::<f32>().unwrap(), 145.0);

    // Explicit choices override the table: a pinned tensor, then a scope, then the default.
    assert_eq!((small.to(&gpu) + 1.0).device(), &gpu);
    assert_eq!((large.to(&cpu) + 1.0).device(), &cpu);
    cpu.scope(|| assert_eq!((&large + 1.0).device(), &cpu));
    gpu.scope(|| assert_eq!((&small + 1.0).device(), &gpu));
    gpu.scope(|| assert_eq!((large.to(&cpu) + 1.0).device(), &cpu));
    let wide = small.cast(DType::F64) + 1.0;
    assert_eq!(wide.device(), &cpu, "Metal has no f64");
    gpu.set_default();
    assert_eq!((&small + 1.0).device(), &gpu);
    cpu.scope(|| assert_eq!((&large + 1.0).device(), &cpu));
    cpu.set_default();
    assert_eq!((&large + 1.0).device(), &cpu);
    // Applying a table does not change an explicit default.
    DispatchTable::parse(TABLE).unwrap().apply(&gpu);
    assert_eq!((&large + 1.0).device(), &cpu);
}

#[test]
#[ignore = "run by the test of the variable, in a separate process"]
fn with_the_variable() {
    let gpu = gpu();
    DispatchTable::parse(TABLE).unwrap().apply(&gpu);
    let device = (vector(100) + 1.0).device().clone();
    let name = std::env::var("BESSEMER_DEVICE").unwrap();
    match name.as_str() {
        "cpu" => assert!(device.is_cpu()),
        "soft" => assert!(device != gpu && device == Device::software().unwrap()),
        _ => assert_eq!(device, gpu),
    }
}

#[test]
fn bessemer_device_overrides_the_table() {
    for name in ["cpu", "soft", "auto"] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "with_the_variable"])
            .env("BESSEMER_DEVICE", name)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let is_run = output.status.success() && said.contains("1 passed");
        assert!(is_run, "{name}: {said}");
    }
}
