//! Errors in units in the last place, and special values, at every level.

use super::Math;
use crate::cpu::simd::{self, Isa, Level};

/// What bounds the error of each function, in f32 and f64.
const ULP: [(&str, f64, f64); 34] = [
    ("exp", 1.0, 1.0),
    ("exp2", 1.0, 1.0),
    ("expm1", 1.5, 1.5),
    ("log", 1.0, 1.0),
    ("log2", 1.0, 1.0),
    ("log10", 1.0, 1.0),
    ("log1p", 1.5, 1.5),
    ("sin", 1.5, 1.0),
    ("cos", 1.5, 1.0),
    ("tan", 0.6, 2.5),
    ("asin", 2.0, 2.0),
    ("acos", 2.0, 2.0),
    ("atan", 2.0, 2.0),
    ("sinh", 2.0, 2.0),
    ("cosh", 2.0, 2.0),
    ("tanh", 1.5, 1.5),
    ("asinh", 0.6, 3.0),
    ("acosh", 0.6, 3.0),
    ("atanh", 0.6, 3.0),
    ("erf", 1.5, 1.5),
    ("cbrt", 0.6, 1.0),
    ("rsqrt", 1.5, 1.5),
    ("sigmoid", 2.0, 2.0),
    ("log_sigmoid", 3.0, 3.0),
    ("softplus", 3.0, 3.0),
    ("silu", 2.5, 2.5),
    ("gelu", 4.0, 4.0),
    ("gelu_tanh", 4.0, 4.0),
    ("mish", 4.0, 4.0),
    ("elu", 2.0, 2.0),
    ("pow", 0.6, 1.0),
    ("atan2", 0.6, 2.5),
    ("hypot", 0.6, 1.5),
    ("sin of large numbers", 1.5, 1.5),
];

/// Applies a function by its name; functions of two arguments take the second from `other`.
struct Apply<'a, T> {
    name: &'a str,
    source: &'a [T],
    other: &'a [T],
}

impl<T: Math + Default> simd::Task for Apply<'_, T> {
    type Output = Vec<T>;
    #[inline(always)]
    fn run<I: Isa>(self) -> Vec<T> {
        let mut out = vec![T::default(); self.source.len()];
        apply::<I, T>(self.name, self.source, self.other, &mut out);
        out
    }
}

#[inline(always)]
fn apply<I: Isa, T: Math>(name: &str, a: &[T], b: &[T], out: &mut [T]) {
    match name {
        "exp" => map(a, out, T::exp_on::<I>),
        "exp2" => map(a, out, T::exp2_on::<I>),
        "expm1" => map(a, out, T::expm1_on::<I>),
        "log" => map(a, out, T::log_on::<I>),
        "log2" => map(a, out, T::log2_on::<I>),
        "log10" => map(a, out, T::log10_on::<I>),
        "log1p" => map(a, out, T::log1p_on::<I>),
        "sin" | "sin of large numbers" => super::trig::sin::<I, T>(a, out),
        "cos" => super::trig::cos::<I, T>(a, out),
        "tan" => super::trig::tan::<I, T>(a, out),
        "asin" => map(a, out, T::asin_on::<I>),
        "acos" => map(a, out, T::acos_on::<I>),
        "atan" => map(a, out, T::atan_on::<I>),
        "sinh" => map(a, out, T::sinh_on::<I>),
        "cosh" => map(a, out, T::cosh_on::<I>),
        "tanh" => map(a, out, T::tanh_on::<I>),
        "asinh" => map(a, out, T::asinh_on::<I>),
        "acosh" => map(a, out, T::acosh_on::<I>),
        "atanh" => map(a, out, T::atanh_on::<I>),
        "erf" => map(a, out, T::erf_on::<I>),
        "cbrt" => map(a, out, T::cbrt_on::<I>),
        "rsqrt" => map(a, out, T::rsqrt_on::<I>),
        "sigmoid" => map(a, out, T::sigmoid_on::<I>),
        "log_sigmoid" => map(a, out, T::log_sigmoid_on::<I>),
        "softplus" => map(a, out, T::softplus_on::<I>),
        "silu" => map(a, out, T::silu_on::<I>),
        "gelu" => map(a, out, T::gelu_on::<I>),
        "gelu_tanh" => map(a, out, T::gelu_tanh_on::<I>),
        "mish" => map(a, out, T::mish_on::<I>),
        "elu" => map2(a, b, out, T::elu_on::<I>),
        "pow" => map2(a, b, out, T::pow_on::<I>),
        "atan2" => map2(a, b, out, T::atan2_on::<I>),
        "hypot" => map2(a, b, out, T::hypot_on::<I>),
        name => panic!("no function {name}"),
    }
}

