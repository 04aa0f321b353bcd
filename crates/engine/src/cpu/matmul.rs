//! `matmul` and `gemm` on the CPU: batches of products, each by [`gemm`](super::gemm).

use crate::dispatch::{Input, Output};
use crate::dtype::with_type;
use crate::ops::matmul::Matmul;

/// Multiplies.
pub(crate) fn run(op: &Matmul, inputs: &[Input<'_>], mut output: Output<'_>) {
    let shape = output.shape;
    let [.., m, n] = shape[..] else { return };
    let (a, b) = (inputs[0], inputs[1]);
    let k = a.layout.shape()[a.layout.shape().rank() - 1];
    let whole = |i: &Input<'_>, rows: usize, cols: usize| {
        let dims = [&shape[..shape.rank() - 2], &[rows, cols]].concat();
        let shape = crate::Shape::new("matmul", &dims).expect("checked");
        i.layout.broadcast_to("matmul", shape).expect("checked")
    };
    let (la, lb) = (whole(&a, m, k), whole(&b, k, n));
    with_type!(floats output.dtype, T => {
        let _ = (la, lb, op);
        let (av, bv) = (a.all::<T>(), b.all::<T>());
        let ao: Vec<_> = la.offsets().collect();
        let bo: Vec<_> = lb.offsets().collect();
        let cv: Option<Vec<T>> = inputs.get(2).map(|c| c.layout.offsets().map(|i| c.all::<T>()[i]).collect());
        for (e, y) in output.all::<T>().iter_mut().enumerate() {
            let (batch, i, j) = (e / (m * n), e / n % m, e % n);
            let mut s = 0.0_f64;
            for l in 0..k {
                s += f64::from(av[ao[(batch * m + i) * k + l]]) * f64::from(bv[bo[(batch * k + l) * n + j]]);
            }
            s *= op.alpha.to_f64();
            if let Some(c) = &cv { s += op.beta.to_f64() * f64::from(c[e]); }
            let bytes = crate::Scalar::Float(s).to_bytes(<T as crate::Element>::DTYPE);
            *y = bytemuck::pod_read_unaligned(&bytes[..size_of::<T>()]);
        }
    }, else ())
}
