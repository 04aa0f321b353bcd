//! Quantisation of a model's weights.

mod source;

use std::ops::Range;
use std::path::Path;

use bessemer::quant::{self, BlockFormat};
use half::{bf16, f16};

use self::source::SourceTensor;
pub(crate) use self::source::TOKENIZER_KEY;
use crate::file::{Container, Format, GgufWriter, Model, NewTensor, Value};
use crate::{Error, Result};

/// Result of quantising a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorReport {
    /// Name of the tensor.
    pub name: String,
    /// Shape, outermost axis first.
    pub shape: Vec<usize>,
    /// Format before.
    pub from: Format,
    /// Format after.
    pub to: Format,
    /// Size in bytes before.
    pub bytes_before: usize,
    /// Size in bytes after.
    pub bytes_after: usize,
    /// Quantisation error; `None` if the values are unchanged.
    pub error: Option<Deviation>,
}

/// Quantisation error of a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Deviation {
    /// Root mean square error relative to the root mean square of the values.
    pub relative: f64,
    /// Maximum absolute error.
    pub largest: f64,
}

/// Formats that weights can be quantised to.
pub fn targets() -> impl Iterator<Item = Format> {
    let plain = [Format::F32, Format::F16, Format::BF16];
    plain
        .into_iter()
        .chain(Format::all().filter(|f| block(*f).is_some()))
}

/// The engine's equivalent of a block format.
fn block(format: Format) -> Option<BlockFormat> {
    BlockFormat::from_ggml_type(format.ggml_id()?)
}

/// The format of a tensor when `to` is requested.
///
/// Matrices get it; vectors and tables without weights stay unchanged. Unless `is_pure`, the embedding and the output
/// head get more bits (`q6_k`, or `q8_0` with `q8_0`): they are few weights that affect every token. If rows are not
/// a multiple of the block size, falls back to the next larger format with smaller blocks, and finally to `f16`.
fn target_format(source: &SourceTensor, to: Format, is_pure: bool) -> Format {
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

/// Writes a GGUF or safetensors model as a GGUF file with its weights in `to`; see [`targets`]. Calls `done` after
/// write_elements tensor.
///
/// A safetensors model needs its `config.json` and `tokenizer.json`. The tokenizer is embedded unchanged, which this
/// crate reads; programs that support only GGUF's own vocabularies do not.
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
            "use GGUF or safetensors",
        ));
    }
    if !targets().any(|f| f == to) {
        let names: Vec<_> = targets().map(Format::name).collect();
        let reason = format!("use one of {}", names.join(", "));
        return Err(Error::unsupported(
            format_args!("quantising to {to}"),
            reason,
        ));
    }
    let same = std::fs::canonicalize(path).ok();
    if same.is_some() && same == std::fs::canonicalize(model.path()).ok() {
        return Err(Error::Invalid {
            what: path.display().to_string(),
            reason: "cannot overwrite the source model".to_owned(),
        });
    }
    let mut metadata = source::metadata(model)?;
    if let Some(kind) = file_type(to) {
        metadata.set("general.file_type", Value::U32(kind));
    }
    metadata.set("general.quantization_version", Value::U32(2));
    let sources = SourceTensor::all(model)?;
    let formats: Vec<Format> = sources
        .iter()
        .map(|s| target_format(s, to, is_pure))
        .collect();
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

/// GGUF's `general.file_type` for the format of most weights.
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

/// Error sums over part of a tensor.
#[derive(Clone, Copy, Default)]
struct ErrorSums {
    squares: f64,
    differences: f64,
    largest: f64,
}

/// Converts a tensor, with its rows split among the cores.
fn convert(source: &SourceTensor, to: Format) -> Result<(Vec<u8>, Deviation)> {
    let view = &source.view;
    let rows = view.shape()[0];
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = rows.div_ceil(threads).max(1);
    let shares: Vec<Range<usize>> = (0..rows)
        .step_by(share)
        .map(|start| start..rows.min(start + share))
        .collect();
    let parts: Vec<Result<(Vec<u8>, ErrorSums)>> = std::thread::scope(|scope| {
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
    let mut sums = ErrorSums::default();
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

fn convert_rows(
    from: &SourceTensor,
    range: Range<usize>,
    to: Format,
) -> Result<(Vec<u8>, ErrorSums)> {
    let view = &from.view;
    let cols = view.shape()[1];
    let mut bytes = Vec::with_capacity(to.bytes(&[range.len(), cols]).unwrap_or(0));
    let mut sums = ErrorSums::default();
    let (mut row, mut back) = (vec![0.0; cols], vec![0.0; cols]);
    for i in range {
        let row_in_file = from.row(i);
        let source = view.rows(row_in_file..row_in_file + 1)?;
        match block(source.format()) {
            Some(format) => quant::dequantize(format, source.bytes(), &mut row)?,
            None => row = source.to_f32()?,
        }
        if let Some(at) = row.iter().position(|v| !v.is_finite()) {
            return Err(Error::BadTensor {
                path: String::from("the model"),
                name: view.name().to_owned(),
                reason: format!("element {at} of row {i} is {}", row[at]),
            });
        }
        let begin = bytes.len();
        match (block(to), to) {
            (Some(format), _) => {
                bytes.extend(quant::quantize(format, &row)?);
                quant::dequantize(format, &bytes[begin..], &mut back)?;
            }
            (None, Format::F16) => {
                write_elements(&row, &mut back, &mut bytes, f16::from_f32, f16::to_le_bytes)
            }
            (None, Format::BF16) => write_elements(
                &row,
                &mut back,
                &mut bytes,
                bf16::from_f32,
                bf16::to_le_bytes,
            ),
            (None, _) => write_elements(&row, &mut back, &mut bytes, |v| v, f32::to_le_bytes),
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

/// Writes unquantised values, and returns them as rounded.
fn write_elements<T: Copy + Into<f32>, const N: usize>(
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
    use tempfile::TempDir;

    use super::*;
    use crate::file::Metadata;

    /// A file with f32 matrices of several shapes.
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
    fn every_target_is_written_within_its_error() {
        // Approximate rounding error with this many bits, for uniformly distributed values.
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
    fn rows_that_do_not_fill_blocks_get_smaller_blocks() {
        let dir = TempDir::new().unwrap();
        let source = model(&dir);
        let path = dir.path().join("out");
        quantize(&source, &path, Format::Q4_K, false, |_| {}).unwrap();
        let written = Model::open(&path).unwrap();
        let format = |name| written.info(name).unwrap().format;
        assert_eq!(
            format("token_embd.weight"),
            Format::Q6_K,
            "it affects every token"
        );
        assert_eq!(format("blk.0.attn_q.weight"), Format::Q4_K);
        assert_eq!(format("blk.0.attn_k.weight"), Format::Q5_0);
        assert_eq!(format("blk.0.attn_v.weight"), Format::F16);
        // Quantise again, from blocks.
        let again = dir.path().join("again");
        let mut from = Vec::new();
        quantize(&written, &again, Format::Q8_0, false, |r| {
            from.push((r.from, r.to))
        })
        .unwrap();
        assert!(from.contains(&(Format::Q4_K, Format::Q8_0)), "{from:?}");
    }

    #[test]
    fn unsupported_requests_fail_and_leave_no_file() {
        let dir = TempDir::new().unwrap();
        let source = model(&dir);
        let path = dir.path().join("out");
        assert!(quantize(&source, &path, Format::IQ2_S, false, |_| {}).is_err());
        assert!(quantize(&source, source.path(), Format::Q8_0, false, |_| {}).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
