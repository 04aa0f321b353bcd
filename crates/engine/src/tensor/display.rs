//! Tensors as text.
//!
//! Follows NumPy's `str`: one format for all elements shown, so that columns line up; brackets for axes; `...` for
//! elements that are not shown.

mod float;

use std::fmt::{self, Write as _};

use half::{bf16, f16};

use self::float::{Decimal, Floats};
use crate::{DType, Error, Layout, Tensor, dtype};

/// Tensors with more elements than this are summarised; NumPy's `threshold`.
const MAX_FULL_ELEMENTS: usize = 1000;
/// Elements shown at each end of an axis of a summary; NumPy's `edgeitems`.
const EDGE_ELEMENTS: usize = 3;
/// Maximum number of columns of a line.
const LINE_COLUMNS: usize = 75;

/// Evaluates the tensor and shows its elements as NumPy's `str` does: aligned columns, floats with the shortest digits
/// that identify them but at most 8 after the point, in scientific notation if their range requires it. Above 1000
/// elements only three at each end of an axis are shown, and only those are read.
///
/// - A tensor of rank 0 is shown as a plain number, for example a loss.
/// - `{:.3}` shows floats with exactly 3 digits after the point.
/// - `{:#}` adds a line with the type and the shape.
/// - An empty tensor is shown as `[]`, with its shape.
/// - A tensor without a value is shown as its error.
///
/// ```
/// # use bessemer::Tensor;
/// let x = Tensor::from_slice(&[1.0_f32, -0.5, 0.25, 100.0], [2, 2]);
/// assert_eq!(x.to_string(), "[[  1.    -0.5 ]\n [  0.25 100.  ]]");
/// assert_eq!(format!("{x:.1}"), "[[  1.0  -0.5]\n [  0.2 100.0]]");
/// assert_eq!(format!("{:#}", x.index(0, 0)), "[ 1.  -0.5]\nf32 [2]");
/// ```
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text(f.precision()) {
            Ok(text) => f.write_str(&text)?,
            Err(error) => return write!(f, "{error}"),
        }
        if f.alternate() {
            write!(f, "\n{} {}", self.dtype(), self.shape())?;
        }
        Ok(())
    }
}

impl Tensor {
    fn text(&self, precision: Option<usize>) -> Result<String, Error> {
        self.check()?;
        if self.count() == 0 {
            return Ok(format!("[] of shape {}", self.shape()));
        }
        let value = self.eval()?.node.value.get().expect("evaluated");
        value.ready("display")?;
        let layout = self.layout();
        let is_summary = self.count() > MAX_FULL_ELEMENTS;
        let mut offsets = Vec::new();
        gather(layout, is_summary, 0, layout.offset(), &mut offsets);
        let words = self.words(&offsets, precision);
        let mut writer = TensorWriter {
            layout,
            is_summary,
            words: words.iter(),
            text: String::new(),
        };
        match self.rank() {
            0 => Ok(words.concat()),
            _ => {
                writer.axis(0);
                Ok(writer.text)
            }
        }
    }

    /// The elements at these indices as words of equal width.
    fn words(&self, offsets: &[usize], precision: Option<usize>) -> Vec<String> {
        let storage = self.node.value.get().expect("evaluated");
        let bytes = storage.bytes();
        let is_scalar = self.rank() == 0;
        let floats = |reals: Vec<Decimal>| match (is_scalar, precision) {
            (true, None) => vec![reals[0].alone(self.dtype())],
            _ => Floats::new(&reals, self.dtype(), precision).words(&reals),
        };
        macro_rules! reals {
            ($type:ty) => {{
                let all = bytemuck::cast_slice::<u8, $type>(bytes);
                floats(offsets.iter().map(|&i| Decimal::from(all[i])).collect())
            }};
        }
        match self.dtype() {
            DType::Bool => {
                let word = |&i: &usize| match (bytes[i] != 0, is_scalar) {
                    (true, false) => " true".to_owned(),
                    (value, _) => value.to_string(),
                };
                offsets.iter().map(word).collect()
            }
            DType::F16 => reals!(f16),
            DType::BF16 => reals!(bf16),
            DType::F32 => reals!(f32),
            DType::F64 => reals!(f64),
            other => {
                let words: Vec<_> = dtype::with_type!(ints other, T => {
                    let all = bytemuck::cast_slice::<u8, T>(bytes);
                    offsets.iter().map(|&i| all[i].to_string()).collect()
                }, else unreachable!("floats are above"));
                align_right(words)
            }
        }
    }
}

/// Pads all words to the width of the widest.
fn align_right(words: Vec<String>) -> Vec<String> {
    let width = words.iter().map(String::len).max().unwrap_or(0);
    let pad = |word| format!("{word:>width$}");
    words.into_iter().map(pad).collect()
}

/// Numbers of elements shown before and after the gap of an axis; `(len, 0)` without a gap.
fn ends(len: usize, is_summary: bool) -> (usize, usize) {
    if is_summary && len > 2 * EDGE_ELEMENTS {
        (EDGE_ELEMENTS, EDGE_ELEMENTS)
    } else {
        (len, 0)
    }
}

/// Collects the indices of the elements to show, in order.
fn gather(layout: &Layout, is_summary: bool, axis: usize, at: usize, offsets: &mut Vec<usize>) {
    let Some(&len) = layout.shape().get(axis) else {
        offsets.push(at);
        return;
    };
    let (before, after) = ends(len, is_summary);
    for i in (0..before).chain(len - after..len) {
        let step = layout.strides()[axis] * i as isize;
        gather(
            layout,
            is_summary,
            axis + 1,
            at.wrapping_add_signed(step),
            offsets,
        );
    }
}

/// Arranges words in brackets and lines.
struct TensorWriter<'a> {
    layout: &'a Layout,
    is_summary: bool,
    words: std::slice::Iter<'a, String>,
    text: String,
}

impl TensorWriter<'_> {
    /// Writes axis `axis` and the axes inside it, at the end of the text.
    fn axis(&mut self, axis: usize) {
        let rank = self.layout.shape().rank();
        let (before, after) = ends(self.layout.shape()[axis], self.is_summary);
        let indent = axis + 1;
        self.text.push('[');
        if axis + 1 == rank {
            self.row(before, after, indent);
        } else {
            let gap = usize::from(after > 0);
            for i in 0..before + gap + after {
                if i > 0 {
                    // A line break for every axis inside this one.
                    self.text.extend((axis + 1..rank).map(|_| '\n'));
                    self.text.extend((0..indent).map(|_| ' '));
                }
                if gap == 1 && i == before {
                    self.text.push_str("...");
                } else {
                    self.axis(axis + 1);
                }
            }
        }
        self.text.push(']');
    }

    /// Writes the words of a row, with line breaks.
    fn row(&mut self, before: usize, after: usize, indent: usize) {
        // Reserves a column for each closing bracket that may follow.
        let limit = LINE_COLUMNS - indent;
        let mut width = indent;
        let gap = usize::from(after > 0);
        for i in 0..before + gap + after {
            let word = if gap == 1 && i == before {
                "..."
            } else {
                self.words.next().map_or("", String::as_str)
            };
            if i > 0 {
                width += 1;
                if width + word.len() > limit && width > indent {
                    let end = self.text.trim_end_matches(' ').len();
                    self.text.truncate(end);
                    let _ = write!(self.text, "\n{:indent$}", "");
                    width = indent;
                } else {
                    self.text.push(' ');
                }
            }
            self.text.push_str(word);
            width += word.len();
        }
    }
}

#[cfg(test)]
mod tests;
