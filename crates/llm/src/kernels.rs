//! torchless's tests of memory estimates, under its own paths: `cargo test --features metal-gpu --lib
//! kernels::metal`. The others are in `bessemer-compat`.

mod metal {
    mod memory {
        mod tests {
            use crate::memory::{estimate_kv_cache_memory_mb, estimate_model_memory_mb};

            /// Width 1,024 with 8 query heads and 2 KV heads: 2 layers of 8,128,512 weights, embedding and head of a
            /// 10,000-token vocabulary, and the final norm, in f16.
            #[test]
            fn test_estimate_model_memory() {
                let mb = estimate_model_memory_mb(1024, 1792, 2, 10_000, 8, 2);
                let attention = 2 * 1024 * 1024 + 2 * 1024 * 256;
                let layer = attention + 3 * 1024 * 1792 + 2 * 1024;
                assert_eq!(layer, 8_128_512);
                let weights = 2 * layer + 2 * 10_000 * 1024 + 1024;
                assert_eq!(mb, f64::from(2 * weights) / f64::from(1 << 20));
            }

            #[test]
            fn test_estimate_kv_cache_memory() {
                // Keys and values of 3 layers, 2 heads of 64 and 4096 positions in f16.
                assert_eq!(estimate_kv_cache_memory_mb(3, 2, 64, 4096), 6.0);
            }
        }
    }
}
