//! Kernels against values computed by the test.

use super::harness::{Image, bits, floats, run_all};

const THREADGROUP_SIZES: [u32; 8] = [1, 2, 31, 32, 33, 64, 250, 1024];

fn ramp(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 % 101) as f32) - 50.0).collect()
}

#[test]
fn kernel_without_synchronisation_is_one_region() {
    let source = "KERNEL { uint i = g->tgid[0] * g->tgs[0] + x; BUF(float, 1)[i] = BUF(float, 0)[i] * 2 + 1; }";
    let image = Image::new(source);
    assert_eq!(image.plan.regions, 1);
    let input = ramp(4 * 100);
    let out = run_all(
        source,
        [4, 1, 1],
        [100, 1, 1],
        &[bits(&input), vec![0; 400]],
    );
    let expected: Vec<f32> = input.iter().map(|v| v * 2.0 + 1.0).collect();
    assert_eq!(floats(&out[1]), expected);
}

#[test]
fn tree_reduction_with_barriers_in_a_loop() {
    let source = "KERNEL {
        float* s = (float*)g->tgmem[0]; uint n = g->nthreads;
        s[lane] = BUF(float, 0)[g->tgid[0] * n + lane]; barrier();
        for (uint m = n; m > 1;) {
            uint h = (m + 1) / 2;
            if (lane + h < m) s[lane] += s[lane + h];
            barrier(); m = h;
        }
        BUF(float, 1)[g->tgid[0] * n + lane] = s[0] + lane;
    }";
    for n in THREADGROUP_SIZES {
        let input = ramp(2 * n as usize);
        let out = run_all(
            source,
            [2, 1, 1],
            [n, 1, 1],
            &[bits(&input), vec![0; 2 * n as usize]],
        );
        for (group, values) in input.chunks(n as usize).enumerate() {
            let sum: f32 = values.iter().sum();
            let expected: Vec<f32> = (0..n).map(|i| sum + i as f32).collect();
            assert_eq!(
                floats(&out[1][group * n as usize..][..n as usize]),
                expected,
                "{n} threads"
            );
        }
    }
}

#[test]
fn divergent_collectives_give_results_per_branch() {
    let source = "KERNEL {
        uint t = lane & 31; float v = t; 
        if (t < 8) v = simd_sum(v); else v = simd_max(v);
        BUF(float, 0)[lane] = v;
    }";
    let out = run_all(source, [1, 1, 1], [64, 1, 1], &[vec![0; 64]]);
    let expected: Vec<f32> = (0..64)
        .map(|i| if i % 32 < 8 { 28.0 } else { 31.0 })
        .collect();
    assert_eq!(floats(&out[0]), expected);
}

#[test]
fn private_arrays_live_across_barriers() {
    let source = "KERNEL {
        uint* s = (uint*)g->tgmem[0]; uint a[8]; uint n = g->nthreads;
        for (uint i = 0; i < 8; i++) a[i] = lane * 8 + i;
        for (uint r = 0; r < 8; r++) {
            s[lane] = a[(lane + r) & 7];
            barrier();
            a[(lane * 3 + r) & 7] += s[(lane + r) % n];
            barrier();
        }
        for (uint i = 0; i < 8; i++) BUF(uint, 0)[lane * 8 + i] = a[i];
    }";
    for n in [1u32, 33, 96] {
        let out = run_all(source, [1, 1, 1], [n, 1, 1], &[vec![0; 8 * n as usize]]);
        let mut a: Vec<[u32; 8]> = (0..n)
            .map(|l| std::array::from_fn(|i| l * 8 + i as u32))
            .collect();
        for r in 0..8 {
            let s: Vec<u32> = (0..n)
                .map(|l| a[l as usize][((l + r) & 7) as usize])
                .collect();
            for l in 0..n {
                a[l as usize][((l * 3 + r) & 7) as usize] += s[((l + r) % n) as usize];
            }
        }
        assert_eq!(out[0], a.concat(), "{n} threads");
    }
}

