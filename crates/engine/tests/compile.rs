//! Compiled functions: results, traces, memory, errors and threads, against evaluations of the same functions.
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

#[path = "compile/counts.rs"]
mod counts;
#[path = "compile/failure.rs"]
mod failure;
#[path = "compile/random.rs"]
mod random;

use bessemer::{DType, Device, Error, RopeOptions, Tensor, compile, eval, random as keys};
use bessemer_testing::tolerance::bound;

/// An evaluated vector of distinct values around 0.
fn wave(seed: usize, shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let value = |i: usize| ((i * 37 + seed * 101) % 257) as f32 / 128.0 - 1.0;
    let x = Tensor::from_vec((0..n).map(value).collect(), shape) * 1.0;
    x.eval().unwrap();
    x
}

/// The bits of the values, of any dtype.
fn bits(t: &Tensor) -> Vec<u8> {
    bessemer::external::to_bytes("bits", t).unwrap()
}

/// The devices that tests of values run on.
fn devices() -> Vec<Device> {
    #[cfg(target_os = "linux")]
    let soft = [Device::software().unwrap()];
    #[cfg(not(target_os = "linux"))]
    let soft = [];
    [Device::cpu()].into_iter().chain(soft).collect()
}

#[test]
fn a_call_has_the_bits_of_an_evaluation_and_is_traced_once() {
    for device in devices() {
        device.scope(|| {
            let w = wave(7, &[48, 48]);
            let f = |x: &Tensor, y: &Tensor| {
                let h = (x.matmul(&w) + y).gelu();
                [h.softmax(-1), (&h * 2.0 - x).sum(&[0], false)]
            };
            let compiled = compile(|t: &[Tensor]| f(&t[0], &t[1]));
            for seed in 0..4 {
                let (x, y) = (wave(seed, &[32, 48]), wave(seed + 9, &[48]));
                let expected = f(&x, &y);
                let found = compiled.call(&[&x, &y]).unwrap();
                assert_eq!(found.len(), 2);
                for (found, expected) in found.iter().zip(&expected) {
                    assert_eq!(found.shape(), expected.shape());
                    assert_eq!(found.device(), expected.device());
                    assert_eq!(bits(found), bits(expected), "{device}, call {seed}");
                }
            }
            assert_eq!(compiled.traces(), 1);
        });
    }
}

#[test]
fn another_signature_is_another_trace() {
    let double = compile(|t: &[Tensor]| &t[0] * 2.0);
    let call = |x: &Tensor| {
        let y = &double.call(&[x]).unwrap()[0];
        assert_eq!(bits(y), bits(&(x * 2.0)));
        double.traces()
    };
    assert_eq!(call(&wave(0, &[8, 6])), 1);
    assert_eq!(call(&wave(1, &[8, 6])), 1);
    assert_eq!(call(&wave(0, &[6, 8])), 2, "another shape");
    assert_eq!(call(&wave(0, &[8, 6]).cast(DType::F64)), 3, "another dtype");
    assert_eq!(call(&wave(0, &[6, 8]).t()), 4, "other strides");
    assert_eq!(call(&wave(0, &[8, 6]).to(&Device::cpu())), 5, "pinned");
    assert_eq!(call(&wave(0, &[8, 6])), 5, "known");
    // Views that begin at a multiple of 32 bytes are the same to a replay.
    let data = wave(0, &[40, 8]);
    assert_eq!(call(&data.narrow(0, 4, 8)), 6);
    assert_eq!(call(&data.narrow(0, 12, 8)), 6);
    assert_eq!(call(&data.narrow(0, 0, 8)), 6);
}

#[test]
fn the_number_of_traces_that_are_kept_is_bounded() {
    let sum = compile(|t: &[Tensor]| t[0].sum(&[0], false));
    for n in 1..=40 {
        let y = &sum.call(&[&Tensor::ones([n], DType::F32)]).unwrap()[0];
        assert_eq!(y.item::<f32>().unwrap(), n as f32);
    }
    assert_eq!((sum.traces(), sum.explain().len()), (40, 16));
    sum.call(&[&Tensor::ones([40], DType::F32)]).unwrap();
    assert_eq!(sum.traces(), 40, "the last ones are kept");
    sum.call(&[&Tensor::ones([1], DType::F32)]).unwrap();
    assert_eq!(sum.traces(), 41, "the first ones are forgotten");
}

