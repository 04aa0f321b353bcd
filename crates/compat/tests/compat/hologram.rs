//! Buffers by handle, pools and the `Executor`.

use super::*;

fn both() -> [Box<dyn Backend>; 2] {
    let software = MetalBackend::software().unwrap();
    [Box::new(CpuBackend::new()), Box::new(software)]
}

#[test]
fn buffers_by_handle() {
    for backend in both() {
        let a = backend.allocate_buffer(8).unwrap();
        let b = backend.allocate_buffer(0).unwrap();
        assert_eq!(
            (
                backend.buffer_size(a).unwrap(),
                backend.buffer_size(b).unwrap()
            ),
            (8, 0)
        );
        let mut bytes = [9; 8];
        backend.copy_from_buffer(a, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 8]);
        backend.copy_to_buffer(a, &[1, 2, 3]).unwrap();
        backend.copy_from_buffer(a, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3, 0, 0, 0, 0, 0]);
        invalid(backend.copy_to_buffer(a, &[0; 9]).unwrap_err());
        invalid(backend.copy_from_buffer(a, &mut [0; 9]).unwrap_err());
        invalid(backend.copy_to_buffer(b, &[1]).unwrap_err());
        backend.free_buffer(a).unwrap();
        assert!(invalid(backend.free_buffer(a).unwrap_err()).ends_with("was freed"));
        assert!(invalid(backend.buffer_size(a).unwrap_err()).ends_with("was freed"));
        let again = backend.allocate_buffer(8).unwrap();
        assert_ne!(again, a);
        invalid(backend.copy_to_buffer(a, &[1]).unwrap_err());
        let unknown = BufferHandle::from(again.id() + 100);
        invalid(backend.copy_from_buffer(unknown, &mut []).unwrap_err());
    }
    let [cpu, metal] = both();
    let handle = cpu.allocate_buffer(4).unwrap();
    let error = invalid(metal.copy_to_buffer(handle, &[1]).unwrap_err());
    assert!(error.ends_with("belongs to another backend"), "{error}");
}

#[test]
fn pools_are_written_and_read_in_pieces() {
    for backend in both() {
        let pool = backend.allocate_pool(10).unwrap();
        assert_eq!(backend.pool_size(pool).unwrap(), 10);
        backend.copy_to_pool(pool, 4, &[1, 2, 3]).unwrap();
        let mut bytes = [0; 4];
        backend.copy_from_pool(pool, 5, &mut bytes).unwrap();
        assert_eq!(bytes, [2, 3, 0, 0]);
        invalid(backend.copy_to_pool(pool, 8, &[1, 2, 3]).unwrap_err());
        invalid(
            backend
                .copy_from_pool(pool, usize::MAX, &mut bytes)
                .unwrap_err(),
        );
        backend.free_pool(pool).unwrap();
        invalid(backend.pool_size(pool).unwrap_err());
    }
}

