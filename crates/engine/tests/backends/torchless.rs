//! `init_backend` and the calls of a transformer.

use super::*;

#[test]
fn a_backend_is_had_by_preference_and_computes() {
    let preferences = [
        BackendPreference::Auto,
        BackendPreference::Cpu,
        BackendPreference::Software,
    ];
    for preference in preferences {
        let backend = init_backend(preference).unwrap();
        let name = match preference {
            BackendPreference::Software => "software",
            _ => "cpu",
        };
        assert_eq!(backend.name(), name);
        assert!(!backend.device_name().is_empty());
        assert!(backend.is_available());
        let weights = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
        let input = Tensor::from_slice(&[1.0_f32, 0.0, -1.0], [3]);
        let values = |t: &Tensor| t.to_vec::<f32>().unwrap();
        assert_eq!(values(&backend.matmul_vec(&weights, &input)), [-2.0, -2.0]);
        assert_eq!(
            values(&backend.matmul(&weights, &weights.t())),
            [14.0, 32.0, 32.0, 77.0]
        );
        let mut x = Tensor::from_slice(&[2.0_f32, 2.0], [2]);
        backend.softmax(&mut x);
        assert_eq!(values(&x), [0.5, 0.5]);
        let mut x = Tensor::from_slice(&[3.0_f32, -3.0], [2]);
        backend.rmsnorm(&mut x, &Tensor::ones([2], DType::F32), 0.0);
        assert_eq!(values(&x), [1.0, -1.0]);
        let zero = Tensor::from_slice(&[0.0_f32, 20.0], [2]);
        assert_eq!(values(&backend.silu(&zero)), [0.0, 20.0]);
        let up = Tensor::from_slice(&[7.0_f32, 0.5], [2]);
        assert_eq!(values(&backend.fused_silu_mul(&zero, &up)), [0.0, 10.0]);
        // A quarter turn: the first half becomes minus the second, the second the first.
        let mut x = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], [1, 4]);
        let (cos, sin) = (
            Tensor::zeros([2], DType::F32),
            Tensor::ones([2], DType::F32),
        );
        backend.apply_rope(&mut x, &cos, &sin);
        assert_eq!(values(&x), [-3.0, -4.0, 1.0, 2.0]);
        let q = Tensor::from_slice(&[3.0_f32, 4.0], [2]);
        let keys = Tensor::from_slice(&[1.0_f32, 0.0, 0.0, 2.0], [2, 2]);
        let scores = backend.compute_attention_scores(&q, &keys, 0.5);
        assert_eq!(values(&scores), [1.5, 4.0]);
        let weights = Tensor::from_slice(&[0.5_f32, 0.25], [2]);
        assert_eq!(
            values(&backend.weighted_sum_rows(&weights, &keys)),
            [0.5, 0.5]
        );
        backend.synchronize().unwrap();
    }
    assert!(
        init_backend(BackendPreference::Metal).is_err(),
        "no Metal here"
    );
}

#[test]
fn backends_are_discovered_described_and_chosen_by_memory() {
    let found = kernel::discover_backends();
    let names: Vec<_> = found.iter().map(|info| info.backend).collect();
    assert_eq!(names, ["cpu", "software"]);
    assert!(
        found
            .iter()
            .all(|i| i.free_memory <= i.total_memory && i.unified_memory)
    );
    assert_eq!(kernel::backend_summary().lines().count(), 2);
    assert_eq!(kernel::best_available_backend(), BackendPreference::Cpu);
    let cpu = kernel::select_backend_for_model(1 << 20).unwrap();
    assert_eq!(cpu, BackendPreference::Cpu);
    let error = kernel::select_backend_for_model(usize::MAX / 2).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    assert!(
        kernel::get_backend(BackendPreference::Cpu)
            .unwrap()
            .as_any()
            .is::<CpuBackend>()
    );
    let soft = kernel::get_backend(BackendPreference::Software).unwrap();
    assert!(soft.as_any().is::<MetalBackend>());
}