#[test]
fn views_scalars_and_empty_tensors_are_arguments_like_others() {
    for device in devices() {
        device.scope(|| {
            let f = |x: &Tensor, y: &Tensor, rate: &Tensor| (x * rate).matmul(y) - rate;
            let compiled = compile(|t: &[Tensor]| f(&t[0], &t[1], &t[2]));
            let data = wave(3, &[20, 33]);
            for (at, rate) in [(0, 0.5_f32), (3, 0.25), (8, -1.0)] {
                let x = data.narrow(0, at, 7).narrow(1, 1, 30);
                let y = data.narrow(0, 1, 9).narrow(1, 2, 30).t();
                let rate = Tensor::scalar(rate);
                let expected = f(&x, &y, &rate);
                let found = &compiled.call(&[&x, &y, &rate]).unwrap()[0];
                assert_eq!(bits(found), bits(&expected), "{device}");
            }
            let (none, zeros) = (
                Tensor::zeros([0, 3], DType::F32),
                Tensor::zeros([3, 4], DType::F32),
            );
            let found = &compiled
                .call(&[&none, &zeros, &Tensor::scalar(1.0_f32)])
                .unwrap()[0];
            assert_eq!(found.shape()[..], [0, 4]);
            assert!(bits(found).is_empty());
        });
    }
}

#[test]
fn arguments_may_be_pending_and_results_are_ordinary_tensors() {
    for device in devices() {
        device.scope(|| {
            let next = compile(|t: &[Tensor]| (&t[0] * 1.5 + 1.0).sin());
            let mut x = wave(1, &[2000]);
            let mut expected = x.clone();
            for _ in 0..5 {
                // What goes in was computed before, but never read.
                x = next.call(&[&(&x + 0.25)]).unwrap().swap_remove(0);
                expected = ((&expected + 0.25) * 1.5 + 1.0).sin();
            }
            assert_eq!(
                bits(&x.reshape([40, 50]).t()),
                bits(&expected.reshape([40, 50]).t())
            );
        });
    }
}

#[test]
fn results_may_be_arguments_views_constants_or_the_same_value_twice() {
    for device in devices() {
        device.scope(|| {
            let kept = wave(5, &[4, 6]);
            let f = |x: &Tensor| {
                let y = x.exp();
                let (t, row) = (y.t(), y.narrow(0, 1, 2));
                let full = Tensor::full([2, 2], 3.0, DType::F32);
                vec![
                    x.clone(),
                    x.t(),
                    y,
                    t,
                    row,
                    kept.clone(),
                    full,
                    x.narrow(1, 2, 3),
                ]
            };
            let compiled = compile(|t: &[Tensor]| f(&t[0]));
            let data = wave(2, &[12, 6]);
            for at in [0, 4, 8] {
                let x = data.narrow(0, at, 4);
                let found = compiled.call(&[&x]).unwrap();
                for (i, (found, expected)) in found.iter().zip(f(&x)).enumerate() {
                    assert_eq!(found.shape(), expected.shape(), "{i}");
                    assert_eq!(bits(found), bits(&expected), "{device}, result {i}");
                }
            }
            let same = compile(|t: &[Tensor]| t.to_vec());
            let x = wave(1, &[3]);
            assert_eq!(bits(&same.call(&[&x]).unwrap()[0]), bits(&x));
            assert_eq!(same.explain()[0].launches, 0);
            let nothing = compile(|_: &[Tensor]| Vec::new());
            assert!(nothing.call(&[&x]).unwrap().is_empty());
        });
    }
}

#[test]
fn what_a_function_captures_is_constant_and_stays_alive() {
    for device in devices() {
        device.scope(|| {
            // One is pending, and then computed once.
            let (w, bias) = (wave(1, &[64, 64]), wave(2, &[64]) + 1.0);
            let expected = |x: &Tensor| x.matmul(&wave(1, &[64, 64])) + (wave(2, &[64]) + 1.0);
            let linear = compile(move |t: &[Tensor]| t[0].matmul(&w) + &bias);
            for seed in 0..3 {
                let x = wave(seed, &[5, 64]);
                assert_eq!(bits(&linear.call(&[&x]).unwrap()[0]), bits(&expected(&x)));
                // Others use memory meanwhile.
                eval(&[&(wave(seed, &[64, 64]) * 3.0)]).unwrap();
            }
            assert_eq!(
                linear.explain()[0].plan.steps.len(),
                if device.is_cpu() { 2 } else { 1 }
            );
            let key = keys::Key::new(5);
            let noise =
                compile(move |t: &[Tensor]| &t[0] + keys::normal(&key, t[0].shape(), DType::F32));
            let x = wave(0, &[100]);
            let expected = &x + keys::normal(&key, [100], DType::F32);
            for _ in 0..2 {
                assert_eq!(bits(&noise.call(&[&x]).unwrap()[0]), bits(&expected));
            }
        });
    }
}

