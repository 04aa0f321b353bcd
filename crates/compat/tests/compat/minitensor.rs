//! `MetalBackend` and `MetalOps`: buffers, pointers, pipelines.

use std::collections::BTreeSet;

use bessemer::MatrixLibrary;
use bessemer_hal::noop;

use super::*;

#[test]
fn without_metal_every_constructor_reports_it() {
    assert!(!MetalBackend::is_available());
    for error in [
        MetalBackend::new().unwrap_err(),
        MetalBackend::initialize().unwrap_err(),
    ] {
        assert!(
            error.to_string().contains("Metal needs macOS or iOS"),
            "{error}"
        );
    }
    assert!(MetalBackend::on(&Device::cpu()).is_err());
}

/// `cargo test --features metal`, `cargo run --example metal_demo --features metal`, `cargo build --features
/// metal-gpu`: the features exist, and the example exists, needs no other features, and runs.
/// `cargo test --features metal test_metal_operations`: the test exists and runs.
#[test]
fn the_commands_of_the_documents_exist() {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let of_name = |list: &[serde_json::Value], name: &str| {
        list.iter().find(|item| item["name"] == name).cloned()
    };
    let package = of_name(packages, "bessemer-compat").unwrap();
    assert_eq!(package["features"]["metal"], serde_json::json!([]));
    assert_eq!(
        package["features"]["metal-gpu"],
        serde_json::json!(["metal"])
    );
    let targets = package["targets"].as_array().unwrap();
    let example = of_name(targets, "metal_demo").unwrap();
    assert_eq!(example["kind"], serde_json::json!(["example"]));
    assert!(example["required-features"].is_null(), "{example}");
    metal_demo::main().unwrap();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--list", "test_metal_operations"])
        .output()
        .unwrap();
    let list = String::from_utf8(output.stdout).unwrap();
    assert!(
        list.contains("minitensor::test_metal_operations: test"),
        "{list}"
    );
}

#[test]
fn test_metal_operations() {
    let backend = backend();
    let ops = MetalOps::new(backend.clone()).unwrap();
    let (a, b) = ([1.0_f32, 2.0, 3.0, 4.0], [5.0_f32, 6.0, 7.0, 8.0]);
    for mode in [
        MTLResourceOptions::StorageModeShared,
        MTLResourceOptions::StorageModeManaged,
    ] {
        let a = backend.create_buffer_with_data(&a, mode).unwrap();
        let b = backend.create_buffer_with_data(&b, mode).unwrap();
        let c = backend.create_buffer(16, mode).unwrap();
        let mut result = [0.0_f32; 4];
        ops.add(&a, &b, &c, 4).unwrap();
        backend.copy_buffer_to_host(&c, &mut result).unwrap();
        assert_eq!(result, [6.0, 8.0, 10.0, 12.0]);
        ops.mul(&a, &b, &c, 4).unwrap();
        backend.copy_buffer_to_host(&c, &mut result).unwrap();
        assert_eq!(result, [5.0, 12.0, 21.0, 32.0]);
        ops.matmul(&a, &b, &c, 2, 2, 2).unwrap();
        backend.copy_buffer_to_host(&c, &mut result).unwrap();
        assert_eq!(result, [19.0, 22.0, 43.0, 50.0]);
        backend
            .copy_host_to_buffer(&[-1.0_f32, 0.0, 2.0, -0.5], &a)
            .unwrap();
        ops.relu(&a, &c, 4).unwrap();
        backend.copy_buffer_to_host(&c, &mut result).unwrap();
        assert_eq!(result, [0.0, 0.0, 2.0, 0.0]);
        ops.sigmoid(&a, &c, 4).unwrap();
        backend.copy_buffer_to_host(&c, &mut result).unwrap();
        assert_near(&result, &[-1.0, 0.0, 2.0, -0.5].map(sigmoid));
    }
}

