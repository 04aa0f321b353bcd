//! Devices: placement and failures. Runs on the software Metal device.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use bessemer::memory::Pressure;
use bessemer::{AttentionOptions, ConvOptions, DType, Device, Error, Tensor, eval, explain};
use bessemer_hal::soft::{Mode, SoftOptions};
use bessemer_hal::{self as hal, MathMode};
use bessemer_testing::tolerance::bound;

/// A separate device, so that limits and injected failures do not affect other tests.
fn soft() -> Device {
    Device::on(hal::soft::device(fast()).unwrap())
}

/// Options from the environment, but always in the fast mode.
fn fast() -> SoftOptions {
    SoftOptions {
        mode: Mode::Fast,
        ..SoftOptions::from_env().unwrap()
    }
}

fn vector(data: &[f32]) -> Tensor {
    Tensor::from_slice(data, [data.len()])
}

fn values(t: &Tensor) -> Vec<f32> {
    t.to_vec().unwrap()
}

/// A transformer block: all ops of a layer in one expression.
fn block(device: &Device) -> Tensor {
    let (tokens, width, heads, dim) = (5, 24, 3, 8);
    device.scope(|| {
        let wave = |seed: usize, shape: &[usize]| {
            let n: usize = shape.iter().product();
            let data: Vec<f32> = (0..n)
                .map(|i| ((i * 37 + seed * 101) % 64) as f32 / 64.0 - 0.5)
                .collect();
            Tensor::from_slice(&data, shape)
        };
        let x = wave(1, &[tokens, width]);
        let norm = wave(2, &[width]);
        let project = |x: &Tensor, seed| x.matmul(&wave(seed, &[width, width]));
        let heads_of = |x: Tensor| x.reshape([1, tokens, heads, dim]).transpose(1, 2);
        let y = x.rms_norm(&norm, 1e-5);
        let (q, k, v) = (project(&y, 3), project(&y, 4), project(&y, 5));
        let options = AttentionOptions {
            causal: true,
            ..AttentionOptions::default()
        };
        let a = heads_of(q).attention(&heads_of(k), &heads_of(v), &options);
        let a = a.transpose(1, 2).reshape([tokens, width]);
        let x = &x + project(&a, 6);
        let y = x.rms_norm(&norm, 1e-5);
        let gate = y.matmul(&wave(7, &[width, 2 * width]));
        let up = y.matmul(&wave(8, &[width, 2 * width]));
        x + gate.swiglu(&up).matmul(&wave(9, &[2 * width, width]))
    })
}

#[test]
fn moved_tensors_are_pinned_and_others_follow_the_default() {
    let device = soft();
    let x = vector(&[1.0, 2.0]).to(&device);
    assert_eq!(x.device(), &device);
    assert_eq!((&x + 1.0).exp().device(), &device);
    assert_eq!(values(&(&x + 1.0)), [2.0, 3.0]);
    let y = device.scope(|| vector(&[3.0]) * 2.0);
    assert_eq!(y.device(), &device);
    assert_eq!(values(&y), [6.0]);
    // A scope ends with its body, even on a panic.
    let body = std::panic::AssertUnwindSafe(|| device.scope(|| panic!("on purpose")));
    let caught = std::panic::catch_unwind(body);
    assert!(caught.is_err());
    assert!(vector(&[1.0]).device().is_cpu());
}

#[test]
fn values_move_between_devices_but_mixed_inputs_are_an_error() {
    let (a, b) = (soft(), soft());
    let x = vector(&[1.0, 2.0, 3.0]).to(&a) * 2.0;
    let y = x.to(&b) + 1.0;
    assert_eq!(y.device(), &b);
    assert_eq!(values(&y), [3.0, 5.0, 7.0]);
    let back = (y.to(&Device::cpu()) - 1.0).to(&a) * 0.5;
    assert_eq!(values(&back), [1.0, 2.0, 3.0]);
    let error = (&x + &y).to_vec::<f32>().unwrap_err();
    assert!(matches!(error, Error::Invalid { op: "add", .. }), "{error}");
    // Data used on three devices is copied to each once.
    let x = vector(&[4.0]);
    for device in [&a, &b, &a] {
        assert_eq!(values(&(x.to(device) + 1.0)), [5.0]);
    }
}

