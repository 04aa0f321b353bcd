//! Ops that need memory besides their result, where there is next to none. A process of its own, since the
//! limit is that of the process.

use bessemer::memory::{set_memory_limit, stats};
use bessemer::{DType, Error, Tensor};

fn noise(count: usize) -> Vec<f32> {
    (0..count)
        .map(|i| ((i * 7919) % 10_007) as f32 - 5000.0)
        .collect()
}

#[test]
fn without_memory_to_spare_ops_are_errors_or_find_another_way() {
    let count = 600 * 600;
    let x = Tensor::from_vec(noise(count), [count]);
    x.eval().unwrap();
    let spare = |bytes: usize| set_memory_limit(stats().in_use + bytes);

    // Room for the result and not for what sorts it.
    spare(4 * count + (64 << 10));
    let error = x.sort(0).eval().unwrap_err();
    assert!(
        matches!(error, Error::OutOfMemory { op: "sort", .. }),
        "{error}"
    );
    spare(8 * count + (64 << 10));
    let error = x.argsort(0).eval().unwrap_err();
    assert!(
        matches!(error, Error::OutOfMemory { op: "argsort", .. }),
        "{error}"
    );
    let (values, _) = x.topk(count / 2, 0, true);
    assert!(values.eval().is_err());

    // A product does with less, and with the same bits.
    spare(usize::MAX / 2);
    let (a, b) = (
        x.reshape([600, 600]),
        x.cast(DType::F32).reshape([600, 600]).t(),
    );
    let plenty = a.matmul(&b).to_vec::<f32>().unwrap();
    for bytes in [1 << 20, 100 << 10, 4 << 10].map(|b| 4 * count + b) {
        spare(bytes);
        let little = a.matmul(&b);
        little.eval().unwrap();
        spare(usize::MAX / 2);
        assert_eq!(little.to_vec::<f32>().unwrap(), plenty, "{bytes}");
    }
    assert!(x.sort(0).eval().is_ok());
}
