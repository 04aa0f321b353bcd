//! Mathematical functions against double precision.

use std::f64::consts::PI;

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::harness::{Outcome, Run, Source, source};
use crate::tolerance::{Bound, ROUNDED, fast, half, precise};

const SOURCE: Source = source!("math.metal");

#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
struct Arguments {
    x: f32,
    u: f32,
    p: f32,
    y: f32,
}

/// 64 arguments: x and y in about [-8, 8], u in [-1, 1], p in [1/16, 300].
fn arguments() -> Vec<Arguments> {
    (0..64)
        .map(|i| {
            let t = i as f32 / 64.0;
            Arguments {
                x: 16.0 * t - 7.9,
                u: 2.0 * ((i * 37) % 64) as f32 / 63.0 - 1.0,
                p: (12.0 * t - 4.0).exp2() * 1.07,
                y: 5.0 * ((i * 23) % 64) as f32 / 64.0 - 2.3,
            }
        })
        .collect()
}

fn run(kernel: &str, functions: usize) -> Outcome {
    let arguments = arguments();
    Run::kernel(&SOURCE, kernel)
        .input(0, &arguments)
        .output::<f32>(1, functions * arguments.len())
        .threads(arguments.len(), 32)
}

/// A function by name, in double precision.
fn exact(function: &str, x: f64) -> f64 {
    match function {
        "acos" => x.acos(),
        "acosh" => x.acosh(),
        "asin" => x.asin(),
        "asinh" => x.asinh(),
        "atan" => x.atan(),
        "atanh" => x.atanh(),
        "cos" => x.cos(),
        "cosh" => x.cosh(),
        "cospi" => cospi(x),
        "exp" => x.exp(),
        "exp2" => x.exp2(),
        "exp10" => 10_f64.powf(x),
        "log" => x.ln(),
        "log2" => x.log2(),
        "log10" => x.log10(),
        "sin" => x.sin(),
        "sinh" => x.sinh(),
        "sinpi" => sinpi(x),
        "tan" => x.tan(),
        "tanh" => x.tanh(),
        "tanpi" => sinpi(x) / cospi(x),
        "sqrt" => x.sqrt(),
        "rsqrt" => 1.0 / x.sqrt(),
        "reciprocal" => 1.0 / x,
        other => panic!("no such function `{other}`"),
    }
}

/// sin(πx), with the argument reduced before it is multiplied.
fn sinpi(x: f64) -> f64 {
    let r = x - 2.0 * (x / 2.0).round();
    if r.abs() > 0.5 {
        (PI * (r.signum() - r)).sin()
    } else {
        (PI * r).sin()
    }
}

fn cospi(x: f64) -> f64 {
    sinpi(x + 0.5)
}

