//! The faces of the documents, each snippet of theirs as a test, on the software Metal device.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use std::sync::Arc;

use bessemer::backends::array::{self, ArrayOp, ElementwiseKind};
use bessemer::backends::executor::{BOUNDARY_BYTES, BackendType, CLASSES, Executor};
use bessemer::backends::kernel::{self, BackendPreference, init_backend};
use bessemer::backends::metal::{
    MTLResourceOptions, MetalBackend, MetalKVCache, MetalMemoryPool, MetalOps, MetalTensor,
    MetalTensorBatch, compute_tensor_bytes,
};
use bessemer::backends::{Backend, BufferHandle, CpuBackend};
use bessemer::{AttentionOptions, DType, Device, Error, MatrixLibrary, Shape, Tensor};
use bessemer_hal::soft::{self, SoftOptions};
use bessemer_hal::{self as hal, StorageMode};

#[path = "../examples/metal_demo.rs"]
mod metal_demo;

fn backend() -> Arc<MetalBackend> {
    Arc::new(MetalBackend::software().unwrap())
}

/// A device of the test's own, for injected failures.
fn lonely() -> Arc<MetalBackend> {
    let device = Device::on(soft::device(SoftOptions::default()).unwrap());
    Arc::new(MetalBackend::on(&device).unwrap())
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|b| f32::from_ne_bytes(*b))
        .collect()
}

fn invalid(error: Error) -> String {
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    error.to_string()
}

mod minitensor {
    use super::*;

    #[test]
    fn there_is_no_metal_off_apple_and_every_constructor_says_so() {
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
    /// metal-gpu`: the features are there, the example is found by its name and needs no other, and it runs.
    #[test]
    fn the_commands_of_the_documents_have_what_they_name() {
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
        let engine = of_name(packages, "bessemer").unwrap();
        assert_eq!(engine["features"]["metal"], serde_json::json!([]));
        assert_eq!(
            engine["features"]["metal-gpu"],
            serde_json::json!(["metal"])
        );
        let targets = engine["targets"].as_array().unwrap();
        let example = of_name(targets, "metal_demo").unwrap();
        assert_eq!(example["kind"], serde_json::json!(["example"]));
        assert!(example["required-features"].is_null(), "{example}");
        metal_demo::main().unwrap();
    }

    #[test]
    fn element_wise_operation() {
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
            ops.sigmoid(&a, &c, 2).unwrap();
            backend.copy_buffer_to_host(&c, &mut result[..2]).unwrap();
            assert_eq!(result[1], 0.5);
        }
    }

    #[test]
    fn private_memory_is_computed_in_and_copied_from() {
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
    fn an_intel_mac_computes_in_every_kind_of_memory() {
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
            let [b, c, d] = [(); 3].map(|()| backend.create_buffer(16, mode).unwrap());
            let result = backend.create_buffer(16, StorageMode::Shared).unwrap();
            // A kernel, then the CPU, which reads what the kernel wrote, then a kernel that reads what the CPU wrote.
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
        ops.sigmoid_ptr(c.cast(), b.cast(), 1).unwrap();
        backend.copy_to_host(&mut bytes, a).unwrap();
        assert_eq!(floats(&bytes), [7.0, 10.0, 15.0, 22.0]);
        // Pointers into the midst of memory are as good.
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
        assert_eq!(device.name(), backend.device_name());
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
            let most = pipeline.max_total_threads_per_threadgroup();
            let size = backend.optimal_thread_group_size(&pipeline);
            assert!((32..=most).contains(&size.width) && size.width.is_multiple_of(32));
            let size = backend.optimal_thread_group_size_2d(&pipeline);
            assert!(size.total().unwrap() <= most && size.width == 32);
        }
        assert!(backend.get_compute_pipeline("add_kernal").is_none());
        MetalOps::new(backend).unwrap().warm_up().unwrap();
    }

