//! Random values, as the engine documents them: counter-based Threefry, and the distributions derived from its words.
//!
//! Every step is for one element, in integers or in `f64` that is rounded to the dtype after each operation. Products,
//! sums, quotients and square roots of `f32` values are exact enough in `f64` that double rounding has no effect, so
//! the bits are those of `f32` arithmetic.

use bessemer::DType;

use crate::Array;
use crate::array::count;
use crate::number::{Value, format, round, ulp};

/// The two words of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub u32, pub u32);

impl Key {
    /// The key of a seed: its upper and lower half.
    pub fn new(seed: u64) -> Self {
        Self((seed >> 32) as u32, seed as u32)
    }

    /// Key `i` of a split.
    pub fn split(self, i: u64) -> Self {
        self.of_block((1 << 63) + i)
    }

    /// Derives a key from a number.
    pub fn fold_in(self, number: u64) -> Self {
        self.of_block(u64::MAX).of_block(number)
    }

    fn of_block(self, counter: u64) -> Self {
        let block = self.block(counter);
        Self(block as u32, (block >> 32) as u32)
    }

    /// Threefry-2x32 with 20 rounds of a counter, low words first.
    pub fn block(self, counter: u64) -> u64 {
        let rotations = [13, 15, 26, 6, 17, 29, 16, 24];
        let schedule = [self.0, self.1, 0x1bd1_1bda ^ self.0 ^ self.1];
        let mut x = [counter as u32, (counter >> 32) as u32];
        let inject = |x: &mut [u32; 2], n: usize| {
            x[0] = x[0].wrapping_add(schedule[n % 3]);
            x[1] = x[1]
                .wrapping_add(schedule[(n + 1) % 3])
                .wrapping_add(n as u32);
        };
        inject(&mut x, 0);
        for round in 0..20 {
            x[0] = x[0].wrapping_add(x[1]);
            x[1] = x[1].rotate_left(rotations[round % 8]);
            x[1] ^= x[0];
            if round % 4 == 3 {
                inject(&mut x, round / 4 + 1);
            }
        }
        u64::from(x[0]) + (u64::from(x[1]) << 32)
    }

    /// Word `i` of the stream: two of each block.
    pub fn word(self, i: usize) -> u32 {
        (self.block(i as u64 / 2) >> (32 * (i % 2))) as u32
    }
}

fn each(dtype: DType, shape: &[usize], f: impl Fn(usize) -> Value) -> Array {
    Array::new(dtype, shape, (0..count(shape)).map(f))
}

/// The upper bits of words, or whole blocks.
pub fn bits(key: Key, shape: &[usize], dtype: DType) -> Array {
    let width = 8 * dtype.size();
    each(dtype, shape, |i| {
        Value::Int(match width {
            64 => key.block(i as u64).into(),
            width => (key.word(i) >> (32 - width)).into(),
        })
    })
}

/// `low + u (high - low)` with as many bits of `u` as the type has, and never `high`.
pub fn uniform(key: Key, shape: &[usize], low: f64, high: f64, dtype: DType) -> Array {
    let inner = crate::tolerance::computed_in(dtype);
    let rounded = |x: f64| round(inner, Value::Float(x));
    let bound = |x: f64| round(dtype, Value::Float(x));
    let (low, high) = (bound(low), bound(high));
    let range = rounded(high - low);
    let last = if low < high { below(dtype, high) } else { high };
    let digits = format(dtype).bits;
    each(dtype, shape, |i| {
        let bits = if dtype == DType::F64 {
            key.block(i as u64) >> (64 - digits)
        } else {
            u64::from(key.word(i) >> (32 - digits))
        };
        let u = bits as f64 / f64::from(digits).exp2();
        let x = rounded(rounded(u * range) + low);
        // Rounded to the type by the array.
        Value::Float(x.min(last))
    })
}

/// The largest number of the type below `x`.
fn below(dtype: DType, x: f64) -> f64 {
    let step = ulp(dtype, x);
    let min_normal = f64::from(format(dtype).min_exponent).exp2();
    // Below a power of two, floats are twice as dense.
    let power = x > min_normal && x.to_bits() << 12 == 0;
    if power { x - step / 2.0 } else { x - step }
}

/// Integers in `[low, high)`: the upper half of the product of a block and `high - low`.
pub fn randint(key: Key, shape: &[usize], low: i128, high: i128, dtype: DType) -> Array {
    each(dtype, shape, |i| {
        let range = (high - low) as u128;
        let block = u128::from(key.block(i as u64));
        // A block times 2^64 needs at most 128 bits.
        Value::Int(low + ((block * range) >> 64) as i128)
    })
}

/// True where a word is below `p` 2^32.
pub fn bernoulli(key: Key, p: f64, shape: &[usize]) -> Array {
    each(DType::Bool, shape, |i| {
        let bound = (p * 32_f64.exp2()).round();
        Value::from(f64::from(key.word(i)) < bound)
    })
}

/// The Box–Muller transform.
pub fn normal(key: Key, shape: &[usize], dtype: DType) -> Array {
    each(dtype, shape, |i| {
        let j = i as u64 / 2;
        let [x, y] = if dtype == DType::F64 {
            pair(DType::F64, key.block(2 * j), key.block(2 * j + 1))
        } else {
            let block = key.block(j);
            pair(DType::F32, block & 0xffff_ffff, block >> 32)
        };
        Value::Float(if i % 2 == 0 { x } else { y })
    })
}

