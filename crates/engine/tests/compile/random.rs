//! Random functions: a replay has the bits of an evaluation.

use bessemer::{DType, Device, Tensor, compile};
use bessemer_testing::random::Rng;

use super::{bits, devices, wave};

/// Rows and columns of all matrices.
const SIDE: usize = 40;

/// A random function of matrices, as a list of ops on earlier values.
struct Graph {
    ops: Vec<(usize, usize, usize)>,
    outputs: Vec<usize>,
}

impl Graph {
    fn new(rng: &mut Rng, inputs: usize, ops: usize) -> Self {
        let pick = |rng: &mut Rng, known: usize| {
            // Mostly recent values, so that there are chains.
            if rng.one_in(3) {
                rng.below(known)
            } else {
                known - 1 - rng.below(known.min(3))
            }
        };
        let ops: Vec<_> = (0..ops)
            .map(|i| {
                let known = inputs + i;
                (rng.below(16), pick(rng, known), pick(rng, known))
            })
            .collect();
        let known = inputs + ops.len();
        let outputs = (0..1 + rng.below(3)).map(|_| rng.below(known)).collect();
        Self { ops, outputs }
    }

    fn run(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        let mut values = inputs.to_vec();
        for &(op, a, b) in &self.ops {
            let (a, b) = (&values[a], &values[b]);
            values.push(match op {
                0 => a + b,
                1 => a * b,
                2 => a - b.narrow(0, 3, 1),
                3 => a.maximum(b) * 0.5,
                4 => a.tanh(),
                5 => (a * 0.1).exp(),
                6 => a.matmul(&(b * 0.01)),
                7 => a.matmul(&(b * 0.01).t()),
                8 => a.softmax(-1),
                9 => a - a.mean(&[1], true),
                10 => a.t().contiguous(),
                11 => a.rms_norm(&b.narrow(0, 0, 1).reshape([SIDE]), 1e-5),
                12 => a.lt(b).select(a, b),
                13 => a.cast(DType::F16).cast(DType::F32) + 1.0,
                14 => a.slice_update(&b.narrow(0, 0, 8).narrow(1, 0, 16), &[5, 7]),
                _ => Tensor::concat(&[&a.narrow(0, 0, 10), &b.narrow(0, 10, SIDE - 10)], 0),
            });
        }
        self.outputs.iter().map(|&i| values[i].clone()).collect()
    }
}

fn check(device: &Device, graphs: u64) {
    let mut replayed = 0;
    for seed in 0..graphs {
        let mut rng = Rng::new(seed);
        let graph = Graph::new(&mut rng, 3, 2 + seed as usize % 12);
        device.scope(|| {
            let compiled = compile(|t: &[Tensor]| graph.run(t));
            let mut state = [wave(50, &[SIDE, SIDE])];
            let mut expected_state = state[0].clone() * 1.0;
            for call in 0..3 {
                let inputs: Vec<_> = (0..3).map(|i| wave(3 * call + i, &[SIDE, SIDE])).collect();
                let expected = graph.run(&inputs);
                let found = compiled.call(&inputs.iter().collect::<Vec<_>>()).unwrap();
                for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    let case = format!("{device}, graph {seed}, call {call}, output {i}");
                    assert_eq!(bits(found), bits(expected), "{case}");
                }
                // The same with a state, which is the first argument.
                let new = graph.run(&[expected_state, inputs[1].clone(), inputs[2].clone()]);
                compiled
                    .update(&mut state, &[&inputs[1], &inputs[2]])
                    .unwrap();
                let case = format!("{device}, graph {seed}, update {call}");
                assert_eq!(bits(&state[0]), bits(&new[0]), "{case}");
                // As after an evaluation, later ops may use its memory.
                expected_state = &new[0] * 1.0;
                state[0] = &state[0] * 1.0;
                for i in &inputs {
                    assert!(i.to_vec::<f32>().is_ok());
                }
            }
            let is_replayed = |t: &bessemer::TraceReport| t.not_replayed.is_none();
            replayed += usize::from(compiled.explain().iter().all(is_replayed));
        });
    }
    assert!(replayed as u64 > graphs / 2, "{replayed} of {graphs}");
}

#[test]
fn random_functions_have_the_bits_of_their_evaluation() {
    for device in devices() {
        // A kernel takes a while to compile on the software device.
        check(&device, if device.is_cpu() { 300 } else { 12 });
    }
}
