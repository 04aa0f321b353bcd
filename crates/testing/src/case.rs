//! Random cases: shapes, values and layouts. `proptest` draws the properties of a case, so that a failing case shrinks
//! to a small one; the values themselves come from the case's seed.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use bessemer::{DType, Kind};
use proptest::num::usize::BinarySearch;
use proptest::prelude::{Rng as _, Strategy, any};
use proptest::sample::select;
use proptest::strategy::NewTree;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::Array;
use crate::array::count;
use crate::number::{Value, format, range, ulp};
use crate::random::Rng;
use crate::tolerance::on_metal;

/// Lengths of axes: the empty one, primes, and those around the widths of vectors and tiles. Shrinking prefers earlier
/// ones.
pub const SIZES: [usize; 22] = [
    1, 2, 3, 0, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129,
];

/// A shape of at most `max_rank` axes and `max_count` elements; slightly fewer are common.
pub fn shape(max_rank: usize, max_count: usize) -> impl Strategy<Value = Vec<usize>> + Clone {
    proptest::collection::vec(select(&SIZES[..]), 0..=max_rank)
        .prop_map(move |dims| limited(&dims, max_count))
}

/// The shape with axes shortened to 1 or 2 where it would have more than `max_count` elements.
pub fn limited(dims: &[usize], max_count: usize) -> Vec<usize> {
    let mut total = 1;
    dims.iter()
        .map(|&n| {
            let fits = [n, 2, 1].into_iter().find(|n| total * n <= max_count);
            let n = fits.unwrap_or(1);
            total *= n.max(1);
            n
        })
        .collect()
}

/// The values of an array. Shrinking prefers earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Integers from -4 to 4, which all types can represent (unsigned ones from 0).
    Small,
    /// Around 0 with variance 1; integers up to 100.
    Normal,
    /// From 0 to 1, without 0; integers from 1 to 20.
    Positive,
    /// All orders of magnitude of the type, up to 2^300; integers of the full range.
    Wide,
    /// A third of the values are NaN, infinities, zeros of both signs, the largest, the smallest, subnormals, extremes.
    Special,
}

impl Fill {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Small,
        Self::Normal,
        Self::Positive,
        Self::Wide,
        Self::Special,
    ];

    /// Those whose sums neither overflow nor underflow.
    pub const IN_RANGE: [Self; 3] = [Self::Small, Self::Normal, Self::Positive];

    /// A random value of `dtype`.
    pub fn value(self, dtype: DType, rng: &mut Rng) -> Value {
        match dtype.kind() {
            Kind::Bool => Value::Int(rng.below(2) as i128),
            Kind::Int => Value::Int(self.int(dtype, rng)),
            Kind::Float => Value::Float(self.float(dtype, rng)).cast(dtype),
        }
    }

    fn int(self, dtype: DType, rng: &mut Rng) -> i128 {
        let (low, high) = range(dtype);
        match self {
            Self::Small => (rng.below(9) as i128 - 4).max(low),
            Self::Normal => (rng.below(201) as i128 - 100).max(low),
            Self::Positive => 1 + rng.below(20) as i128,
            Self::Special if rng.one_in(3) => rng.pick(&[
                low,
                high,
                low + 1,
                high - 1,
                0,
                1,
                if low < 0 { -1 } else { 2 },
                8 * dtype.size() as i128,
            ]),
            Self::Wide | Self::Special => {
                // Small magnitudes as often as large ones.
                let cut = rng.below(8 * dtype.size());
                crate::number::wrap(dtype, rng.bits().into()) >> cut
            }
        }
    }

    fn float(self, dtype: DType, rng: &mut Rng) -> f64 {
        let f = format(dtype);
        match self {
            Self::Small => rng.below(9) as f64 - 4.0,
            Self::Normal => rng.normal(),
            Self::Positive => 1.0 - rng.unit(),
            Self::Special if rng.one_in(3) => {
                let least = ulp(dtype, 0.0);
                let normal = f64::from(f.min_exponent).exp2();
                let x = rng.pick(&[
                    f64::NAN,
                    f64::INFINITY,
                    0.0,
                    1.0,
                    f.max,
                    least,
                    normal,
                    normal - least,
                    3.0 * least,
                    0.5,
                    1.5,
                    2.5,
                ]);
                if rng.one_in(2) { -x } else { x }
            }
            Self::Wide | Self::Special => {
                let top = f.max.log2().min(300.0);
                let size = rng.uniform(-top, top).exp2();
                if rng.one_in(2) { -size } else { size }
            }
        }
    }
}

