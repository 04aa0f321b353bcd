use bessemer::{DType, Error, Tensor};
use bessemer_testing::Array;
use bessemer_testing::case::{Fill, check, input, shape};
use bessemer_testing::layout::{agree, tensor};
use bessemer_testing::number::Value;
use bessemer_testing::random::Rng;
use bessemer_testing::reference::unary::{Unary, unary};
use bessemer_testing::tolerance::on_metal;

#[test]
fn every_function_type_and_layout_matches_the_reference() {
    for &f in Unary::ALL {
        for dtype in DType::ALL {
            let cases = input(&[dtype], &Fill::ALL, shape(4, 1000));
            if f.dtype(dtype).is_none() {
                let x = Tensor::ones([2], dtype);
                assert!(matches!(f.call(&x).check(), Err(Error::BadDType { .. })));
                continue;
            }
            // A conversion before the function makes it a separate kernel.
            let converts = f
                .dtype(dtype)
                .is_some_and(|to| to.is_float() && to != dtype);
            if on_metal() && converts && !matches!(dtype, DType::U8 | DType::I32) {
                continue;
            }
            check(&format!("{} of {dtype}", f.name()), 16, cases, |case| {
                let expected = unary(f, &case.array());
                agree(f.name(), 1, &f.call(&case.tensor()), &expected, None)
            });
        }
    }
}

#[test]
fn every_function_matches_the_reference_on_every_half_precision_value() {
    for dtype in [DType::F16, DType::BF16] {
        let numbers = (0..=u16::MAX).map(|bits| {
            Value::Float(match dtype {
                DType::F16 => half::f16::from_bits(bits).to_f64(),
                _ => half::bf16::from_bits(bits).to_f64(),
            })
        });
        sweep(&Array::new(dtype, &[1 << 16], numbers));
    }
}

#[test]
fn every_function_matches_the_reference_on_f32_and_f64_of_all_magnitudes() {
    let mut rng = Rng::new(7);
    // All signs and exponents, and the branch points of functions: around 0 and 1.
    let mut draw = |count: usize, bits: &dyn Fn(u64) -> f64| {
        let mut all: Vec<_> = (0..count).map(|_| bits(rng.bits())).collect();
        all.extend((0..count).map(|_| rng.normal() * 4.0));
        all.extend((0..count).map(|_| rng.uniform(-1.1, 1.1)));
        all.extend((0..count / 4).map(|_| 1.0 + rng.normal() * 1e-3));
        all.extend((0..count).map(|_| rng.uniform(-110.0, 110.0)));
        all
    };
    let singles = draw(8000, &|b| f64::from(f32::from_bits(b as u32)));
    sweep(&Array::floats(DType::F32, &[singles.len()], &singles));
    let doubles = draw(3000, &f64::from_bits);
    sweep(&Array::floats(DType::F64, &[doubles.len()], &doubles));
}

/// Compares all functions on all these values; reports every function that is wrong, with its argument.
fn sweep(x: &Array) {
    let t = tensor(x);
    let mut wrong = Vec::new();
    for &f in Unary::ALL {
        if f.dtype(x.dtype).is_none() {
            continue;
        }
        if let Err(message) = agree(f.name(), 1, &f.call(&t), &unary(f, x), None) {
            let at = message
                .split(['[', ']'])
                .nth(1)
                .and_then(|i| i.parse::<usize>().ok());
            let number = at.map(|i| x.data[i]);
            wrong.push(format!("{message}, of {number:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}: {wrong:#?}", x.dtype);
}
