//! What a replay costs: launches, barriers and allocations on the recording device, allocations on the CPU.

use bessemer::{DType, Device, Tensor, compile, memory};
use bessemer_hal::{self as hal, Family, noop};

use super::wave;

/// The costs since the last call of `clear`.
fn counts(device: &Device) -> noop::Counts {
    device.synchronize().unwrap();
    noop::record(device.hal().unwrap()).unwrap().counts
}

fn clear(device: &Device) {
    device.synchronize().unwrap();
    noop::clear(device.hal().unwrap());
}

type Function = fn(&[Tensor]) -> Vec<Tensor>;

fn chain(t: &[Tensor]) -> Vec<Tensor> {
    vec![((&t[0] * 2.0 + &t[1]).tanh() * (&t[0] - &t[1]).exp()).sqrt()]
}

fn mlp(t: &[Tensor]) -> Vec<Tensor> {
    let h = (t[0].matmul(&t[1]) + &t[2]).gelu();
    vec![h.matmul(&t[3]) + &t[4]]
}

fn rows(t: &[Tensor]) -> Vec<Tensor> {
    let x = (&t[0] * 2.0)
        .rms_norm(&t[1], 1e-5)
        .layer_norm(None, None, 1e-5);
    vec![x.log_softmax(-1), x.sum(&[1], false)]
}

fn block(t: &[Tensor]) -> Vec<Tensor> {
    let [x, w, norm, rows] = t else {
        panic!("four arguments");
    };
    let rows = &rows.cast(DType::I32);
    let y = x.rms_norm(norm, 1e-5);
    let heads = |x: &Tensor| x.reshape([1, 64, 4, 16]).transpose(1, 2);
    let (q, k, v) = (y.matmul(w), y.matmul(&w.t()), y.matmul(w));
    let a = heads(&q).attention(&heads(&k), &heads(&v), &Default::default());
    let x = x + a.transpose(1, 2).reshape([64, 64]).matmul(w);
    let picked = x.take(0, rows);
    vec![x, picked]
}

#[test]
fn a_replay_launches_what_an_evaluation_launches_and_allocates_nothing() {
    let cases: [(&str, Function, &[&[usize]]); 4] = [
        ("chain", chain, &[&[4096], &[4096]]),
        (
            "mlp",
            mlp,
            &[&[32, 64], &[64, 128], &[128], &[128, 64], &[64]],
        ),
        ("rows", rows, &[&[64, 256], &[256]]),
        ("block", block, &[&[64, 64], &[64, 64], &[64], &[8]]),
    ];
    for (name, function, shapes) in cases {
        let device = Device::on(noop::device(Family::Apple7));
        device.scope(|| {
            let inputs: Vec<_> = shapes.iter().enumerate().map(|(i, s)| wave(i, s)).collect();
            let refs: Vec<_> = inputs.iter().collect();
            let compiled = compile(function);
            let evaluate =
                || bessemer::eval(&function(&inputs).iter().collect::<Vec<_>>()).unwrap();
            // Compile the kernels, and fill the cache.
            evaluate();
            evaluate();
            clear(&device);
            evaluate();
            let expected = counts(&device);
            for _ in 0..2 {
                compiled.call(&refs).unwrap();
                device.synchronize().unwrap();
            }
            clear(&device);
            for calls in 1..4 {
                compiled.call(&refs).unwrap();
                let found = counts(&device);
                assert_eq!(found.dispatches, calls * expected.dispatches, "{name}");
                assert!(
                    found.barriers <= calls * expected.barriers,
                    "{name}: {found:?}"
                );
                assert_eq!(found.command_buffers, calls, "{name}");
                assert_eq!(found.allocations, 0, "{name}");
                assert_eq!(found.bytes_read, calls * expected.bytes_read, "{name}");
                assert_eq!(
                    found.bytes_written,
                    calls * expected.bytes_written,
                    "{name}"
                );
            }
            let report = &compiled.explain()[0];
            assert_eq!(report.launches as u64, expected.dispatches, "{report}");
            assert_eq!(report.plan.launches(), report.launches, "{report}");
        });
    }
}

#[test]
fn a_training_loop_allocates_nothing() {
    let device = Device::on(noop::device(Family::Apple7));
    device.scope(|| {
        let step = compile(|t: &[Tensor]| {
            let [w, x, y, rate] = t else {
                panic!("four arguments");
            };
            let error = x.matmul(w) - y;
            let gradient = x.t().matmul(&error) / 32.0;
            [w - gradient * rate, error.square().mean(&[], false)]
        });
        let mut state = [wave(0, &[64, 64])];
        let data = wave(1, &[320, 64]);
        let run = |state: &mut [Tensor; 1], i: usize| {
            let x = data.narrow(0, i % 5 * 64, 32);
            let y = data.narrow(0, i % 5 * 64 + 32, 32);
            let rate = Tensor::scalar(1.0 / (i + 1) as f32);
            step.update(state, &[&x, &y, &rate]).unwrap();
            device.synchronize().unwrap();
        };
        for i in 0..4 {
            run(&mut state, i);
        }
        clear(&device);
        for i in 4..12 {
            run(&mut state, i);
        }
        let counts = counts(&device);
        assert_eq!(counts.allocations, 0);
        assert_eq!(counts.dispatches % 8, 0);
        assert_eq!(step.traces(), 1);
        assert_eq!(step.explain()[0].updated_in_place, [0]);
    });
}

/// Runs alone: other tests allocate from the same cache.
#[test]
fn a_loop_on_the_cpu_allocates_nothing() {
    const CHILD: &str = "BESSEMER_TEST_COMPILE_CHILD";
    if std::env::var_os(CHILD).is_none() {
        let me = std::env::current_exe().unwrap();
        let name = "counts::a_loop_on_the_cpu_allocates_nothing";
        let status = std::process::Command::new(me)
            .args([name, "--exact"])
            .env(CHILD, "1")
            .env_remove("BESSEMER_DEVICE")
            .status();
        assert!(status.unwrap().success());
        return;
    }
    let step = compile(|t: &[Tensor]| {
        let h = t[0].matmul(&t[1]).tanh();
        [&t[0] * 0.5 + h.matmul(&t[1]), h.sum(&[0], false)]
    });
    let mut state = [wave(0, &[64, 64])];
    let w = wave(1, &[64, 64]);
    for _ in 0..3 {
        step.update(&mut state, &[&w]).unwrap();
    }
    let before = memory::stats();
    for _ in 0..20 {
        step.update(&mut state, &[&w]).unwrap();
    }
    let after = memory::stats();
    assert_eq!(after.misses, before.misses);
    assert_eq!(after.buffers, before.buffers);
    // The state keeps its memory; only the sums are new.
    assert_eq!(after.hits - before.hits, 20);
}

#[test]
fn dropping_a_compiled_function_frees_its_memory() {
    let device = Device::on(noop::device(Family::Apple7));
    let hal: hal::Device = device.hal().unwrap().clone();
    device.scope(|| {
        let before = hal.allocated_bytes();
        {
            let x = wave(0, &[256, 256]);
            let compiled = compile(|t: &[Tensor]| t[0].matmul(&t[0]).softmax(-1).matmul(&t[0]));
            compiled.call(&[&x]).unwrap();
            assert!(compiled.explain()[0].scratch_bytes >= 256 * 256 * 4);
        }
        device.synchronize().unwrap();
        device.clear_cache();
        assert_eq!(hal.allocated_bytes(), before);
    });
}
