use bessemer::{DType, Tensor};
use bessemer_testing::case::{Fill, Input, broadcasting, check, compiled, input};
use bessemer_testing::layout::array;
use bessemer_testing::random::Rng;
use bessemer_testing::reference::binary::Binary;
use bessemer_testing::reference::unary::Unary;
use proptest::prelude::{Just, Strategy};

fn inputs() -> impl Strategy<Value = [Input; 3]> {
    broadcasting::<3>(4, 2000).prop_flat_map(move |[a, b, c]| {
        let floats = [DType::F32, DType::F16, DType::BF16, DType::F64];
        let a = input(&floats, &Fill::ALL, Just(a));
        let b = input(&[DType::F32, DType::I16, DType::Bool], &Fill::ALL, Just(b));
        let c = input(&floats, &Fill::ALL, Just(c));
        (a, b, c).prop_map(|(a, b, c)| [a, b, c])
    })
}

/// A random formula of `steps` functions; calls `after` with each intermediate value.
fn formula(inputs: &[Tensor; 3], steps: usize, seed: u64, after: impl Fn(&Tensor)) -> Tensor {
    let mut rng = Rng::new(seed);
    let mut values = inputs.to_vec();
    for _ in 0..steps {
        let a = values[values.len() - 1 - rng.below(2)].clone();
        let b = values[rng.below(values.len())].clone();
        let y = match rng.below(3) {
            0 => rng.pick(Unary::ALL).call(&a),
            1 => rng.pick(Binary::ALL).call(&a, &b),
            _ => a.mul_add(&b, 0.5_f32),
        };
        // A function that is not defined for the types is skipped.
        if y.check().is_ok() {
            after(&y);
            values.push(y);
        }
    }
    values.pop().expect("at least the inputs")
}

#[test]
fn a_fused_chain_is_bit_identical_to_its_steps() {
    let cases = (inputs(), 1..12_usize, proptest::prelude::any::<u64>());
    check("chains", compiled(600), cases, |(inputs, steps, seed)| {
        let tensors = || [inputs[0].tensor(), inputs[1].tensor(), inputs[2].tensor()];
        let fused = array(&formula(&tensors(), *steps, *seed, |_| {}))?;
        let stepwise = array(&formula(&tensors(), *steps, *seed, |t| {
            t.eval().expect("a step");
        }))?;
        let bits = |a: &bessemer_testing::Array| -> Vec<_> {
            let floats = a.to_floats();
            floats
                .iter()
                .map(|f| if f.is_nan() { u64::MAX } else { f.to_bits() })
                .collect()
        };
        if fused.dtype == stepwise.dtype && bits(&fused) == bits(&stepwise) {
            return Ok(());
        }
        Err(format!("fused {fused:?}\nstep by step {stepwise:?}"))
    });
}

#[test]
fn chains_with_too_many_inputs_are_split() {
    let all: Vec<_> = (0..40)
        .map(|i| Tensor::from_vec(vec![i as f32; 5], [5]))
        .collect();
    let sum = all[1..].iter().fold(all[0].clone(), |sum, x| sum + x);
    assert_eq!(sum.to_vec::<f32>().unwrap(), [780.0; 5]);
    let pairs = all.chunks_exact(2);
    let products = pairs.fold(Tensor::zeros([5], DType::F32), |sum, pair| {
        pair[0].mul_add(&pair[1], &sum)
    });
    let expected: usize = (0..20).map(|i| 2 * i * (2 * i + 1)).sum();
    assert_eq!(products.to_vec::<f32>().unwrap(), [expected as f32; 5]);
}