#[test]
fn f64_falls_back_to_the_cpu_unless_pinned_to_metal() {
    let device = soft();
    let x = Tensor::from_slice(&[1.0_f64, 2.0], [2]);
    let error = x.to(&device).to_vec::<f64>().unwrap_err();
    assert!(
        matches!(error, Error::Unsupported { op: "to", .. }),
        "{error}"
    );
    let error = vector(&[1.0])
        .to(&device)
        .cast(DType::F64)
        .check()
        .unwrap_err();
    assert!(
        matches!(error, Error::Unsupported { op: "cast", .. }),
        "{error}"
    );
    device.scope(|| {
        let x = Tensor::from_slice(&[1.0_f64, 2.0], [2]) * 2.0;
        assert!(x.device().is_cpu());
        assert_eq!(x.to_vec::<f64>().unwrap(), [2.0, 4.0]);
        let y = x.cast(DType::F32) + 1.0;
        assert_eq!(y.device(), &device);
        assert_eq!(values(&y), [3.0, 5.0]);
    });
}

#[test]
fn an_unknown_bessemer_device_is_an_error() {
    let error = "gpu".parse::<Device>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "device: `gpu` is none of cpu, metal, soft, auto"
    );
    assert!("metal".parse::<Device>().is_err(), "there is no Metal GPU");
    assert_eq!("auto".parse::<Device>().unwrap(), Device::cpu());
}

#[test]
fn a_failed_submission_is_an_error_for_its_readers_only() {
    let device = soft();
    let x = vector(&[1.0, 2.0]).to(&device);
    device.hal().unwrap().fail_submission(1);
    let y = &x * 3.0;
    y.eval().unwrap();
    // Everything computed from it later fails too, and every reader gets the error.
    let z = &y + 1.0;
    for t in [&y, &z, &y] {
        let error = t.to_vec::<f32>().unwrap_err();
        let Error::Device { source, .. } = &error else {
            panic!("{error}");
        };
        assert!(matches!(**source, hal::Error::Execution { .. }), "{error}");
    }
    assert_eq!(values(&(&x * 3.0 + 1.0)), [4.0, 7.0]);
}

