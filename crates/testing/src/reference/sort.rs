//! Sorting along an axis.

use bessemer::DType;

use super::reduce::order;
use crate::Array;
use crate::array::indices;
use crate::number::Value;

/// The indices that sort an axis: ascending, stable, NaN last.
pub fn argsort(x: &Array, axis: isize) -> Array {
    ranked(x, axis, false)
}

/// Ascending, NaN last.
pub fn sort(x: &Array, axis: isize) -> Array {
    let order = argsort(x, axis);
    let axis = x.axis(axis);
    Array::from_fn(x.dtype, &x.shape, |i| pick(x, axis, i, order.at(i)))
}

/// The `k` largest or smallest values and their indices, in order, with ties by index. NaN counts as the largest.
pub fn topk(x: &Array, k: usize, axis: isize, largest: bool) -> (Array, Array) {
    let order = ranked(x, axis, largest);
    let axis = x.axis(axis);
    let mut shape = x.shape.clone();
    shape[axis] = k;
    let ranks = Array::from_fn(DType::I64, &shape, |i| order.at(i));
    let values = Array::from_fn(x.dtype, &shape, |i| pick(x, axis, i, ranks.at(i)));
    (values, ranks)
}

fn pick(x: &Array, axis: usize, index: &[usize], position: Value) -> Value {
    let mut index = index.to_vec();
    index[axis] = position.int() as usize;
    x.at(&index)
}

fn ranked(x: &Array, axis: isize, descending: bool) -> Array {
    let axis = x.axis(axis);
    let mut out = x.map(DType::I64, |_| Value::Int(0));
    let mut outer = x.shape.clone();
    outer[axis] = 1;
    for index in indices(&outer) {
        if x.shape[axis] == 0 {
            continue;
        }
        let lane = x.lane(axis, &index);
        let mut ranks: Vec<_> = (0..lane.len()).collect();
        // The standard library's sort is stable.
        if descending {
            ranks.sort_by(|&a, &b| order(lane[b], lane[a]));
        } else {
            ranks.sort_by(|&a, &b| order(lane[a], lane[b]));
        }
        for (i, position) in ranks.into_iter().enumerate() {
            let mut at = index.clone();
            at[axis] = i;
            let at = crate::array::position(&x.shape, &at);
            out.data[at] = Value::Int(position as i128);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorting_is_stable_and_puts_nan_last() {
        let x = Array::floats(DType::F32, &[5], &[2.0, f64::NAN, -1.0, 2.0, 0.0]);
        assert_eq!(argsort(&x, 0).to_ints(), [2, 4, 0, 3, 1]);
        assert_eq!(sort(&x, 0).to_floats()[..4], [-1.0, 0.0, 2.0, 2.0]);
        let x = Array::ints(DType::U8, &[2, 2], &[3, 1, 2, 9]);
        assert_eq!(sort(&x, 0).to_ints(), [2, 1, 3, 9]);
        assert_eq!(sort(&x, 1).to_ints(), [1, 3, 2, 9]);
    }

    #[test]
    fn ties_are_ordered_by_index_in_both_directions() {
        let x = Array::ints(DType::I32, &[5], &[4, 7, 7, 1, 1]);
        let (values, ranks) = topk(&x, 3, 0, true);
        assert_eq!(
            (values.to_ints(), ranks.to_ints()),
            (vec![7, 7, 4], vec![1, 2, 0])
        );
        let (values, ranks) = topk(&x, 3, 0, false);
        assert_eq!(
            (values.to_ints(), ranks.to_ints()),
            (vec![1, 1, 4], vec![3, 4, 0])
        );
    }
}