#[inline(always)]
fn map<T: Copy>(source: &[T], target: &mut [T], function: impl Fn(T) -> T) {
    for (x, y) in source.iter().zip(target) {
        *y = function(*x);
    }
}

#[inline(always)]
fn map2<T: Copy>(a: &[T], b: &[T], target: &mut [T], function: impl Fn(T, T) -> T) {
    for ((x, y), z) in a.iter().zip(b).zip(target) {
        *z = function(*x, *y);
    }
}

#[test]
fn dump() {
    use std::io::Write;
    let mut s = 0x9e3779b97f4a7c15u64;
    let mut rng = || {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        s
    };
    let mut xs = vec![];
    for i in 0..12000 {
        let r = rng();
        let u = (rng() >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0;
        xs.push(match i % 6 {
            0 => f64::from_bits(r),
            1 => u,
            2 => u * 40.0,
            3 => u * 750.0,
            4 => u.abs() * 4.0,
            _ => u * (2f64).powi(((r >> 40) % 80) as i32 - 60),
        });
    }
    let ys: Vec<f64> = (0..xs.len())
        .map(|_| {
            let u = (rng() >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0;
            match rng() % 4 {
                0 => f64::from_bits(rng()),
                1 => (u * 10.0).round(),
                2 => u * 200.0,
                _ => u,
            }
        })
        .collect();
    for (t, level) in [("s", Level::Scalar), ("v", Level::Avx2)] {
        let mut w = std::fs::File::create(format!("/tmp/m/dump64_{t}.bin")).unwrap();
        let mut w2 = std::fs::File::create(format!("/tmp/m/dump32_{t}.bin")).unwrap();
        for (name, _, _) in ULP {
            let out = simd::run_at(
                level,
                Apply {
                    name,
                    source: &xs,
                    other: &ys,
                },
            );
            for v in xs.iter().chain(&ys).chain(&out) {
                w.write_all(&v.to_le_bytes()).unwrap();
            }
            let a: Vec<f32> = xs.iter().map(|x| *x as f32).collect();
            let b: Vec<f32> = ys.iter().map(|x| *x as f32).collect();
            let out = simd::run_at(
                level,
                Apply {
                    name,
                    source: &a,
                    other: &b,
                },
            );
            for v in a.iter().chain(&b).chain(&out) {
                w2.write_all(&v.to_le_bytes()).unwrap();
            }
        }
    }
}

#[test]
#[ignore]
fn speed() {
    let n = 2048;
    let xs: Vec<f32> = (0..n).map(|i| 0.001 + 0.0045 * i as f32).collect();
    let xs64: Vec<f64> = xs.iter().map(|x| *x as f64).collect();
    struct Many<'a, T>(&'a str, &'a [T], &'a mut [T], usize);
    impl<T: Math + Default> simd::Task for Many<'_, T> {
        type Output = f64;
        #[inline(always)]
        fn run<I: Isa>(self) -> f64 {
            let Many(name, a, out, reps) = self;
            let b = a;
            let mut best = f64::MAX;
            for _ in 0..reps {
                let t = std::time::Instant::now();
                for _ in 0..20 {
                    let a = std::hint::black_box(a);
                    apply::<I, T>(name, a, b, out);
                    std::hint::black_box(&mut *out);
                }
                best = best.min(t.elapsed().as_secs_f64() / 20.0 / a.len() as f64);
            }
            best
        }
    }
    for (name, _, _) in ULP {
        let mut o = vec![0f32; n];
        let mut o64 = vec![0f64; n];
        let mut t = [0.0; 4];
        for (i, l) in [Level::Avx2, Level::Scalar].into_iter().enumerate() {
            t[i] = simd::run_at(l, Many(name, &xs, &mut o, 60));
            t[i + 2] = simd::run_at(l, Many(name, &xs64, &mut o64, 60));
        }
        println!(
            "{name:12} f32 {:6.2} ns ({:5.2} G/s) scalar {:6.2} | f64 {:6.2} scalar {:6.2}",
            t[0] * 1e9,
            1e-9 / t[0],
            t[1] * 1e9,
            t[2] * 1e9,
            t[3] * 1e9
        );
    }
}
