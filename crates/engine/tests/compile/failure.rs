//! Errors, panics and failing devices: they are reported as without compiling, and everything stays usable.

use std::sync::Mutex;

use bessemer::{DType, Device, Error, Tensor, async_eval, compile, synchronize};
use bessemer_hal::{self as hal, Family, noop};

use super::{bits, devices, wave};

fn is_read_error(error: &Error) -> bool {
    matches!(error, Error::Invalid { op: "compile", reason } if reason.contains("reads the value"))
}

#[test]
fn a_function_that_reads_an_argument_is_an_error() {
    let x = wave(0, &[10]);
    let reads = compile(|t: &[Tensor]| -> bessemer::Result<Tensor> {
        let mean = t[0].mean(&[], false).item::<f32>()?;
        Ok(&t[0] - mean)
    });
    for _ in 0..2 {
        assert!(is_read_error(&reads.call(&[&x]).unwrap_err()));
    }
    // Also if it handles the error of the read.
    let guesses = compile(|t: &[Tensor]| match t[0].mean(&[], false).item::<f32>() {
        Ok(mean) if mean > 0.0 => &t[0] + 1.0,
        _ => &t[0] - 1.0,
    });
    assert!(is_read_error(&guesses.call(&[&x]).unwrap_err()));
    // Reading a constant is allowed.
    let constant = wave(1, &[4]);
    let fine = compile(|t: &[Tensor]| &t[0] * constant.to_vec::<f32>().unwrap()[2]);
    assert!(fine.call(&[&x]).is_ok());
}

#[test]
fn tensors_that_outlive_their_trace_have_no_value() {
    let kept = Mutex::new(Vec::new());
    let leak = compile(|t: &[Tensor]| {
        kept.lock().unwrap().push(&t[0] + 1.0);
        &t[0] * 2.0
    });
    let x = wave(0, &[10]);
    let y = leak.call(&[&x]).unwrap().swap_remove(0);
    let stray = kept.lock().unwrap().pop().unwrap();
    assert!(is_read_error(&stray.to_vec::<f32>().unwrap_err()));
    assert!(stray.eval().is_err() && (&stray + &y).eval().is_err());
    async_eval(&[&stray]).unwrap();
    synchronize();
    let uses = compile(|t: &[Tensor]| &t[0] + &stray);
    assert!(is_read_error(&uses.call(&[&x]).unwrap_err()));
    // The compiled function itself is not affected.
    assert_eq!(bits(&leak.call(&[&x]).unwrap()[0]), bits(&(&x * 2.0)));
}

#[test]
fn errors_of_arguments_and_of_the_function_are_returned() {
    let x = wave(0, &[10]);
    let add = compile(|t: &[Tensor]| &t[0] + &t[1]);
    let error = add.call(&[&x, &wave(0, &[7])]).unwrap_err();
    assert_eq!(error, (&x + wave(0, &[7])).check().unwrap_err().clone());
    let failed = x.reshape([3]);
    assert_eq!(
        add.call(&[&x, &failed]).unwrap_err(),
        failed.check().unwrap_err()
    );
    let refuses = compile(|t: &[Tensor]| -> bessemer::Result<Tensor> {
        t[0].dim(5)?;
        Ok(t[0].clone())
    });
    assert!(matches!(
        refuses.call(&[&x]),
        Err(Error::BadAxis { op: "dim", .. })
    ));
    assert_eq!(bits(&add.call(&[&x, &x]).unwrap()[0]), bits(&(&x + &x)));
}

#[test]
fn a_panic_of_the_function_leaves_everything_usable() {
    let x = wave(0, &[10]);
    let picky = compile(|t: &[Tensor]| {
        assert!(t[0].dtype() == DType::F32, "on purpose");
        t[0].exp()
    });
    let call = || picky.call(&[&x.cast(DType::F64)]);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err());
    assert_eq!(bits(&picky.call(&[&x]).unwrap()[0]), bits(&x.exp()));
    assert_eq!(picky.traces(), 1);
    // The thread does not trace any more.
    assert_eq!((&x + 1.0).to_vec::<f32>().unwrap().len(), 10);
}

