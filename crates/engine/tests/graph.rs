//! Evaluation: common subexpressions, fusion, donation of memory, errors, threads.

use bessemer::{DType, Error, Result, Tensor, async_eval, eval, explain, memory, synchronize};
use bessemer_testing::tolerance::bound;

fn ramp(n: usize) -> Tensor {
    Tensor::from_vec((0..n).map(|i| i as f32 / n as f32).collect(), [n])
}

#[test]
fn elementwise_chains_are_fused_into_one_pass() {
    let x = ramp(1000);
    let y = ((((&x * 2.0 + 1.0).exp() - &x).tanh() * &x).sqrt() + 3.0).square();
    let plan = explain(&[&y]).unwrap();
    assert_eq!(plan.steps.len(), 1, "{plan}");
    let ops = [
        "mul", "add", "exp", "sub", "tanh", "mul", "sqrt", "add", "square",
    ];
    assert_eq!(plan.steps[0].ops, ops);
    assert_eq!(plan.steps[0].bytes_read, 4000);
    assert_eq!(plan.steps[0].bytes_written, 4000);
}

#[test]
fn a_plan_tells_launches_and_why_ops_are_not_fused() {
    let x = ramp(64).reshape([8, 8]);
    let shared = x.exp();
    let y = (&shared * 2.0).matmul(&shared.t()) + 1.0;
    let plan = explain(&[&y]).unwrap();
    let steps: Vec<_> = plan
        .steps
        .iter()
        .map(|step| (step.ops.join(" "), step.launches, step.not_fused))
        .collect();
    let memory = Some("an op that is not elementwise reads it from memory");
    let expected = [
        ("exp".to_owned(), 1, memory),
        ("mul".to_owned(), 1, memory),
        ("matmul".to_owned(), 1, None),
        ("add".to_owned(), 1, None),
    ];
    assert_eq!(steps, expected, "{plan}");
    let text = plan.to_string();
    assert!(
        text.contains("; not fused: an op that is not elementwise"),
        "{text}"
    );
    assert!(text.ends_with("4 launches, peak memory 768 B"), "{text}");
    // The first value is read through two shapes, the second in two kernels, the third by its owner.
    let (a, b) = (x.tanh(), x.sin());
    let rows = &a + a.narrow(0, 0, 1);
    let (left, right) = (&b * 2.0, &b * 3.0);
    let plan = explain(&[&rows, &left, &right]).unwrap();
    let reason = |op: &str| {
        let step = plan.steps.iter().find(|step| step.ops == [op]);
        step.and_then(|step| step.not_fused)
    };
    assert_eq!(
        reason("tanh"),
        Some("it is read from memory through a view, or broadcast")
    );
    assert_eq!(reason("sin"), Some("several kernels read it from memory"));
    let kept = x.cos();
    let plan = explain(&[&kept, &(&kept + 1.0)]).unwrap();
    assert_eq!(plan.steps[0].not_fused, Some("its value is read"), "{plan}");
}

#[test]
fn a_fused_chain_is_bit_identical_to_its_ops() {
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let x = ramp(3001).cast(dtype);
        x.eval().unwrap();
        let steps: [fn(&Tensor) -> Tensor; 6] = [
            |t| t * 1.1,
            |t| t + 0.3,
            Tensor::exp,
            Tensor::log1p,
            Tensor::sin,
            |t| t / 3.0,
        ];
        let mut fused = x.clone();
        let mut single = x.clone();
        for step in steps {
            fused = step(&fused);
            single = step(&single);
            single.eval().unwrap();
        }
        let bits = |t: &Tensor| t.cast(DType::F64).to_vec::<f64>().unwrap();
        assert_eq!(bits(&fused), bits(&single), "{dtype}");
    }
}

#[test]
fn equal_expressions_are_computed_once() {
    let a = ramp(64).reshape([8, 8]);
    let left = a.matmul(&a);
    let right = a.matmul(&a);
    let y = &left + &right;
    let plan = explain(&[&y]).unwrap();
    let products = plan.steps.iter().filter(|s| s.ops == ["matmul"]).count();
    assert_eq!(products, 1, "{plan}");
    let expected: Vec<f32> = left
        .to_vec::<f32>()
        .unwrap()
        .iter()
        .map(|x| x + x)
        .collect();
    assert_eq!(y.to_vec::<f32>().unwrap(), expected);
}

#[test]
fn unused_values_are_not_computed() {
    let x = ramp(10);
    let unused = x.exp();
    let y = &x + 1.0;
    y.eval().unwrap();
    assert!(!unused.is_evaluated());
}

#[test]
fn a_value_with_a_handle_is_recomputed_at_most_once() {
    let x = ramp(100);
    let kept = x.exp();
    (&kept + 1.0).eval().unwrap();
    assert!(!kept.is_evaluated(), "fused the first time");
    (&kept + 2.0).eval().unwrap();
    assert!(kept.is_evaluated(), "kept the second time");
}

#[test]
fn a_dead_input_is_donated_to_the_result() {
    let x = ramp(4096).reshape([64, 64]);
    let y = x.matmul(&x).exp();
    let plan = explain(&[&y]).unwrap();
    assert!(plan.steps[1].in_place, "{plan}");
    assert_eq!(plan.peak_bytes, 64 * 64 * 4);
    let expected: Vec<f32> = x.matmul(&x).to_vec::<f32>().unwrap();
    let got = y.to_vec::<f32>().unwrap();
    for (e, g) in expected.iter().zip(&got) {
        assert!((e.exp() - g).abs() <= bound::F32_LIBRARY_EXP * g.abs());
    }
}

