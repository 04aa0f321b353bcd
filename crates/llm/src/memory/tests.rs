use super::*;

#[test]
fn estimates_match_known_models() {
    // Llama 2 7B: 6.74 billion weights of two bytes.
    let mb = estimate_model_memory_mb(4096, 11008, 32, 32000, 32, 32);
    assert!(
        (mb - 6_738_415_616.0 * 2.0 / BYTES_PER_MIB).abs() < 1.0,
        "{mb}"
    );
    // Its keys and values for 2048 positions: 1 GB.
    assert_eq!(estimate_kv_cache_memory_mb(32, 32, 128, 2048), 1024.0);
    // Llama 3 8B with 8 heads of keys and values: 8.03 billion weights.
    let mb = estimate_model_memory_mb(4096, 14336, 32, 128_256, 32, 8);
    assert!(
        (mb - 8_030_261_248.0 * 2.0 / BYTES_PER_MIB).abs() < 1.0,
        "{mb}"
    );
    assert_eq!(estimate_kv_cache_memory_mb(32, 8, 128, 8192), 1024.0);
}

#[test]
fn a_model_that_is_too_large_is_rejected_with_a_context_that_fits() {
    let estimate = Estimate {
        weights: 100 << 20,
        repacked: 0,
        cache: 400 << 20,
        scratch: 6 << 20,
        program: 4 << 20,
        cache_per_token: 100 << 10,
    };
    assert_eq!(estimate.check(510 << 20), Ok(()));
    let error = estimate.check(300 << 20).expect_err("210 MB too much");
    let text = error.to_string();
    // 190 MB are left for positions of 100 kB: 1945, in whole blocks 1920.
    for part in ["510 MB", "300 MB", "weights 100.0 MB", "--context 1920"] {
        assert!(text.contains(part), "{text}");
    }
    let text = estimate
        .check(50 << 20)
        .expect_err("far too much")
        .to_string();
    assert!(text.contains("smaller"), "{text}");
    let endless = Estimate {
        cache: u64::MAX,
        ..estimate
    };
    assert_eq!(endless.total(), u64::MAX);
}