    #[test]
    fn a_product_is_done_in_tiles_by_simd_groups_in_half_precision_too() {
        let device = Device::on(hal::noop::device(hal::Family::Apple7));
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let a = Tensor::zeros([256, 256], dtype).to(&device).contiguous();
            let c = a.matmul(&a);
            c.eval().unwrap();
            let record = hal::noop::record(device.hal().unwrap()).unwrap();
            let name = format!("matmul_tile_{dtype}");
            let tile = |e: &hal::noop::Event| matches!(e, hal::noop::Event::Dispatch { kernel, threadgroup, .. } if *kernel == name && threadgroup.width == 128);
            assert!(record.events.iter().any(tile), "{name}");
        }
        let tiled = backend().get_compute_pipeline("matmul_kernel").unwrap();
        assert!(
            tiled.static_threadgroup_memory_length() > 0,
            "tiles in threadgroup memory"
        );
    }

    #[test]
    fn a_failure_is_heard_by_whoever_reads_what_came_of_it() {
        let backend = lonely();
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
}

mod torchless {
    use super::*;

    #[test]
    fn a_backend_is_had_by_preference_and_computes() {
        let preferences = [
            BackendPreference::Auto,
            BackendPreference::Cpu,
            BackendPreference::Software,
        ];
        for preference in preferences {
            let backend = init_backend(preference).unwrap();
            let name = match preference {
                BackendPreference::Software => "software",
                _ => "cpu",
            };
            assert_eq!(backend.name(), name);
            assert!(!backend.device_name().is_empty());
            assert!(backend.is_available());
            let weights = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
            let input = Tensor::from_slice(&[1.0_f32, 0.0, -1.0], [3]);
            let values = |t: &Tensor| t.to_vec::<f32>().unwrap();
            assert_eq!(values(&backend.matmul_vec(&weights, &input)), [-2.0, -2.0]);
            assert_eq!(
                values(&backend.matmul(&weights, &weights.t())),
                [14.0, 32.0, 32.0, 77.0]
            );
            let mut x = Tensor::from_slice(&[2.0_f32, 2.0], [2]);
            backend.softmax(&mut x);
            assert_eq!(values(&x), [0.5, 0.5]);
            let mut x = Tensor::from_slice(&[3.0_f32, -3.0], [2]);
            backend.rmsnorm(&mut x, &Tensor::ones([2], DType::F32), 0.0);
            assert_eq!(values(&x), [1.0, -1.0]);
            let zero = Tensor::from_slice(&[0.0_f32, 20.0], [2]);
            assert_eq!(values(&backend.silu(&zero)), [0.0, 20.0]);
            let up = Tensor::from_slice(&[7.0_f32, 0.5], [2]);
            assert_eq!(values(&backend.fused_silu_mul(&zero, &up)), [0.0, 10.0]);
            // A quarter turn: the first half becomes minus the second, the second the first.
            let mut x = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], [1, 4]);
            let (cos, sin) = (
                Tensor::zeros([2], DType::F32),
                Tensor::ones([2], DType::F32),
            );
            backend.apply_rope(&mut x, &cos, &sin);
            assert_eq!(values(&x), [-3.0, -4.0, 1.0, 2.0]);
            let q = Tensor::from_slice(&[3.0_f32, 4.0], [2]);
            let keys = Tensor::from_slice(&[1.0_f32, 0.0, 0.0, 2.0], [2, 2]);
            let scores = backend.compute_attention_scores(&q, &keys, 0.5);
            assert_eq!(values(&scores), [1.5, 4.0]);
            let weights = Tensor::from_slice(&[0.5_f32, 0.25], [2]);
            assert_eq!(
                values(&backend.weighted_sum_rows(&weights, &keys)),
                [0.5, 0.5]
            );
            backend.synchronize().unwrap();
        }
        assert!(
            init_backend(BackendPreference::Metal).is_err(),
            "no Metal here"
        );
    }

    #[test]
    fn backends_are_discovered_described_and_chosen_by_memory() {
        let found = kernel::discover_backends();
        let names: Vec<_> = found.iter().map(|info| info.backend).collect();
        assert_eq!(names, ["cpu", "software"]);
        assert!(
            found
                .iter()
                .all(|i| i.free_memory <= i.total_memory && i.unified_memory)
        );
        assert_eq!(kernel::backend_summary().lines().count(), 2);
        assert_eq!(kernel::best_available_backend(), BackendPreference::Cpu);
        let cpu = kernel::select_backend_for_model(1 << 20).unwrap();
        assert_eq!(cpu, BackendPreference::Cpu);
        let error = kernel::select_backend_for_model(usize::MAX / 2).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        assert!(
            kernel::get_backend(BackendPreference::Cpu)
                .unwrap()
                .as_any()
                .is::<CpuBackend>()
        );
        let soft = kernel::get_backend(BackendPreference::Software).unwrap();
        assert!(soft.as_any().is::<MetalBackend>());
    }

    #[test]
    fn metal_tensors_are_read_and_written_in_place() {
        let backend = backend();
        let mut x = backend.to_device_1d(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!(
            (x.ndim(), x.len(), x.is_empty(), x.memory_bytes()),
            (1, 3, false, 12)
        );
        x.as_slice_mut().unwrap()[1] = 5.0;
        assert_eq!(&x.as_slice().unwrap()[..], [1.0, 5.0, 3.0]);
        let w = backend
            .to_device_2d(&[1.0, 0.0, 0.0, 0.0, 1.0, 1.0], 2, 3)
            .unwrap();
        assert_eq!(
            (
                w.shape_2d().unwrap(),
                w.nrows().unwrap(),
                w.ncols().unwrap()
            ),
            ((2, 3), 2, 3)
        );
        let y = backend.matmul_vec(&w, &x).unwrap();
        assert_eq!(backend.to_host_1d(&y).unwrap(), [1.0, 8.0]);
        assert_eq!(
            backend.to_host_2d(&w).unwrap(),
            [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]
        );
        assert!(backend.to_device_2d(&[1.0], 1, 2).is_err());
        let r = w.reshape([3, 2]).unwrap();
        assert!(r.buffer().is(w.buffer()), "no copy");
        assert!(w.reshape([4, 2]).is_err());
        let mut same = backend.to_device_1d(&[2.0, 2.0]).unwrap();
        backend.softmax(&mut same).unwrap();
        assert_eq!(same.to_vec().unwrap(), [0.5, 0.5]);
        let ones = backend.to_device_1d(&[1.0, 1.0]).unwrap();
        let mut x = backend.to_device_1d(&[3.0, -3.0]).unwrap();
        backend.rmsnorm(&mut x, &ones, 1e-12).unwrap();
        assert_eq!(x.to_vec().unwrap(), [1.0, -1.0]);
        assert_eq!(
            backend
                .silu(&backend.to_device_1d(&[0.0]).unwrap())
                .unwrap()
                .to_vec()
                .unwrap(),
            [0.0]
        );
        let short = backend.create_buffer_zeros(2).unwrap();
        invalid(MetalTensor::new_2d(&backend, short.clone(), 2, 2).unwrap_err());
        assert!(MetalTensor::new_1d(&backend, short.clone(), 2).is_ok());
        assert!(MetalTensor::new_3d(&backend, short, [1, 2, 1]).is_ok());
        let wrong = x.assign(Tensor::zeros([3], DType::F32)).unwrap_err();
        assert!(matches!(wrong, Error::ShapeMismatch { .. }));
    }

    #[test]
    fn a_tensor_over_a_buffer_that_the_host_writes_never_tears() {
        let backend = backend();
        let mut x = backend.to_device_1d(&[1.0; 100]).unwrap();
        let t = x.to_tensor().unwrap();
        let before = t.to_vec::<f32>().unwrap();
        let mut slice = x.as_slice_mut().unwrap();
        slice.fill(2.0);
        assert_eq!(
            t.to_vec::<f32>().unwrap(),
            before,
            "what was read once stays"
        );
        drop(slice);
        assert_eq!(x.to_vec().unwrap(), [2.0; 100]);
    }

    #[test]
    fn batches_have_one_buffer() {
        let batch = MetalTensorBatch::zeros(&backend(), 3, [2, 5]).unwrap();
        assert_eq!(batch.batch_size(), 3);
        assert_eq!(&batch.tensor_shape()[..], [2, 5]);
        assert_eq!(
            (batch.elements_per_tensor(), batch.total_elements()),
            (10, 30)
        );
        assert_eq!(batch.as_tensor().to_vec().unwrap(), [0.0; 30]);
    }

    #[test]
    fn a_cache_of_keys_and_values_gives_what_attention_over_all_of_them_gives() {
        let backend = backend();
        let (layers, heads, dim) = (2, 2, 4);
        let mut cache = MetalKVCache::new(&backend, layers, 8, heads, dim).unwrap();
        assert_eq!(cache.offset(1, 3), (8 + 3) * heads * dim);
        assert_eq!(cache.cache_elements(), layers * 8 * heads * dim);
        assert_eq!(cache.memory_bytes(), 2 * 4 * layers * 8 * heads * dim);
        let wave = |seed: usize, n: usize| {
            let data: Vec<f32> = (0..n * heads * dim)
                .map(|i| ((i * 13 + seed) % 17) as f32 / 17.0)
                .collect();
            Tensor::from_slice(&data, [n, heads, dim])
        };
        let (keys, values) = (wave(1, 6), wave(2, 6));
        let rows = |t: &Tensor, a: isize, b: isize| t.slice(0, a, b, 1);
        for (from, to) in [(0, 4), (4, 5), (5, 6)] {
            for layer in 0..layers {
                cache
                    .append(layer, &rows(&keys, from, to), &rows(&values, from, to))
                    .unwrap();
            }
            cache.advance((to - from) as usize).unwrap();
        }
        assert_eq!(cache.current_pos(), 6);
        let (k, v) = (cache.keys(1).unwrap(), cache.values(1).unwrap());
        assert_eq!(k.to_vec::<f32>().unwrap(), keys.to_vec::<f32>().unwrap());
        let heads_first = |t: &Tensor| t.transpose(0, 1).expand_dims(0);
        let q = heads_first(&wave(3, 1));
        let options = AttentionOptions::default();
        let found = q
            .to(backend.device())
            .attention(&heads_first(&k), &heads_first(&v), &options);
        let expected = q.attention(&heads_first(&keys), &heads_first(&values), &options);
        let (found, expected) = (
            found.to_vec::<f32>().unwrap(),
            expected.to_vec::<f32>().unwrap(),
        );
        for (a, b) in found.iter().zip(&expected) {
            assert!((a - b).abs() < 1e-6, "{a} and {b}");
        }
        invalid(cache.append(2, &keys, &values).unwrap_err());
        invalid(cache.append(0, &wave(1, 3), &wave(1, 3)).unwrap_err());
        invalid(cache.append(0, &wave(1, 1), &wave(1, 2)).unwrap_err());
        invalid(cache.advance(3).unwrap_err());
        cache.reset();
        assert_eq!(cache.current_pos(), 0);
        assert_eq!(cache.keys(0).unwrap().count(), 0);
    }

    #[test]
    fn a_pool_uses_buffers_again() {
        let backend = lonely();
        let pool = MetalMemoryPool::new(&backend);
        assert_eq!(pool.stats().total, 0);
        let first = pool.acquire(1000).unwrap();
        assert!(first.length() >= 1000);
        let id = first.id();
        assert_eq!(
            (pool.stats().misses, pool.stats().in_use),
            (1, first.length())
        );
        drop(first);
        let stats = pool.stats();
        assert_eq!((stats.in_use, stats.buffers), (0, 1));
        assert!(stats.pooled >= 1000);
        let second = pool.acquire(990).unwrap();
        assert_eq!(second.id(), id, "the same buffer");
        assert_eq!((pool.stats().hits, pool.stats().hit_rate()), (1, 0.5));
        assert!(
            pool.stats().to_string().contains("50 % of 2 requests"),
            "{}",
            pool.stats()
        );
        drop(second);
        pool.clear();
        assert_eq!(pool.stats().total, 0);
        backend.device().set_memory_limit(100);
        let error = pool.acquire(1000).unwrap_err();
        assert!(matches!(
            error,
            Error::OutOfMemory {
                requested: 1000,
                ..
            }
        ));
        assert_eq!(
            compute_tensor_bytes(&Shape::new("t", &[2, 3]).unwrap(), DType::F16),
            12
        );
    }
}

