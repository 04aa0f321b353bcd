//! Rotary position embedding and its frequency tables.

use std::f64::consts::TAU;

use crate::Array;

/// Frequency scaling for contexts longer than the trained one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scaling {
    /// No scaling.
    None,
    /// Position interpolation: each frequency is divided by `factor`.
    Linear {
        /// Longer by.
        factor: f64,
    },
    /// A larger base, so that the lowest frequency is divided by `factor` and the highest is unchanged.
    Ntk {
        /// Longer by.
        factor: f64,
    },
    /// YaRN (Peng et al. 2023): low frequencies are divided by `factor`, high ones are unchanged, with a ramp
    /// between `slow` and `fast` rotations within the trained context.
    Yarn {
        /// Longer by.
        factor: f64,
        /// The trained context.
        original: f64,
        /// Rotations from which on a frequency is unchanged; usually 32.
        fast: f64,
        /// Rotations up to which a frequency is divided; usually 1.
        slow: f64,
    },
    /// Llama 3.1: by wavelength, divided above `original / low`, unchanged below `original / high`,
    /// blended in between.
    Llama3 {
        /// Longer by.
        factor: f64,
        /// Bounds the long wavelengths.
        low: f64,
        /// Bounds the short wavelengths.
        high: f64,
        /// The trained context.
        original: f64,
    },
}

/// Angle per position of each pair of `dims` elements.
pub fn frequencies(dims: usize, base: f64, scaling: Scaling) -> Vec<f64> {
    let d = dims as f64;
    let base = match scaling {
        Scaling::Ntk { factor } => base * factor.powf(d / (d - 2.0)),
        _ => base,
    };
    // The pair that makes `n` rotations within the context.
    let pair_of = |original: f64, n: f64| d * (original / (n * TAU)).ln() / (2.0 * base.ln());
    (0..dims / 2)
        .map(|pair| {
            let f = base.powf(-2.0 * pair as f64 / d);
            match scaling {
                Scaling::None | Scaling::Ntk { .. } => f,
                Scaling::Linear { factor } => f / factor,
                Scaling::Yarn {
                    factor,
                    original,
                    fast,
                    slow,
                } => {
                    let low = pair_of(original, fast).floor().max(0.0);
                    let high = pair_of(original, slow).ceil().min(d - 1.0);
                    let high = if high == low { high + 0.001 } else { high };
                    let ramp = ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    f / factor * ramp + f * (1.0 - ramp)
                }
                Scaling::Llama3 {
                    factor,
                    low,
                    high,
                    original,
                } => {
                    let wavelength = TAU / f;
                    if wavelength < original / high {
                        f
                    } else if wavelength > original / low {
                        f / factor
                    } else {
                        let smooth = (original / wavelength - low) / (high - low);
                        (1.0 - smooth) * f / factor + smooth * f
                    }
                }
            }
        })
        .collect()
}

/// Factor of the rotated values: 0.1 ln(factor) + 1 for YaRN, else 1.
pub fn attention_factor(scaling: Scaling) -> f64 {
    match scaling {
        Scaling::Yarn { factor, .. } if factor > 1.0 => 0.1 * factor.ln() + 1.0,
        _ => 1.0,
    }
}

/// Parameters of [`rope`].
#[derive(Clone, Debug)]
pub struct Rotation<'a> {
    /// Angle per position of each pair.
    pub frequencies: &'a [f64],
    /// Whether pairs are neighbours (interleaved) rather than half-split.
    pub interleaved: bool,
    /// Factor of the rotated values.
    pub factor: f64,
}

