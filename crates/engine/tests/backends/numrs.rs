//! Array functions on the backend that suits them.

use super::*;

#[test]
fn functions_on_metal_are_those_of_the_cpu() {
    assert!(!array::is_available_cached());
    let device = Device::software().unwrap();
    let a = Tensor::linspace(0.1, 0.9, 33, DType::F32);
    let b = Tensor::linspace(0.5, 2.0, 33, DType::F32);
    for kind in ElementwiseKind::ALL {
        let cpu = array::elementwise(&a, &b, kind)
            .unwrap()
            .to_vec::<f32>()
            .unwrap();
        let metal = device
            .scope(|| array::elementwise_metal(&a, &b, kind))
            .unwrap();
        assert_eq!(metal.device(), &device);
        for (x, y) in metal.to_vec::<f32>().unwrap().iter().zip(&cpu) {
            assert!(
                (x - y).abs() <= 1e-6 * y.abs().max(1.0),
                "{kind:?}: {x} and {y}"
            );
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
        assert!(array::reduction_metal(&m, Some(2)).is_err());
        let row = m.index(0, 1);
        assert_eq!(values(array::dot_metal(&row, &row)), [126.0]);
        let product = values(array::matmul_metal(&m, &m.t()));
        assert_eq!(product[..3], [14.0, 38.0, 62.0]);
    });
    let error = array::matmul_metal(&m, &m.t()).unwrap_err();
    assert!(
        matches!(error, Error::Device { .. }),
        "no Metal outside the scope: {error}"
    );
}

#[test]
fn a_backend_that_computes_takes_part_and_a_name_overrides_all() {
    let validation = array::BackendValidation::get();
    assert!(validation.cpu_validated && !validation.metal_validated);
    let report = array::startup_report();
    assert!(report.starts_with("Detected backends: cpu ("), "{report}");
    let cpu = array::ArrayBackend::Cpu;
    assert_eq!(array::chosen(ArrayOp::Matmul, 1 << 24), cpu);
    array::set_backend_override(Some("soft")).unwrap();
    assert_eq!(array::chosen(ArrayOp::Dot, 1).name(), "soft");
    let x = Tensor::ones([3], DType::F32);
    let dot = array::dot(&x, &x).unwrap();
    assert_eq!(
        (dot.item::<f32>().unwrap(), dot.device().is_cpu()),
        (3.0, false)
    );
    assert!(
        array::set_backend_override(Some("metal")).is_err(),
        "there is none"
    );
    invalid(array::set_backend_override(Some("webgpu")).unwrap_err());
    array::set_backend_override(None).unwrap();
    assert_eq!(array::chosen(ArrayOp::Dot, 1), cpu);
}
