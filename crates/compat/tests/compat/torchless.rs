//! `init_backend` and the calls of a transformer.

use super::*;

#[test]
fn a_backend_is_selected_by_preference_and_computes() {
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
        let device = match name {
            "cpu" => "CPU",
            _ => "Bessemer software Metal (",
        };
        let found = backend.device_name();
        assert!(found.starts_with(device), "{found}");
        assert!(backend.is_available());
        the_calls_of_a_transformer(&*backend);
        backend.synchronize().unwrap();
    }
    assert!(
        init_backend(BackendPreference::Metal).is_err(),
        "no Metal here"
    );
}

/// Every call with values that distinguish it from similar functions: no square, symmetric or diagonal matrices,
/// no equal elements, no weights of 1.
fn the_calls_of_a_transformer(backend: &dyn KernelBackend) {
    let values = |t: &Tensor| t.to_vec::<f32>().unwrap();
    let vector = |data: &[f32]| Tensor::from_slice(data, [data.len()]);
    let matrix = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, -6.0], [2, 3]);

    let input = vector(&[2.0, 0.5, -1.0]);
    assert_eq!(values(&backend.matmul_vec(&matrix, &input)), [0.0, 16.5]);
    let mut out = vector(&[7.0, 7.0]);
    backend.matmul_vec_into(&matrix, &input, &mut out);
    assert_eq!(values(&out), [0.0, 16.5]);
    let mut wrong = vector(&[7.0, 7.0, 7.0]);
    backend.matmul_vec_into(&matrix, &input, &mut wrong);
    let error = wrong.to_vec::<f32>().unwrap_err();
    assert!(matches!(error, Error::ShapeMismatch { .. }), "{error}");

    let right = Tensor::from_slice(
        &[
            1.0_f32, 0.0, 2.0, -1.0, 3.0, 1.0, 0.5, 2.0, 0.0, 1.0, -2.0, 4.0,
        ],
        [3, 4],
    );
    assert_eq!(
        values(&backend.matmul(&matrix, &right)),
        [7.0, 5.0, -3.0, 15.0, 19.0, -1.0, 22.5, -18.0]
    );

    let mut x = vector(&[1.0, 3.0, -2.0]);
    backend.softmax(&mut x);
    assert_near(&values(&x), &softmax(&[1.0, 3.0, -2.0]));
    let mut x = Tensor::from_slice(
        &[5.0_f32, 1.0, 3.0, -2.0, 8.0, 6.0, 0.0, 1.0, 2.0, 9.0],
        [2, 5],
    );
    backend.softmax_view(&mut x, 1..4);
    let [first, second] = [softmax(&[1.0, 3.0, -2.0]), softmax(&[0.0, 1.0, 2.0])];
    let expected = [&[5.0][..], &first[..], &[8.0, 6.0], &second[..], &[9.0]].concat();
    assert_near(&values(&x), &expected);
    backend.softmax_view(&mut x, 3..6);
    invalid(x.to_vec::<f32>().unwrap_err());

    // The mean square is 12.5, and with eps 15: both weights and eps matter.
    let mut x = vector(&[3.0, -4.0]);
    backend.rmsnorm(&mut x, &vector(&[2.0, 0.5]), 2.5);
    assert_near(&values(&x), &[6.0, -2.0].map(|v: f64| v / 15_f64.sqrt()));

    let gate = [-2.0_f64, 0.5, 3.0];
    let silu = gate.map(|v| v * sigmoid(v));
    let x = vector(&gate.map(|v| v as f32));
    assert_near(&values(&backend.silu(&x)), &silu);
    let up = vector(&[7.0, 0.5, -2.0]);
    let gated = [7.0 * silu[0], 0.5 * silu[1], -2.0 * silu[2]];
    assert_near(&values(&backend.fused_silu_mul(&x, &up)), &gated);

    // Two heads; pairs are elements 0 and 2, 1 and 3, and every pair has its own angle.
    let mut x = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [2, 4]);
    backend.apply_rope(&mut x, &vector(&[0.6, 0.0]), &vector(&[0.8, 1.0]));
    let rotated = [-1.8, -4.0, 2.6, 2.0, -2.6, -8.0, 8.2, 6.0];
    assert_near(&values(&x), &rotated);
    // Softmax is over the last axis, for any leading axes.
    let mut x = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [2, 1, 4]);
    backend.apply_rope(&mut x, &vector(&[0.6, 0.0]), &vector(&[0.8, 1.0]));
    assert_near(&values(&x), &rotated);

    let keys = Tensor::from_slice(&[1.0_f32, 2.0, -1.0, 4.0, 0.0, 3.0], [3, 2]);
    let scores = backend.compute_attention_scores(&vector(&[3.0, 0.5]), &keys, 0.25);
    assert_eq!(values(&scores), [1.0, -0.25, 0.375]);
    let weights = vector(&[0.5, 0.25, 2.0]);
    assert_eq!(
        values(&backend.weighted_sum_rows(&weights, &keys)),
        [0.25, 8.0]
    );
    backend.synchronize().unwrap();
}