/// Rotates pairs of the last axis by their frequency times the position; values past the pairs are unchanged.
/// The second to last axis is time, and `position` maps an index to its position.
pub fn rope(x: &Array, how: &Rotation<'_>, position: impl Fn(&[usize]) -> f64) -> Array {
    let pairs = how.frequencies.len();
    let last = x.rank() - 1;
    Array::from_float_fn(x.dtype, &x.shape, |i| {
        let at = i[last];
        if at >= 2 * pairs {
            return x.float(i);
        }
        let (pair, second) = if how.interleaved {
            (at / 2, at % 2 == 1)
        } else {
            (at % pairs, at >= pairs)
        };
        let twin = match (how.interleaved, second) {
            (true, false) => at + 1,
            (true, true) => at - 1,
            (false, false) => at + pairs,
            (false, true) => at - pairs,
        };
        let mut other = i.to_vec();
        other[last] = twin;
        let (own, other) = (x.float(i), x.float(&other));
        let (sin, cos) = (position(i) * how.frequencies[pair]).sin_cos();
        let rotated = if second {
            own * cos + other * sin
        } else {
            own * cos - other * sin
        };
        rotated * how.factor
    })
}

#[cfg(test)]
mod tests {
    use bessemer::DType;

    use super::*;

    fn close(got: &[f64], expected: &[f64]) {
        assert_eq!(got.len(), expected.len());
        for (g, e) in got.iter().zip(expected) {
            assert!(
                (g - e).abs() < 1e-12 * e.abs().max(1.0),
                "{got:?} {expected:?}"
            );
        }
    }

    #[test]
    fn frequencies_match_their_formulas() {
        close(&frequencies(4, 10000.0, Scaling::None), &[1.0, 0.01]);
        let linear = Scaling::Linear { factor: 4.0 };
        close(&frequencies(4, 10000.0, linear), &[0.25, 0.0025]);
        let ntk = Scaling::Ntk { factor: 8.0 };
        // The last pair of d elements has exponent (d - 2) / d, so it is divided by the factor.
        close(&frequencies(4, 10000.0, ntk), &[1.0, 0.01 / 8.0]);
        // Rotations in 1000 positions: 159, 1.6; above 4 is unchanged, below 1 would be divided, 1.6 is interpolated.
        let llama = Scaling::Llama3 {
            factor: 8.0,
            low: 1.0,
            high: 4.0,
            original: 1000.0,
        };
        let smooth = (1000.0 * 0.01 / TAU - 1.0) / 3.0;
        let blend = 0.01 / 8.0 * (1.0 - smooth) + 0.01 * smooth;
        close(&frequencies(4, 10000.0, llama), &[1.0, blend]);
        let yarn = Scaling::Yarn {
            factor: 4.0,
            original: 1000.0,
            fast: 32.0,
            slow: 1.0,
        };
        // 8 elements, ln(10000)/8·2: the pairs of 32 and 1 rotations are 0.7 and 2.2: ramp from 0 to 3.
        let f = [1.0, 0.1, 0.01, 0.001];
        let ramp = [0.0, 1.0 / 3.0, 2.0 / 3.0, 1.0];
        let expected: Vec<_> = f
            .iter()
            .zip(ramp)
            .map(|(f, r)| f / 4.0 * r + f * (1.0 - r))
            .collect();
        close(&frequencies(8, 10000.0, yarn), &expected);
    }

    #[test]
    fn pairs_rotate_by_position_times_frequency() {
        let x = Array::floats(
            DType::F64,
            &[2, 5],
            &[1.0, 0.0, 0.0, 1.0, 9.0, 1.0, 0.0, 0.0, 1.0, 9.0],
        );
        let mut how = Rotation {
            frequencies: &[1.0, 0.5],
            interleaved: true,
            factor: 1.0,
        };
        let (s1, c1, s2, c2) = (1.0_f64.sin(), 1.0_f64.cos(), 0.5_f64.sin(), 0.5_f64.cos());
        let got = rope(&x, &how, |i| i[0] as f64).to_floats();
        close(&got, &[1.0, 0.0, 0.0, 1.0, 9.0, c1, s1, -s2, c2, 9.0]);
        // Half-split: (x0, x2) and (x1, x3) are the pairs.
        how.interleaved = false;
        let got = rope(&x, &how, |i| i[0] as f64).to_floats();
        close(&got[5..], &[c1, -s2, s1, c2, 9.0]);
    }
}