#[test]
fn a_reshaped_value_is_not_fused_with_its_original_shape() {
    let x = ramp(12).reshape([3, 4]);
    let rows = Tensor::from_slice(&[1.0_f32, 2.0, 3.0], [3, 1]);
    // Computed as [3, 4], with a column broadcast; used as [4, 3], with a row.
    let y = (&x * &rows).reshape([4, 3]) + Tensor::from_slice(&[10.0_f32, 20.0, 30.0], [3]);
    let product: Vec<f32> = (0..12)
        .map(|i| (i as f32 / 12.0) * (i / 4 + 1) as f32)
        .collect();
    let expected: Vec<f32> = (0..12)
        .map(|i| product[i] + 10.0 * (i % 3 + 1) as f32)
        .collect();
    assert_eq!(y.to_vec::<f32>().unwrap(), expected);
}

#[test]
fn a_plan_with_equal_expressions_counts_their_memory_once() {
    let x = ramp(4096).reshape([64, 64]);
    let y = x.matmul(&x).swiglu(&x.matmul(&x));
    let plan = explain(&[&y]).unwrap();
    assert!(plan.peak_bytes <= 2 * 4096 * 4, "{plan}");
    let z = x.swiglu(&x);
    assert_eq!(explain(&[&z]).unwrap().steps.len(), 1);
}

#[test]
fn a_live_value_is_never_overwritten() {
    let x = ramp(4096).reshape([64, 64]);
    let product = x.matmul(&x);
    product.eval().unwrap();
    let before = product.to_vec::<f32>().unwrap();
    let view = product.t();
    let y = product.clone() * 2.0;
    drop(product);
    y.eval().unwrap();
    assert_eq!(view.t().to_vec::<f32>().unwrap(), before);
}

#[test]
fn chains_of_100_000_ops_do_not_overflow_the_stack() {
    let mut x = ramp(3);
    for _ in 0..100_000 {
        x = x + 1.0;
    }
    drop(x.clone());
    assert_eq!(x.slice(0, 0, 1, 1).to_vec::<f32>().unwrap(), [100_000.0]);
    let mut y = ramp(3);
    for _ in 0..100_000 {
        y = y + 1.0;
    }
    drop(y);
}

#[test]
fn reads_return_the_first_error_of_a_chain() {
    let a = ramp(3);
    let b = ramp(2);
    let y = (&a + &b).exp().reshape([7]) * 2.0;
    assert_eq!(
        y.check().unwrap_err(),
        Error::ShapeMismatch {
            op: "add",
            left: *a.shape(),
            right: *b.shape(),
            reason: "lengths, aligned at the last axis, must be equal or 1",
        }
    );
    assert!(y.eval().is_err());
    assert!(y.to_vec::<f32>().is_err());
    assert!(eval(&[&a, &y]).is_err());
    assert!(async_eval(&[&y]).is_err());
}

#[test]
fn reading_as_another_dtype_names_both() {
    assert_eq!(
        ramp(2).to_vec::<f64>().unwrap_err(),
        Error::WrongType {
            op: "to_slice",
            actual: DType::F32,
            requested: DType::F64,
        }
    );
}

#[test]
fn synchronize_waits_for_background_evaluation() {
    let x = ramp(100_000);
    let y = (&x * 2.0).sin();
    async_eval(&[&y]).unwrap();
    synchronize();
    assert!(y.is_evaluated());
}

#[test]
fn concurrent_evaluation_is_bit_identical() {
    fn build(seed: usize) -> Tensor {
        let x = ramp(5000 + seed).narrow(0, seed, 4096).reshape([64, 64]);
        let y = x.matmul(&x.t()).tanh() + &x;
        (y.exp() * 0.5).matmul(&x) - &y
    }
    let expected: Vec<Vec<f32>> = (0..16).map(|i| build(i).to_vec().unwrap()).collect();
    let shared: Vec<Tensor> = (0..16).map(build).collect();
    std::thread::scope(|scope| {
        for t in 0..8 {
            let (expected, shared) = (&expected, &shared);
            scope.spawn(move || {
                for i in 0..16 {
                    let i = (i + 2 * t) % 16;
                    assert_eq!(build(i).to_vec::<f32>().unwrap(), expected[i]);
                    assert_eq!(shared[i].to_vec::<f32>().unwrap(), expected[i]);
                }
            });
        }
    });
}

#[test]
fn out_of_memory_is_an_error_that_can_be_retried() -> Result<()> {
    let x = Tensor::ones([1 << 40], DType::F64);
    let error = (&x + ramp(1)).eval().unwrap_err();
    assert!(
        matches!(error, Error::OutOfMemory { op: "add", requested, .. } if requested == 1 << 43),
        "{error}"
    );
    let y = (ramp(4) + 1.0).eval()?.to_vec::<f32>()?;
    assert_eq!(y, [1.0, 1.25, 1.5, 1.75]);
    Ok(())
}

#[test]
fn overflowing_sizes_are_errors() {
    let error = Tensor::zeros([usize::MAX, 2], DType::U8)
        .check()
        .unwrap_err();
    assert!(
        matches!(error, Error::SizeOverflow { op: "full", .. }),
        "{error}"
    );
    let error = Tensor::zeros(vec![1; 9], DType::U8).check().unwrap_err();
    assert_eq!(
        error,
        Error::RankTooLarge {
            op: "full",
            rank: 9
        }
    );
}

#[test]
fn freed_memory_is_reused() {
    // Other tests run in parallel: large blocks make their share small.
    let block = 64 << 20;
    let before = memory::stats().in_use;
    let x = Tensor::zeros([block / 4], DType::F32).contiguous();
    x.eval().unwrap();
    assert!(memory::stats().in_use >= before.saturating_sub(block / 2) + block);
    drop(x);
    let stats = memory::stats();
    assert!(stats.in_use < before + block / 2, "{stats:?}");
    assert!(stats.peak >= block, "{stats:?}");
}
