//! Tests that torchless names, under its paths: `cargo test --features metal-gpu --lib kernels::metal`. Its memory
//! estimates are tested in `bessemer-llm`, under the same paths.

#[cfg(target_os = "linux")]
mod metal {
    mod tests {
        use bessemer::{Device, Tensor};

        use crate::torchless::{BackendPreference, KernelBackend, MetalBackend, init_backend};

        fn backend() -> Box<dyn KernelBackend> {
            init_backend(BackendPreference::Software).unwrap()
        }

        fn vector(data: &[f32]) -> Tensor {
            Tensor::from_slice(data, [data.len()])
        }

        fn assert_near(found: &Tensor, expected: &[f64]) {
            let found = found.to_vec::<f32>().unwrap();
            assert_eq!(found.len(), expected.len());
            for (a, b) in found.iter().zip(expected) {
                let off = (f64::from(*a) - b).abs();
                assert!(off <= 1e-6 * b.abs().max(1.0), "{found:?}, {expected:?}");
            }
        }

        #[test]
        fn test_metal_availability() {
            assert!(!MetalBackend::is_available(), "Metal on Linux");
            assert!(init_backend(BackendPreference::Metal).is_err());
            assert!(backend().is_available());
        }

        #[test]
        fn test_metal_backend_creation() {
            let error = MetalBackend::new().unwrap_err().to_string();
            assert!(error.contains("Metal needs macOS or iOS"), "{error}");
            let device = Device::software().unwrap();
            let backend = MetalBackend::on(&device).unwrap();
            let name = backend.device_name();
            assert!(name.starts_with("Bessemer software Metal ("), "{name}");
            assert_eq!(KernelBackend::name(&backend), "software");
        }

        #[test]
        fn test_metal_matmul_vec() {
            let w = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
            let y = backend().matmul_vec(&w, &vector(&[2.0, 0.5, -1.0]));
            assert_near(&y, &[0.0, 4.5]);
        }

        #[test]
        fn test_metal_softmax() {
            let mut x = vector(&[1.0, 3.0, -2.0]);
            backend().softmax(&mut x);
            let e = [1.0_f64, 3.0, -2.0].map(f64::exp);
            let sum: f64 = e.iter().sum();
            assert_near(&x, &e.map(|v| v / sum));
        }

        #[test]
        fn test_metal_silu() {
            let x = [-2.0_f64, 0.5, 3.0];
            let y = backend().silu(&vector(&x.map(|v| v as f32)));
            assert_near(&y, &x.map(|v| v / (1.0 + (-v).exp())));
        }

        #[test]
        fn test_metal_rmsnorm() {
            let mut x = vector(&[3.0, -4.0]);
            backend().rmsnorm(&mut x, &vector(&[2.0, 0.5]), 2.5);
            // Mean square 12.5, plus eps 2.5.
            let root = 15_f64.sqrt();
            assert_near(&x, &[6.0 / root, -2.0 / root]);
        }
    }

    mod memory {
        mod tests {
            use bessemer::{DType, Device, Shape};
            use bessemer_hal::soft::{self, SoftOptions};

            use crate::torchless::{
                MetalBackend, MetalMemoryPool, compute_tensor_bytes, round_up_power_of_2,
            };

            #[test]
            fn test_memory_pool_new() {
                let device = Device::on(soft::device(SoftOptions::default()).unwrap());
                let pool = MetalMemoryPool::new(&MetalBackend::on(&device).unwrap());
                let stats = pool.stats();
                assert_eq!((stats.total, stats.in_use, stats.pooled), (0, 0, 0));
                let buffer = pool.acquire(100).unwrap();
                let stats = pool.stats();
                assert_eq!((stats.in_use, stats.misses), (buffer.length(), 1));
            }

            #[test]
            fn test_round_up_power_of_2() {
                let cases = [(0, 1), (1, 1), (2, 2), (3, 4), (1000, 1024), (1025, 2048)];
                for (n, expected) in cases {
                    assert_eq!(round_up_power_of_2(n), expected, "{n}");
                }
                assert_eq!(round_up_power_of_2(usize::MAX / 2 + 2), usize::MAX);
            }

            #[test]
            fn test_compute_tensor_bytes() {
                let shape = Shape::new("test", &[3, 5, 7]).unwrap();
                assert_eq!(compute_tensor_bytes(&shape, DType::F32), 420);
                assert_eq!(compute_tensor_bytes(&shape, DType::F16), 210);
                assert_eq!(compute_tensor_bytes(&shape, DType::U8), 105);
            }
        }
    }

    mod tensor {
        mod tests {
            use std::sync::Arc;

            use crate::torchless::{MetalBackend, MetalKVCache, MetalTensor};

            #[test]
            fn test_metal_tensor_shape_logic() {
                let backend = Arc::new(MetalBackend::software().unwrap());
                let t = MetalTensor::zeros(&backend, [3, 4]).unwrap();
                assert_eq!((t.ndim(), t.len(), t.memory_bytes()), (2, 12, 48));
                assert_eq!((t.nrows().unwrap(), t.ncols().unwrap()), (3, 4));
                let cube = t.reshape([2, 3, 2]).unwrap();
                assert_eq!(&cube.shape()[..], [2, 3, 2]);
                assert!(cube.shape_2d().is_err() && t.reshape([5, 2]).is_err());
            }

            #[test]
            fn test_kv_cache_offset() {
                let backend = Arc::new(MetalBackend::software().unwrap());
                // Layers, positions, heads and head dimension.
                let cache = MetalKVCache::new(&backend, 3, 10, 2, 5).unwrap();
                assert_eq!(cache.offset(0, 0), 0);
                assert_eq!(cache.offset(0, 7), 70);
                assert_eq!(cache.offset(2, 7), 270);
                assert_eq!(cache.offset(usize::MAX, 7), usize::MAX);
                assert_eq!(cache.cache_elements(), 300);
            }
        }
    }
}