#[test]
fn matmul_has_the_argument_order_m_n_k() {
    let backend = backend();
    let ops = MetalOps::new(backend.clone()).unwrap();
    let (m, n, k) = (2, 4, 3);
    let a: Vec<f32> = (0..m * k).map(|i| i as f32 - 2.0).collect();
    let b: Vec<f32> = (0..k * n).map(|i| ((i * i) % 7) as f32).collect();
    let cell = |i: usize, j: usize| (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum::<f32>();
    let expected: Vec<f32> = (0..m * n).map(|at| cell(at / n, at % n)).collect();
    let shared = |data: &[f32]| {
        backend
            .create_buffer_with_data(data, StorageMode::Shared)
            .unwrap()
    };
    // One element more than the result has, which must not be written.
    let c = shared(&[9.0; 9]);
    ops.matmul(&shared(&a), &shared(&b), &c, m, n, k).unwrap();
    let mut found = [0.0_f32; 9];
    backend.copy_buffer_to_host(&c, &mut found).unwrap();
    assert_eq!(found[..8], expected);
    assert_eq!(found[8], 9.0);
    let bytes = |data: &[f32]| {
        data.iter()
            .flat_map(|x| x.to_ne_bytes())
            .collect::<Vec<_>>()
    };
    let memory = |data: &[f32]| {
        let pointer = backend.allocate(4 * data.len()).unwrap();
        backend.copy_from_host(pointer, &bytes(data)).unwrap();
        pointer
    };
    let (pa, pb, pc) = (memory(&a), memory(&b), memory(&[9.0; 8]));
    ops.matmul_ptr(pa.cast(), pb.cast(), pc.cast(), m, n, k)
        .unwrap();
    let mut result = [0; 32];
    backend.copy_to_host(&mut result, pc).unwrap();
    assert_eq!(floats(&result), expected);
}

#[test]
fn a_dropped_backend_frees_its_memory() {
    let backend = private_backend();
    let device = backend.device().clone();
    let allocated = || device.hal().unwrap().allocated_bytes();
    assert_eq!(allocated(), 0);
    let pointer = backend.allocate(1 << 20).unwrap();
    backend.copy_from_host(pointer, &[1, 2, 3]).unwrap();
    backend.allocate_buffer(2 << 20).unwrap();
    backend.allocate_pool(4 << 20).unwrap();
    assert!(allocated() >= 7 << 20, "{}", allocated());
    drop(backend);
    assert_eq!(allocated(), 0, "nothing was deallocated explicitly");
}

#[test]
fn private_memory_is_usable_by_ops_and_copies() {
    let backend = backend();
    let ops = MetalOps::new(backend.clone()).unwrap();
    let private = MTLResourceOptions::StorageModePrivate;
    let a = backend
        .create_buffer_with_data(&[1.0_f32, 2.0], private)
        .unwrap();
    let c = backend.create_buffer(8, private).unwrap();
    ops.add(&a, &a, &c, 2).unwrap();
    assert!(backend.copy_buffer_to_host(&c, &mut [0.0_f32; 2]).is_err());
    let shared = backend.create_buffer(8, StorageMode::Shared).unwrap();
    ops.mul(&c, &a, &shared, 2).unwrap();
    let mut result = [0.0_f32; 2];
    backend.copy_buffer_to_host(&shared, &mut result).unwrap();
    assert_eq!(result, [2.0, 8.0]);
}

#[test]
fn an_intel_mac_supports_every_storage_mode() {
    let options = SoftOptions {
        family: hal::Family::Mac2,
        ..SoftOptions::default()
    };
    let device = Device::on(soft::device(options).unwrap());
    let backend = Arc::new(MetalBackend::on(&device).unwrap());
    assert!(backend.get_compute_pipeline("matmul_kernel").is_none());
    assert!(backend.get_compute_pipeline("add_kernel").is_some());
    let ops = MetalOps::new(backend.clone()).unwrap();
    ops.warm_up().unwrap();
    for mode in [
        MTLResourceOptions::StorageModeShared,
        MTLResourceOptions::StorageModeManaged,
        MTLResourceOptions::StorageModePrivate,
    ] {
        let data = [1.0_f32, 2.0, 3.0, 4.0];
        let a = backend.create_buffer_with_data(&data, mode).unwrap();
        assert_eq!(a.storage_mode(), mode.into());
        let [b, c, d] = [(); 3].map(|()| backend.create_buffer(16, mode).unwrap());
        let result = backend.create_buffer(16, StorageMode::Shared).unwrap();
        // A kernel, then the CPU, which reads the kernel's result, then a kernel that reads the CPU's result.
        ops.add(&a, &a, &b, 4).unwrap();
        ops.matmul(&b, &a, &c, 2, 2, 2).unwrap();
        ops.mul(&c, &a, &d, 4).unwrap();
        ops.matmul(&d, &a, &result, 2, 2, 2).unwrap();
        let mut found = [0.0_f32; 4];
        backend.copy_buffer_to_host(&result, &mut found).unwrap();
        assert_eq!(found, [134.0, 188.0, 618.0, 884.0], "{mode:?}");
        if mode == MTLResourceOptions::StorageModeManaged {
            backend.copy_buffer_to_host(&d, &mut found).unwrap();
            assert_eq!(found, [14.0, 40.0, 90.0, 176.0]);
        }
    }
}

#[test]
fn a_result_may_be_written_over_an_input() {
    let backend = backend();
    let ops = MetalOps::new(backend.clone()).unwrap();
    let data = [1.0_f32, 2.0, 3.0, 4.0];
    let a = backend
        .create_buffer_with_data(&data, StorageMode::Shared)
        .unwrap();
    ops.matmul(&a, &a, &a, 2, 2, 2).unwrap();
    ops.add(&a, &a, &a, 4).unwrap();
    let mut result = [0.0_f32; 4];
    backend.copy_buffer_to_host(&a, &mut result).unwrap();
    assert_eq!(result, [14.0, 20.0, 30.0, 44.0]);
}

#[test]
fn a_short_buffer_is_an_error_and_nothing_is_written() {
    let backend = backend();
    let ops = MetalOps::new(backend.clone()).unwrap();
    let four = backend
        .create_buffer_with_data(&[1.0_f32; 4], StorageMode::Shared)
        .unwrap();
    let two = backend
        .create_buffer_with_data(&[7.0_f32; 2], StorageMode::Shared)
        .unwrap();
    for outcome in [
        ops.add(&four, &four, &two, 4),
        ops.add(&two, &four, &four, 4),
        ops.relu(&two, &four, 3),
        ops.matmul(&four, &four, &two, 2, 2, 2),
        ops.matmul(&four, &two, &four, 2, 2, 2),
        ops.add(&four, &four, &four, usize::MAX / 2),
    ] {
        assert!(outcome.is_err());
    }
    let mut found = [0.0_f32; 2];
    backend.copy_buffer_to_host(&two, &mut found).unwrap();
    assert_eq!(found, [7.0; 2]);
    assert!(
        backend
            .copy_buffer_to_host(&two, &mut [0.0_f32; 3])
            .is_err()
    );
}

#[test]
fn memory_by_pointer() {
    let backend = backend();
    let ops = MetalOps::new(backend.clone()).unwrap();
    let numbers = |n: usize| backend.allocate(4 * n).unwrap();
    let (a, b, c) = (numbers(4), numbers(4), numbers(4));
    let pair: Vec<u8> = [1.0_f32, 2.0, 3.0, 4.0]
        .iter()
        .flat_map(|x| x.to_ne_bytes())
        .collect();
    backend.copy_from_host(a, &pair).unwrap();
    backend.copy_from_host(b, &pair).unwrap();
    ops.add_ptr(a.cast(), b.cast(), c.cast(), 4).unwrap();
    ops.mul_ptr(c.cast(), b.cast(), c.cast(), 4).unwrap();
    let mut bytes = [0; 16];
    backend.copy_to_host(&mut bytes, c).unwrap();
    assert_eq!(floats(&bytes), [2.0, 8.0, 18.0, 32.0]);
    ops.matmul_ptr(a.cast(), b.cast(), c.cast(), 2, 2, 2)
        .unwrap();
    ops.relu_ptr(c.cast(), a.cast(), 4).unwrap();
    backend.copy_to_host(&mut bytes, a).unwrap();
    assert_eq!(floats(&bytes), [7.0, 10.0, 15.0, 22.0]);
    let mixed: Vec<u8> = [-1.5_f32, 0.25, 3.0, -0.75]
        .iter()
        .flat_map(|x| x.to_ne_bytes())
        .collect();
    backend.copy_from_host(a, &mixed).unwrap();
    ops.sigmoid_ptr(a.cast(), b.cast(), 3).unwrap();
    backend.copy_to_host(&mut bytes, b).unwrap();
    let found = floats(&bytes);
    assert_near(&found[..3], &[-1.5, 0.25, 3.0].map(sigmoid));
    assert_eq!(found[3], 4.0, "only three were requested");
    ops.relu_ptr(a.cast(), b.cast(), 4).unwrap();
    backend.copy_to_host(&mut bytes, b).unwrap();
    assert_eq!(floats(&bytes), [0.0, 0.25, 3.0, 0.0]);
    // Interior pointers work too.
    let second = c.wrapping_add(8);
    ops.add_ptr(second.cast(), second.cast(), second.cast(), 2)
        .unwrap();
    backend.copy_to_host(&mut bytes[..8], second).unwrap();
    assert_eq!(floats(&bytes[..8]), [30.0, 44.0]);
    let (id, size) = backend.get_buffer_info(a).unwrap();
    assert_eq!(size, 16);
    assert_ne!(id, backend.get_buffer_info(b).unwrap().0);
    assert_eq!(backend.buffer_count(), 3);

    let n = 3;
    invalid(
        ops.add_ptr(a.cast(), b.cast(), second.cast(), n)
            .unwrap_err(),
    );
    invalid(
        ops.add_ptr(a.cast(), std::ptr::null(), c.cast(), 1)
            .unwrap_err(),
    );
    let stranger = 1.0_f32;
    invalid(ops.relu_ptr(&raw const stranger, c.cast(), 1).unwrap_err());
    let crooked = std::ptr::without_provenance(c.addr() + 2);
    invalid(ops.relu_ptr(crooked, c.cast(), 1).unwrap_err());
    invalid(backend.copy_to_host(&mut [0; 17], a).unwrap_err());
    invalid(
        backend
            .copy_from_host(std::ptr::null_mut(), &[1])
            .unwrap_err(),
    );
    invalid(backend.deallocate(a, 15).unwrap_err());
    invalid(backend.deallocate(second, 8).unwrap_err());
    for pointer in [a, b, c] {
        backend.deallocate(pointer, 16).unwrap();
    }
    invalid(backend.deallocate(a, 16).unwrap_err());
    assert_eq!(backend.buffer_count(), 0);
    assert!(backend.allocate(0).unwrap().is_null());
    backend.deallocate(std::ptr::null_mut(), 0).unwrap();
    ops.add_ptr(std::ptr::null(), std::ptr::null(), std::ptr::null_mut(), 0)
        .unwrap();
}

#[test]
fn debug_information() {
    let backend = backend();
    let device = backend.metal_device();
    let name = device.name();
    assert!(name.starts_with("Bessemer software Metal ("), "{name}");
    assert_eq!(backend.device_name(), name);
    assert_eq!(device.max_threads_per_threadgroup().width, 1024);
    let names = [
        "add_kernel",
        "mul_kernel",
        "relu_kernel",
        "sigmoid_kernel",
        "matmul_kernel",
        "rmsnorm_kernel",
        "softmax_kernel",
        "silu_kernel",
        "rope_kernel",
        "attention_scores_kernel",
        "weighted_sum_kernel",
        "matmul_vec_kernel",
        "matmul_vec_tiled_kernel",
        "fused_silu_mul_kernel",
        "vector_add",
        "vector_mul",
        "relu",
        "sigmoid",
    ];
    for name in names {
        let pipeline = backend
            .get_compute_pipeline(name)
            .unwrap_or_else(|| panic!("{name}"));
        assert_eq!(pipeline.thread_execution_width(), 32);
        let max_threads = pipeline.max_total_threads_per_threadgroup();
        let size = backend.optimal_thread_group_size(&pipeline);
        assert!((32..=max_threads).contains(&size.width) && size.width.is_multiple_of(32));
        let size = backend.optimal_thread_group_size_2d(&pipeline);
        assert!(size.total().unwrap() <= max_threads && size.width == 32);
    }
    assert!(backend.get_compute_pipeline("add_kernal").is_none());
}

/// Uses a fake compiler that counts its runs: warming up runs it, ops afterwards do not.
#[test]
fn a_warm_backend_compiles_nothing_more() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let compiler = folder.path().join("clang++");
    let count = folder.path().join("runs");
    let real = soft::compiler(&SoftOptions::default()).unwrap().path;
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *-emit-llvm*) echo run >> {} ;; esac\nexec {} \"$@\"\n",
        count.display(),
        real.display()
    );
    std::fs::write(&compiler, script).unwrap();
    std::fs::set_permissions(&compiler, std::fs::Permissions::from_mode(0o755)).unwrap();
    let device = Device::on(
        soft::device(SoftOptions {
            clang: Some(compiler),
            cache_dir: Some(folder.path().join("cache")),
            optimize: false,
            ..SoftOptions::default()
        })
        .unwrap(),
    );
    let runs = || {
        std::fs::read_to_string(&count)
            .unwrap_or_default()
            .lines()
            .count()
    };
    let backend = Arc::new(MetalBackend::on(&device).unwrap());
    let ops = MetalOps::new(backend.clone()).unwrap();
    ops.warm_up().unwrap();
    let warm = runs();
    assert!(
        warm >= 3,
        "functions of one and two elements and a product: {warm}"
    );
    let data: Vec<f32> = (0..256 * 256).map(|i| (i % 5) as f32).collect();
    let a = backend
        .create_buffer_with_data(&data, StorageMode::Shared)
        .unwrap();
    let c = backend
        .create_buffer(4 * data.len(), StorageMode::Shared)
        .unwrap();
    ops.add(&a, &a, &c, 256).unwrap();
    ops.mul(&a, &a, &c, 256).unwrap();
    ops.relu(&a, &c, 256).unwrap();
    ops.sigmoid(&a, &c, 256).unwrap();
    ops.matmul(&a, &a, &c, 256, 256, 256).unwrap();
    backend.synchronize().unwrap();
    assert_eq!(runs(), warm);
}