mod numrs {
    use super::*;

    #[test]
    fn functions_on_metal_are_those_of_the_cpu() {
        assert!(!array::is_available_cached());
        let device = Device::software().unwrap();
        let a = Tensor::linspace(0.1, 0.9, 33, DType::F32);
        let b = Tensor::linspace(0.5, 2.0, 33, DType::F32);
        for kind in ElementwiseKind::ALL {
            let cpu = array::elementwise(&a, &b, kind)
                .unwrap()
                .to_vec::<f32>()
                .unwrap();
            let metal = device
                .scope(|| array::elementwise_metal(&a, &b, kind))
                .unwrap();
            assert_eq!(metal.device(), &device);
            for (x, y) in metal.to_vec::<f32>().unwrap().iter().zip(&cpu) {
                assert!(
                    (x - y).abs() <= 1e-6 * y.abs().max(1.0),
                    "{kind:?}: {x} and {y}"
                );
            }
        }
        let m = Tensor::arange(0, 12, 1, DType::F32).reshape([3, 4]);
        device.scope(|| {
            let values = |t: Result<Tensor, Error>| t.unwrap().to_vec::<f32>().unwrap();
            assert_eq!(values(array::reduction_metal(&m, None)), [66.0]);
            assert_eq!(
                values(array::reduction_metal(&m, Some(0))),
                [12.0, 15.0, 18.0, 21.0]
            );
            assert_eq!(
                values(array::reduction_metal(&m, Some(1))),
                [6.0, 22.0, 38.0]
            );
            assert!(array::reduction_metal(&m, Some(2)).is_err());
            let row = m.index(0, 1);
            assert_eq!(values(array::dot_metal(&row, &row)), [126.0]);
            let product = values(array::matmul_metal(&m, &m.t()));
            assert_eq!(product[..3], [14.0, 38.0, 62.0]);
        });
        let error = array::matmul_metal(&m, &m.t()).unwrap_err();
        assert!(
            matches!(error, Error::Device { .. }),
            "no Metal outside the scope: {error}"
        );
    }