#[test]
fn a_transformer_layer_is_replayed() {
    for device in devices() {
        device.scope(|| {
            let table = RopeOptions::default().table(8).unwrap();
            let norm = wave(2, &[24]);
            let project = |x: &Tensor, seed, width: usize| x.matmul(&wave(seed, &[24, width]));
            let layer = |x: &Tensor| {
                let heads = |x: Tensor| x.reshape([1, 5, 3, 8]).transpose(1, 2);
                let y = x.rms_norm(&norm, 1e-5);
                let (q, k, v) = (project(&y, 3, 24), project(&y, 4, 24), project(&y, 5, 24));
                let (q, k) = (heads(q).rope_with(&table, 2), heads(k).rope_with(&table, 2));
                let a = q.attention(&k, &heads(v), &bessemer::AttentionOptions::default());
                let x = x + project(&a.transpose(1, 2).reshape([5, 24]), 6, 24);
                let y = x.rms_norm(&norm, 1e-5);
                let gate = project(&y, 7, 48).swiglu(&project(&y, 8, 48));
                x + gate.matmul(&wave(9, &[48, 24]))
            };
            let compiled = compile(|t: &[Tensor]| layer(&t[0]));
            for seed in 0..3 {
                let x = wave(seed, &[5, 24]);
                assert_eq!(
                    bits(&compiled.call(&[&x]).unwrap()[0]),
                    bits(&layer(&x)),
                    "{device}"
                );
            }
            let report = &compiled.explain()[0];
            assert_eq!(report.not_replayed, None, "{report}");
        });
    }
}

#[test]
fn compiled_functions_can_call_each_other() {
    let inner = compile(|t: &[Tensor]| (&t[0] + 1.0).sqrt());
    let outer = compile(|t: &[Tensor]| -> bessemer::Result<Tensor> {
        Ok(inner.call(&[&(&t[0] * 2.0)])?.swap_remove(0) - 1.0)
    });
    let x = wave(0, &[50]).abs();
    let expected = (&x * 2.0 + 1.0).sqrt() - 1.0;
    assert_eq!(bits(&outer.call(&[&x]).unwrap()[0]), bits(&expected));
    assert_eq!((inner.traces(), outer.traces()), (0, 1));
    assert_eq!(outer.explain()[0].plan.steps.len(), 1, "all is fused");
}

#[test]
fn functions_on_several_devices_are_evaluated_each_time() {
    for device in devices() {
        device.scope(|| {
            let f = |x: &Tensor| (x.to(&Device::cpu()) * 2.0).to(&device) + 1.0;
            let compiled = compile(|t: &[Tensor]| f(&t[0]));
            for seed in 0..2 {
                let x = wave(seed, &[100]);
                assert_eq!(bits(&compiled.call(&[&x]).unwrap()[0]), bits(&f(&x)));
            }
            assert_eq!(compiled.traces(), 1);
            let report = &compiled.explain()[0];
            assert_eq!(report.not_replayed.is_some(), !device.is_cpu(), "{report}");
        });
    }
}

#[test]
fn state_is_updated_in_place() {
    for device in devices() {
        device.scope(|| {
            let f = |w: &Tensor, m: &Tensor, x: &Tensor| {
                let g = w - x;
                let m = m * 0.5 + &g;
                [w - &m * 0.25, m, g.square().mean(&[], false)]
            };
            let step = compile(|t: &[Tensor]| f(&t[0], &t[1], &t[2]));
            let new = || [wave(1, &[64, 64]) * 2.0, wave(2, &[64, 64]) * 0.0];
            let (mut state, mut expected) = (new(), new());
            let mut addresses = Vec::new();
            for seed in 0..4 {
                let x = wave(seed, &[64, 64]);
                let loss = step.update(&mut state, &[&x]).unwrap().swap_remove(0);
                let [w, m, expected_loss] = f(&expected[0], &expected[1], &x);
                expected = [w, m];
                assert_eq!(bits(&loss), bits(&expected_loss), "{device}, step {seed}");
                for (state, expected) in state.iter().zip(&expected) {
                    assert_eq!(bits(state), bits(expected), "{device}, step {seed}");
                }
                let address = |t: &Tensor| t.to_slice::<f32>().unwrap().as_ptr().addr();
                addresses.push(state.each_ref().map(address));
            }
            assert_eq!(addresses[1..], vec![addresses[0]; 3][..], "{device}");
            assert_eq!(step.explain()[0].updated_in_place, [0, 1]);
            assert_eq!(step.traces(), 1);
        });
    }
}

