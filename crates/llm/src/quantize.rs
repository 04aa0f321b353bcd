//! A model's weights in fewer bits.

mod source;

use std::ops::Range;
use std::path::Path;

use bessemer::quant::{self, BlockFormat};
use half::{bf16, f16};

use self::source::Source;
pub(crate) use self::source::TOKENIZER;
use crate::file::{Container, Format, GgufWriter, Model, NewTensor, Value};
use crate::{Error, Result};

/// What becomes of a tensor, and how well.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorReport {
    /// Its name.
    pub name: String,
    /// The axes, outermost first.
    pub shape: Vec<usize>,
    /// How it was stored.
    pub from: Format,
    /// How it is stored now.
    pub to: Format,
    /// Bytes it had.
    pub bytes_before: usize,
    /// Bytes it has.
    pub bytes_after: usize,
    /// How far its numbers are off; `None` where they are the same.
    pub error: Option<Deviation>,
}

/// How far numbers are from those they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Deviation {
    /// The root of the mean square of the differences, divided by that of the numbers.
    pub relative: f64,
    /// The largest difference.
    pub largest: f64,
}

/// Formats that weights can be brought into.
pub fn targets() -> impl Iterator<Item = Format> {
    let plain = [Format::F32, Format::F16, Format::BF16];
    plain
        .into_iter()
        .chain(Format::all().filter(|f| block(*f).is_some()))
}

/// The engine's name for a block format.
fn block(format: Format) -> Option<BlockFormat> {
    BlockFormat::from_ggml_type(format.ggml_id()?)
}

/// The format that a tensor gets when `to` is asked for.
///
/// Matrices get it; vectors and tables that hold no weights stay as they are. Unless `is_pure`, the
/// embedding and the matrix that makes logits get more bits (`q6_k`, or `q8_0` with `q8_0`): few weights
/// that every token passes through. Where rows are no whole number of blocks, the next larger format
/// with smaller blocks serves, and at last `f16`.
fn chosen(source: &Source, to: Format, is_pure: bool) -> Format {
    let tensor = &source.view;
    let is_weight = tensor.shape().len() == 2 && tensor.name().ends_with(".weight");
    let is_table = ["position_embd.", "token_types."]
        .iter()
        .any(|t| tensor.name().starts_with(t));
    let is_readable = block(tensor.format()).is_some()
        || matches!(
            tensor.format(),
            Format::F32 | Format::F16 | Format::BF16 | Format::F64
        );
    if !is_weight || is_table || !is_readable {
        return source.format();
    }
    let is_end = ["token_embd.", "output."]
        .iter()
        .any(|t| tensor.name().starts_with(t));
    let bits = |f: Format| f.block_bytes() as f64 / f.block_len() as f64;
    let wanted = if is_end && !is_pure && to.is_quantised() && bits(to) < bits(Format::Q6_K) {
        Format::Q6_K
    } else {
        to
    };
    let cols = tensor.shape()[1];
    let smaller = match wanted {
        Format::Q2_K | Format::Q3_K => Format::Q4_0,
        Format::Q4_K => Format::Q5_0,
        Format::Q5_K => Format::Q5_1,
        Format::Q6_K => Format::Q8_0,
        other => other,
    };
    let fits = |f: &Format| cols.is_multiple_of(f.block_len());
    [wanted, smaller]
        .into_iter()
        .find(fits)
        .unwrap_or(Format::F16)
}

/// Writes a GGUF or safetensors model as a GGUF file, with its weights in `to`; see [`targets`]. Calls `done` with
/// each tensor that is written.
///
/// safetensors need the `config.json` and `tokenizer.json` beside them. The tokenizer is written as it is, which this
/// crate reads; programs that know only GGUF's own vocabularies do not.
pub fn quantize(
    model: &Model,
    path: &Path,
    to: Format,
    is_pure: bool,
    mut done: impl FnMut(TensorReport),
) -> Result<()> {
    if model.container() == Container::Llama2c {
        return Err(Error::unsupported(
            format_args!("quantising a {} file", model.container()),
            "GGUF and safetensors are",
        ));
    }
    if !targets().any(|f| f == to) {
        let names: Vec<_> = targets().map(Format::name).collect();
        let reason = format!("{} are", names.join(", "));
        return Err(Error::unsupported(
            format_args!("quantising to {to}"),
            reason,
        ));
    }
    let same = std::fs::canonicalize(path).ok();
    if same.is_some() && same == std::fs::canonicalize(model.path()).ok() {
        return Err(Error::Invalid {
            what: path.display().to_string(),
            reason: "a model cannot be written over itself".to_owned(),
        });
    }
    let mut metadata = source::metadata(model)?;
    if let Some(kind) = file_type(to) {
        metadata.set("general.file_type", Value::U32(kind));
    }
    metadata.set("general.quantization_version", Value::U32(2));
    let sources = Source::all(model)?;
    let formats: Vec<Format> = sources.iter().map(|s| chosen(s, to, is_pure)).collect();
    let tensors: Vec<NewTensor> = sources
        .iter()
        .zip(&formats)
        .map(|(source, &format)| NewTensor {
            name: source.view.name().to_owned(),
            format,
            shape: source.view.shape().to_vec(),
        })
        .collect();
    let mut writer = GgufWriter::create(path, &metadata, &tensors)?;
    for (source, &format) in sources.iter().zip(&formats) {
        let view = &source.view;
        let mut report = TensorReport {
            name: view.name().to_owned(),
            shape: view.shape().to_vec(),
            from: view.format(),
            to: format,
            bytes_before: view.bytes().len(),
            bytes_after: view.bytes().len(),
            error: None,
        };
        if format == source.format() {
            let bytes = source.bytes()?;
            report.bytes_after = bytes.len();
            writer.push(&bytes)?;
        } else {
            let (bytes, error) = convert(source, format)?;
            report.bytes_after = bytes.len();
            report.error = Some(error);
            writer.push(&bytes)?;
        }
        done(report);
    }
    writer.finish()
}