/// The kind of memory layout of an array. Shrinking prefers earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutKind {
    /// Row-major without gaps.
    Contiguous,
    /// A slice of a larger array.
    Offset,
    /// The axes in reverse order.
    Transposed,
    /// The axes in any order.
    Permuted,
    /// Every second or third element of a larger array.
    Stepped,
    /// Negative strides along some axes.
    Reversed,
    /// Broadcast along some axes.
    Repeated,
    /// A combination of the others.
    Mixed,
}

impl LayoutKind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Contiguous,
        Self::Offset,
        Self::Transposed,
        Self::Permuted,
        Self::Stepped,
        Self::Reversed,
        Self::Repeated,
        Self::Mixed,
    ];
}

/// The layout of one axis in the memory of a larger array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Number of elements before the first.
    pub before: usize,
    /// Number of elements after the last.
    pub after: usize,
    /// Stride in elements of the larger axis; negative if reversed.
    pub step: isize,
    /// Whether the axis is broadcast from one element.
    pub repeated: bool,
}

/// The layout of an array in the memory of a larger one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLayout {
    /// Axis `order[i]` of the array is axis `i` in memory.
    pub order: Vec<usize>,
    /// The axes of the array.
    pub axes: Vec<Axis>,
}

/// An array of a case.
#[derive(Clone, Debug)]
pub struct Input {
    /// The element type.
    pub dtype: DType,
    /// Lengths of the axes.
    pub shape: Vec<usize>,
    /// The kind of values.
    pub fill: Fill,
    /// The kind of memory layout.
    pub layout: LayoutKind,
    /// Seed of the values and of the layout.
    pub seed: u64,
}

impl Input {
    /// A row-major array.
    pub fn new(dtype: DType, shape: &[usize], fill: Fill, seed: u64) -> Self {
        Self {
            dtype,
            shape: shape.to_vec(),
            fill,
            layout: LayoutKind::Contiguous,
            seed,
        }
    }

    /// Its memory layout.
    pub fn placed(&self) -> MemoryLayout {
        let mut rng = Rng::new(self.seed ^ 0x5eed);
        let rank = self.shape.len();
        let is = |kinds: &[LayoutKind]| kinds.contains(&self.layout);
        let order = if is(&[LayoutKind::Transposed]) {
            (0..rank).rev().collect()
        } else if is(&[LayoutKind::Permuted, LayoutKind::Mixed]) {
            rng.order(rank)
        } else {
            (0..rank).collect()
        };
        let padded = is(&[LayoutKind::Offset, LayoutKind::Mixed]);
        let stepped = is(&[LayoutKind::Stepped, LayoutKind::Mixed]);
        let reversed = is(&[LayoutKind::Reversed, LayoutKind::Mixed]);
        let repeated = is(&[LayoutKind::Repeated, LayoutKind::Mixed]);
        let chance = if self.layout == LayoutKind::Mixed {
            3
        } else {
            2
        };
        let axes = (0..rank)
            .map(|_| {
                let step = if stepped && rng.one_in(chance) {
                    2 + rng.below(2) as isize
                } else {
                    1
                };
                let sign = if reversed && rng.one_in(chance) {
                    -1
                } else {
                    1
                };
                Axis {
                    before: if padded { rng.below(3) } else { 0 },
                    after: if padded { rng.below(3) } else { 0 },
                    step: sign * step,
                    repeated: repeated && rng.one_in(chance),
                }
            })
            .collect();
        MemoryLayout { order, axes }
    }

    /// Its values.
    pub fn array(&self) -> Array {
        let mut rng = Rng::new(self.seed);
        let single: Vec<_> = self
            .shape
            .iter()
            .zip(self.placed().axes)
            .map(|(&n, axis)| if axis.repeated { 1 } else { n })
            .collect();
        let values = (0..count(&single)).map(|_| self.fill.value(self.dtype, &mut rng));
        Array::new(self.dtype, &single, values.collect::<Vec<_>>()).broadcast_to(&self.shape)
    }
}