#[test]
fn state_that_others_use_is_not_overwritten() {
    for device in devices() {
        device.scope(|| {
            let step = compile(|t: &[Tensor]| vec![t[0].tanh() * &t[1]]);
            let mut state = [wave(1, &[3000])];
            let before = state[0].clone();
            let expected = bits(&before);
            let x = wave(2, &[3000]);
            step.update(&mut state, &[&x]).unwrap();
            assert_eq!(bits(&before), expected);
            let kept = state[0].clone();
            let expected = bits(&kept);
            // As an argument, too.
            step.update(&mut state, &[&kept]).unwrap();
            assert_eq!(bits(&kept), expected);
            assert_eq!(bits(&state[0]), bits(&(kept.tanh() * &kept)));
            // A view of the state.
            let view = state[0].narrow(0, 5, 7);
            let expected = bits(&view);
            step.update(&mut state, &[&x]).unwrap();
            assert_eq!(bits(&view), expected);
        });
    }
}

#[test]
fn a_cache_grows_in_place_at_positions_that_are_arguments() {
    for device in devices() {
        device.scope(|| {
            let step = compile(|t: &[Tensor]| {
                let [cache, row, position] = t else {
                    panic!("three arguments");
                };
                let index = position.reshape([1, 1]).broadcast_to([1, 64]);
                let cache = cache.scatter(0, &index, row);
                let sum = cache.sum(&[0], false);
                [cache, sum]
            });
            let mut state = [Tensor::zeros([32, 64], DType::F32).contiguous()];
            let mut expected = vec![0.0_f32; 64];
            for position in 0..4_i32 {
                let row = wave(position as usize, &[1, 64]);
                let sum = step
                    .update(&mut state, &[&row, &Tensor::scalar(position)])
                    .unwrap();
                for (e, r) in expected.iter_mut().zip(row.to_vec::<f32>().unwrap()) {
                    *e += r;
                }
                let sum = sum[0].to_vec::<f32>().unwrap();
                assert!(
                    sum.iter()
                        .zip(&expected)
                        .all(|(s, e)| (s - e).abs() < bound::F32_FOUR_TERMS)
                );
            }
            let last = step.explain().pop().unwrap();
            assert_eq!(last.updated_in_place, [0], "{last}");
        });
    }
}

#[test]
fn threads_call_the_same_function() {
    for device in devices() {
        let f = |x: &Tensor| (x.matmul(x).tanh() + x).softmax(-1).matmul(x);
        let compiled = compile(|t: &[Tensor]| f(&t[0]));
        let expected: Vec<_> = (0..4)
            .map(|seed| device.scope(|| bits(&f(&wave(seed, &[40, 40])))))
            .collect();
        std::thread::scope(|scope| {
            for t in 0..4 {
                let (device, compiled, expected) = (&device, &compiled, &expected);
                scope.spawn(move || {
                    device.scope(|| {
                        for i in 0..12 {
                            let seed = (t + i) % 4;
                            let found = compiled.call(&[&wave(seed, &[40, 40])]).unwrap();
                            assert_eq!(bits(&found[0]), expected[seed], "{device}");
                        }
                    });
                });
            }
        });
        assert_eq!(compiled.explain()[0].not_replayed, None);
    }
}

#[test]
fn everything_can_be_dropped_while_it_is_in_flight() {
    for device in devices() {
        device.scope(|| {
            let f = |x: &Tensor, w: &Tensor| ((x.matmul(w) + 1.0).matmul(w) - 1.0).tanh();
            let expected = bits(&f(&wave(1, &[64, 64]), &wave(2, &[64, 64])));
            for _ in 0..3 {
                let result = {
                    let w = wave(2, &[64, 64]);
                    let compiled = compile(move |t: &[Tensor]| f(&t[0], &w));
                    compiled
                        .call(&[&wave(1, &[64, 64])])
                        .unwrap()
                        .swap_remove(0)
                };
                // The memory that was dropped is used for something else.
                let others: Vec<_> = (0..6).map(|seed| wave(seed, &[64, 64])).collect();
                assert_eq!(bits(&result), expected);
                drop(others);
            }
        });
    }
}

#[test]
fn errors_of_the_state_name_both_numbers() {
    let step = compile(|_: &[Tensor]| Vec::new());
    let mut state = [wave(0, &[3])];
    let error = step.update(&mut state, &[]).unwrap_err();
    assert!(
        matches!(error, Error::Invalid { op: "update", .. }),
        "{error}"
    );
    assert_eq!(bits(&state[0]), bits(&wave(0, &[3])));
}