    #[test]
    fn a_backend_that_computes_takes_part_and_a_name_overrides_all() {
        let validation = array::BackendValidation::get();
        assert!(validation.cpu_validated && !validation.metal_validated);
        let report = array::startup_report();
        assert!(report.starts_with("Detected backends: cpu ("), "{report}");
        let cpu = array::ArrayBackend::Cpu;
        assert_eq!(array::chosen(ArrayOp::Matmul, 1 << 24), cpu);
        array::set_backend_override(Some("soft")).unwrap();
        assert_eq!(array::chosen(ArrayOp::Dot, 1).name(), "soft");
        let x = Tensor::ones([3], DType::F32);
        let dot = array::dot(&x, &x).unwrap();
        assert_eq!(
            (dot.item::<f32>().unwrap(), dot.device().is_cpu()),
            (3.0, false)
        );
        assert!(
            array::set_backend_override(Some("metal")).is_err(),
            "there is none"
        );
        invalid(array::set_backend_override(Some("webgpu")).unwrap_err());
        array::set_backend_override(None).unwrap();
        assert_eq!(array::chosen(ArrayOp::Dot, 1), cpu);
    }
}

mod hologram {
    use super::*;

    fn both() -> [Box<dyn Backend>; 2] {
        let software = MetalBackend::software().unwrap();
        [Box::new(CpuBackend::new()), Box::new(software)]
    }