/// The number that GGUF files have for what most of their weights are.
fn file_type(format: Format) -> Option<u32> {
    Some(match format {
        Format::F32 => 0,
        Format::F16 => 1,
        Format::Q4_0 => 2,
        Format::Q4_1 => 3,
        Format::Q8_0 => 7,
        Format::Q5_0 => 8,
        Format::Q5_1 => 9,
        Format::Q2_K => 10,
        Format::Q3_K => 12,
        Format::Q4_K => 15,
        Format::Q5_K => 17,
        Format::Q6_K => 18,
        Format::BF16 => 32,
        _ => return None,
    })
}

/// Sums over some of a tensor's numbers.
#[derive(Clone, Copy, Default)]
struct Sums {
    squares: f64,
    differences: f64,
    largest: f64,
}

/// A tensor in another format, its rows shared among the cores.
fn convert(source: &Source, to: Format) -> Result<(Vec<u8>, Deviation)> {
    let view = &source.view;
    let rows = view.shape()[0];
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = rows.div_ceil(threads).max(1);
    let shares: Vec<Range<usize>> = (0..rows)
        .step_by(share)
        .map(|start| start..rows.min(start + share))
        .collect();
    let parts: Vec<Result<(Vec<u8>, Sums)>> = std::thread::scope(|scope| {
        let start = |range: &Range<usize>| {
            let range = range.clone();
            scope.spawn(move || convert_rows(source, range, to))
        };
        let running: Vec<_> = shares.iter().map(start).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(part) => part,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        running.into_iter().map(join).collect()
    });
    let mut bytes = Vec::with_capacity(to.bytes(view.shape()).unwrap_or(0));
    let mut sums = Sums::default();
    for part in parts {
        let (more, of_part) = part?;
        bytes.extend(more);
        sums.squares += of_part.squares;
        sums.differences += of_part.differences;
        sums.largest = sums.largest.max(of_part.largest);
    }
    let relative = match sums.squares {
        0.0 => 0.0,
        squares => (sums.differences / squares).sqrt(),
    };
    let largest = sums.largest;
    Ok((bytes, Deviation { relative, largest }))
}

fn convert_rows(from: &Source, range: Range<usize>, to: Format) -> Result<(Vec<u8>, Sums)> {
    let view = &from.view;
    let cols = view.shape()[1];
    let mut bytes = Vec::with_capacity(to.bytes(&[range.len(), cols]).unwrap_or(0));
    let mut sums = Sums::default();
    let (mut row, mut back) = (vec![0.0; cols], vec![0.0; cols]);
    for i in range {
        let place = from.row(i);
        let source = view.rows(place..place + 1)?;
        match block(source.format()) {
            Some(format) => quant::dequantize(format, source.bytes(), &mut row)?,
            None => row = source.to_f32()?,
        }
        if let Some(at) = row.iter().position(|v| !v.is_finite()) {
            return Err(Error::BadTensor {
                path: String::from("the model"),
                name: view.name().to_owned(),
                reason: format!("number {at} of row {i} is {}", row[at]),
            });
        }
        let begin = bytes.len();
        match (block(to), to) {
            (Some(format), _) => {
                bytes.extend(quant::quantize(format, &row)?);
                quant::dequantize(format, &bytes[begin..], &mut back)?;
            }
            (None, Format::F16) => {
                each(&row, &mut back, &mut bytes, f16::from_f32, f16::to_le_bytes)
            }
            (None, Format::BF16) => each(
                &row,
                &mut back,
                &mut bytes,
                bf16::from_f32,
                bf16::to_le_bytes,
            ),
            (None, _) => each(&row, &mut back, &mut bytes, |v| v, f32::to_le_bytes),
        }
        for (&x, &y) in row.iter().zip(&back) {
            let difference = f64::from(x) - f64::from(y);
            sums.squares += f64::from(x) * f64::from(x);
            sums.differences += difference * difference;
            sums.largest = sums.largest.max(difference.abs());
        }
    }
    Ok((bytes, sums))
}