/// Draws each item once, in a random order, before any is repeated: a few cases cover all of them. Shrinking prefers
/// earlier items.
pub fn covering<T: Clone + std::fmt::Debug>(all: &[T]) -> impl Strategy<Value = T> + use<T> {
    let all = all.to_vec();
    let turns = Covering {
        count: all.len(),
        left: RefCell::default(),
    };
    turns.prop_map(move |i| all[i].clone())
}

/// Indices of a list: see [`covering`].
#[derive(Debug)]
struct Covering {
    count: usize,
    /// Indices that have not been drawn yet; `None` before the first.
    left: RefCell<Option<Vec<usize>>>,
}

impl Strategy for Covering {
    type Tree = BinarySearch;
    type Value = usize;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        let mut rng = Rng::new(runner.rng().next_u64());
        let mut left = self.left.borrow_mut();
        let left = left.get_or_insert_with(|| rng.order(self.count));
        let index = left.pop().unwrap_or_else(|| rng.below(self.count));
        Ok(BinarySearch::new(index))
    }
}

/// An array of one of these dtypes and fills, with a shape from `shapes`. As many cases as there are layouts cover all
/// fills and layouts.
pub fn input<S: Strategy<Value = Vec<usize>>>(
    dtypes: &[DType],
    fills: &[Fill],
    shapes: S,
) -> impl Strategy<Value = Input> + use<S> {
    let parts = (
        select(dtypes.to_vec()),
        shapes,
        covering(fills),
        covering(&LayoutKind::ALL),
        any::<u64>(),
    );
    parts.prop_map(|(dtype, shape, fill, layout, seed)| Input {
        dtype,
        shape,
        fill,
        layout,
        // Shrinking the seed would make nothing simpler.
        seed: Rng::new(seed).bits(),
    })
}

/// `N` shapes that broadcast to one of at most `max_count` elements.
pub fn broadcasting<const N: usize>(
    max_rank: usize,
    max_count: usize,
) -> impl Strategy<Value = [Vec<usize>; N]> {
    // For each operand: the number of missing leading axes, and the set of axes with length 1.
    let cuts = proptest::collection::vec((0..4_usize, select(vec![0_u8, 1, 2, 4, 5, 255])), N);
    (shape(max_rank, max_count), cuts).prop_map(|(full, cuts)| {
        std::array::from_fn(|i| {
            let (lacks, ones) = cuts[i];
            // Sometimes the first operand has the full shape, like most operands of real programs.
            let lacks = if lacks == 3 { full.len() / 2 } else { 0 };
            let own = full.iter().enumerate().skip(lacks);
            own.map(|(a, &n)| if ones >> a & 1 == 1 { 1 } else { n })
                .collect()
        })
    })
}

/// Number of random cases to run if each one is compiled as a separate kernel, such as fused ops: on Metal devices,
/// where a compilation takes 0.3 s, a few, and at most a third of `BESSEMER_TEST_CASES`; on the CPU all of them.
pub fn compiled(cases: u32) -> u32 {
    if on_metal() {
        cases.div_ceil(25).min(max_cases().div_ceil(3))
    } else {
        cases
    }
}

/// Maximum number of random cases of a test: `BESSEMER_TEST_CASES`, for slow devices; a few on the software device in
/// `check` mode, which checks each access.
fn max_cases() -> u32 {
    let most = std::env::var("BESSEMER_TEST_CASES").ok();
    let most = most.map(|n| n.parse().expect("BESSEMER_TEST_CASES is a whole number"));
    most.unwrap_or(if soft_mode("check") { 3 } else { u32::MAX })
}

/// Whether functions such as `log` have a different random error in every launch, as on the software device in `fuzz`
/// mode: two runs may give different bits.
pub fn functions_vary() -> bool {
    soft_mode("fuzz")
}

/// Returns `true` if tests run on the software device in this mode.
fn soft_mode(name: &str) -> bool {
    on_metal() && std::env::var("BESSEMER_SOFT_MODE").is_ok_and(|mode| mode == name)
}

