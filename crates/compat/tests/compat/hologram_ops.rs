//! hologram's ops as functions, on the CPU and on the software Metal device, against plain loops in `f64`.

use bessemer_compat::hologram::{ClassBuffer, ops};

use super::*;

const A: [f64; 6] = [0.5, 2.0, 1.25, 4.0, 0.75, 3.0];
const B: [f64; 6] = [1.5, 0.25, 2.0, -1.0, 3.0, 0.5];

/// Elements that ops compute: one fewer than the buffers have.
const N: usize = 5;

struct Buffers {
    exec: Executor,
    a: ClassBuffer<f32>,
    b: ClassBuffer<f32>,
    out: ClassBuffer<f32>,
}

fn each(body: impl Fn(&Buffers)) {
    for kind in [BackendType::Cpu, BackendType::Software] {
        let mut exec = Executor::new_with_backend(kind).unwrap();
        let [a, b, out] = [(); 3].map(|()| exec.allocate::<f32>(6).unwrap());
        exec.write(&a, &A.map(|x| x as f32)).unwrap();
        exec.write(&b, &B.map(|x| x as f32)).unwrap();
        body(&Buffers { exec, a, b, out });
    }
}

impl Buffers {
    /// Checks the result, and that the rest of the output stays.
    fn expect(&self, outcome: bessemer::Result<()>, expected: &[f64]) {
        outcome.unwrap();
        let found = self.exec.read(&self.out).unwrap();
        assert_near(&found[..expected.len()], expected);
        assert!(
            found[expected.len()..].iter().all(|x| *x == 77.0),
            "{found:?}"
        );
        self.reset();
    }

    fn reset(&self) {
        ops::memory::fill(&self.exec, &self.out, 77.0).unwrap();
    }
}

#[test]
fn elementwise_ops() {
    use ops::{activation, math, memory};
    each(|t| {
        let Buffers { exec, a, b, out } = t;
        t.reset();
        let pairs =
            |f: &dyn Fn(f64, f64) -> f64| -> Vec<f64> { (0..N).map(|i| f(A[i], B[i])).collect() };
        let single =
            |f: &dyn Fn(f64) -> f64| -> Vec<f64> { B[..N].iter().map(|&x| f(x)).collect() };
        t.expect(math::vector_add(exec, a, b, out, N), &pairs(&|x, y| x + y));
        t.expect(math::vector_sub(exec, a, b, out, N), &pairs(&|x, y| x - y));
        t.expect(math::vector_mul(exec, a, b, out, N), &pairs(&|x, y| x * y));
        t.expect(math::vector_div(exec, a, b, out, N), &pairs(&|x, y| x / y));
        t.expect(math::min(exec, a, b, out, N), &pairs(&f64::min));
        t.expect(math::max(exec, a, b, out, N), &pairs(&f64::max));
        t.expect(math::pow(exec, a, b, out, N), &pairs(&f64::powf));
        t.expect(math::abs(exec, b, out, N), &single(&f64::abs));
        t.expect(math::neg(exec, b, out, N), &single(&|x| -x));
        t.expect(math::relu(exec, b, out, N), &single(&|x| x.max(0.0)));
        t.expect(
            math::clip(exec, b, out, 0.0, 1.75, N),
            &single(&|x| x.clamp(0.0, 1.75)),
        );
        t.expect(
            math::scalar_add(exec, b, out, 2.5, N),
            &single(&|x| x + 2.5),
        );
        t.expect(
            math::scalar_mul(exec, b, out, -3.0, N),
            &single(&|x| x * -3.0),
        );
        t.expect(activation::sigmoid(exec, b, out, N), &single(&sigmoid));
        t.expect(activation::tanh(exec, b, out, N), &single(&f64::tanh));
        t.expect(memory::copy(exec, b, out, N), &single(&|x| x));
        let single =
            |f: &dyn Fn(f64) -> f64| -> Vec<f64> { A[..N].iter().map(|&x| f(x)).collect() };
        t.expect(math::sqrt(exec, a, out, N), &single(&f64::sqrt));
        t.expect(math::rsqrt(exec, a, out, N), &single(&|x| 1.0 / x.sqrt()));
        let total: f64 = A[..N].iter().map(|x| x.exp()).sum();
        t.expect(
            activation::softmax(exec, a, out, N),
            &single(&|x| x.exp() / total),
        );
        // x·Φ(x), with Φ from tables.
        memory::fill(exec, a, 1.0).unwrap();
        t.expect(activation::gelu(exec, a, out, 1), &[0.841_344_746_068_543]);
    });
}