/// Writes plain numbers, and what they are once written.
fn each<T: Copy + Into<f32>, const N: usize>(
    row: &[f32],
    back: &mut [f32],
    bytes: &mut Vec<u8>,
    round: fn(f32) -> T,
    write: fn(T) -> [u8; N],
) {
    for (&x, y) in row.iter().zip(back) {
        let rounded = round(x);
        *y = rounded.into();
        bytes.extend(write(rounded));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Metadata;
    use tempfile::TempDir;

    /// A file with matrices of several shapes, in f32.
    fn model(dir: &TempDir) -> Model {
        let tensors: Vec<NewTensor> = [
            ("token_embd.weight", &[4, 256][..]),
            ("blk.0.attn_q.weight", &[3, 512]),
            ("blk.0.attn_k.weight", &[3, 64]),
            ("blk.0.attn_v.weight", &[3, 40]),
            ("blk.0.attn_norm.weight", &[256]),
            ("rope_freqs.weight", &[32]),
        ]
        .map(|(name, shape)| NewTensor {
            name: name.to_owned(),
            format: Format::F32,
            shape: shape.to_vec(),
        })
        .into();
        let mut metadata = Metadata::default();
        metadata.set("general.architecture", Value::String("llama".to_owned()));
        metadata.set("general.file_type", Value::U32(0));
        let path = dir.path().join("in.gguf");
        let mut writer = GgufWriter::create(&path, &metadata, &tensors).unwrap();
        for tensor in &tensors {
            let count: usize = tensor.shape.iter().product();
            let number = |i: usize| ((i as f32) * 0.37).sin() * 0.1;
            let bytes: Vec<u8> = (0..count).flat_map(|i| number(i).to_le_bytes()).collect();
            writer.push(&bytes).unwrap();
        }
        writer.finish().unwrap();
        Model::open(path).unwrap()
    }

    #[test]
    fn every_target_is_written_and_close_enough() {
        // The error that rounding to so many bits has, about, for numbers spread evenly.
        let bound = |format: Format| match format {
            Format::F32 => 0.0,
            Format::F16 => 1e-3,
            Format::BF16 => 5e-3,
            Format::Q8_0 => 0.01,
            Format::Q6_K => 0.03,
            Format::Q5_0 | Format::Q5_1 | Format::Q5_K => 0.06,
            Format::Q4_0 | Format::Q4_1 | Format::Q4_K => 0.12,
            Format::Q3_K => 0.25,
            _ => 0.5,
        };
        let dir = TempDir::new().unwrap();
        let source = model(&dir);
        for to in targets() {
            let path = dir.path().join(to.name());
            let mut reports = Vec::new();
            quantize(&source, &path, to, true, |r| reports.push(r)).unwrap();
            let written = Model::open(&path).unwrap();
            assert_eq!(reports.len(), written.tensors().len());
            for report in &reports {
                let info = written.info(&report.name).unwrap();
                assert_eq!((info.format, info.bytes()), (report.to, report.bytes_after));
                assert_eq!(info.shape, report.shape);
                let error = report.error.unwrap_or_default();
                assert!(error.relative <= bound(report.to), "{to}: {report:?}");
            }
            let format = |name| written.info(name).unwrap().format;
            assert_eq!(format("blk.0.attn_q.weight"), to);
            assert_eq!(format("blk.0.attn_norm.weight"), Format::F32);
            assert_eq!(format("rope_freqs.weight"), Format::F32);
            let kind = written.metadata().natural("general.file_type").unwrap();
            assert_eq!(kind, file_type(to).map(u64::from), "{to}");
        }
    }

    #[test]
    fn rows_that_are_no_whole_blocks_get_smaller_blocks() {
        let dir = TempDir::new().unwrap();
        let source = model(&dir);
        let path = dir.path().join("out");
        quantize(&source, &path, Format::Q4_K, false, |_| {}).unwrap();
        let written = Model::open(&path).unwrap();
        let format = |name| written.info(name).unwrap().format;
        assert_eq!(
            format("token_embd.weight"),
            Format::Q6_K,
            "every token passes through it"
        );
        assert_eq!(format("blk.0.attn_q.weight"), Format::Q4_K);
        assert_eq!(format("blk.0.attn_k.weight"), Format::Q5_0);
        assert_eq!(format("blk.0.attn_v.weight"), Format::F16);
        // Once more, from blocks.
        let again = dir.path().join("again");
        let mut from = Vec::new();
        quantize(&written, &again, Format::Q8_0, false, |r| {
            from.push((r.from, r.to))
        })
        .unwrap();
        assert!(from.contains(&(Format::Q4_K, Format::Q8_0)), "{from:?}");
    }

    #[test]
    fn what_cannot_be_done_is_refused_and_leaves_nothing() {
        let dir = TempDir::new().unwrap();
        let source = model(&dir);
        let path = dir.path().join("out");
        assert!(quantize(&source, &path, Format::IQ2_S, false, |_| {}).is_err());
        assert!(quantize(&source, source.path(), Format::Q8_0, false, |_| {}).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
