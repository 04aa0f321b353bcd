//! Tensors as text.
//!
//! The rules are those of NumPy's `str`: one format for all numbers shown, found from all of them, so
//! that columns line up; brackets for axes; `...` where there are too many elements to show.

mod float;

use std::fmt::{self, Write as _};

use half::{bf16, f16};

use self::float::{Floats, Real};
use crate::{DType, Error, Layout, Tensor, dtype};

/// Tensors with more elements than this are shown in part.
const THRESHOLD: usize = 1000;
/// Elements shown at each end of an axis that is shown in part.
const EDGE: usize = 3;
/// Columns of a line.
const LINE: usize = 75;

/// The numbers, as NumPy's `str` shows them, computed if they are not yet: columns aligned, floats with
/// as many digits as tell them apart from their neighbours but at most 8 after the point, in scientific
/// notation where their range demands it. Above 1000 elements only three at each end of an axis are
/// shown, and only those are read.
///
/// - A tensor of rank 0 is shown as a number, so that a loss can be printed like one.
/// - `{:.3}` shows floats with exactly 3 digits after the point.
/// - `{:#}` adds a line with the type and the shape.
/// - An empty tensor is shown as `[]`, with its shape.
/// - Where there is no value, the error is shown in its place.
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
        let part = self.count() > THRESHOLD;
        let mut offsets = Vec::new();
        gather(layout, part, 0, layout.offset(), &mut offsets);
        let words = self.words(&offsets, precision);
        let mut writer = Writer {
            layout,
            part,
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

    /// The elements at these places, as words of equal width.
    fn words(&self, offsets: &[usize], precision: Option<usize>) -> Vec<String> {
        let storage = self.node.value.get().expect("evaluated");
        let bytes = storage.bytes();
        let one = self.rank() == 0;
        let floats = |reals: Vec<Real>| match (one, precision) {
            (true, None) => vec![reals[0].alone(self.dtype())],
            _ => Floats::new(&reals, self.dtype(), precision).words(&reals),
        };
        macro_rules! reals {
            ($type:ty) => {{
                let all = bytemuck::cast_slice::<u8, $type>(bytes);
                floats(offsets.iter().map(|&i| Real::from(all[i])).collect())
            }};
        }
        match self.dtype() {
            DType::Bool => {
                let word = |&i: &usize| match (bytes[i] != 0, one) {
                    (true, false) => " true".to_owned(),
                    (truth, _) => truth.to_string(),
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

/// All words as wide as the widest.
fn align_right(words: Vec<String>) -> Vec<String> {
    let width = words.iter().map(String::len).max().unwrap_or(0);
    let pad = |word| format!("{word:>width$}");
    words.into_iter().map(pad).collect()
}

/// How many elements of an axis are shown before and after the gap; all before where there is none.
fn ends(len: usize, part: bool) -> (usize, usize) {
    if part && len > 2 * EDGE {
        (EDGE, EDGE)
    } else {
        (len, 0)
    }
}

/// Where the elements lie that are shown, in the order they are shown in.
fn gather(layout: &Layout, part: bool, axis: usize, at: usize, offsets: &mut Vec<usize>) {
    let Some(&len) = layout.shape().get(axis) else {
        offsets.push(at);
        return;
    };
    let (before, after) = ends(len, part);
    for i in (0..before).chain(len - after..len) {
        let step = layout.strides()[axis] * i as isize;
        gather(
            layout,
            part,
            axis + 1,
            at.wrapping_add_signed(step),
            offsets,
        );
    }
}

/// Puts words into brackets and lines.
struct Writer<'a> {
    layout: &'a Layout,
    part: bool,
    words: std::slice::Iter<'a, String>,
    text: String,
}

impl Writer<'_> {
    /// Writes axis `axis` and those inside it. The text ends where the opening bracket belongs.
    fn axis(&mut self, axis: usize) {
        let rank = self.layout.shape().rank();
        let (before, after) = ends(self.layout.shape()[axis], self.part);
        let indent = axis + 1;
        self.text.push('[');
        if axis + 1 == rank {
            self.row(before, after, indent);
        } else {
            let gap = usize::from(after > 0);
            for i in 0..before + gap + after {
                if i > 0 {
                    // As many line ends as there are axes inside this one.
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

    /// Writes the words of a row, in as many lines as they need.
    fn row(&mut self, before: usize, after: usize, indent: usize) {
        // Each closing bracket that may follow needs a column.
        let limit = LINE - indent;
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