#[test]
fn matmul_uses_simdgroup_tiles_in_half_precision_too() {
    let device = Device::on(noop::device(hal::Family::Apple7));
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let a = Tensor::zeros([256, 256], dtype).to(&device).contiguous();
        let c = a.matmul(&a);
        c.eval().unwrap();
        let record = noop::record(device.hal().unwrap()).unwrap();
        let name = format!("matmul_tile_{dtype}");
        let tile = |e: &noop::Event| matches!(e, noop::Event::Dispatch { kernel, threadgroup, .. } if *kernel == name && threadgroup.width == 128);
        assert!(record.events.iter().any(tile), "{name}");
    }
    let tiled = backend().get_compute_pipeline("matmul_kernel").unwrap();
    assert!(
        tiled.static_threadgroup_memory_length() > 0,
        "tiles in threadgroup memory"
    );
}

#[test]
fn a_failure_is_returned_by_reads_of_its_results() {
    let backend = private_backend();
    let ops = MetalOps::new(backend.clone()).unwrap();
    let buffer = |x: f32| {
        backend
            .create_buffer_with_data(&[x; 2], StorageMode::Shared)
            .unwrap()
    };
    let (a, b, c) = (buffer(1.0), buffer(0.0), buffer(0.0));
    backend.device().hal().unwrap().fail_submission(1);
    let first = ops.add(&a, &a, &b, 2);
    let second = ops.mul(&b, &a, &c, 2);
    let mut result = [0.0_f32; 2];
    assert!(first.is_err() || backend.copy_buffer_to_host(&b, &mut result).is_err());
    assert!(second.is_err() || backend.copy_buffer_to_host(&c, &mut result).is_err());
    ops.add(&a, &a, &b, 2).unwrap();
    ops.mul(&b, &b, &c, 2).unwrap();
    backend.copy_buffer_to_host(&c, &mut result).unwrap();
    assert_eq!(result, [4.0; 2]);
}