/// Runs a test on `cases` random cases, the same ones each time.
///
/// # Panics
///
/// If a case fails, with the smallest failing case and the reason.
pub fn check<S: Strategy>(
    name: &str,
    cases: u32,
    strategy: S,
    test: impl Fn(&S::Value) -> Result<(), String>,
) {
    let mut seed = [0_u8; 32];
    for (i, byte) in name.bytes().enumerate() {
        seed[i % 32] = seed[i % 32].wrapping_mul(31) ^ byte;
    }
    let config = Config {
        cases: cases.min(max_cases()),
        failure_persistence: None,
        max_shrink_iters: if on_metal() { 80 } else { 2000 },
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let result = runner.run(&strategy, |case| {
        // Reported once, at the end, and not for each case while shrinking.
        quietly(|| test(&case)).map_err(TestCaseError::fail)
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, case)) => panic!("{name}: {reason}\nsmallest case: {case:#?}"),
        Err(TestError::Abort(reason)) => panic!("{name}: {reason}"),
    }
}

thread_local! {
    static QUIET: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Runs a function and converts a panic to an error, without printing the panic message.
pub fn quietly<T>(f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                loud(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(f));
    QUIET.set(before);
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without a message")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_shrink_to_a_small_case() {
        let strategy = input(&DType::ALL, &Fill::ALL, shape(4, 5000));
        let failing = panic::catch_unwind(|| {
            check("shrinking", 200, strategy, |case| {
                if case.array().count() > 6 && case.dtype.is_float() {
                    return Err("too large".to_owned());
                }
                Ok(())
            });
        });
        let message = *failing
            .expect_err("some case is large")
            .downcast::<String>()
            .expect("a message");
        assert!(message.contains("too large"), "{message}");
        assert!(message.contains("dtype: F16"), "{message}");
        assert!(
            message.contains("fill: Small") && message.contains("Contiguous"),
            "{message}"
        );
        assert!(message.contains("shape: [\n        7,\n    ]"), "{message}");
    }

    #[test]
    fn a_few_cases_cover_every_layout_and_fill() {
        let seen = RefCell::new((Vec::new(), Vec::new()));
        let strategy = input(&[DType::F32], &Fill::ALL, shape(3, 100));
        check("turns", LayoutKind::ALL.len() as u32, strategy, |case| {
            let (layouts, fills) = &mut *seen.borrow_mut();
            layouts.push(case.layout);
            fills.push(case.fill);
            Ok(())
        });
        let (layouts, fills) = seen.into_inner();
        assert!(LayoutKind::ALL.iter().all(|p| layouts.contains(p)));
        assert!(Fill::ALL.iter().all(|f| fills.contains(f)));
    }

    #[test]
    fn shapes_stay_within_their_bound_and_are_sometimes_empty() {
        let empty = std::cell::Cell::new(0);
        check("shapes", 500, shape(5, 1000), |s| {
            assert!(count(s) <= 1000, "{s:?}");
            empty.set(empty.get() + usize::from(count(s) == 0));
            Ok(())
        });
        assert!(empty.get() > 20, "{}", empty.get());
    }

    #[test]
    fn drawn_shapes_broadcast() {
        let differ = std::cell::Cell::new(0);
        check("broadcasting", 500, broadcasting::<2>(4, 1000), |[a, b]| {
            crate::array::broadcast(a, b);
            differ.set(differ.get() + usize::from(a != b));
            Ok(())
        });
        assert!(differ.get() > 200, "{}", differ.get());
    }

    #[test]
    fn the_special_fill_has_special_values() {
        for dtype in DType::ALL {
            let x = Input::new(dtype, &[2000], Fill::Special, 1).array();
            if dtype.is_float() {
                let f = x.to_floats();
                assert!(f.iter().any(|x| x.is_nan()) && f.contains(&f64::NEG_INFINITY));
                assert!(f.contains(&ulp(dtype, 0.0)) && f.contains(&format(dtype).max));
            } else {
                let (low, high) = range(dtype);
                assert!(
                    x.to_ints().contains(&low) && x.to_ints().contains(&high),
                    "{dtype}"
                );
            }
        }
    }
}