#[test]
fn reductions_losses_and_matrices() {
    use ops::{linalg, loss, reduce};
    each(|t| {
        let Buffers { exec, a, b, out } = t;
        t.reset();
        let sum: f64 = B[..N].iter().sum();
        t.expect(reduce::sum(exec, b, out, N), &[sum]);
        t.expect(reduce::mean(exec, b, out, N), &[sum / N as f64]);
        t.expect(reduce::min(exec, b, out, N), &[-1.0]);
        t.expect(reduce::max(exec, b, out, N), &[3.0]);
        let mean =
            |f: &dyn Fn(f64, f64) -> f64| (0..N).map(|i| f(A[i], B[i])).sum::<f64>() / N as f64;
        t.expect(
            loss::mse(exec, a, b, out, N),
            &[mean(&|x, y| (x - y) * (x - y))],
        );
        let entropy = mean(&|x, y| -y * x.ln()) * N as f64;
        t.expect(loss::cross_entropy(exec, a, b, out, N), &[entropy]);
        // Matrices of 3 by 2 and 2 by 1: `m, n, k` differ.
        let product = [0, 1, 2].map(|i| A[2 * i] * B[0] + A[2 * i + 1] * B[1]);
        t.expect(linalg::gemm(exec, a, b, out, [3, 1, 2]), &product);
        t.expect(linalg::matvec(exec, a, b, out, [3, 2]), &product);
        let probabilities: [f64; 6] = [0.25, 0.5, 0.875, 0.125, 0.75, 0.5];
        exec.write(a, &probabilities.map(|x| x as f32)).unwrap();
        let targets: [f64; 6] = [1.0, 0.0, 1.0, 0.0, 0.5, 0.0];
        exec.write(b, &targets.map(|x| x as f32)).unwrap();
        let terms = probabilities.iter().zip(targets).take(N);
        let bce: f64 = terms
            .map(|(p, t)| -(t * p.ln() + (1.0 - t) * (1.0 - p).ln()))
            .sum();
        t.expect(loss::bce(exec, a, b, out, N), &[bce / N as f64]);
    });
}

#[test]
fn integers_stay_integers_and_wrong_lengths_are_errors() {
    for kind in [BackendType::Cpu, BackendType::Software] {
        let mut exec = Executor::new_with_backend(kind).unwrap();
        let [a, out] = [(); 2].map(|()| exec.allocate::<i32>(3).unwrap());
        exec.write(&a, &[i32::MAX, -7, 5]).unwrap();
        ops::math::scalar_add(&exec, &a, &out, 1, 3).unwrap();
        assert_eq!(exec.read(&out).unwrap(), [i32::MIN, -6, 6]);
        ops::math::clip(&exec, &a, &out, -2, 6, 3).unwrap();
        assert_eq!(exec.read(&out).unwrap(), [6, -2, 5]);
        // The quotient is a float.
        assert!(ops::math::vector_div(&exec, &a, &a, &out, 3).is_err());
        let short = invalid(ops::math::neg(&exec, &a, &out, 4).unwrap_err());
        assert!(short.contains("4 elements exceed a buffer of 3"), "{short}");
        let short = exec.allocate::<i32>(2).unwrap();
        invalid(ops::math::neg(&exec, &a, &short, 3).unwrap_err());
        invalid(ops::linalg::gemm(&exec, &a, &a, &out, [2, 1, 2]).unwrap_err());
    }
}