#[test]
fn bad_indices_are_the_error_of_their_readers_only() {
    for device in devices() {
        device.scope(|| {
            let data = wave(0, &[8, 4]);
            let pick = compile(|t: &[Tensor]| [t[0].take(0, &t[1]) * 2.0, &t[0] + 1.0]);
            let index = |i: i32| Tensor::from_slice(&[0, i, 3], [3]);
            let check = |i: i32| {
                let found = pick.call(&[&data, &index(i)]).unwrap();
                assert_eq!(bits(&found[0]), bits(&(data.take(0, &index(i)) * 2.0)));
            };
            check(5);
            let (taken, other) = match pick.call(&[&data, &index(8)]) {
                Ok(found) => (
                    found[0].to_vec::<f32>().unwrap_err(),
                    Some(found[1].clone()),
                ),
                Err(error) => (error, None),
            };
            assert!(
                matches!(
                    taken,
                    Error::BadIndex {
                        op: "take",
                        index: 8,
                        len: 8
                    }
                ),
                "{device}: {taken}"
            );
            if let Some(other) = other {
                assert_eq!(bits(&other), bits(&(&data + 1.0)));
            }
            // The next call has nothing to do with it.
            check(7);
            assert_eq!(pick.traces(), 1);
        });
    }
}

#[test]
fn state_survives_an_error_unless_it_was_overwritten() {
    let step = compile(|t: &[Tensor]| {
        let [w, data, index] = t else {
            panic!("three arguments");
        };
        [w * 0.5, data.take(0, index)]
    });
    let data = wave(0, &[8]);
    let mut state = [wave(1, &[2000])];
    let good = Tensor::from_slice(&[1, 2], [2]);
    let bad = Tensor::from_slice(&[1, 20], [2]);
    step.update(&mut state, &[&data, &good]).unwrap();
    let before = bits(&state[0]);
    let error = step.update(&mut state, &[&data, &bad]).unwrap_err();
    assert!(
        matches!(error, Error::BadIndex { index: 20, .. }),
        "{error}"
    );
    match state[0].check() {
        Ok(state) => assert_eq!(bits(state), before),
        Err(carried) => assert_eq!(carried, error),
    }
    state = [wave(1, &[2000])];
    step.update(&mut state, &[&data, &good]).unwrap();
    assert_eq!(bits(&state[0]), bits(&(wave(1, &[2000]) * 0.5)));
}

/// A recording device, so that injected failures do not affect other tests.
fn recording() -> Device {
    Device::on(noop::device(Family::Apple7))
}

#[test]
fn a_failed_submission_is_the_error_of_its_readers_only() {
    let device = recording();
    device.scope(|| {
        let step = compile(|t: &[Tensor]| vec![&t[0] * 2.0, t[0].sum(&[0], false)]);
        let mut state = [wave(0, &[2000])];
        step.update(&mut state, &[]).unwrap();
        let intact = wave(1, &[2000]);
        device.hal().unwrap().fail_submission(1);
        let sum = step.update(&mut state, &[]).unwrap().swap_remove(0);
        for lost in [&sum, &state[0], &(&state[0] + 1.0)] {
            let error = lost.to_vec::<f32>().unwrap_err();
            assert!(
                matches!(&error, Error::Device { source, .. } if matches!(**source, hal::Error::Execution { .. })),
                "{error}"
            );
        }
        assert!(intact.to_vec::<f32>().is_ok());
        state = [intact];
        assert!(step.update(&mut state, &[]).unwrap()[0].to_vec::<f32>().is_ok());
        assert!(state[0].to_vec::<f32>().is_ok());
    });
}

#[test]
fn running_out_of_memory_is_an_error_that_can_be_retried() {
    let device = recording();
    device.scope(|| {
        let mut failures = 0;
        for extra in (0..).map(|i| i * (96 << 10)) {
            device.synchronize().unwrap();
            device.clear_cache();
            let step = compile(|t: &[Tensor]| {
                let y = t[0].matmul(&t[0]).softmax(-1);
                vec![&t[0] * 0.5, y.matmul(&t[0]) + y.sum(&[0], false)]
            });
            let mut state = [wave(1, &[128, 128]) * 3.0];
            state[0].eval().unwrap();
            let before = bits(&state[0]);
            device.set_memory_limit(device.memory().in_use + extra);
            let outcome = step.update(&mut state, &[]);
            device.set_memory_limit(1 << 40);
            match outcome {
                Ok(_) => break,
                Err(Error::OutOfMemory { .. }) => failures += 1,
                Err(error) => panic!("{extra} bytes: {error}"),
            }
            assert_eq!(bits(&state[0]), before, "the state is as it was");
            step.update(&mut state, &[]).unwrap()[0].eval().unwrap();
        }
        assert!(failures >= 2, "{failures}");
    });
}
