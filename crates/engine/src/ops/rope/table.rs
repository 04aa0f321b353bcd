//! The frequencies of rotary position embedding and their scalings.

use std::f64::consts::PI;

use crate::{DType, Error, Result, Tensor, try_vec};

/// The pairing of the `dims` rotated elements of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RopeStyle {
    /// `i` and `i + dims / 2`: GPT-NeoX, Llama in Hugging Face's files, most models.
    #[default]
    HalfSplit,
    /// `2 i` and `2 i + 1`: the paper, GPT-J, Llama in Meta's files and in GGUF.
    Interleaved,
}

/// Frequency scaling for contexts longer than those a model was trained on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum RopeScaling {
    /// No scaling: `frequency[i] = base^(-2 i / dims)`.
    #[default]
    None,
    /// All frequencies are divided by `factor` (position interpolation).
    Linear {
        /// How many times longer the context is.
        factor: f64,
    },
    /// A larger base, `base * factor^(dims / (dims - 2))`: the lowest frequency is divided by `factor`, the highest is
    /// unchanged ("NTK-aware").
    Ntk {
        /// How many times longer the context is.
        factor: f64,
    },
    /// YaRN: a frequency is divided by `factor` if its pair makes fewer than `beta_slow` rotations in the original
    /// context, unchanged above `beta_fast` rotations, and interpolated in between.
    Yarn {
        /// How many times longer the context is.
        factor: f64,
        /// Context length of the original training, in positions.
        original_context: usize,
        /// Rotations above which a frequency is unchanged; usually 32.
        beta_fast: f64,
        /// Rotations below which a frequency is divided by `factor`; usually 1.
        beta_slow: f64,
    },
    /// Llama 3: a frequency is divided by `factor` if its wavelength is longer than `original_context / low_factor`,
    /// unchanged if it is shorter than `original_context / high_factor`, and interpolated in between.
    Llama3 {
        /// How many times longer the context is.
        factor: f64,
        /// Usually 1.
        low_factor: f64,
        /// Usually 4.
        high_factor: f64,
        /// Context length of the original training, in positions.
        original_context: usize,
    },
}

/// Options of rotary position embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeOptions {
    /// The pairing of elements.
    pub style: RopeStyle,
    /// The base of the frequencies; usually 10000.
    pub base: f64,
    /// Number of leading elements of a row that are rotated; `None` stands for all.
    pub dims: Option<usize>,
    /// Frequency scaling for longer contexts.
    pub scaling: RopeScaling,
    /// Factor of the rotated elements; `None` stands for the default of the scaling: `0.1 ln(factor) + 1` for YaRN, 1
    /// for the others.
    pub attention_factor: Option<f64>,
}

impl Default for RopeOptions {
    /// Half-split with base 10000, without scaling.
    fn default() -> Self {
        Self {
            style: RopeStyle::default(),
            base: 10_000.0,
            dims: None,
            scaling: RopeScaling::None,
            attention_factor: None,
        }
    }
}

fn invalid(reason: String) -> Error {
    Error::Invalid { op: "rope", reason }
}

fn positive(what: &str, value: f64) -> Result<f64> {
    if value > 0.0 && value.is_finite() {
        return Ok(value);
    }
    Err(invalid(format!("{what} must be positive, it is {value}")))
}

impl RopeOptions {
    /// The frequencies for heads of `dim` elements, to be used with [`Tensor::rope_with`].
    pub fn table(&self, dim: usize) -> Result<RopeTable> {
        let dims = self.dims.unwrap_or(dim);
        if dims == 0 || dims % 2 == 1 || dims > dim {
            return Err(invalid(format!(
                "cannot rotate {dims} of {dim} elements: the number must be even, positive and at most \
                the head dimension"
            )));
        }
        let frequencies = self.frequencies(dims)?;
        let factor = match (self.attention_factor, self.scaling) {
            (Some(factor), _) => factor,
            (None, RopeScaling::Yarn { factor, .. }) if factor > 1.0 => 0.1 * factor.ln() + 1.0,
            (None, _) => 1.0,
        };
        let frequencies = Tensor::from_vec(frequencies, [dims / 2]);
        RopeTable::new(&frequencies, self.style, factor)
    }