#[test]
fn private_arrays_that_die_before_a_barrier_stay_in_their_region() {
    let source = "KERNEL {
        uint* s = (uint*)g->tgmem[0];
        { uint a[64]; for (uint i = 0; i < 64; i++) a[i] = i * lane; s[lane] = a[(lane * 7) & 63]; }
        barrier();
        BUF(uint, 0)[lane] = s[g->nthreads - 1 - lane];
    }";
    let image = Image::new(source);
    assert_eq!(
        image.plan.context_bytes, 4096,
        "only the state column is spilled"
    );
    let out = run_all(source, [1, 1, 1], [100, 1, 1], &[vec![0; 100]]);
    let expected: Vec<u32> = (0..100u32)
        .map(|l| 99 - l)
        .map(|l| ((l * 7) & 63) * l)
        .collect();
    assert_eq!(out[0], expected);
}

#[test]
fn two_dimensional_groups_and_threadgroup_variables() {
    let source = "KERNEL {
        auto& tile = tgvar<3, float[16][17]>(); auto& row = tgvar<9, float[16]>();
        uint w = g->dims[0], h = g->dims[1];
        tile[y][x] = BUF(float, 0)[(z * h + y) * w + x] + lane; if (y == 0) row[x] = x * 100;
        barrier();
        BUF(float, 1)[lane] = tile[h - 1 - y][w - 1 - x] + row[x];
    }";
    let image = Image::new(source);
    assert_eq!(
        image
            .plan
            .variables
            .iter()
            .map(|v| (v.id, v.size))
            .collect::<Vec<_>>(),
        [(3, 16 * 17 * 4), (9, 64)]
    );
    for (w, h) in [(16u32, 16u32), (16, 3), (5, 7), (1, 16), (3, 1)] {
        let n = (w * h) as usize;
        let input = ramp(n);
        let out = run_all(source, [1, 1, 1], [w, h, 1], &[bits(&input), vec![0; n]]);
        let expected: Vec<f32> = (0..n)
            .map(|l| input[n - 1 - l] + (n - 1 - l) as f32 + (l as u32 % w) as f32 * 100.0)
            .collect();
        assert_eq!(floats(&out[1]), expected, "{w}x{h}");
    }
}

#[test]
fn early_return_of_some_lanes_does_not_affect_the_others() {
    let source = "KERNEL {
        if (lane % 3 == 1) { BUF(float, 0)[lane] = -1; return; }
        float v = simd_sum((float)lane);
        barrier();
        v += simd_max((float)lane);
        BUF(float, 0)[lane] = v;
    }";
    for n in [1u32, 32, 40, 96] {
        let out = run_all(source, [1, 1, 1], [n, 1, 1], &[vec![0; n as usize]]);
        let expected: Vec<f32> = (0..n)
            .map(|l| {
                let group = || (l / 32 * 32..n.min(l / 32 * 32 + 32)).filter(|m| m % 3 != 1);
                if l % 3 == 1 {
                    -1.0
                } else {
                    (group().sum::<u32>() + group().max().unwrap()) as f32
                }
            })
            .collect();
        assert_eq!(floats(&out[0]), expected, "{n} threads");
    }
}

#[test]
fn loops_with_break_and_continue_around_barriers() {
    let source = "KERNEL {
        uint* s = (uint*)g->tgmem[0]; uint n = g->nthreads, acc = lane; uint limit = BUF(uint, 0)[0];
        for (uint i = 0; i < 100; i++) {
            if (i % 3 == 1) continue;
            s[lane] = acc; barrier();
            uint v = s[(lane + i) % n]; barrier();
            acc = acc * 3 + v;
            if (i >= limit) { acc ^= 0x55; break; }
            switch (acc & 3) { case 0: acc += 7; break; case 1: acc ^= i; break; case 2: acc = ~acc; default: acc -= 5; }
        }
        BUF(uint, 1)[lane] = acc;
    }";
    let n = 70u32;
    for limit in [0u32, 5, 1000] {
        let out = run_all(
            source,
            [1, 1, 1],
            [n, 1, 1],
            &[vec![limit], vec![0; n as usize]],
        );
        let mut acc: Vec<u32> = (0..n).collect();
        'outer: for i in 0..100u32 {
            if i % 3 == 1 {
                continue;
            }
            let s = acc.clone();
            for l in 0..n as usize {
                acc[l] = acc[l]
                    .wrapping_mul(3)
                    .wrapping_add(s[(l + i as usize) % n as usize]);
            }
            if i >= limit {
                acc.iter_mut().for_each(|a| *a ^= 0x55);
                break 'outer;
            }
            for a in &mut acc {
                *a = match *a & 3 {
                    0 => a.wrapping_add(7),
                    1 => *a ^ i,
                    2 => (!*a).wrapping_sub(5),
                    _ => a.wrapping_sub(5),
                };
            }
        }
        assert_eq!(out[1], acc, "limit {limit}");
    }
}

