//! Tests of zeros, infinities, NaN and the ends of the range.
use super::{Tested, at, levels};
use crate::cpu::simd::Level;

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

/// Exact results of both types, including the sign of zero.
const UNARY: &[(&str, &[(f64, f64)])] = &[
    (
        "exp",
        &[
            (0.0, 1.0),
            (-0.0, 1.0),
            (INF, INF),
            (-INF, 0.0),
            (1e4, INF),
            (-1e4, 0.0),
        ],
    ),
    (
        "exp2",
        &[
            (0.0, 1.0),
            (10.0, 1024.0),
            (-3.0, 0.125),
            (INF, INF),
            (-INF, 0.0),
            (2e3, INF),
        ],
    ),
    (
        "expm1",
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (INF, INF),
            (-INF, -1.0),
            (1e4, INF),
            (-1e4, -1.0),
        ],
    ),
    (
        "log",
        &[
            (1.0, 0.0),
            (0.0, -INF),
            (-0.0, -INF),
            (INF, INF),
            (-1.0, NAN),
            (-INF, NAN),
        ],
    ),
    (
        "log2",
        &[
            (1.0, 0.0),
            (8.0, 3.0),
            (0.25, -2.0),
            (0.0, -INF),
            (INF, INF),
            (-1.0, NAN),
        ],
    ),
    (
        "log10",
        &[
            (1.0, 0.0),
            (1000.0, 3.0),
            (0.0, -INF),
            (INF, INF),
            (-1e-40, NAN),
        ],
    ),
    (
        "log1p",
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (-1.0, -INF),
            (INF, INF),
            (-2.0, NAN),
            (-INF, NAN),
        ],
    ),
    (
        "logit",
        &[
            (0.5, 0.0),
            (0.0, -INF),
            (-0.0, -INF),
            (1.0, INF),
            (2.0, NAN),
            (-1.0, NAN),
            (INF, NAN),
            (-INF, NAN),
        ],
    ),
    ("sin", &[(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)]),
    ("cos", &[(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN)]),
    ("tan", &[(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)]),
    ("asin", &[(0.0, 0.0), (-0.0, -0.0), (1.5, NAN), (-INF, NAN)]),
    ("acos", &[(1.0, 0.0), (1.5, NAN), (-1.5, NAN), (INF, NAN)]),
    ("atan", &[(0.0, 0.0), (-0.0, -0.0)]),
    (
        "sinh",
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (INF, INF),
            (-INF, -INF),
            (1e4, INF),
            (-1e4, -INF),
        ],
    ),
    (
        "cosh",
        &[
            (0.0, 1.0),
            (-0.0, 1.0),
            (INF, INF),
            (-INF, INF),
            (-1e4, INF),
        ],
    ),
    (
        "tanh",
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (INF, 1.0),
            (-INF, -1.0),
            (30.0, 1.0),
        ],
    ),
    (
        "asinh",
        &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF)],
    ),
    (
        "acosh",
        &[
            (1.0, 0.0),
            (INF, INF),
            (0.5, NAN),
            (-1e10, NAN),
            (-INF, NAN),
        ],
    ),
    (
        "atanh",
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (1.0, INF),
            (-1.0, -INF),
            (1.5, NAN),
            (INF, NAN),
        ],
    ),
    (
        "erf",
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (INF, 1.0),
            (-INF, -1.0),
            (7.0, 1.0),
        ],
    ),
    (
        "cbrt",
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (27.0, 3.0),
            (-8.0, -2.0),
            (INF, INF),
            (-INF, -INF),
        ],
    ),
    (
        "rsqrt",
        &[
            (0.0, INF),
            (-0.0, -INF),
            (4.0, 0.5),
            (INF, 0.0),
            (-1.0, NAN),
        ],
    ),
    (
        "sigmoid",
        &[
            (0.0, 0.5),
            (INF, 1.0),
            (-INF, 0.0),
            (800.0, 1.0),
            (-800.0, 0.0),
        ],
    ),
    ("log_sigmoid", &[(-INF, -INF), (-1e4, -1e4), (INF, -0.0)]),
    ("softplus", &[(INF, INF), (-INF, 0.0), (1e4, 1e4)]),
    (
        "silu",
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (INF, INF),
            (-INF, -0.0),
            (1e4, 1e4),
        ],
    ),
    (
        "gelu",
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (INF, INF),
            (-INF, -0.0),
            (1e4, 1e4),
        ],
    ),
    (
        "gelu_tanh",
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (INF, INF),
            (-INF, -0.0),
            (1e30, 1e30),
        ],
    ),
    (
        "mish",
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (INF, INF),
            (-INF, -0.0),
            (1e30, 1e30),
        ],
    ),
];