#[test]
fn the_cpu_has_the_same_memory_calls() {
    let backend = CpuBackend::initialize().unwrap();
    assert!(CpuBackend::is_available() && backend.device().is_cpu());
    let p = backend.allocate(8).unwrap();
    let mut bytes = [9; 8];
    backend.copy_to_host(&mut bytes, p).unwrap();
    assert_eq!(bytes, [0; 8], "zeroed");
    backend
        .copy_from_host(p.wrapping_add(4), &[1, 2, 3, 4])
        .unwrap();
    backend.copy_to_host(&mut bytes, p).unwrap();
    assert_eq!(bytes, [0, 0, 0, 0, 1, 2, 3, 4]);
    invalid(
        backend
            .copy_from_host(p.wrapping_add(5), &[1, 2, 3, 4])
            .unwrap_err(),
    );
    invalid(backend.deallocate(p, 4).unwrap_err());
    backend.deallocate(p, 8).unwrap();
    invalid(backend.copy_to_host(&mut bytes, p).unwrap_err());
    assert!(backend.allocate(0).unwrap().is_null());
}

#[test]
fn ops_on_buffers_use_the_selected_backend() {
    let backend = private_backend();
    let device = Backend::device(&*backend);
    device.set_matrix_library(MatrixLibrary::Mps).unwrap();
    let ops = MetalOps::new(backend.clone()).unwrap();
    for mode in [StorageMode::Shared, StorageMode::Managed] {
        let a = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0];
        let a = backend.create_buffer_with_data(&a, mode).unwrap();
        let c = backend.create_buffer(16, mode).unwrap();
        ops.matmul(&a, &a, &c, 2, 2, 3).unwrap();
        ops.add(&c, &c, &c, 4).unwrap();
        let mut result = [0.0_f32; 4];
        backend.copy_buffer_to_host(&c, &mut result).unwrap();
        assert_eq!(result, [44.0, 56.0, 98.0, 128.0]);
    }
    let error = Device::cpu().set_matrix_library(MatrixLibrary::Mps);
    assert!(matches!(error, Err(Error::Unsupported { .. })));
}