#[test]
fn an_executor_computes_on_typed_buffers() {
    for kind in [BackendType::Cpu, BackendType::Software] {
        let mut e = Executor::new_with_backend(kind).unwrap();
        let a = e.allocate::<f32>(4).unwrap();
        let b = e.allocate::<f32>(4).unwrap();
        let c = e.allocate::<f32>(4).unwrap();
        e.write(&a, &[1.0, -2.0, 3.0, 4.0]).unwrap();
        e.write(&b, &[5.0, 6.0, 7.0, 8.0]).unwrap();
        e.vector_add(&a, &b, &c).unwrap();
        assert_eq!(e.read(&c).unwrap(), [6.0, 4.0, 10.0, 12.0]);
        e.vector_mul(&a, &b, &c).unwrap();
        assert_eq!(e.read(&c).unwrap(), [5.0, -12.0, 21.0, 32.0]);
        e.relu(&c, &c).unwrap();
        assert_eq!(e.read(&c).unwrap(), [5.0, 0.0, 21.0, 32.0]);
        e.sum(&b, &c).unwrap();
        assert_eq!(e.read(&c).unwrap()[0], 26.0);
        e.sigmoid(&a, &c).unwrap();
        assert_near(&e.read(&c).unwrap(), &[1.0, -2.0, 3.0, 4.0].map(sigmoid));
        // `m, n, k` differ: `[3, 1]·[1, 4]`, then `[1, 4]·[4, 3]`.
        let wide = e.allocate::<f32>(12).unwrap();
        e.gemm(&a, &b, &wide, [3, 4, 1]).unwrap();
        let outer = [
            5.0, 6.0, 7.0, 8.0, -10.0, -12.0, -14.0, -16.0, 15.0, 18.0, 21.0, 24.0,
        ];
        assert_eq!(e.read(&wide).unwrap(), outer);
        e.gemm(&a, &wide, &c, [1, 3, 4]).unwrap();
        assert_eq!(e.read(&c).unwrap()[..3], [19.0, 62.0, 172.0]);
        assert!(e.gemm(&a, &b, &c, [3, 2, 2]).is_err());
        invalid(e.write(&a, &[0.0; 5]).unwrap_err());
        let wrong = e.store(&a, Tensor::zeros([4], DType::F16)).unwrap_err();
        assert!(matches!(wrong, Error::WrongType { .. }));
    }
    // A case without a kernel is computed by the CPU, with the result in the same buffer.
    let mut e = Executor::new_with_backend(BackendType::Software).unwrap();
    let out = e.allocate::<f32>(2).unwrap();
    let wide = |x: f32| Tensor::full([1, 1, 1, 2000], x, DType::F32);
    let options = AttentionOptions::default();
    let device = Device::software().unwrap();
    let a = wide(1.0)
        .to(&device)
        .attention(&wide(0.5), &wide(0.25), &options);
    e.store(&out, a.slice(-1, 0, 2, 1).reshape([2])).unwrap();
    assert_eq!(e.read(&out).unwrap(), [0.25; 2]);
    assert!(Executor::new_with_backend(BackendType::Metal).is_err());
    let cuda = Executor::new_with_backend(BackendType::Cuda).unwrap_err();
    assert!(
        cuda.to_string()
            .contains("CUDA backend not yet implemented"),
        "{cuda}"
    );
    let auto = Executor::new_auto().unwrap();
    assert!(format!("{auto:?}").starts_with("Executor(CPU"));
    let reason = auto.fallback_reason().unwrap();
    assert!(reason.starts_with("Metal device not found"), "{reason}");
    let metal = Executor::new_with_backend(BackendType::Metal).unwrap_err();
    assert!(
        matches!(metal, BackendError::BackendNotAvailable(_)),
        "{metal}"
    );
    assert_eq!(Executor::new().unwrap().fallback_reason(), None);
}

#[test]
fn an_executor_has_ninety_six_classes() {
    for kind in [BackendType::Cpu, BackendType::Software] {
        ninety_six_classes(Executor::new_with_backend(kind).unwrap());
    }
}

fn ninety_six_classes(mut e: Executor) {
    let boundary = e.allocate_boundary::<u8>().unwrap();
    assert_eq!((boundary.len(), BOUNDARY_BYTES), (12_288, 12_288));
    assert!(e.is_boundary(boundary.class()));
    let mut rest: Vec<_> = (1..CLASSES).map(|_| e.allocate::<u8>(1).unwrap()).collect();
    for (i, buffer) in rest.iter().enumerate() {
        e.write(buffer, &[i as u8 + 1]).unwrap();
    }
    for (i, buffer) in rest.iter().enumerate() {
        assert_eq!(e.read(buffer).unwrap(), [i as u8 + 1], "separate memory");
    }
    assert!(invalid(e.allocate::<u8>(1).unwrap_err()).contains("all 96 classes"));
    let gone = rest.remove(10);
    let class = gone.class();
    assert!(e.handle(class).is_some() && !e.is_boundary(class));
    e.free(gone).unwrap();
    assert!(e.handle(class).is_none());
    assert_eq!(e.allocate::<u8>(1).unwrap().class(), class);
}

#[test]
fn hal_errors_keep_their_type() {
    let backend = private_backend();
    backend.device().hal().unwrap().set_memory_limit(16);
    let error = backend.allocate_buffer(17).unwrap_err();
    let Error::Device { source, .. } = error else {
        panic!("{error}");
    };
    assert!(matches!(
        *source,
        hal::Error::OutOfMemory { requested: 17, .. }
    ));
}