    fn frequencies(&self, dims: usize) -> Result<Vec<f64>> {
        let base = positive("the base", self.base)?;
        let count = dims as f64;
        let plain = |base: f64| move |i: usize| base.powf(-((2 * i) as f64) / count);
        let pairs = 0..dims / 2;
        let mut frequencies = try_vec::empty("rope", pairs.len())?;
        match self.scaling {
            RopeScaling::None => frequencies.extend(pairs.map(plain(base))),
            RopeScaling::Linear { factor } => {
                let factor = positive("the factor", factor)?;
                frequencies.extend(pairs.map(|i| plain(base)(i) / factor));
            }
            RopeScaling::Ntk { factor } => {
                let factor = positive("the factor", factor)?;
                // One pair alone has frequency 1 for any base.
                let power = count / (count - 2.0).max(1.0);
                frequencies.extend(pairs.map(plain(base * factor.powf(power))));
            }
            RopeScaling::Yarn {
                factor,
                original_context,
                beta_fast,
                beta_slow,
            } => {
                let factor = positive("the factor", factor)?;
                let context = positive("the original context", original_context as f64)?;
                // The (fractional) pair that makes this many rotations in the original context.
                let pair = |rotations: f64| -> Result<f64> {
                    let rotations = positive("the number of rotations", rotations)?;
                    Ok(count * (context / (rotations * 2.0 * PI)).ln() / (2.0 * base.ln()))
                };
                let low = pair(beta_fast)?.floor().max(0.0);
                let high = pair(beta_slow)?.ceil().min(count - 1.0);
                // If both are equal, the ramp is a step.
                let width = if high == low { 1e-3 } else { high - low };
                let scaled = |i: usize| {
                    let slow = ((i as f64 - low) / width).clamp(0.0, 1.0);
                    plain(base)(i) * (slow / factor + (1.0 - slow))
                };
                frequencies.extend(pairs.map(scaled));
            }
            RopeScaling::Llama3 {
                factor,
                low_factor,
                high_factor,
                original_context,
            } => {
                let factor = positive("the factor", factor)?;
                let low = positive("the low factor", low_factor)?;
                let high = positive("the high factor", high_factor)?;
                let context = positive("the original context", original_context as f64)?;
                if high <= low {
                    return Err(invalid(format!(
                        "the high factor must be above the low one, they are {high} and {low}"
                    )));
                }
                let scaled = |i: usize| {
                    let frequency = plain(base)(i);
                    let rotations = context * frequency / (2.0 * PI);
                    let keep = ((rotations - low) / (high - low)).clamp(0.0, 1.0);
                    frequency * (keep + (1.0 - keep) / factor)
                };
                frequencies.extend(pairs.map(scaled));
            }
        }
        Ok(frequencies)
    }
}

/// The frequencies of a model's rotary position embedding, computed once.
#[derive(Clone, Debug)]
pub struct RopeTable {
    frequencies: Tensor,
    revolutions: Tensor,
    style: RopeStyle,
    attention_factor: f64,
}

impl RopeTable {
    /// A table of given frequencies: the angle, in radians, by which pair `i` rotates from one position to the next.
    /// The first `2 * frequencies.count()` elements of a row are rotated.
    pub fn new(frequencies: &Tensor, style: RopeStyle, attention_factor: f64) -> Result<Self> {
        frequencies.expect_rank("rope", 1)?;
        let frequencies = frequencies.cast(DType::F64);
        let revolutions = &frequencies / (2.0 * PI);
        let whole = revolutions.floor();
        let fraction = (&revolutions - &whole) * 2_f64.powi(64);
        let fixed_point = [
            fraction.cast(DType::U64),
            whole.cast(DType::I64).cast(DType::U64),
        ];
        Ok(Self {
            frequencies,
            revolutions: Tensor::stack(&[&fixed_point[0], &fixed_point[1]], 0),
            style,
            attention_factor,
        })
    }

    /// The frequency of each pair, in `f64`.
    pub fn frequencies(&self) -> &Tensor {
        &self.frequencies
    }

    /// The frequency of each pair in revolutions, as `u64` fixed point: the fractions in units of 2⁻⁶⁴, then the
    /// integer parts. A wrapping product with any position is the exact angle.
    pub(crate) fn revolutions(&self) -> &Tensor {
        &self.revolutions
    }

    /// The pairing of elements.
    pub fn style(&self) -> RopeStyle {
        self.style
    }

    /// Factor of the rotated elements.
    pub fn attention_factor(&self) -> f64 {
        self.attention_factor
    }
}
