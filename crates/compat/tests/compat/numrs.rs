//! The API of numrs.

use super::*;

/// Reference of an elementwise function, in `f64`.
fn reference(kind: ElementwiseKind, a: f64, b: f64) -> f64 {
    match kind {
        ElementwiseKind::Add => a + b,
        ElementwiseKind::Mul => a * b,
        ElementwiseKind::Sub => a - b,
        ElementwiseKind::Div => a / b,
        ElementwiseKind::Pow => a.powf(b),
        ElementwiseKind::Sqrt => a.sqrt(),
        ElementwiseKind::Sin => a.sin(),
        ElementwiseKind::Cos => a.cos(),
        ElementwiseKind::Tan => a.tan(),
        ElementwiseKind::Asin => a.asin(),
        ElementwiseKind::Acos => a.acos(),
        ElementwiseKind::Atan => a.atan(),
        ElementwiseKind::Exp => a.exp(),
        ElementwiseKind::Log => a.ln(),
        ElementwiseKind::Abs => a.abs(),
        ElementwiseKind::Neg => -a,
        ElementwiseKind::Relu => a.max(0.0),
        ElementwiseKind::LeakyRelu if a > 0.0 => a,
        ElementwiseKind::LeakyRelu => a * 0.01,
        ElementwiseKind::Sigmoid => sigmoid(a),
        ElementwiseKind::Tanh => a.tanh(),
        ElementwiseKind::Softplus => a.exp().ln_1p(),
    }
}

#[test]
fn functions_on_metal_and_on_the_cpu_match_their_formulas() {
    assert!(!array::is_available_cached());
    let device = Device::software().unwrap();
    for kind in ElementwiseKind::ALL {
        // Both signs if the function supports them; 33 is not a multiple of any vector length.
        let signed = !matches!(
            kind,
            ElementwiseKind::Pow | ElementwiseKind::Sqrt | ElementwiseKind::Log
        );
        let start = if signed { -0.9 } else { 0.1 };
        let a: Vec<f32> = (0..33)
            .map(|i| start + (0.95 - start) * i as f32 / 33.0)
            .collect();
        let b: Vec<f32> = (0..33).map(|i| 2.0 - i as f32 / 22.0).collect();
        let pairs = a
            .iter()
            .zip(&b)
            .map(|(&a, &b)| (f64::from(a), f64::from(b)));
        let expected: Vec<f64> = pairs.map(|(a, b)| reference(kind, a, b)).collect();
        let (x, y) = (Tensor::from_slice(&a, [33]), Tensor::from_slice(&b, [33]));
        let metal = device
            .scope(|| array::elementwise_metal(&x, &y, kind))
            .unwrap();
        assert_eq!(metal.device(), &device);
        let cpu = array::elementwise(&x, &y, kind).unwrap();
        for found in [metal, cpu] {
            let found = found.to_vec::<f32>().unwrap();
            assert_eq!(found.len(), expected.len(), "{kind:?}");
            for ((found, reference), a) in found.iter().zip(&expected).zip(&a) {
                let off = (f64::from(*found) - reference).abs();
                assert!(
                    off <= 1e-6 * reference.abs().max(1.0),
                    "{kind:?} of {a}: {found} and {reference}"
                );
            }
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
        for axis in [2, usize::MAX, usize::MAX - 1, isize::MAX as usize + 1] {
            assert!(array::reduction_metal(&m, Some(axis)).is_err());
            assert!(array::reduction(&m, Some(axis)).is_err());
        }
        let row = m.index(0, 1);
        assert_eq!(values(array::dot_metal(&row, &row)), [126.0]);
        // Neither square nor symmetric.
        let right = Tensor::from_slice(&[1.0_f32, 0.0, -2.0, 3.0, 5.0, 0.5, 0.0, 1.0], [4, 2]);
        assert_eq!(
            values(array::matmul_metal(&m, &right)),
            [8.0, 7.0, 24.0, 25.0, 40.0, 43.0]
        );
    });
    let error = array::matmul_metal(&m, &m.t()).unwrap_err();
    assert!(
        matches!(error, Error::Device { .. }),
        "no Metal outside the scope: {error}"
    );
}

#[test]
fn working_backends_are_candidates_and_a_name_overrides_all() {
    let validation = array::BackendValidation::get();
    assert!(validation.cpu_validated && !validation.metal_validated);
    let report = array::startup_report();
    assert!(report.starts_with("Detected backends: cpu ("), "{report}");
    let cpu = BackendKind::Cpu;
    assert_eq!(array::chosen(OpClass::Matmul, 1 << 24), cpu);
    array::set_backend_override(Some("soft")).unwrap();
    assert_eq!(array::chosen(OpClass::Dot, 1).name(), "soft");
    let x = Tensor::from_slice(&[1.0_f32, -2.0, 4.0], [3]);
    let y = Tensor::from_slice(&[0.5_f32, 3.0, 2.0], [3]);
    let dot = array::dot(&x, &y).unwrap();
    assert_eq!(
        (dot.item::<f32>().unwrap(), dot.device().is_cpu()),
        (2.5, false)
    );
    assert!(
        array::set_backend_override(Some("metal")).is_err(),
        "there is none"
    );
    invalid(array::set_backend_override(Some("webgpu")).unwrap_err());
    array::set_backend_override(None).unwrap();
    assert_eq!(array::chosen(OpClass::Dot, 1), cpu);
}

/// Several threadgroups, then one over their sums; integers below 2^24, so that every order of summation is
/// exact and a missing or duplicated part is detected.
#[test]
fn sums_of_many_blocks_are_complete_and_deterministic() {
    let device = Device::software().unwrap();
    for n in [1, 255, 257, 4099, 100_003] {
        let data: Vec<f32> = (0..n).map(|i| ((i * 7) % 31) as f32).collect();
        let expected: f32 = (0..n).map(|i| ((i * 7) % 31) as f64).sum::<f64>() as f32;
        let x = Tensor::from_slice(&data, [n]);
        let sum = device.scope(|| array::reduction_metal(&x, None)).unwrap();
        assert_eq!(sum.item::<f32>().unwrap(), expected, "{n}");
    }
    // The sum of these values depends on the order, which is always the same.
    let data: Vec<f32> = (0..50_000)
        .map(|i| ((i * 7919) % 1000) as f32 / 7.0)
        .collect();
    let reference: f64 = data.iter().map(|&x| f64::from(x)).sum();
    let x = Tensor::from_slice(&data, [50_000]);
    let sum = || {
        let sum = device.scope(|| array::reduction_metal(&x, None)).unwrap();
        sum.item::<f32>().unwrap()
    };
    let first = sum();
    assert!(
        (f64::from(first) / reference - 1.0).abs() < 2e-6,
        "{first} and {reference}"
    );
    for _ in 0..3 {
        assert_eq!(sum().to_bits(), first.to_bits());
    }
}