/// Labels of all buffers, launches and command buffers of a recording device.
fn labels(device: &hal::Device) -> BTreeSet<String> {
    let events = noop::record(device).unwrap().events;
    let label_of = |event: noop::Event| match event {
        noop::Event::Dispatch { label, .. } | noop::Event::Commit { label } => {
            Some(label.expect("a label"))
        }
        noop::Event::LabelBuffer(label) => Some(label),
        _ => None,
    };
    let allocated = |e: &&noop::Event| matches!(e, noop::Event::Allocate { .. });
    let labelled = |e: &&noop::Event| matches!(e, noop::Event::LabelBuffer(_));
    assert_eq!(
        events.iter().filter(allocated).count(),
        events.iter().filter(labelled).count(),
        "buffers without a label"
    );
    events.into_iter().filter_map(label_of).collect()
}

#[test]
fn buffers_have_names_for_gpu_tools() {
    let device = Device::on(noop::device(hal::Family::Apple7));
    let backend = Arc::new(MetalBackend::on(&device).unwrap());
    let a = backend.create_buffer_zeros(64).unwrap();
    let b = backend.create_buffer_with_data(&[1.0_f32; 64], StorageMode::Shared);
    let ops = MetalOps::new(Arc::clone(&backend)).unwrap();
    ops.add(&a, &b.unwrap(), &a, 64).unwrap();
    backend.allocate(256).unwrap();
    backend.allocate_buffer(256).unwrap();
    backend.allocate_pool(256).unwrap();
    device.synchronize().unwrap();
    let memory = [
        "create_buffer",
        "create_buffer_with_data",
        "allocate",
        "allocate_buffer",
        "allocate_pool",
    ];
    let found = labels(device.hal().unwrap());
    for label in memory.into_iter().chain(["tensors", "add"]) {
        assert!(found.contains(label), "{label}: {found:?}");
    }
}
