//! Ops that need scratch memory, with next to none available. A separate process, since the limit is per process.

use bessemer::memory::{set_memory_limit, stats};
use bessemer::{DType, Error, Tensor};

fn noise(count: usize) -> Vec<f32> {
    (0..count)
        .map(|i| ((i * 7919) % 10_007) as f32 - 5000.0)
        .collect()
}

#[test]
fn ops_without_scratch_memory_fail_or_use_less() {
    let count = 600 * 600;
    let x = Tensor::from_vec(noise(count), [count]);
    x.eval().unwrap();
    let spare = |bytes: usize| set_memory_limit(stats().in_use + bytes);

    // Enough for the result, but not for the scratch memory of the sort.
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

    // A matmul uses less scratch memory, and gives the same bits.
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
