//! Math modes of Metal devices: precise by default.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use bessemer::{Device, Tensor};
use bessemer_hal::MathMode;
use bessemer_hal::soft::{Mode, SoftOptions, device};

/// Maximum error in units in the last place.
fn error(got: &[f32], exact: impl Fn(f64) -> f64, x: &[f32]) -> f64 {
    let steps = got.iter().zip(x).map(|(&y, &x)| {
        let truth = exact(f64::from(x));
        let near = truth as f32;
        let step = f64::from(near.abs().next_up()) - f64::from(near.abs());
        (f64::from(y) - truth).abs() / step
    });
    steps.fold(0.0, f64::max)
}

/// A function and its tolerance in fast mode, in units in the last place: the bound of MSL plus the error of derived
/// formulas.
struct Case {
    name: &'static str,
    run: fn(&Tensor) -> Tensor,
    exact: fn(f64) -> f64,
    fast: f64,
}

const CASES: [Case; 6] = [
    Case {
        name: "exp",
        run: Tensor::exp,
        exact: f64::exp,
        fast: 3.0 + 2.0 * 8.0,
    },
    Case {
        name: "log",
        run: Tensor::log,
        exact: f64::ln,
        fast: 4.0,
    },
    Case {
        name: "sin",
        run: Tensor::sin,
        exact: f64::sin,
        fast: 16.0,
    },
    Case {
        name: "tanh",
        run: Tensor::tanh,
        exact: f64::tanh,
        fast: 6.0,
    },
    Case {
        name: "sqrt",
        run: Tensor::sqrt,
        exact: f64::sqrt,
        fast: 2.0,
    },
    Case {
        name: "sigmoid",
        run: Tensor::sigmoid,
        exact: |x| 1.0 / (1.0 + (-x).exp()),
        fast: 3.0 + 2.0 * 8.0 + 4.0,
    },
];

fn device_with(math: MathMode) -> Device {
    // The device makes functions as inaccurate as the mode allows.
    let options = SoftOptions {
        mode: Mode::Fuzz,
        ..SoftOptions::from_env().unwrap()
    };
    Device::with(device(options).unwrap(), math)
}

#[test]
fn fast_math_stays_within_its_bounds_and_is_opt_in() {
    // Between 0 and 8, away from zeros of the functions, where Metal's bounds are absolute.
    let x: Vec<f32> = (1..2000).map(|i| i as f32 / 256.0 + 0.001).collect();
    let x: Vec<f32> = x
        .into_iter()
        .filter(|v| v.sin().abs() > 0.05 && v.ln().abs() > 0.05)
        .collect();
    let worst = |device: &Device, case: &Case| {
        let t = Tensor::from_slice(&x, [x.len()]).to(device);
        error(&(case.run)(&t).to_vec::<f32>().unwrap(), case.exact, &x)
    };
    let (safe, fast) = (device_with(MathMode::Safe), device_with(MathMode::Fast));
    let mut looser = 0;
    for case in &CASES {
        let (precise, loose) = (worst(&safe, case), worst(&fast, case));
        assert!(precise <= 2.0, "{}: {precise} steps", case.name);
        assert!(loose <= case.fast, "{}: {loose} steps", case.name);
        looser += usize::from(loose > precise);
    }
    assert!(
        looser >= 4,
        "{looser} functions are less accurate in fast mode"
    );
}

#[test]
fn the_default_math_mode_is_precise() {
    let device = Device::software().unwrap();
    let x = [1e9_f32, 3e20, 2e38];
    let y = Tensor::from_slice(&x, [3]).to(&device).sin();
    // Outside the range of fast sines.
    assert!(error(&y.to_vec::<f32>().unwrap(), f64::sin, &x) <= 1.5);
}
