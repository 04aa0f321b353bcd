//! hologram's ops as functions: an executor, inputs, the output and the number of elements.
//!
//! They compute the first `n` elements and leave the rest of the output as it is. A buffer of fewer than `n` elements is an
//! error. Ops do not wait; [`Executor::read`](super::Executor::read) does.

use bessemer::{Element, Error, Result, Tensor};

use super::{ClassBuffer, Executor};

/// The first `n` elements of a buffer.
fn head<T: Element>(
    op: &'static str,
    exec: &Executor,
    buffer: &ClassBuffer<T>,
    n: usize,
) -> Result<Tensor> {
    if n > buffer.len() {
        return Err(Error::Invalid {
            op,
            reason: format!("{n} elements exceed a buffer of {}", buffer.len()),
        });
    }
    Ok(exec.tensor(buffer)?.slice(0, 0, n as isize, 1))
}

/// A matrix at the start of a buffer.
fn matrix<T: Element>(
    op: &'static str,
    exec: &Executor,
    buffer: &ClassBuffer<T>,
    [rows, cols]: [usize; 2],
) -> Result<Tensor> {
    let n = rows.saturating_mul(cols);
    Ok(head(op, exec, buffer, n)?.reshape([rows, cols]))
}

/// Declares ops on buffers of the same length, with numbers behind them.
macro_rules! elementwise {
    ($($(#[$doc:meta])* $name:ident($($input:ident),* $(; $number:ident)*) $body:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// [`bessemer::Error::Invalid`] for a buffer of fewer than `n` elements or of another executor,
        /// [`bessemer::Error::WrongType`] for an op whose result is of another type, and errors of the evaluation.
        pub fn $name<T: Element>(
            exec: &Executor,
            $($input: &ClassBuffer<T>,)*
            out: &ClassBuffer<T>,
            $($number: T,)*
            n: usize,
        ) -> Result<()> {
            let op = stringify!($name);
            $(let $input = head(op, exec, $input, n)?;)*
            $(let $number = Tensor::from_slice(&[$number], [1]).to(&exec.device());)*
            exec.store(out, $body)
        }
    )*};
}

/// Arithmetic, element by element.
pub mod math {
    use super::{ClassBuffer, Element, Executor, Result, Tensor, head};

    elementwise! {
        /// `out = a + b`
        vector_add(a, b) a + b;
        /// `out = a - b`
        vector_sub(a, b) a - b;
        /// `out = a * b`
        vector_mul(a, b) a * b;
        /// `out = a / b`; integers have no quotient of their type.
        vector_div(a, b) a / b;
        /// `out = min(a, b)`
        min(a, b) a.minimum(&b);
        /// `out = max(a, b)`
        max(a, b) a.maximum(&b);
        /// `out = a^b`
        pow(a, b) a.pow(&b);
        /// `out = |a|`
        abs(a) a.abs();
        /// `out = -a`
        neg(a) -a;
        /// `out = √a`
        sqrt(a) a.sqrt();
        /// `out = 1 / √a`
        rsqrt(a) a.rsqrt();
        /// `out = max(a, 0)`
        relu(a) a.relu();
        /// `out = min(max(a, low), high)`
        clip(a; low; high) a.clamp(&low, &high);
        /// `out = a + scalar`
        scalar_add(a; scalar) a + scalar;
        /// `out = a * scalar`
        scalar_mul(a; scalar) a * scalar;
    }
}

/// Activation functions.
pub mod activation {
    use super::{ClassBuffer, Element, Executor, Result, head};

    elementwise! {
        /// `out = 1 / (1 + e^-a)`
        sigmoid(a) a.sigmoid();
        /// `out = tanh(a)`
        tanh(a) a.tanh();
        /// `out = a · Φ(a)`, with the error function.
        gelu(a) a.gelu();
        /// `out = e^a / Σ e^a`
        softmax(a) a.softmax(-1);
    }
}

/// Reductions to `out[0]`. The output needs one element.
pub mod reduce {
    use super::{ClassBuffer, Element, Executor, Result, head};

    elementwise! {
        /// `out[0] = Σ a`
        sum(a) a.sum(&[], true);
        /// `out[0] = Σ a / n`
        mean(a) a.mean(&[], true);
        /// `out[0]` is the minimum of `a`.
        min(a) a.min(&[], true);
        /// `out[0]` is the maximum of `a`.
        max(a) a.max(&[], true);
    }
}

/// Copies.
pub mod memory {
    use super::{ClassBuffer, Element, Executor, Result, Tensor, head};

    elementwise! {
        /// `out = a`
        copy(a) a;
    }

    /// Sets all elements.
    ///
    /// # Errors
    /// [`bessemer::Error::Invalid`] for a buffer of another executor, and errors of the evaluation.
    pub fn fill<T: Element>(exec: &Executor, out: &ClassBuffer<T>, value: T) -> Result<()> {
        let value = Tensor::from_slice(&[value], [1]).to(&exec.device());
        exec.store(out, value.broadcast_to([out.len()]))
    }
}

/// Matrices, row-major. The order of sizes is `m, n, k`.
pub mod linalg {
    use super::{ClassBuffer, Element, Executor, Result, head, matrix};

    /// `c = a·b`, of `m` by `k` and `k` by `n`.
    ///
    /// # Errors
    /// [`bessemer::Error::Invalid`] for buffers that are too short, and errors of the evaluation.
    pub fn gemm<T: Element>(
        exec: &Executor,
        a: &ClassBuffer<T>,
        b: &ClassBuffer<T>,
        c: &ClassBuffer<T>,
        [m, n, k]: [usize; 3],
    ) -> Result<()> {
        let a = matrix("gemm", exec, a, [m, k])?;
        exec.store(c, a.matmul(&matrix("gemm", exec, b, [k, n])?))
    }

    /// `y = a·x`, of `m` by `n` and `n`.
    ///
    /// # Errors
    /// As [`gemm`].
    pub fn matvec<T: Element>(
        exec: &Executor,
        a: &ClassBuffer<T>,
        x: &ClassBuffer<T>,
        y: &ClassBuffer<T>,
        [m, n]: [usize; 2],
    ) -> Result<()> {
        let a = matrix("matvec", exec, a, [m, n])?;
        exec.store(y, a.matvec(&head("matvec", exec, x, n)?))
    }
}

/// Losses, to `out[0]`.
pub mod loss {
    use super::{ClassBuffer, Element, Executor, Result, head};

    elementwise! {
        /// Mean squared error: `Σ (predictions - targets)² / n`.
        mse(predictions, targets) (predictions - targets).square().mean(&[], true);
        /// Cross entropy of probabilities: `-Σ targets · ln(predictions)`.
        cross_entropy(predictions, targets) -(targets * predictions.log()).sum(&[], true);
        /// Binary cross entropy of probabilities:
        /// `-Σ (targets · ln(predictions) + (1 - targets) · ln(1 - predictions)) / n`.
        bce(predictions, targets) {
            let yes = &targets * predictions.log();
            let no = (1.0 - &targets) * (-predictions).log1p();
            -(yes + no).mean(&[], true)
        };
    }
}
