//! Random cases of ops that work along an axis.

use bessemer::{DType, Tensor};
use bessemer_testing::Array;
use bessemer_testing::array::count;
use bessemer_testing::case::{Fill, Input, LayoutKind, check, input, shape};
use bessemer_testing::layout::lay_out;
use bessemer_testing::number::{Value, range};
use bessemer_testing::random::Rng;
use proptest::prelude::{Just, Strategy};

/// Runs a test on tensors of every type and layout, each with one of its axes, counted from either end.
pub(crate) fn along_an_axis(
    name: &str,
    fills: &[Fill],
    max_count: usize,
    test: impl Fn(&Input, isize, &mut Rng) -> Result<(), String>,
) {
    for dtype in DType::ALL {
        let cases = input(&[dtype], fills, shape(4, max_count));
        check(&format!("{name} of {dtype}"), 40, cases, |case| {
            let rank = case.shape.len();
            if rank == 0 {
                return Ok(());
            }
            let mut rng = Rng::new(case.seed ^ 0xa715);
            let axis = rng.below(2 * rank) as isize - rank as isize;
            test(case, axis, &mut rng)
        });
    }
}

/// [`along_an_axis`] with all kinds of values, and on tensors that are split into several tasks.
pub(crate) fn in_all_sizes(
    name: &str,
    max_count: usize,
    test: impl Fn(&Input, isize, &mut Rng) -> Result<(), String>,
) {
    along_an_axis(name, &Fill::ALL, max_count, &test);
    let mut rng = Rng::new(9);
    for (dtype, shape, axis) in [
        (DType::F32, [3, 31_001], 0),
        (DType::I64, [3, 31_001], 1),
        (DType::I64, [31_001, 3], 0),
        (DType::F32, [31_001, 3], 1),
        (DType::F32, [310, 300], 0),
    ] {
        let case = another(&mut rng, dtype, &shape);
        test(&case, axis, &mut rng)
            .unwrap_or_else(|e| panic!("{name} along axis {axis} of {case:?}: {e}"));
    }
}

/// The index of an axis of the case.
pub(crate) fn axis_index(case: &Input, axis: isize) -> usize {
    axis.rem_euclid(case.shape.len() as isize) as usize
}

/// Another tensor, with any values in any layout.
pub(crate) fn another(rng: &mut Rng, dtype: DType, shape: &[usize]) -> Input {
    Input {
        layout: rng.pick(&LayoutKind::ALL),
        ..Input::new(dtype, shape, rng.pick(&Fill::ALL), rng.bits())
    }
}

/// A tensor with the type and kind of values of a case, in any layout, determined by `salt`.
pub(crate) fn another_of(case: &Input, salt: u64, shape: &[usize]) -> Input {
    let mut rng = Rng::new(case.seed.rotate_left(17) ^ salt);
    Input {
        shape: shape.to_vec(),
        // Simple cases stay simple when they are shrunk.
        layout: match case.layout {
            LayoutKind::Contiguous => LayoutKind::Contiguous,
            _ => rng.pick(&LayoutKind::ALL),
        },
        seed: rng.bits(),
        ..case.clone()
    }
}

/// Two tensors with shapes that broadcast, the first of this type and the other often too.
pub(crate) fn pair(
    dtype: DType,
    fills: &[Fill],
    shapes: impl Strategy<Value = [Vec<usize>; 2]>,
) -> impl Strategy<Value = [Input; 2]> {
    let first = input(&[dtype], fills, Just(vec![]));
    let types = [&[dtype; 13][..], &DType::ALL].concat();
    let second = input(&types, fills, Just(vec![]));
    (first, second, shapes)
        .prop_map(|(a, b, [left, right])| [Input { shape: left, ..a }, Input { shape: right, ..b }])
}

/// Usually the type itself, sometimes any other.
pub(crate) fn often(rng: &mut Rng, dtype: DType) -> DType {
    if rng.one_in(3) {
        rng.pick(&DType::ALL)
    } else {
        dtype
    }
}

/// Indices into an axis of `len` elements, from either end, of any type that can represent them and in any layout.
pub(crate) fn indices(rng: &mut Rng, shape: &[usize], len: usize) -> (Array, Tensor) {
    let len = len as i128;
    let fitting: Vec<_> = DType::ALL
        .into_iter()
        .filter(|d| d.is_int() && range(*d).1 >= len)
        .collect();
    let dtype = rng.pick(&fitting);
    let placed = another(rng, dtype, shape).placed();
    let single: Vec<_> = shape
        .iter()
        .zip(&placed.axes)
        .map(|(&n, axis)| if axis.repeated { 1 } else { n })
        .collect();
    let mut next = || {
        let i = rng.below(len.max(1) as usize) as i128;
        let backwards = !dtype.is_unsigned() && rng.one_in(2);
        Value::Int(if backwards { i - len } else { i })
    };
    let values: Vec<_> = (0..count(&single)).map(|_| next()).collect();
    let x = Array::new(dtype, &single, values).broadcast_to(shape);
    let t = lay_out(&x, &placed);
    (x, t)
}

/// A random number of elements of an axis; 0 for an empty one.
pub(crate) fn some_of(rng: &mut Rng, len: usize) -> usize {
    if len == 0 {
        0
    } else {
        rng.pick(&[1, 2, 3, 0, 5, 8, 17])
    }
}
