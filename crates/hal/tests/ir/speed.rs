//! Measurements, run by hand: `cargo test --release --test ir speed -- --ignored --nocapture`.

use super::harness::{Image, bits};
use bessemer_hal::soft::group::Strategy;
use std::time::Instant;

const ROWS: u32 = 256;
const COLUMNS: usize = 1024;

fn measure(name: &str, source: &str) {
    let image = Image::new(source);
    let input: Vec<f32> = (0..ROWS as usize * COLUMNS)
        .map(|i| (i % 97) as f32 * 0.01)
        .collect();
    let mut buffers = [
        bits(&input),
        bits(&vec![1.0; COLUMNS]),
        vec![0; ROWS as usize * COLUMNS],
        vec![COLUMNS as u32],
    ];
    let mut best = f64::MAX;
    for _ in 0..40 {
        let start = Instant::now();
        image.run([ROWS, 1, 1], [256, 1, 1], &mut buffers, Strategy::Fast);
        best = best.min(start.elapsed().as_secs_f64() * 1e3);
    }
    eprintln!(
        "{name}: {best:.3} ms, {} regions, {} bytes of context",
        image.plan.regions, image.plan.context_bytes
    );
}

#[test]
#[ignore = "a measurement"]
fn rmsnorm_by_tree_reduction() {
    measure(
        "rmsnorm 256x1024, tree",
        "KERNEL {
            const float* in = BUF(float, 0); const float* w = BUF(float, 1); float* out = BUF(float, 2);
            const uint& n = *BUF(uint, 3); float* s = (float*)g->tgmem[0]; uint t = lane, bs = g->tgs[0], row = g->tgid[0];
            float a = 0; for (uint i = t; i < n; i += bs) { float v = in[row * n + i]; a += v * v; }
            s[t] = a; barrier();
            for (uint k = bs / 2; k > 0; k >>= 1) { if (t < k) s[t] += s[t + k]; barrier(); }
            float r = 1 / __builtin_sqrtf(s[0] / n + 1e-5f);
            for (uint i = t; i < n; i += bs) out[row * n + i] = in[row * n + i] * r * w[i];
        }",
    );
}

#[test]
#[ignore = "a measurement"]
fn softmax_by_simd_reduction() {
    measure(
        "softmax 256x1024, simd",
        "KERNEL {
            const float* in = BUF(float, 0); float* out = BUF(float, 2); const uint n = *BUF(uint, 3);
            float* s = (float*)g->tgmem[0]; uint t = lane, bs = g->tgs[0], row = g->tgid[0];
            float m = -1e30f; for (uint i = t; i < n; i += bs) { float v = in[row * n + i]; m = m > v ? m : v; }
            m = simd_max(m); if ((t & 31) == 0) s[t >> 5] = m; barrier();
            m = (t & 31) < bs / 32 ? s[t & 31] : -1e30f; m = simd_max(m); barrier();
            float a = 0; for (uint i = t; i < n; i += bs) { float e = in[row * n + i] - m; e = 1 + e + e * e / 2; out[row * n + i] = e; a += e; }
            a = simd_sum(a); if ((t & 31) == 0) s[t >> 5] = a; barrier();
            a = (t & 31) < bs / 32 ? s[t & 31] : 0; a = simd_sum(a);
            for (uint i = t; i < n; i += bs) out[row * n + i] /= a;
        }",
    );
}

#[test]
#[ignore = "a measurement"]
fn add_without_synchronisation() {
    measure(
        "add 256x1024 (4 a thread)",
        "KERNEL { uint i = g->tgid[0] * 1024 + lane; for (uint k = 0; k < 4; k++) BUF(float, 2)[i + k * 256] = BUF(float, 0)[i + k * 256] + BUF(float, 1)[lane]; }",
    );
}