    #[test]
    fn buffers_by_handle() {
        for backend in both() {
            let a = backend.allocate_buffer(8).unwrap();
            let b = backend.allocate_buffer(0).unwrap();
            assert_eq!(
                (
                    backend.buffer_size(a).unwrap(),
                    backend.buffer_size(b).unwrap()
                ),
                (8, 0)
            );
            let mut bytes = [9; 8];
            backend.copy_from_buffer(a, &mut bytes).unwrap();
            assert_eq!(bytes, [0; 8]);
            backend.copy_to_buffer(a, &[1, 2, 3]).unwrap();
            backend.copy_from_buffer(a, &mut bytes).unwrap();
            assert_eq!(bytes, [1, 2, 3, 0, 0, 0, 0, 0]);
            invalid(backend.copy_to_buffer(a, &[0; 9]).unwrap_err());
            invalid(backend.copy_from_buffer(a, &mut [0; 9]).unwrap_err());
            invalid(backend.copy_to_buffer(b, &[1]).unwrap_err());
            backend.free_buffer(a).unwrap();
            assert!(invalid(backend.free_buffer(a).unwrap_err()).ends_with("was freed"));
            assert!(invalid(backend.buffer_size(a).unwrap_err()).ends_with("was freed"));
            let again = backend.allocate_buffer(8).unwrap();
            assert_ne!(again, a);
            invalid(backend.copy_to_buffer(a, &[1]).unwrap_err());
            let unknown = BufferHandle::from(again.id() + 100);
            invalid(backend.copy_from_buffer(unknown, &mut []).unwrap_err());
        }
        let [cpu, metal] = both();
        let handle = cpu.allocate_buffer(4).unwrap();
        let error = invalid(metal.copy_to_buffer(handle, &[1]).unwrap_err());
        assert!(error.ends_with("belongs to another backend"), "{error}");
    }