/// The functions of one argument in the order of the kernels, with the argument they are given.
type Unary = (&'static str, fn(&Arguments) -> f32);

const PRECISE: [Unary; 23] = [
    ("acos", |a| a.u),
    ("acosh", |a| 1.0 + a.p),
    ("asin", |a| a.u),
    ("asinh", |a| a.x),
    ("atan", |a| a.x),
    ("atanh", |a| a.u * 0.9375),
    ("cos", |a| a.x),
    ("cosh", |a| a.x),
    ("cospi", |a| a.x),
    ("exp", |a| a.x),
    ("exp2", |a| a.x),
    ("exp10", |a| a.x),
    ("log", |a| a.p),
    ("log2", |a| a.p),
    ("log10", |a| a.p),
    ("sin", |a| a.x),
    ("sinh", |a| a.x),
    ("sinpi", |a| a.x),
    ("tan", |a| a.x),
    ("tanh", |a| a.x),
    ("tanpi", |a| a.x),
    ("sqrt", |a| a.p),
    ("rsqrt", |a| a.p),
];

fn fast_argument((name, of): &Unary, a: &Arguments) -> f32 {
    match *name {
        "cos" | "sin" => a.u * 3.0,
        "cospi" | "sinpi" | "tan" => a.u,
        "tanpi" => a.u * 0.25,
        _ => of(a),
    }
}

/// Compares function `k` of a kernel with exact values; `bound` sees the argument and the exact value.
fn compare(
    outcome: &Outcome,
    k: usize,
    name: &str,
    exact: impl Fn(&Arguments) -> (f64, f64),
    bound: impl Fn(f64, f64) -> Bound,
) {
    let arguments = arguments();
    outcome.check(1, |launch, got: &[f32]| {
        for (i, a) in arguments.iter().enumerate() {
            let (x, exact) = exact(a);
            let got = got[k * arguments.len() + i];
            let bound = bound(x, exact);
            assert!(
                bound.allows(f64::from(got), exact),
                "{launch}: {name}({x:?}) is {got:?}, exactly {exact:?}, allowed {bound:?}"
            );
        }
    });
}

#[test]
fn precise_functions_are_within_the_table_of_the_specification() {
    let outcome = run("precise_functions", 29);
    for (k, (name, of)) in PRECISE.iter().enumerate() {
        let point = |a: &Arguments| (f64::from(of(a)), exact(name, f64::from(of(a))));
        compare(&outcome, k, name, point, |_, _| precise(name));
    }
    let wide = |a: &Arguments| [a.x, a.u, a.p, a.y].map(f64::from);
    let two = |f: fn([f64; 4]) -> f64| move |a: &Arguments| (f64::from(a.p), f(wide(a)));
    let atan2 = two(|[x, _, _, y]| y.atan2(x));
    compare(&outcome, 23, "atan2", atan2, |_, _| precise("atan2"));
    let pow = two(|[_, _, p, y]| p.powf(y));
    compare(&outcome, 24, "pow", pow, |_, _| precise("pow"));
    compare(&outcome, 25, "powr", pow, |_, _| precise("powr"));
    // The double product of two floats is exact, and its sum with a third rounds far below an ulp.
    let fma = two(|[x, u, _, y]| x * y + u);
    compare(&outcome, 26, "fma", fma, |_, exact| {
        Bound::Absolute(exact.abs() * 2_f64.powi(-24) * (1.0 + 1e-6))
    });
    let divide = two(|[x, _, p, _]| x / p);
    compare(&outcome, 27, "divide", divide, |_, _| ROUNDED);
    let reciprocal = two(|[_, _, p, _]| 1.0 / p);
    compare(&outcome, 28, "reciprocal", reciprocal, |_, _| ROUNDED);
}

#[test]
fn fast_functions_are_within_the_table_of_the_specification() {
    let outcome = run("fast_functions", 27);
    for (k, unary) in PRECISE.iter().enumerate() {
        let point = |a: &Arguments| {
            let x = f64::from(fast_argument(unary, a));
            (x, exact(unary.0, x))
        };
        compare(&outcome, k, unary.0, point, |x, exact| {
            fast(unary.0, x, exact)
        });
    }
    let wide = |a: &Arguments| [a.x, a.p, a.y].map(f64::from);
    let two = |f: fn([f64; 3]) -> f64| move |a: &Arguments| (f64::from(a.p), f(wide(a)));
    let bound = |name: &'static str| move |x: f64, exact: f64| fast(name, x, exact);
    compare(
        &outcome,
        23,
        "atan2",
        two(|[x, _, y]| y.atan2(x)),
        bound("atan2"),
    );
    compare(
        &outcome,
        24,
        "pow",
        two(|[_, p, y]| p.powf(y)),
        bound("pow"),
    );
    compare(
        &outcome,
        25,
        "powr",
        two(|[_, p, y]| p.powf(y)),
        bound("powr"),
    );
    compare(
        &outcome,
        26,
        "divide",
        two(|[x, p, _]| x / p),
        bound("divide"),
    );
}

#[test]
fn unqualified_functions_are_within_the_fast_bounds() {
    let outcome = run("plain_functions", 15);
    let functions: [Unary; 13] = [
        ("exp", |a| a.x),
        ("exp2", |a| a.x),
        ("exp10", |a| a.x),
        ("log", |a| a.p),
        ("log2", |a| a.p),
        ("log10", |a| a.p),
        ("sqrt", |a| a.p),
        ("rsqrt", |a| a.p),
        ("exp", |a| a.x),
        ("tanh", |a| a.x),
        ("sin", |a| a.u * 3.0),
        ("cos", |a| a.u * 3.0),
        ("atan", |a| a.x),
    ];
    for (k, (name, of)) in functions.iter().enumerate() {
        let point = |a: &Arguments| (f64::from(of(a)), exact(name, f64::from(of(a))));
        if k != 8 {
            compare(&outcome, k, name, point, |x, exact| fast(name, x, exact));
        }
    }
    let pow = |a: &Arguments| (f64::from(a.p), f64::from(a.p).powf(f64::from(a.y)));
    compare(&outcome, 8, "pow", pow, |x, exact| fast("pow", x, exact));
    let exp = |a: &Arguments| (f64::from(a.x), f64::from(a.x).exp());
    compare(&outcome, 13, "exp of a vector", exp, |x, exact| {
        fast("exp", x, exact)
    });
    compare(&outcome, 14, "precise exp of a vector", exp, |_, _| {
        precise("exp")
    });
}

/// x = fraction * 2^exponent with the fraction in [1/2, 1).
fn frexp(x: f32) -> (f32, i32) {
    if x == 0.0 {
        return (x, 0);
    }
    let exponent = (f64::from(x).abs().log2().floor() as i32) + 1;
    ((f64::from(x) / 2_f64.powi(exponent)) as f32, exponent)
}

fn exact_functions(a: &Arguments) -> [f32; 27] {
    let (x, y) = (a.x, a.y);
    let sign = if x == 0.0 { x } else { x.signum() };
    let median = x.max(y).min(x.min(y).max(1.0));
    [
        x.ceil(),
        x.floor(),
        x.trunc(),
        x.round(),
        x.round_ties_even(),
        x.abs(),
        (x - x.floor()).min(1.0 - f32::EPSILON / 2.0),
        if x > y { x - y } else { 0.0 },
        x % y,
        x.copysign(y),
        x * 8.0,
        frexp(x).0,
        x.fract(),
        x.trunc(),
        x.min(y),
        x.max(y),
        x.min(y).min(1.0),
        x.max(y).max(1.0),
        median,
        x.clamp(-2.0, 2.0),
        x.clamp(0.0, 1.0),
        sign,
        if y < x { 0.0 } else { 1.0 },
        x.next_up(),
        x.clamp(-1.0, 1.0) + x.min(y) + x.max(3.0),
        if x < y { y } else { x },
        x.abs(),
    ]
}

#[test]
fn exact_functions_are_exact() {
    let mut arguments = arguments();
    let halves = [
        0.5_f32, -0.5, 1.5, -1.5, 2.5, -2.5, 3.0, -3.0, 1e7, -1e7, 0.999, 7.25,
    ];
    arguments.extend(halves.iter().map(|x| Arguments {
        x: *x,
        u: 0.0,
        p: 1.0,
        y: 0.75,
    }));
    let n = arguments.len();
    let mut expected = vec![0.0_f32; 27 * n];
    let mut ints = Vec::new();
    for (i, a) in arguments.iter().enumerate() {
        for (k, value) in exact_functions(a).into_iter().enumerate() {
            expected[k * n + i] = value;
        }
        ints.extend([frexp(a.x).1 - 1, frexp(a.x).1]);
    }
    Run::kernel(&SOURCE, "exact_functions")
        .input(0, &arguments)
        .output::<f32>(1, 27 * n)
        .output::<i32>(2, 2 * n)
        .threads(n, 32)
        .expect(2, &ints)
        .check(1, |launch, got: &[f32]| {
            for (at, (got, expected)) in got.iter().zip(&expected).enumerate() {
                let (k, x) = (at / n, arguments[at % n].x);
                assert_eq!(got, expected, "{launch}: function {k} of {x:?}");
            }
        });
}

#[test]
fn half_functions_are_within_one_unit_in_the_last_place() {
    let arguments = arguments();
    let n = arguments.len();
    let functions: [Unary; 17] = [
        ("exp", |a| a.x),
        ("exp2", |a| a.x),
        ("log", |a| a.p),
        ("log2", |a| a.p),
        ("sqrt", |a| a.p),
        ("rsqrt", |a| a.p),
        ("sin", |a| a.u),
        ("cos", |a| a.u),
        ("tanh", |a| a.x),
        ("acos", |a| a.u),
        ("asin", |a| a.u),
        ("atan", |a| a.x),
        ("sinh", |a| a.u),
        ("cosh", |a| a.u),
        ("log10", |a| a.p),
        ("exp10", |a| a.u),
        ("sinpi", |a| a.u),
    ];
    let round = |v: f32| f16::from_f32(v).to_f64();
    Run::kernel(&SOURCE, "half_functions")
        .input(0, &arguments)
        .output::<f16>(1, 22 * n)
        .threads(n, 32)
        .check(1, |launch, got: &[f16]| {
            for (i, a) in arguments.iter().enumerate() {
                let at = |k: usize| got[k * n + i].to_f64();
                for (k, (name, of)) in functions.iter().enumerate() {
                    let x = round(of(a));
                    let exact = exact(name, x);
                    assert!(
                        half(name).allows(at(k), exact),
                        "{launch}: {name}({x}) is {}, exactly {exact}",
                        at(k)
                    );
                }
                let (x, u, p) = (round(a.x), round(a.u), round(a.p));
                assert_eq!(
                    at(17),
                    f16::from_f64(x * u + p).to_f64(),
                    "{launch}: fma({x}, {u}, {p})"
                );
                assert_eq!(at(18), x.floor(), "{launch}: floor({x})");
                assert_eq!(at(19), x.clamp(-1.0, 1.0), "{launch}: clamp({x})");
                assert_eq!(at(20), x.max(u), "{launch}: max({x}, {u})");
                assert!(
                    half("exp").allows(at(21), x.exp()),
                    "{launch}: exp of a vector"
                );
            }
        });
}

#[test]
fn constants_have_their_values() {
    use std::f32::consts;
    let expected = [
        consts::PI,
        consts::E,
        consts::LOG2_E,
        consts::LN_2,
        consts::SQRT_2,
        consts::FRAC_1_PI,
        consts::FRAC_PI_2,
        f32::MAX,
        f32::MIN_POSITIVE,
        f32::EPSILON,
        f32::INFINITY,
        65504.0,
        f16::from_f32(consts::PI).to_f32(),
        f32::MAX,
        65504.0,
        i32::MIN as f32,
        f32::INFINITY,
        255.0,
        1.0,
        1.0,
        f32::MIN,
        i32::MAX as f32,
        8.0 + 255.0 + 32767.0,
    ];
    Run::kernel(&SOURCE, "constants")
        .output::<f32>(0, expected.len())
        .threads(1, 1)
        .expect(0, &expected);
}