#[test]
fn metal_tensors_are_read_and_written_in_place() {
    let backend = backend();
    let mut x = backend.to_device_1d(&[1.0, 2.0, 3.0]).unwrap();
    assert_eq!(
        (x.ndim(), x.len(), x.is_empty(), x.memory_bytes()),
        (1, 3, false, 12)
    );
    x.as_slice_mut().unwrap()[1] = 5.0;
    assert_eq!(&x.as_slice().unwrap()[..], [1.0, 5.0, 3.0]);
    let w = backend
        .to_device_2d(&[1.0, 0.0, 0.0, 0.0, 1.0, 1.0], 2, 3)
        .unwrap();
    assert_eq!(
        (
            w.shape_2d().unwrap(),
            w.nrows().unwrap(),
            w.ncols().unwrap()
        ),
        ((2, 3), 2, 3)
    );
    let y = backend.matmul_vec(&w, &x).unwrap();
    assert_eq!(backend.to_host_1d(&y).unwrap(), [1.0, 8.0]);
    assert_eq!(
        backend.to_host_2d(&w).unwrap(),
        [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]
    );
    assert!(backend.to_device_2d(&[1.0], 1, 2).is_err());
    let r = w.reshape([3, 2]).unwrap();
    assert!(r.buffer().is(w.buffer()), "no copy");
    assert!(w.reshape([4, 2]).is_err());
    let mut same = backend.to_device_1d(&[2.0, 2.0]).unwrap();
    backend.softmax(&mut same).unwrap();
    assert_eq!(same.to_vec().unwrap(), [0.5, 0.5]);
    let ones = backend.to_device_1d(&[1.0, 1.0]).unwrap();
    let mut x = backend.to_device_1d(&[3.0, -3.0]).unwrap();
    backend.rmsnorm(&mut x, &ones, 1e-12).unwrap();
    assert_eq!(x.to_vec().unwrap(), [1.0, -1.0]);
    assert_eq!(
        backend
            .silu(&backend.to_device_1d(&[0.0]).unwrap())
            .unwrap()
            .to_vec()
            .unwrap(),
        [0.0]
    );
    let short = backend.create_buffer_zeros(2).unwrap();
    invalid(MetalTensor::new_2d(&backend, short.clone(), 2, 2).unwrap_err());
    assert!(MetalTensor::new_1d(&backend, short.clone(), 2).is_ok());
    assert!(MetalTensor::new_3d(&backend, short, [1, 2, 1]).is_ok());
    let wrong = x.assign(Tensor::zeros([3], DType::F32)).unwrap_err();
    assert!(matches!(wrong, Error::ShapeMismatch { .. }));
}

#[test]
fn a_tensor_over_a_buffer_that_the_host_writes_never_tears() {
    let backend = backend();
    let mut x = backend.to_device_1d(&[1.0; 100]).unwrap();
    let t = x.to_tensor().unwrap();
    let before = t.to_vec::<f32>().unwrap();
    let mut slice = x.as_slice_mut().unwrap();
    slice.fill(2.0);
    assert_eq!(
        t.to_vec::<f32>().unwrap(),
        before,
        "what was read once stays"
    );
    drop(slice);
    assert_eq!(x.to_vec().unwrap(), [2.0; 100]);
}

#[test]
fn batches_have_one_buffer() {
    let batch = MetalTensorBatch::zeros(&backend(), 3, [2, 5]).unwrap();
    assert_eq!(batch.batch_size(), 3);
    assert_eq!(&batch.tensor_shape()[..], [2, 5]);
    assert_eq!(
        (batch.elements_per_tensor(), batch.total_elements()),
        (10, 30)
    );
    assert_eq!(batch.as_tensor().to_vec().unwrap(), [0.0; 30]);
}