    #[test]
    fn pools_are_written_and_read_in_pieces() {
        for backend in both() {
            let pool = backend.allocate_pool(10).unwrap();
            assert_eq!(backend.pool_size(pool).unwrap(), 10);
            backend.copy_to_pool(pool, 4, &[1, 2, 3]).unwrap();
            let mut bytes = [0; 4];
            backend.copy_from_pool(pool, 5, &mut bytes).unwrap();
            assert_eq!(bytes, [2, 3, 0, 0]);
            invalid(backend.copy_to_pool(pool, 8, &[1, 2, 3]).unwrap_err());
            invalid(
                backend
                    .copy_from_pool(pool, usize::MAX, &mut bytes)
                    .unwrap_err(),
            );
            backend.free_pool(pool).unwrap();
            invalid(backend.pool_size(pool).unwrap_err());
        }
    }

    #[test]
    fn an_executor_computes_on_typed_buffers() {
        for kind in [BackendType::Cpu, BackendType::Software] {
            let mut e = Executor::new_with_backend(kind).unwrap();
            let a = e.allocate::<f32>(4).unwrap();
            let b = e.allocate::<f32>(4).unwrap();
            let c = e.allocate::<f32>(4).unwrap();
            e.write(&a, &[1.0, -2.0, 3.0, 4.0]).unwrap();
            e.write(&b, &[5.0, 6.0, 7.0, 8.0]).unwrap();
            e.vector_add(&a, &b, &c).unwrap();
            assert_eq!(e.read(&c).unwrap(), [6.0, 4.0, 10.0, 12.0]);
            e.vector_mul(&a, &b, &c).unwrap();
            assert_eq!(e.read(&c).unwrap(), [5.0, -12.0, 21.0, 32.0]);
            e.relu(&c, &c).unwrap();
            assert_eq!(e.read(&c).unwrap(), [5.0, 0.0, 21.0, 32.0]);
            e.gemm(&a, &b, &c, [2, 2, 2]).unwrap();
            assert_eq!(e.read(&c).unwrap(), [-9.0, -10.0, 43.0, 50.0]);
            e.sum(&b, &c).unwrap();
            assert_eq!(e.read(&c).unwrap()[0], 26.0);
            e.write(&a, &[0.0; 4]).unwrap();
            e.sigmoid(&a, &c).unwrap();
            assert_eq!(e.read(&c).unwrap(), [0.5; 4]);
            assert!(e.gemm(&a, &b, &c, [3, 2, 2]).is_err());
            invalid(e.write(&a, &[0.0; 5]).unwrap_err());
            let wrong = e.store(&a, Tensor::zeros([4], DType::F16)).unwrap_err();
            assert!(matches!(wrong, Error::WrongType { .. }));
        }
        // A case that has no kernel is computed by the CPU, and lands where it should all the same.
        let mut e = Executor::new_with_backend(BackendType::Software).unwrap();
        let out = e.allocate::<f32>(2).unwrap();
        let wide = |x: f32| Tensor::full([1, 1, 1, 2000], x, DType::F32);
        let options = AttentionOptions::default();
        let device = Device::software().unwrap();
        let a = wide(1.0)
            .to(&device)
            .attention(&wide(0.5), &wide(0.25), &options);
        e.store(&out, a.slice(-1, 0, 2, 1).reshape([2])).unwrap();
        assert_eq!(e.read(&out).unwrap(), [0.25; 2]);
        assert!(Executor::new_with_backend(BackendType::Metal).is_err());
        let cuda = Executor::new_with_backend(BackendType::Cuda).unwrap_err();
        assert!(
            cuda.to_string().contains("CUDA is not implemented"),
            "{cuda}"
        );
        let auto = Executor::new_auto().unwrap();
        assert!(format!("{auto:?}").starts_with("Executor(CPU"));
    }