#[test]
fn a_failed_allocation_changes_nothing() {
    let device = soft();
    let x = Tensor::arange(0, 4096, 1, DType::F32).to(&device);
    x.eval().unwrap();
    device.clear_cache();
    let y = (&x + 1.0).sqrt();
    // After the first failure, cached memory is released and the allocation is retried.
    device.hal().unwrap().fail_allocation(1);
    y.eval().unwrap();
    assert_eq!(values(&y)[3], 2.0);
    let before = device.memory();
    let limit = device.set_memory_limit(before.in_use + 100);
    let z = &y * 2.0;
    let error = z.to_vec::<f32>().unwrap_err();
    assert!(
        matches!(
            error,
            Error::OutOfMemory {
                requested: 16384,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(device.memory().in_use, before.in_use);
    assert!(device.memory_pressure() > Pressure::Medium);
    device.set_memory_limit(limit);
    assert_eq!(
        values(&z)[3],
        4.0,
        "the next try begins where this one stopped"
    );
}

#[test]
fn every_allocation_and_submission_of_a_transformer_block_may_fail() {
    let device = soft();
    let expected = values(&block(&device));
    device.synchronize().unwrap();
    device.clear_cache();
    let in_use = device.memory().in_use;
    let allocated = device.hal().unwrap().allocated_bytes();
    let mut failures = 0;
    for fail in [hal::Device::fail_allocation, hal::Device::fail_submission] {
        for n in 1.. {
            device.clear_cache();
            fail(device.hal().unwrap(), n);
            let outcome = block(&device).to_vec::<f32>();
            // Disarmed if it was not reached: then all calls have been tested.
            let reached = outcome.is_err();
            fail(device.hal().unwrap(), 0);
            match outcome {
                Ok(found) => assert_eq!(found, expected),
                Err(error) => {
                    let typed = matches!(error, Error::Device { .. } | Error::OutOfMemory { .. });
                    assert!(typed, "{error}");
                    failures += 1;
                }
            }
            let _ = device.synchronize();
            device.clear_cache();
            assert_eq!(device.memory().in_use, in_use, "after failure {n}");
            assert_eq!(device.hal().unwrap().allocated_bytes(), allocated);
            assert_eq!(values(&block(&device)), expected, "after failure {n}");
            if !reached && n > 64 {
                break;
            }
        }
    }
    assert!(failures > 0, "something failed");
}

#[test]
fn memory_is_pooled_counted_and_released() {
    let device = soft();
    let x = Tensor::ones([1 << 16], DType::F32).to(&device).contiguous();
    x.eval().unwrap();
    let before = device.memory();
    for _ in 0..20 {
        (&x * 2.0).eval().unwrap();
    }
    let after = device.memory();
    assert_eq!(after.in_use, before.in_use);
    assert!(after.hits >= before.hits + 18, "{after:?}");
    assert!(after.hit_rate() > 0.5);
    assert!(after.cached > 0 && after.peak >= 2 * after.in_use);
    assert_eq!(after.allocated(), after.in_use + after.cached);
    device.synchronize().unwrap();
    device.clear_cache();
    assert_eq!(device.memory().cached, 0);
    device.set_cache_limit(0);
    (&x * 2.0).eval().unwrap();
    assert_eq!(device.memory().cached, 0, "nothing is kept");
    drop(x);
    assert_eq!(device.memory().in_use, 0);
    assert_eq!(device.memory_pressure(), Pressure::Low);
}

#[test]
fn the_host_does_not_overwrite_memory_in_flight() {
    let device = soft();
    device.scope(|| {
        // Inputs return to the pool while the kernels that read them are only recorded; new data of the same size must
        // not overwrite them.
        let mut sums = Vec::new();
        for i in 0..50 {
            let x = Tensor::from_slice(&vec![i as f32; 3000], [3000]);
            sums.push((x + 1.0).contiguous());
        }
        for (i, sum) in sums.iter().enumerate() {
            assert_eq!(values(sum), vec![i as f32 + 1.0; 3000]);
        }
    });
}

#[test]
fn many_threads_share_a_device() {
    let device = soft();
    let shared = Tensor::arange(0, 1000, 1, DType::F32).to(&device).sqrt();
    std::thread::scope(|s| {
        for t in 0..8 {
            let (device, shared) = (&device, &shared);
            s.spawn(move || {
                for i in 0..20 {
                    let k = (t * 20 + i) as f32;
                    let y = (shared * k).to(device) + 1.0;
                    assert_eq!(values(&y)[4], 2.0 * k + 1.0);
                }
            });
        }
    });
}

#[test]
fn a_hundred_thousand_ops_leave_memory_flat() {
    let device = Device::on(hal::noop::device(hal::Family::Apple7));
    let mut x = Tensor::ones([64], DType::F32).to(&device).contiguous();
    let mut peak = 0;
    for i in 0..100_000 {
        x = x + 1.0;
        x.eval().unwrap();
        if i == 1000 {
            peak = device.memory().peak;
        }
        if i % 1000 == 0 {
            hal::noop::clear(device.hal().unwrap());
        }
    }
    assert_eq!(device.memory().peak, peak);
}

#[test]
fn fast_math_is_opt_in() {
    let hal = hal::soft::device(fast()).unwrap();
    let fast = Device::with(hal, MathMode::Fast);
    let x = Tensor::linspace(-8.0, 8.0, 1001, DType::F32);
    let precise = values(&x.to(&soft()).exp());
    let quick = values(&x.to(&fast).exp());
    assert_eq!((precise.len(), quick.len()), (1001, 1001));
    for ((p, q), x) in precise.iter().zip(&quick).zip(values(&x)) {
        let exact = f64::from(x).exp();
        assert!(
            (f64::from(*p) / exact - 1.0).abs() < bound::F32_PRECISE_EXP,
            "exp({x}) = {p}"
        );
        assert!(
            (f64::from(*q) / exact - 1.0).abs() < bound::F32_FAST_EXP,
            "fast exp({x}) = {q}"
        );
    }
}

#[test]
fn a_transformer_block_agrees_on_all_devices() {
    let cpu = values(&block(&Device::cpu()));
    let check = Device::on(hal::soft::device(SoftOptions::in_mode(Mode::Check)).unwrap());
    for device in [&soft(), &check] {
        let found = values(&block(device));
        assert_eq!((found.len(), cpu.len()), (5 * 24, 5 * 24));
        for (a, b) in found.iter().zip(&cpu) {
            assert!(
                (a - b).abs() <= bound::BACKENDS * b.abs().max(1.0),
                "{a} and {b}"
            );
        }
    }
}

/// Ops of every kind that uses SIMD-groups on other devices, and some that never do.
fn mixture(device: &Device) -> Vec<(&'static str, Tensor)> {
    device.scope(|| {
        let wave = |shape: &[usize]| {
            let n: usize = shape.iter().product();
            let data: Vec<f32> = (0..n).map(|i| ((i * 37) % 64) as f32 / 9.0 - 3.0).collect();
            Tensor::from_slice(&data, shape)
        };
        let (x, w) = (wave(&[6, 40]), wave(&[40]));
        let (image, strides) = (wave(&[1, 3, 9, 9]), ConvOptions::default());
        vec![
            ("block", block(device)),
            ("softmax", x.softmax(-1)),
            ("layer_norm", x.layer_norm(Some(&w), Some(&w), 1e-5)),
            ("sum", x.sum(&[0], false)),
            ("max", x.max(&[], false)),
            ("argmax", x.argmax(1, false).cast(DType::F32)),
            ("cumsum", x.cumsum(1)),
            ("matvec", x.matvec(&w)),
            ("half product", {
                let h = x.cast(DType::F16);
                h.matmul(&h.transpose(0, 1)).cast(DType::F32)
            }),
            ("conv", image.conv2d(&wave(&[32, 3, 3, 3]), None, &strides)),
            (
                "small conv",
                image.conv2d(&wave(&[4, 3, 3, 3]), None, &strides),
            ),
            ("sort", x.sort(1)),
            ("gelu", (&x * 2.0 + 1.0).gelu()),
            ("copy", x.transpose(0, 1).contiguous()),
        ]
    })
}

/// The kernels that a recording device launches for the mixture, without their types.
fn kernels(device: hal::Device) -> Vec<String> {
    let device = Device::on(device);
    for (_, t) in mixture(&device) {
        t.eval().unwrap();
    }
    device.synchronize().unwrap();
    let record = hal::noop::record(device.hal().unwrap()).unwrap();
    let mut names: Vec<String> = record
        .events
        .into_iter()
        .filter_map(|event| match event {
            hal::noop::Event::Dispatch { kernel, .. } => Some(kernel),
            _ => None,
        })
        .collect();
    for name in &mut names {
        for dtype in DType::ALL {
            let end = format!("_{dtype}");
            while let Some(short) = name.strip_suffix(&end) {
                *name = short.to_owned();
            }
        }
    }
    names.sort();
    names.dedup();
    names
}

#[test]
fn devices_without_simd_groups_of_32_fall_back_to_the_cpu() {
    let options = SoftOptions {
        family: hal::Family::Mac2,
        ..fast()
    };
    let old = Device::on(hal::soft::device(options).unwrap());
    let (found, cpu) = (mixture(&old), mixture(&Device::cpu()));
    assert_eq!(found.len(), cpu.len());
    for ((name, found), (_, expected)) in found.into_iter().zip(cpu) {
        assert_eq!(found.device(), &old, "{name}");
        assert_eq!(found.shape(), expected.shape(), "{name}");
        for (a, b) in values(&found).iter().zip(values(&expected)) {
            assert!(
                (a - b).abs() <= bound::BACKENDS * b.abs().max(1.0),
                "{name}: {a}, {b}"
            );
        }
    }
    // So does a layer with a fused epilogue.
    let layer = |device: &Device| {
        let x = Tensor::from_slice(&[0.5_f32, -1.0, 2.0, 0.25], [2, 2]).to(device);
        x.eval().unwrap();
        let y = (x.matmul(&x) + &x).gelu() + &x;
        values(&y)
    };
    assert_eq!(layer(&old).len(), 4);
    for (a, b) in layer(&old).iter().zip(layer(&Device::cpu())) {
        assert!(f64::from((a - b).abs()) <= bound::F32_FEW_STEPS, "{a}, {b}");
    }
    // The fallbacks are reported, with the reason.
    let left = old.fallbacks();
    let matmul = left.iter().find(|f| f.op == "matmul").unwrap();
    assert!(matmul.count >= 2, "{left:?}");
    assert!(matmul.reason.contains("SIMD-groups"), "{left:?}");
    assert!(left.iter().all(|f| f.op != "sort"), "{left:?}");
    assert!(soft().fallbacks().is_empty());
    assert!(Device::cpu().fallbacks().is_empty());
    // Kernels without SIMD-group functions run on the device: elementwise, copies, sorting.
    let free = ["cast", "conv_direct", "copy_strided", "fused", "sort_block"];
    assert_eq!(kernels(hal::noop::device(hal::Family::Mac2)), free);
    // A newer GPU whose pipelines have another SIMD width does the same.
    let wide = hal::noop::device_with_lanes(hal::Family::Apple9, 64);
    assert_eq!(kernels(wide), free);
    let new = kernels(hal::noop::device(hal::Family::Apple7));
    for name in [
        "attention_decode",
        "conv_tile",
        "layer_norm_row",
        "matmul_skinny_k_major",
        "matmul_skinny_m_major",
        "reduce_group",
        "rms_norm_row",
        "scan_row",
        "softmax_row",
    ] {
        assert!(new.iter().any(|n| n == name), "{name} of {new:?}");
    }
}

#[test]
fn a_matmul_with_bias_is_one_launch_with_the_same_bits() {
    let wave = |shape: &[usize], seed: usize| {
        let n: usize = shape.iter().product();
        let data: Vec<f32> = (0..n)
            .map(|i| ((i * 29 + seed) % 31) as f32 / 7.0)
            .collect();
        Tensor::from_slice(&data, shape)
    };
    let device = soft();
    let moved = |t: Tensor| t.to(&device);
    let (a, b) = (moved(wave(&[33, 40], 1)), moved(wave(&[40, 17], 2)));
    for c in [wave(&[33, 17], 3), wave(&[17], 4), wave(&[33, 1], 5)].map(moved) {
        let product = a.matmul(&b);
        product.eval().unwrap();
        let apart = values(&(&product + &c));
        let fused = a.matmul(&b) + &c;
        assert_eq!(explain(&[&fused]).unwrap().steps.len(), 1);
        assert_eq!(values(&fused), apart);
        let other_way = &c + a.matmul(&b);
        assert_eq!(explain(&[&other_way]).unwrap().steps.len(), 1);
        assert_eq!(values(&other_way), apart);
    }
    // A matmul with another use is not fused.
    let c = moved(wave(&[33, 17], 3));
    let product = a.matmul(&b);
    let both = [&product + &c, product.exp()];
    assert!(explain(&[&both[0], &both[1]]).unwrap().steps.len() > 1);
    let half = |t: &Tensor| t.cast(DType::F16);
    let sum = half(&a).matmul(&half(&b)) + half(&c);
    assert_eq!(
        explain(&[&sum]).unwrap().steps.last().unwrap().ops.last(),
        Some(&"add")
    );
}

#[test]
fn a_fused_epilogue_is_bit_identical_to_separate_ops() {
    fn wave(shape: &[usize], seed: usize) -> Tensor {
        let n: usize = shape.iter().product();
        let data: Vec<f32> = (0..n)
            .map(|i| ((i * 29 + seed) % 31) as f32 / 9.0 - 1.6)
            .collect();
        Tensor::from_slice(&data, shape)
    }
    fn same(x: &Tensor) -> Tensor {
        x.clone()
    }
    type Function = fn(&Tensor) -> Tensor;
    let functions: [(&str, Function); 6] = [
        ("add", same),
        ("relu", Tensor::relu),
        ("silu", Tensor::silu),
        ("gelu", Tensor::gelu),
        ("gelu_tanh", Tensor::gelu_tanh),
        ("sigmoid", Tensor::sigmoid),
    ];
    let options = SoftOptions::from_env().unwrap();
    let device = Device::on(hal::soft::device(options.clone()).unwrap());
    let done = |t: Tensor| {
        t.eval().unwrap();
        t
    };
    // Tiles; few rows; one column; split-K in both; a batch.
    let shapes: [[&[usize]; 2]; 6] = [
        [&[33, 20], &[20, 35]],
        [&[3, 20], &[20, 35]],
        [&[35, 20], &[20, 1]],
        [&[20, 1100], &[1100, 18]],
        [&[2, 1100], &[1100, 18]],
        [&[2, 18, 8], &[2, 8, 17]],
    ];
    for (i, [left, right]) in shapes.into_iter().enumerate() {
        for (d, dtype) in [DType::F16, DType::BF16, DType::F32]
            .into_iter()
            .enumerate()
        {
            // Every function for one shape, one function for every other; each in at most one half-precision type,
            // since all of them are compiled.
            let is_selected = |j: usize| (i == 0 || i == j) && (dtype == DType::F32 || j % 3 == d);
            let functions = functions
                .iter()
                .enumerate()
                .filter(|(j, _)| is_selected(*j));
            for (_, &(name, f)) in functions {
                let given = |t: Tensor| done(t.to(&device).cast(dtype).contiguous());
                let (a, b) = (given(wave(left, 1) * 0.2), given(wave(right, 2) * 0.3));
                let (m, n) = (left[left.len() - 2], right[right.len() - 1]);
                let bias = given(wave(&[n], 3));
                let residual = given(wave(&[n, m], 4)).t();
                let product = done(a.matmul(&b));
                let sum = done(&product + &bias);
                let activated = done(f(&sum));
                let apart = done(&activated + &residual);
                let cases = [
                    (f(&(a.matmul(&b) + &bias)) + &residual, apart),
                    (
                        &residual + f(&(&bias + a.matmul(&b))),
                        done(&activated + &residual),
                    ),
                    (f(&(a.matmul(&b) + &bias)), activated),
                    (f(&a.matmul(&b)), done(f(&product))),
                    (f(&a.matmul(&b)) + &residual, done(f(&product) + &residual)),
                ];
                for (case, (fused, apart)) in cases.into_iter().enumerate() {
                    let what = format!("{name} of {left:?} by {right:?}, {dtype}, case {case}");
                    let plan = explain(&[&fused]).unwrap();
                    assert_eq!(plan.steps.len(), 1, "{what}: {plan}");
                    assert_eq!(plan.steps[0].ops[0], "matmul");
                    let [fused, apart] = [&fused, &apart].map(|t| values(&t.cast(DType::F32)));
                    for (a, b) in fused.into_iter().zip(apart) {
                        let is_close = options.mode == Mode::Fuzz
                            && (a - b).abs() <= bound::shuffled_epilogue(dtype);
                        let same = a.to_bits() == b.to_bits() || is_close;
                        assert!(same, "{what}: {a}, {b}");
                    }
                }
            }
        }
    }
}

#[test]
fn unsupported_chains_are_not_fused_into_a_matmul() {
    let device = Device::on(hal::noop::device(hal::Family::Apple7));
    let x = Tensor::ones([32, 32], DType::F32).to(&device).contiguous();
    x.eval().unwrap();
    let product = || x.matmul(&x);
    let launches = |y: &Tensor| explain(&[y]).unwrap().steps.len();
    assert_eq!(launches(&(product().gelu() + &x)), 1);
    assert_eq!(launches(&((product() + &x) + &x)), 1);
    // Functions that the kernels lack, scalars, and steps in another order.
    assert_eq!(launches(&product().tanh()), 2);
    assert_eq!(launches(&(product() + 1.0)), 2);
    assert_eq!(launches(&((product() + &x).relu() + &x).silu()), 2);
    // The product, or the sum, has two uses.
    let shared = product();
    assert_eq!(launches(&(shared.silu() + &shared)), 2);
    // A shape that differs from the product's.
    assert_eq!(launches(&(product().reshape([1024]).relu())), 2);
    // With further elementwise ops, the step is fused with those.
    assert_eq!(launches(&((product() + &x).silu() * &x)), 2);
}

#[test]
fn several_roots_are_one_submission() {
    let device = Device::on(hal::noop::device(hal::Family::Apple7));
    let x = Tensor::ones([256], DType::F32).to(&device).contiguous();
    x.eval().unwrap();
    hal::noop::clear(device.hal().unwrap());
    let (a, b) = (x.exp(), x.sum(&[], false));
    eval(&[&a, &b]).unwrap();
    let counts = hal::noop::record(device.hal().unwrap()).unwrap().counts;
    assert_eq!(counts.command_buffers, 1);
    assert!(counts.dispatches >= 2);
}

/// Pipelines of real GPUs allow fewer threads than the device if a kernel needs many registers; the fuzzing device does
/// so at random.
#[test]
fn long_rows_are_complete_on_pipelines_with_fewer_threads() {
    let results = |device: &Device| -> Vec<Vec<f32>> {
        device.scope(|| {
            let data: Vec<f32> = (0..2 * 4096)
                .map(|i| (i * 37 % 1009) as f32 / 512.0 - 1.0)
                .collect();
            let x = Tensor::from_slice(&data, [2, 4096]);
            let weight = Tensor::from_slice(&data[..4096], [4096]);
            let bias = Tensor::from_slice(&data[4096..], [4096]);
            let channels = x.reshape([1, 2, 4096]);
            let two = Tensor::from_slice(&[0.5_f32, -2.0], [2]);
            let all = [
                x.softmax(1),
                x.log_softmax(1),
                x.rms_norm(&weight, 1e-5),
                x.layer_norm(Some(&weight), Some(&bias), 1e-5),
                channels.group_norm(2, Some(&two), Some(&two), 1e-5),
                x.sort(1),
            ];
            all.iter().map(values).collect()
        })
    };
    let expected = results(&Device::cpu());
    for seed in 0..6 {
        let options = SoftOptions {
            mode: Mode::Fuzz,
            seed,
            ..fast()
        };
        let found = results(&Device::on(hal::soft::device(options).unwrap()));
        for (op, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let largest = expected.iter().fold(0.0_f32, |most, e| most.max(e.abs()));
            for (i, (f, e)) in found.iter().zip(expected).enumerate() {
                assert!(
                    (f - e).abs() <= bound::SHUFFLED_ROWS * largest,
                    "op {op}, element {i}: {f}, not {e}, seed {seed}"
                );
            }
        }
    }
}
