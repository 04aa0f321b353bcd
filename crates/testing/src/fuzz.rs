//! Random calls of ops with arguments that are often invalid.
//!
//! A call must end in a tensor or in a typed error; a panic is a bug. The elementwise functions come from the engine's
//! tables; the other ops are listed in `fuzz/calls.rs`.

use bessemer::{DType, Tensor};

use crate::case::{Fill, Input, LayoutKind, SIZES};
use crate::random::Rng;

/// Draws arguments and logs them.
#[derive(Debug)]
pub struct Args<'a> {
    rng: &'a mut Rng,
    tensors: &'a [Tensor],
    log: String,
}

impl<'a> Args<'a> {
    /// Arguments from a generator and existing tensors.
    pub fn new(rng: &'a mut Rng, tensors: &'a [Tensor]) -> Self {
        Self {
            rng,
            tensors,
            log: String::new(),
        }
    }

    /// The log of the drawn arguments.
    pub fn into_log(self) -> String {
        self.log
    }

    fn note<T: std::fmt::Debug>(&mut self, value: T) -> T {
        self.log += &format!(" {value:?}");
        value
    }

    /// One of the existing tensors.
    pub fn tensor(&mut self) -> Tensor {
        let t = self.tensors[self.rng.below(self.tensors.len())].clone();
        self.note(t)
    }

    /// A tensor, in two of three cases one with the same shape as another.
    pub fn same_shape(&mut self, other: &Tensor) -> Tensor {
        let alike: Vec<_> = self
            .tensors
            .iter()
            .filter(|t| t.shape() == other.shape())
            .cloned()
            .collect();
        if alike.is_empty() || self.rng.one_in(3) {
            return self.tensor();
        }
        let t = alike[self.rng.below(alike.len())].clone();
        self.note(t)
    }

    /// A tensor of this shape, with any dtype, layout and values.
    pub fn new_tensor(&mut self, shape: &[usize]) -> Tensor {
        let input = Input {
            dtype: self.rng.pick(&DType::ALL),
            shape: shape.to_vec(),
            fill: self.rng.pick(&Fill::ALL),
            layout: self.rng.pick(&LayoutKind::ALL),
            seed: self.rng.bits(),
        };
        self.log += &format!(" {input:?}");
        input.tensor()
    }

    /// Indices into an axis of `len` elements: mostly of this shape, mostly integers, mostly in range.
    pub fn indices(&mut self, shape: &[usize], len: usize) -> Tensor {
        if self.rng.one_in(10) {
            return self.tensor();
        }
        let mut shape = shape.to_vec();
        if self.rng.one_in(10) {
            shape.push(2);
        }
        let count = shape.iter().product();
        let wrong = self.rng.one_in(6);
        let next = |rng: &mut Rng| {
            let any = [i64::MIN, i64::MAX, len as i64, -1 - len as i64];
            match len {
                _ if wrong && rng.one_in(3) => rng.pick(&any),
                0 => 0,
                len if rng.one_in(2) => rng.below(len) as i64 - len as i64,
                len => rng.below(len) as i64,
            }
        };
        let data: Vec<_> = (0..count).map(|_| next(self.rng)).collect();
        self.note((&shape, &data));
        let indices = Tensor::from_vec(data, &shape[..]);
        let dtype = self
            .rng
            .pick(&[DType::I64, DType::I64, DType::I32, DType::U8, DType::I8]);
        indices.cast(self.note(dtype))
    }

    /// A tensor with a rank in this range, or any if there is none.
    pub fn of_rank(&mut self, min: usize, max: usize) -> Tensor {
        let fits = |t: &&Tensor| (min..=max).contains(&t.rank());
        let candidates: Vec<_> = self.tensors.iter().filter(fits).cloned().collect();
        if candidates.is_empty() || self.rng.one_in(12) {
            return self.tensor();
        }
        let t = candidates[self.rng.below(candidates.len())].clone();
        self.note(t)
    }

    /// A small number, sometimes an absurd one.
    pub fn small_usize(&mut self) -> usize {
        let n = match self.rng.below(40) {
            0 => self
                .rng
                .pick(&[usize::MAX, usize::MAX / 2, 1 << 62, 1 << 40]),
            1..4 => 0,
            n => 1 + n % 3,
        };
        self.note(n)
    }

    /// The number, or occasionally another.
    pub fn near(&mut self, n: usize) -> usize {
        let n = if self.rng.one_in(10) {
            self.small_usize()
        } else {
            n
        };
        self.note(n)
    }

    /// Up to three tensors.
    pub fn up_to_3_tensors(&mut self) -> Vec<Tensor> {
        let first = self.tensor();
        let more = self.rng.below(3);
        let mut all = vec![first.clone()];
        all.extend((0..more).map(|_| self.same_shape(&first)));
        if self.rng.one_in(20) {
            all.clear();
        }
        all
    }