    #[test]
    fn an_executor_has_ninety_six_classes() {
        let mut e = Executor::new().unwrap();
        let boundary = e.allocate_boundary::<u8>().unwrap();
        assert_eq!(boundary.len(), BOUNDARY_BYTES);
        assert!(e.is_boundary(boundary.class()));
        let mut rest: Vec<_> = (1..CLASSES).map(|_| e.allocate::<u8>(1).unwrap()).collect();
        assert!(invalid(e.allocate::<u8>(1).unwrap_err()).contains("all 96 classes"));
        let gone = rest.remove(10);
        let class = gone.class();
        assert!(e.handle(class).is_some() && !e.is_boundary(class));
        e.free(gone).unwrap();
        assert!(e.handle(class).is_none());
        assert_eq!(e.allocate::<u8>(1).unwrap().class(), class);
    }

    #[test]
    fn hal_errors_keep_their_type() {
        let backend = lonely();
        backend.device().hal().unwrap().set_memory_limit(16);
        let error = backend.allocate_buffer(17).unwrap_err();
        let Error::Device { source, .. } = error else {
            panic!("{error}");
        };
        assert!(matches!(
            *source,
            hal::Error::OutOfMemory { requested: 17, .. }
        ));
    }
}

mod mps {
    use super::*;

    /// A matrix of a shape, stored as it is or as its transpose, possibly as a part of a larger one.
    fn matrix(shape: [usize; 2], turned: bool, part: bool, dtype: DType) -> Tensor {
        let [rows, columns] = if turned { [shape[1], shape[0]] } else { shape };
        let more = if part { 3 } else { 0 };
        let wide = [rows + more, columns + more];
        let data: Vec<f32> = (0..wide[0] * wide[1])
            .map(|i| ((i * 29) % 31) as f32 / 16.0 - 1.0)
            .collect();
        let mut t = Tensor::from_slice(&data, wide).cast(dtype);
        t.eval().unwrap();
        if part {
            t = t.slice(0, 2, 2 + rows as isize, 1);
            t = t.slice(1, 1, 1 + columns as isize, 1);
        }
        if turned { t.transpose(0, 1) } else { t }
    }

    fn numbers(t: &Tensor) -> Vec<f64> {
        t.to(&Device::cpu()).cast(DType::F64).to_vec().unwrap()
    }

    fn near(found: &Tensor, expected: &[f64], bound: f64, what: &str) {
        let found = numbers(found);
        assert_eq!(found.len(), expected.len(), "{what}");
        for (a, b) in found.iter().zip(expected) {
            assert!(
                (a - b).abs() <= bound * b.abs().max(1.0),
                "{what}: {a}, {b}"
            );
        }
    }

