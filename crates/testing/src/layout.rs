//! Tensors with given values in any layout, and their values back.

use bessemer::{DType, Element, Tensor};
use half::{bf16, f16};

use crate::Array;
use crate::array::count;
use crate::case::{Axis, Input, MemoryLayout};
use crate::number::Value;
use crate::tolerance::compare;

impl Input {
    /// The case's array as a tensor with the case's layout, whose neighbours in memory are values that would spoil a
    /// result.
    pub fn tensor(&self) -> Tensor {
        lay_out(&self.array(), &self.placed())
    }
}

/// A row-major tensor.
pub fn tensor(x: &Array) -> Tensor {
    let shape = &x.shape[..];
    let ints = || x.to_ints();
    let floats = || x.to_floats();
    match x.dtype {
        DType::Bool => of(ints().iter().map(|&i| i != 0).collect(), shape),
        DType::U8 => of(ints().iter().map(|&i| i as u8).collect(), shape),
        DType::U16 => of(ints().iter().map(|&i| i as u16).collect(), shape),
        DType::U32 => of(ints().iter().map(|&i| i as u32).collect(), shape),
        DType::U64 => of(ints().iter().map(|&i| i as u64).collect(), shape),
        DType::I8 => of(ints().iter().map(|&i| i as i8).collect(), shape),
        DType::I16 => of(ints().iter().map(|&i| i as i16).collect(), shape),
        DType::I32 => of(ints().iter().map(|&i| i as i32).collect(), shape),
        DType::I64 => of(ints().iter().map(|&i| i as i64).collect(), shape),
        // The values are representable in the dtype: the conversions are exact.
        DType::F16 => of(floats().iter().map(|&f| f16::from_f64(f)).collect(), shape),
        DType::BF16 => of(floats().iter().map(|&f| bf16::from_f64(f)).collect(), shape),
        DType::F32 => of(floats().iter().map(|&f| f as f32).collect(), shape),
        DType::F64 => of(floats(), shape),
        other => panic!("unknown dtype {other}"),
    }
}

fn of<T: Element>(data: Vec<T>, shape: &[usize]) -> Tensor {
    Tensor::from_vec(data, shape)
}

/// The values of a tensor, or the message of its error.
pub fn array(x: &Tensor) -> Result<Array, String> {
    // Check the error first: a failed tensor has a dtype too.
    x.check().map_err(|e| e.to_string())?;
    let int = |i: Vec<i128>| i.into_iter().map(Value::Int).collect();
    let float = |f: Vec<f64>| f.into_iter().map(Value::Float).collect();
    let data: Vec<Value> = match x.dtype() {
        DType::Bool => int(read::<bool, _>(x)?),
        DType::U8 => int(read::<u8, _>(x)?),
        DType::U16 => int(read::<u16, _>(x)?),
        DType::U32 => int(read::<u32, _>(x)?),
        DType::U64 => int(read::<u64, _>(x)?),
        DType::I8 => int(read::<i8, _>(x)?),
        DType::I16 => int(read::<i16, _>(x)?),
        DType::I32 => int(read::<i32, _>(x)?),
        DType::I64 => int(read::<i64, _>(x)?),
        DType::F16 => float(read::<f16, _>(x)?),
        DType::BF16 => float(read::<bf16, _>(x)?),
        DType::F32 => float(read::<f32, _>(x)?),
        DType::F64 => float(read::<f64, _>(x)?),
        other => panic!("unknown dtype {other}"),
    };
    Ok(Array {
        dtype: x.dtype(),
        shape: x.shape().to_vec(),
        data,
    })
}

fn read<T: Element + Into<N>, N>(x: &Tensor) -> Result<Vec<N>, String> {
    let numbers = x.to_vec::<T>().map_err(|e| e.to_string())?;
    Ok(numbers.into_iter().map(Into::into).collect())
}

/// Compares a tensor with the reference; see [`compare`].
pub fn agree(
    op: &str,
    terms: usize,
    got: &Tensor,
    expected: &Array,
    magnitude: Option<&Array>,
) -> Result<(), String> {
    compare(op, terms, &array(got)?, expected, magnitude).map_err(|e| format!("{op}: {e}"))
}

/// Checks that a tensor has exactly these values, up to the bits of NaN.
pub fn same(got: &Tensor, expected: &Array) -> Result<(), String> {
    agree("copy", 1, got, expected, None)
}

/// Number of elements that an axis of `n` elements spans.
fn span(n: usize, axis: Axis) -> usize {
    match n {
        0 => 0,
        n => (n - 1) * axis.step.unsigned_abs() + 1,
    }
}

/// A tensor with the values of `x`, placed in a larger tensor and viewed through slices.
pub fn lay_out(x: &Array, placed: &MemoryLayout) -> Tensor {
    let dtype = x.dtype;
    let lengths: Vec<_> = x
        .shape
        .iter()
        .zip(&placed.axes)
        .map(|(&n, axis)| if axis.repeated { n.min(1) } else { n })
        .collect();
    let memory: Vec<_> = placed
        .order
        .iter()
        .map(|&a| placed.axes[a].before + span(lengths[a], placed.axes[a]) + placed.axes[a].after)
        .collect();
    // Values that must not be read.
    let poison = if dtype.is_float() {
        Value::Float(f64::NAN)
    } else {
        Value::Int(crate::number::range(dtype).1)
    };
    let mut large = Array::new(dtype, &memory, vec![poison; count(&memory)]);
    for index in crate::array::indices(&lengths) {
        let at: Vec<_> = placed
            .order
            .iter()
            .map(|&a| {
                let axis = placed.axes[a];
                let step = axis.step.unsigned_abs();
                let i = if axis.step < 0 {
                    lengths[a] - 1 - index[a]
                } else {
                    index[a]
                };
                axis.before + i * step
            })
            .collect();
        let at = crate::array::position(&memory, &at);
        large.data[at] = x.at(&index);
    }
    let mut back = vec![0; placed.order.len()];
    for (i, &a) in placed.order.iter().enumerate() {
        back[a] = i as isize;
    }
    let mut t = tensor(&large).permute(&back);
    for (a, &axis) in placed.axes.iter().enumerate() {
        let number = a as isize;
        t = t.narrow(number, axis.before, span(lengths[a], axis));
        if axis.step != 1 {
            t = t.slice(number, None, None, axis.step);
        }
    }
    if lengths == x.shape {
        t
    } else {
        t.broadcast_to(&x.shape[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{self, Fill};

    #[test]
    fn tensors_have_the_given_values_in_every_layout() {
        let cases = case::input(&DType::ALL, &[Fill::Normal], case::shape(5, 500));
        case::check("layout", 400, cases, |case| {
            let got = array(&case.tensor())?;
            if got == case.array() {
                Ok(())
            } else {
                Err(format!("{got:?}"))
            }
        });
    }
}
