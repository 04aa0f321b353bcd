//! Random formulas over tensors in random layouts.

use bessemer::{DType, Tensor};

/// A pseudo-random number generator.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % sides
    }
}

/// Small integers of both signs, in any type.
pub(crate) fn data(n: usize, seed: u64, dtype: DType) -> Tensor {
    let mut dice = Dice(seed | 1);
    let numbers: Vec<f64> = (0..n).map(|_| dice.roll(41) as f64 / 4.0 - 5.0).collect();
    Tensor::from_vec(numbers, [n]).cast(dtype)
}

/// A tensor with a random layout.
pub(crate) fn laid(dice: &mut Dice, rows: usize, columns: usize, dtype: DType) -> Tensor {
    let seed = dice.roll(1000) as u64;
    let n = |a: usize, b: usize| data(a * b, seed, dtype);
    let t = match dice.roll(9) {
        0 => n(columns, rows).reshape([columns, rows]).t(),
        1 => n(1, columns),
        2 => n(rows, 1).reshape([rows, 1]),
        3 => n(rows, columns).reshape([rows, columns]).flip(&[1]),
        4 => n(rows, columns).reshape([rows, columns]).flip(&[0, 1]),
        5 => n(rows, 2 * columns)
            .reshape([rows, 2 * columns])
            .slice(1, Some(1), None, 2),
        6 => n(rows + 2, columns + 3)
            .reshape([rows + 2, columns + 3])
            .narrow(0, 1, rows)
            .narrow(1, 2, columns),
        7 => n(1, 1).reshape([1, 1]),
        _ => n(rows, columns).reshape([rows, columns]),
    };
    t.eval().unwrap();
    t
}

fn step(dice: &mut Dice, known: &[Tensor], dtype: DType) -> Tensor {
    let a = known[dice.roll(known.len())].clone();
    let b = &known[dice.roll(known.len())];
    let c = &known[dice.roll(known.len())];
    let any: [&dyn Fn() -> Tensor; 12] = [
        &|| &a + b,
        &|| &a - b,
        &|| &a * b,
        &|| a.minimum(b),
        &|| a.maximum(3),
        &|| a.lt(b).select(c, &a),
        &|| a.rem(b),
        &|| a.floor_div(3),
        &|| a.clamp(b, c),
        &|| a.mul_add(b, c),
        &|| a.square().cast(DType::F32).cast(dtype),
        &|| a.relu(),
    ];
    let float: [&dyn Fn() -> Tensor; 6] = [
        &|| a.tanh(),
        &|| a.sin(),
        &|| &a / b,
        &|| a.abs().sqrt(),
        &|| a.cast(DType::F16).cast(dtype),
        &|| a.lerp(b, c),
    ];
    let int: [&dyn Fn() -> Tensor; 3] = [&|| &a & b, &|| &a ^ b, &|| &a << 2];
    let more: &[&dyn Fn() -> Tensor] = if dtype.is_float() { &float } else { &int };
    match dice.roll(any.len() + more.len()) {
        i if i < any.len() => any[i](),
        i => more[i - any.len()](),
    }
}

/// The values as comparable bits: all NaN are equal.
pub(crate) fn bits(t: &Tensor) -> Vec<u64> {
    let wide = match t.dtype() {
        DType::U64 | DType::I64 => t.cast(DType::I64),
        _ => t.cast(DType::F64),
    };
    match wide.dtype() {
        DType::I64 => wide
            .to_vec::<i64>()
            .unwrap()
            .iter()
            .map(|&x| x as u64)
            .collect(),
        _ => wide
            .to_vec::<f64>()
            .unwrap()
            .iter()
            .map(|x| if x.is_nan() { 1 } else { x.to_bits() })
            .collect(),
    }
}

/// Compares a random formula over random layouts, fused and step by step.
pub(crate) fn joined_is_single(seed: u64, rows: usize, columns: usize, dtype: DType) {
    let run = |eager: bool| {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let whole = data(rows * columns, seed, dtype).reshape([rows, columns]);
        let mut known = vec![whole];
        for _ in 0..dice.roll(4) {
            known.push(laid(&mut dice, rows, columns, dtype));
        }
        for _ in 0..1 + dice.roll(25) {
            let next = step(&mut dice, &known, dtype);
            if eager {
                next.eval().unwrap();
            }
            known.push(next);
        }
        // Broadcast to the full shape, whatever the last step's arguments were.
        bits(&(&known[0] + known.last().unwrap()))
    };
    assert_eq!(
        run(false),
        run(true),
        "seed {seed}, {rows} x {columns} of {dtype}"
    );
}