    #[test]
    fn products_by_the_devices_library_are_those_of_the_kernels() {
        let on = |library| {
            let device = Device::on(soft::device(SoftOptions::default()).unwrap());
            assert_eq!(device.matrix_library(), Some(MatrixLibrary::Msl));
            device.set_matrix_library(library).unwrap();
            assert_eq!(device.matrix_library(), Some(library));
            device
        };
        let devices = [on(MatrixLibrary::Msl), on(MatrixLibrary::Mps)];
        let sizes = [
            [1, 1, 1],
            [3, 5, 7],
            [33, 31, 65],
            [1, 40, 20],
            [40, 1, 20],
            [64, 2, 1],
        ];
        for dtype in [DType::F32, DType::F16] {
            for [m, n, k] in sizes {
                for case in 0..8 {
                    let (left, right, part) = (case & 1 > 0, case & 2 > 0, case & 4 > 0);
                    let a = matrix([m, k], left, part, dtype);
                    let b = matrix([k, n], right, part, dtype);
                    let (x, y) = (numbers(&a), numbers(&b));
                    let cell = |i: usize| (0..k).map(|l| x[i / n * k + l] * y[l * n + i % n]).sum();
                    let exact: Vec<f64> = (0..m * n).map(cell).collect();
                    // A row is added to every row of the product as it is made.
                    let c = matrix([1, n], false, part, DType::F32);
                    let z = numbers(&c);
                    let sums: Vec<f64> = (0..m * n).map(|i| exact[i] + z[i % n]).collect();
                    let bound = if dtype == DType::F32 { 1e-5 } else { 2e-3 };
                    for device in &devices {
                        let what = format!("{dtype} {m}x{k}x{n}, case {case}, {device}");
                        let [a, b, c] = [&a, &b, &c].map(|t| t.to(device));
                        near(&a.matmul(&b), &exact, bound, &what);
                        if dtype == DType::F32 {
                            near(&(a.matmul(&b) + &c), &sums, bound, &what);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn ops_on_buffers_follow_the_choice() {
        let backend = lonely();
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

    /// Products and launches that a recording device is asked for.
    fn counts(library: MatrixLibrary, graph: impl Fn() -> Tensor) -> (u64, u64) {
        let device = Device::on(hal::noop::device(hal::Family::Apple7));
        device.set_matrix_library(library).unwrap();
        device.scope(graph).eval().unwrap();
        device.synchronize().unwrap();
        let counts = hal::noop::record(device.hal().unwrap()).unwrap().counts;
        (counts.products, counts.dispatches)
    }

    #[test]
    fn the_library_gets_what_it_can_do_and_the_kernels_the_rest() {
        type Graph<'a> = Box<dyn Fn() -> Tensor + 'a>;
        let f32s = |shape: &[usize]| {
            let count = shape.iter().product();
            Tensor::from_slice(&vec![1.0_f32; count], shape)
        };
        let product: Graph<'_> = Box::new(|| f32s(&[20, 30]).matmul(&f32s(&[30, 40])));
        assert_eq!(counts(MatrixLibrary::Msl, &product).0, 0);
        let cases: Vec<(&str, u64, Graph<'_>)> = vec![
            ("a product", 1, product),
            (
                "many rows of matrices and one on the right",
                1,
                Box::new(|| f32s(&[4, 5, 30]).matmul(&f32s(&[30, 40]))),
            ),
            (
                "a product and a row",
                1,
                Box::new(|| f32s(&[20, 30]).matmul(&f32s(&[30, 40])) + f32s(&[40])),
            ),
            (
                "a batch",
                0,
                Box::new(|| f32s(&[3, 20, 30]).matmul(&f32s(&[3, 30, 40]))),
            ),
            (
                "a broadcast factor",
                0,
                Box::new(|| {
                    f32s(&[1, 30])
                        .broadcast_to([20, 30])
                        .matmul(&f32s(&[30, 40]))
                }),
            ),
            (
                "integers",
                0,
                Box::new(|| {
                    let whole = |shape: &[usize]| f32s(shape).cast(DType::I32);
                    whole(&[20, 30]).matmul(&whole(&[30, 40]))
                }),
            ),
            (
                "sums of nothing",
                0,
                Box::new(|| f32s(&[20, 0]).matmul(&f32s(&[0, 40]))),
            ),
        ];
        for (name, products, graph) in cases {
            let (found, launches) = counts(MatrixLibrary::Mps, graph);
            assert_eq!(found, products, "{name}");
            assert!(found + launches > 0, "{name}");
        }
    }
}