#[test]
fn barriers_in_functions_that_are_not_inlined() {
    let source = "
    __attribute__((noinline)) static uint rotate(uint* s, uint v, uint by) {
        s[sm_lane()] = v; barrier(); uint r = s[(sm_lane() + by) % sm_self()->nthreads]; barrier(); return r;
    }
    __attribute__((noinline)) static uint twice(uint* s, uint v) { return rotate(s, rotate(s, v, 1) + 1, 2); }
    KERNEL { BUF(uint, 0)[lane] = twice((uint*)g->tgmem[0], lane * 10); }";
    let out = run_all(source, [1, 1, 1], [50, 1, 1], &[vec![0; 50]]);
    let expected: Vec<u32> = (0..50u32).map(|l| (l + 3) % 50 * 10 + 1).collect();
    assert_eq!(out[0], expected);
}

#[test]
fn structures_and_wide_values_live_across_collectives() {
    let source = "
    struct Pair { float a; ulong b; bool c; double d; };
    KERNEL {
        Pair p{(float)lane, (ulong)lane << 40, (lane & 5) == 1, lane * 0.5};
        typedef float v4 __attribute__((ext_vector_type(4))); v4 q = {1, 2, 3, (float)lane}; unsigned __int128 w = ((unsigned __int128)lane << 90) + 3;
        for (uint i = 0; i < 3; i++) {
            float s = simd_sum(p.a); p.b += (ulong)s; if (p.c) p.d += 1; p.c = !p.c; q = q * 2.0f; q.x = s; w += w;
            p.a = simd_shuffle(p.a, (lane + 1) & 31);
        }
        BUF(float, 0)[lane] = p.a + (float)(p.b >> 40) + p.c + (float)p.d + q.w + q.x + (float)(uint)(w >> 90);
    }";
    let n = 64u32;
    let out = run_all(source, [1, 1, 1], [n, 1, 1], &[vec![0; n as usize]]);
    let expected: Vec<f32> = (0..n)
        .map(|l| {
            let (base, t) = (l / 32 * 32, l % 32);
            let a = (base + (t + 3) % 32) as f32;
            let sum = (0..32).map(|t| (base + t) as f32).sum::<f32>();
            let first = (l & 5) == 1;
            let d = f64::from(l) * 0.5 + if first { 2.0 } else { 1.0 };
            a + l as f32
                + f32::from(u8::from(!first))
                + d as f32
                + l as f32 * 8.0
                + sum
                + (l * 8) as f32
        })
        .collect();
    assert_eq!(floats(&out[0]), expected);
}

#[test]
fn image_exports_only_what_the_host_looks_up() {
    let source = "extern \"C\" { ulong sm_arg_size(uint p) { return p; } bool sm_gate(uint p) { return p; } }
    uint seven = sm_rt_table ? 7 : 8; uint helper(uint v) { return v + seven; }
    KERNEL { BUF(uint, 0)[lane] = helper(lane); }";
    let image = Image::new(source);
    let visible = |l: &&str| {
        let defines = l.starts_with("define ") || (l.starts_with('@') && !l.contains(" external "));
        defines && !l.contains("internal ")
    };
    let exported: Vec<&str> = image
        .text
        .lines()
        .filter(visible)
        .map(|l| {
            l.split('@')
                .nth(1)
                .and_then(|n| n.split([' ', '(']).next())
                .unwrap_or(l)
        })
        .collect();
    assert_eq!(
        exported,
        [
            "sm_rt_table",
            "sm_regions",
            "sm_ops",
            "sm_arg_size",
            "sm_gate",
            "sm_init"
        ]
    );
    let out = run_all(source, [1, 1, 1], [2, 1, 1], &[vec![0; 2]]);
    assert_eq!(
        out[0],
        [8, 9],
        "constructors ran after the table, here null, was set"
    );
}