fn softmax(x: &[f64]) -> Vec<f64> {
    let sum: f64 = x.iter().map(|v| v.exp()).sum();
    x.iter().map(|v| v.exp() / sum).collect()
}

/// Values so small that eps dominates under the root, in rows of one SIMD-group, of a threadgroup and of
/// more than a threadgroup.
#[test]
fn rms_norm_of_small_values_uses_eps_and_weights_in_rows_of_any_length() {
    let eps = 1e-5_f32;
    for n in [5, 300, 4096, 4097, 9001] {
        let x: Vec<f32> = (0..n)
            .map(|i| ((i * 37) % 101) as f32 * 2e-5 - 1e-3)
            .collect();
        let w: Vec<f32> = (0..n).map(|i| ((i * 13) % 17) as f32 / 4.0 - 1.5).collect();
        let squares: f64 = x.iter().map(|&v| f64::from(v).powi(2)).sum();
        let root = (squares / n as f64 + f64::from(eps)).sqrt();
        assert!(root > 1.3 * (squares / n as f64).sqrt(), "eps must show");
        let pairs = x.iter().zip(&w);
        let expected: Vec<f64> = pairs
            .map(|(&x, &w)| f64::from(x) * f64::from(w) / root)
            .collect();
        for preference in [BackendPreference::Cpu, BackendPreference::Software] {
            let mut t = Tensor::from_slice(&x, [n]);
            let weights = Tensor::from_slice(&w, [n]);
            init_backend(preference)
                .unwrap()
                .rmsnorm(&mut t, &weights, eps);
            assert_near(&t.to_vec::<f32>().unwrap(), &expected);
        }
    }
}

/// Of 2,048 queries and keys of four heads the scores would be 64 MiB; queries, keys, values and the result are 2 MiB
/// each.
#[test]
fn attention_does_not_store_its_scores() {
    let device = Device::on(hal::noop::device(hal::Family::Apple7));
    let heads = || {
        let t = Tensor::zeros([1, 4, 2048, 64], DType::F32)
            .to(&device)
            .contiguous();
        t.eval().unwrap();
        t
    };
    let (q, k, v) = (heads(), heads(), heads());
    device.synchronize().unwrap();
    let before = device.memory().in_use;
    assert!((6 << 20..7 << 20).contains(&before), "{before}");
    device.reset_peak();
    let options = AttentionOptions {
        causal: true,
        ..AttentionOptions::default()
    };
    let y = q.attention(&k, &v, &options);
    y.eval().unwrap();
    let more = device.memory().peak - before;
    assert!(
        (2 << 20..8 << 20).contains(&more),
        "{more} bytes for attention"
    );
}

#[test]
fn reductions_run_in_whole_simd_groups() {
    let device = Device::on(hal::noop::device(hal::Family::Apple7));
    for n in [17, 100, 1000, 5000, 100_000] {
        let x = Tensor::zeros([3, n], DType::F32).to(&device).contiguous();
        x.eval().unwrap();
        for (name, y) in [
            ("sum", x.sum(&[1], false)),
            ("max", x.max(&[1], false)),
            ("softmax", x.softmax(-1)),
        ] {
            hal::noop::clear(device.hal().unwrap());
            y.eval().unwrap();
            device.synchronize().unwrap();
            let record = hal::noop::record(device.hal().unwrap()).unwrap();
            let mut launches = 0;
            for event in &record.events {
                if let hal::noop::Event::Dispatch {
                    kernel,
                    threadgroup,
                    ..
                } = event
                {
                    let threads = threadgroup.total().unwrap();
                    assert!(
                        threads.is_multiple_of(32) && threads <= 1024,
                        "{kernel} for {name} of {n}: {threads}"
                    );
                    launches += 1;
                }
            }
            assert!(launches > 0, "{name} of {n}");
        }
    }
}