#[test]
fn a_cache_of_keys_and_values_gives_what_attention_over_all_of_them_gives() {
    let backend = backend();
    let (layers, heads, dim) = (2, 2, 4);
    let mut cache = MetalKVCache::new(&backend, layers, 8, heads, dim).unwrap();
    assert_eq!(cache.offset(1, 3), (8 + 3) * heads * dim);
    assert_eq!(cache.cache_elements(), layers * 8 * heads * dim);
    assert_eq!(cache.memory_bytes(), 2 * 4 * layers * 8 * heads * dim);
    let wave = |seed: usize, n: usize| {
        let data: Vec<f32> = (0..n * heads * dim)
            .map(|i| ((i * 13 + seed) % 17) as f32 / 17.0)
            .collect();
        Tensor::from_slice(&data, [n, heads, dim])
    };
    let (keys, values) = (wave(1, 6), wave(2, 6));
    let rows = |t: &Tensor, a: isize, b: isize| t.slice(0, a, b, 1);
    for (from, to) in [(0, 4), (4, 5), (5, 6)] {
        for layer in 0..layers {
            cache
                .append(layer, &rows(&keys, from, to), &rows(&values, from, to))
                .unwrap();
        }
        cache.advance((to - from) as usize).unwrap();
    }
    assert_eq!(cache.current_pos(), 6);
    let (k, v) = (cache.keys(1).unwrap(), cache.values(1).unwrap());
    assert_eq!(k.to_vec::<f32>().unwrap(), keys.to_vec::<f32>().unwrap());
    let heads_first = |t: &Tensor| t.transpose(0, 1).expand_dims(0);
    let q = heads_first(&wave(3, 1));
    let options = AttentionOptions::default();
    let found = q
        .to(backend.device())
        .attention(&heads_first(&k), &heads_first(&v), &options);
    let expected = q.attention(&heads_first(&keys), &heads_first(&values), &options);
    let (found, expected) = (
        found.to_vec::<f32>().unwrap(),
        expected.to_vec::<f32>().unwrap(),
    );
    for (a, b) in found.iter().zip(&expected) {
        assert!((a - b).abs() < 1e-6, "{a} and {b}");
    }
    invalid(cache.append(2, &keys, &values).unwrap_err());
    invalid(cache.append(0, &wave(1, 3), &wave(1, 3)).unwrap_err());
    invalid(cache.append(0, &wave(1, 1), &wave(1, 2)).unwrap_err());
    invalid(cache.advance(3).unwrap_err());
    cache.reset();
    assert_eq!(cache.current_pos(), 0);
    assert_eq!(cache.keys(0).unwrap().count(), 0);
}

#[test]
fn a_pool_uses_buffers_again() {
    let backend = lonely();
    let pool = MetalMemoryPool::new(&backend);
    assert_eq!(pool.stats().total, 0);
    let first = pool.acquire(1000).unwrap();
    assert!(first.length() >= 1000);
    let id = first.id();
    assert_eq!(
        (pool.stats().misses, pool.stats().in_use),
        (1, first.length())
    );
    drop(first);
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.buffers), (0, 1));
    assert!(stats.pooled >= 1000);
    let second = pool.acquire(990).unwrap();
    assert_eq!(second.id(), id, "the same buffer");
    assert_eq!((pool.stats().hits, pool.stats().hit_rate()), (1, 0.5));
    assert!(
        pool.stats().to_string().contains("50 % of 2 requests"),
        "{}",
        pool.stats()
    );
    drop(second);
    pool.clear();
    assert_eq!(pool.stats().total, 0);
    backend.device().set_memory_limit(100);
    let error = pool.acquire(1000).unwrap_err();
    assert!(matches!(
        error,
        Error::OutOfMemory {
            requested: 1000,
            ..
        }
    ));
    assert_eq!(
        compute_tensor_bytes(&Shape::new("t", &[2, 3]).unwrap(), DType::F16),
        12
    );
}