/// `(x, y, x^y)`, after C99's annex F.
const POW: &[(f64, f64, f64)] = &[
    (1.0, NAN, 1.0),
    (1.0, INF, 1.0),
    (NAN, 0.0, 1.0),
    (NAN, -0.0, 1.0),
    (INF, 0.0, 1.0),
    (0.0, 0.0, 1.0),
    (NAN, 1.0, NAN),
    (2.0, NAN, NAN),
    (-1.0, INF, 1.0),
    (-1.0, -INF, 1.0),
    (0.5, INF, 0.0),
    (0.5, -INF, INF),
    (-2.0, INF, INF),
    (-2.0, -INF, 0.0),
    (0.0, 3.0, 0.0),
    (-0.0, 3.0, -0.0),
    (-0.0, 2.0, 0.0),
    (-0.0, 0.5, 0.0),
    (0.0, -1.0, INF),
    (-0.0, -1.0, -INF),
    (-0.0, -2.0, INF),
    (0.0, -INF, INF),
    (INF, 2.0, INF),
    (INF, -2.0, 0.0),
    (-INF, 3.0, -INF),
    (-INF, 2.0, INF),
    (-INF, 0.5, INF),
    (-INF, -3.0, -0.0),
    (-INF, -0.5, 0.0),
    (-8.0, 1.0 / 3.0, NAN),
    (-2.0, 3.0, -8.0),
    (-2.0, 4.0, 16.0),
    (-2.0, -1.0, -0.5),
    (-1.0, 8388607.0, -1.0),
    (-1.0, 16777216.0, 1.0),
    (10.0, 400.0, INF),
    (-10.0, 401.0, -INF),
    (10.0, -400.0, 0.0),
    (4.0, 0.5, 2.0),
];

/// `(y, x, angle as a multiple of π/4)`.
const ATAN2: &[(f64, f64, f64)] = &[
    (0.0, 0.0, 0.0),
    (-0.0, 0.0, -0.0),
    (0.0, -0.0, 4.0),
    (-0.0, -0.0, -4.0),
    (0.0, 1.0, 0.0),
    (-0.0, -1.0, -4.0),
    (1.0, 0.0, 2.0),
    (-1.0, -0.0, -2.0),
    (1.0, 1.0, 1.0),
    (INF, INF, 1.0),
    (INF, -INF, 3.0),
    (-INF, -INF, -3.0),
    (-INF, 1.0, -2.0),
    (1.0, INF, 0.0),
    (-1.0, -INF, -4.0),
    (NAN, 1.0, NAN),
    (1.0, NAN, NAN),
];

const HYPOT: &[(f64, f64, f64)] = &[
    (3.0, -4.0, 5.0),
    (0.0, -0.0, 0.0),
    (INF, NAN, INF),
    (NAN, -INF, INF),
    (NAN, 1.0, NAN),
    (1.0, NAN, NAN),
];

/// Returns true if the values are the same or both NaN; zeros differ by their sign.
fn same(a: f64, b: f64) -> bool {
    (a.is_nan() && b.is_nan()) || a.to_bits() == b.to_bits()
}

fn check<T: Tested + Into<f64>>(level: Level, from: fn(f64) -> T) {
    let call = |name: &str, x: f64, y: f64| -> f64 {
        // Twenty copies, so that the vectorised loop runs.
        let out = at(level, name, &[from(x); 20], &[from(y); 20]);
        let first: f64 = out[0].into();
        assert!(
            out.iter().all(|v| same((*v).into(), first)),
            "{name}({x}, {y})"
        );
        first
    };
    let rounded = |x: f64| -> f64 { from(x).into() };
    for (name, cases) in UNARY {
        for (x, want) in cases.iter().chain(&[(NAN, NAN)]) {
            let got = call(name, *x, 1.0);
            assert!(
                same(got, rounded(*want)),
                "{name}({x}) = {got}, not {want}, {level:?}"
            );
        }
    }
    for (x, y, want) in POW {
        let got = call("pow", *x, *y);
        assert!(
            same(got, rounded(*want)),
            "{x}^{y} = {got}, not {want}, {level:?}"
        );
    }
    for (y, x, quarters) in ATAN2 {
        let want = rounded(quarters * std::f64::consts::FRAC_PI_4);
        let got = call("atan2", *y, *x);
        assert!(
            same(got, want),
            "atan2({y}, {x}) = {got}, not {want}, {level:?}"
        );
    }
    for (x, y, want) in HYPOT {
        let got = call("hypot", *x, *y);
        assert!(
            same(got, rounded(*want)),
            "hypot({x}, {y}) = {got}, not {want}, {level:?}"
        );
    }
    assert!(same(call("elu", -INF, 2.0), -2.0));
    assert!(same(call("elu", -0.0, 2.0), -0.0));
    assert!(same(call("elu", INF, 2.0), INF));
    assert!(same(call("elu", NAN, 2.0), NAN));
}

#[test]
fn special_values_are_those_of_c99() {
    for level in levels() {
        check::<f32>(level, |x| x as f32);
        check::<f64>(level, |x| x);
    }
}