#[test]
fn backends_are_discovered_described_and_selected_by_memory() {
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
    assert_eq!(
        backend.to_host_2d(&r).unwrap(),
        [[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]
    );
    assert!(w.reshape([4, 2]).is_err());
    let mut row = backend.to_device_1d(&[1.0, 3.0, -2.0]).unwrap();
    backend.softmax(&mut row).unwrap();
    assert_near(&row.to_vec().unwrap(), &softmax(&[1.0, 3.0, -2.0]));
    let weight = backend.to_device_1d(&[2.0, 0.5]).unwrap();
    let mut x = backend.to_device_1d(&[3.0, -4.0]).unwrap();
    backend.rmsnorm(&mut x, &weight, 2.5).unwrap();
    let expected = [6.0, -2.0].map(|v: f64| v / 15_f64.sqrt());
    assert_near(&x.to_vec().unwrap(), &expected);
    let silu = backend
        .silu(&backend.to_device_1d(&[-2.0, 3.0]).unwrap())
        .unwrap();
    let expected = [-2.0, 3.0].map(|v| v * sigmoid(v));
    assert_near(&silu.to_vec().unwrap(), &expected);
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
fn batches_have_one_buffer_and_can_be_computed_with() {
    let backend = backend();
    let mut batch = MetalTensorBatch::zeros(&backend, 3, [2, 5]).unwrap();
    assert_eq!(batch.batch_size(), 3);
    assert_eq!(&batch.tensor_shape()[..], [2, 5]);
    assert_eq!(
        (batch.elements_per_tensor(), batch.total_elements()),
        (10, 30)
    );
    let buffer = batch.as_tensor().buffer().clone();
    assert_eq!(
        (buffer.length(), buffer.storage_mode()),
        (120, StorageMode::Shared)
    );
    assert_eq!(batch.as_tensor().to_vec().unwrap(), [0.0; 30]);
    for (i, x) in batch
        .as_tensor_mut()
        .as_slice_mut()
        .unwrap()
        .iter_mut()
        .enumerate()
    {
        *x = i as f32;
    }
    // Row sums of all three, then written back to the same memory.
    let all = batch.as_tensor().to_tensor().unwrap();
    let sums = all.sum(&[2], false).to_vec::<f32>().unwrap();
    assert_eq!(sums, [10.0, 35.0, 60.0, 85.0, 110.0, 135.0]);
    batch.as_tensor_mut().assign(all * 2.0 + 1.0).unwrap();
    assert!(
        batch.as_tensor().buffer().is(&buffer),
        "still the one buffer"
    );
    let expected: Vec<f32> = (0..30).map(|i| i as f32 * 2.0 + 1.0).collect();
    assert_eq!(batch.as_tensor().to_vec().unwrap(), expected);
}

#[test]
fn attention_over_a_kv_cache_equals_attention_over_all_keys() {
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
    let expected: Vec<_> = expected.into_iter().map(f64::from).collect();
    assert_eq!(expected.len(), heads * dim);
    assert_near(&found, &expected);
    invalid(cache.append(2, &keys, &values).unwrap_err());
    invalid(cache.append(0, &wave(1, 3), &wave(1, 3)).unwrap_err());
    invalid(cache.append(0, &wave(1, 1), &wave(1, 2)).unwrap_err());
    invalid(cache.advance(3).unwrap_err());
    cache.reset();
    assert_eq!(cache.current_pos(), 0);
    assert_eq!(cache.keys(0).unwrap().count(), 0);
}

#[test]
fn a_pool_reuses_buffers() {
    let backend = private_backend();
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
}