/// Two normally distributed values from the bits of a radius and an angle, which have 32 bits for `f32` and 64 for
/// `f64`.
fn pair(dtype: DType, u: u64, v: u64) -> [f64; 2] {
    let double = dtype == DType::F64;
    let r = |x: f64| round(dtype, Value::Float(x));
    let whole = |i: i128| round(dtype, Value::Int(i));
    let width = if double { 64 } else { 32 };

    let (bits, digits) = if double { (u >> 11, 53) } else { (u, 32) };
    let unit = r(r(whole(bits.into()) + 0.5) / f64::from(digits).exp2());
    let radius = r(r(-2.0 * logarithm(dtype, unit)).max(0.0).sqrt());

    // The angle is reduced by the nearest multiple of a quarter revolution to between -1/8 and 1/8 of a revolution.
    let turn = 1_i128 << width;
    let quarter = (i128::from(v) + turn / 8) / (turn / 4);
    let rest = i128::from(v) - quarter * (turn / 4);
    let angle = r(whole(rest) * r(std::f64::consts::TAU / turn as f64));
    let square = r(angle * angle);
    // The terms after the first of each series, alternating: 3!, 5!, … and 2!, 4!, ….
    let terms = if double { 8 } else { 4 };
    let sine: Vec<_> = (1..=terms).map(|k| inverse_factorial(2 * k + 1)).collect();
    let cosine: Vec<_> = (1..=terms + 1).map(|k| inverse_factorial(2 * k)).collect();
    let sine = horner(dtype, square, &sine);
    let cosine = horner(dtype, square, &cosine);
    let sin = r(angle + r(r(angle * square) * sine));
    let cos = r(1.0 + r(square * cosine));
    let [x, y] = match quarter % 4 {
        0 => [cos, sin],
        1 => [-sin, cos],
        2 => [-cos, -sin],
        _ => [sin, -cos],
    };
    [r(radius * x), r(radius * y)]
}

/// Horner's scheme for the sum of `c[k] z^k`, rounded after each operation.
fn horner(dtype: DType, z: f64, c: &[f64]) -> f64 {
    let r = |x: f64| round(dtype, Value::Float(x));
    let start = c.last().map_or(0.0, |&c| r(c));
    let rest = c.iter().rev().skip(1);
    rest.fold(start, |sum, &c| r(r(sum * z) + r(c)))
}

/// `±1 / n!`, negative for `n` = 2, 3, 6, 7, ….
fn inverse_factorial(n: u32) -> f64 {
    let product: f64 = (1..=n).map(f64::from).product();
    if n / 2 % 2 == 1 {
        -1.0 / product
    } else {
        1.0 / product
    }
}

/// The logarithm of a number from 0 to 1: `e ln 2 + 2 artanh((m - 1) / (m + 1))` for `m 2^e` with `m`
/// around 1.
fn logarithm(dtype: DType, x: f64) -> f64 {
    let r = |x: f64| round(dtype, Value::Float(x));
    let least = r(0.5_f64.sqrt());
    let (mut m, mut e) = (x, 0.0);
    while m < least {
        m *= 2.0;
        e -= 1.0;
    }
    let s = r(r(m - 1.0) / r(m + 1.0));
    let square = r(s * s);
    let terms = if dtype == DType::F64 { 10 } else { 4 };
    let series: Vec<_> = (1..=terms).map(|k| 1.0 / f64::from(2 * k + 1)).collect();
    let series = horner(dtype, square, &series);
    let log = r(2.0 * s + r(r(2.0 * s * square) * series));
    // ln 2 with few enough bits for exact multiples, and the remainder, which `f64` rounds.
    let (bits, lost) = if dtype == DType::F64 {
        (28, 2.319_046_813_846_3e-17)
    } else {
        (10, 0.0)
    };
    let scale = f64::from(bits).exp2();
    let high = (std::f64::consts::LN_2 * scale).round() / scale;
    let low = r(std::f64::consts::LN_2 - high + lost);
    r(r(e * high) + r(log + r(e * low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_match_the_published_test_vectors() {
        // From the authors' Random123, kat_vectors, threefry2x32 with 20 rounds; the first word is the
        // lower half here.
        let published = [
            (Key(0, 0), 0, 0x99ba_4efe_6b20_0159),
            (Key(u32::MAX, u32::MAX), u64::MAX, 0xbb00_2be7_1cb9_96fc),
            (
                Key(0x1319_8a2e, 0x0370_7344),
                0x85a3_08d3_243f_6a88,
                0x483d_f7a0_c492_3a9c,
            ),
        ];
        for (key, counter, block) in published {
            assert_eq!(key.block(counter), block, "{key:?}");
        }
    }

    #[test]
    fn pairs_are_close_to_exact_values() {
        for i in 0..2000_u64 {
            let (u, v) = (Key(1, 2).block(i), Key(3, 4).block(i));
            let [x, y] = pair(DType::F64, u, v);
            let radius = (-2.0 * (((u >> 11) as f64 + 0.5) / 53_f64.exp2()).ln()).sqrt();
            let angle = v as f64 / 64_f64.exp2() * std::f64::consts::TAU;
            let bound = 8.0 * f64::EPSILON * radius;
            assert!((x - radius * angle.cos()).abs() < bound, "{u} {v}");
            assert!((y - radius * angle.sin()).abs() < bound, "{u} {v}");
        }
    }

    #[test]
    fn below_is_the_next_smaller_value() {
        for x in [1.0_f32, 1.5, -1.0, 0.0, -0.75, 3e-39, 4.0] {
            let next = f64::from(x.next_down());
            assert_eq!(below(DType::F32, x.into()), next);
        }
        assert_eq!(below(DType::F16, 1.0), 1.0 - 1.0 / 2048.0);
    }
}