    /// A tensor or none.
    pub fn optional_tensor(&mut self) -> Option<Tensor> {
        self.rng.one_in(2).then(|| self.tensor())
    }

    /// An axis, mostly one that exists somewhere.
    pub fn axis(&mut self) -> isize {
        let axis = if self.rng.one_in(20) {
            self.rng.pick(&[isize::MIN, isize::MAX, 8, -9, 100])
        } else {
            self.rng.below(7) as isize - 3
        };
        self.note(axis)
    }

    /// Up to three axes.
    pub fn axes(&mut self) -> Vec<isize> {
        (0..self.rng.below(4)).map(|_| self.axis()).collect()
    }

    /// An integer, sometimes an extreme one.
    pub fn int(&mut self) -> isize {
        let i = match self.rng.below(12) {
            0 => self
                .rng
                .pick(&[isize::MIN, isize::MAX, isize::MIN + 1, -(1 << 40)]),
            1 | 2 => self.rng.below(300) as isize - 150,
            _ => self.rng.below(12) as isize - 5,
        };
        self.note(i)
    }

    /// A size, sometimes an absurd one.
    pub fn size(&mut self) -> usize {
        let n = match self.rng.below(16) {
            0 => self
                .rng
                .pick(&[usize::MAX, usize::MAX / 2, 1 << 40, 1 << 62, 1 << 20]),
            1 | 2 => self.rng.pick(&SIZES),
            _ => self.rng.below(6),
        };
        self.note(n)
    }

    /// Up to nine sizes.
    pub fn sizes(&mut self) -> Vec<usize> {
        let rank = if self.rng.one_in(20) {
            9
        } else {
            self.rng.below(5)
        };
        (0..rank).map(|_| self.size()).collect()
    }

    /// The shape of an existing tensor, or any.
    pub fn shape(&mut self) -> Vec<usize> {
        if self.rng.one_in(2) {
            let at = self.rng.below(self.tensors.len());
            let shape = self.tensors[at].shape().to_vec();
            return self.note(shape);
        }
        self.sizes()
    }

    /// A float, sometimes an extreme or special one.
    pub fn float(&mut self) -> f64 {
        let f = match self.rng.below(8) {
            0 => self.rng.pick(&[
                f64::NAN,
                f64::INFINITY,
                -f64::INFINITY,
                0.0,
                -0.0,
                1e300,
                5e-324,
            ]),
            1 => self.rng.normal() * 1000.0,
            _ => self.rng.normal(),
        };
        self.note(f)
    }

    /// A dtype.
    pub fn dtype(&mut self) -> DType {
        let d = self.rng.pick(&DType::ALL);
        self.note(d)
    }

    /// A boolean.
    pub fn boolean(&mut self) -> bool {
        let b = self.rng.one_in(2);
        self.note(b)
    }

    /// An optional integer.
    pub fn optional_int(&mut self) -> Option<isize> {
        self.rng.one_in(2).then(|| self.int())
    }

    /// A formula for `einsum`, valid or not.
    pub fn formula(&mut self) -> String {
        const PARTS: &[&str] = &[
            "i", "j", "k", "ij", "jk", ",", "->", "...", " ", "ii", "Z", "-", "é",
        ];
        let formula = (0..self.rng.below(8))
            .map(|_| self.rng.pick(PARTS))
            .collect();
        self.note(formula)
    }
}

/// A call of an op with random arguments; returns all resulting tensors, with or without errors.
pub type Call = fn(&mut Args<'_>) -> Vec<Tensor>;

/// Initial tensors: every dtype, many shapes, layouts and kinds of values.
pub fn tensors(rng: &mut Rng) -> Vec<Tensor> {
    let shapes: [&[usize]; 14] = [
        &[],
        &[0],
        &[1],
        &[3],
        &[2, 3],
        &[3, 2],
        &[3, 3],
        &[17],
        &[2, 0, 3],
        &[4, 1, 5],
        &[1, 2, 3, 4],
        &[2, 2, 2, 2],
        &[33, 9],
        &[1, 1, 1, 1, 1, 1, 1, 1],
    ];
    let mut all = Vec::new();
    for shape in shapes {
        for dtype in DType::ALL {
            let input = Input {
                dtype,
                shape: shape.to_vec(),
                fill: rng.pick(&Fill::ALL),
                layout: rng.pick(&LayoutKind::ALL),
                seed: rng.bits(),
            };
            all.push(input.tensor());
        }
    }
    all
}

mod calls;
mod constrained;
pub use calls::calls;
