//! The files that all contestants read, converted from one model.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use bessemer_llm::file::{Format, GgufWriter, Model, NewTensor, TensorView, Value};
use bessemer_llm::pull::{self, State};
use bessemer_llm::{Tokenizer, quantize};

use crate::ops::worker::root;

/// Resolves a path, or the name of a pulled model.
pub(crate) fn locate(model: &str) -> Result<PathBuf> {
    let Some(listed) = pull::find(model) else {
        let path = PathBuf::from(model);
        ensure!(path.exists(), "there is no file or model {model}");
        return Ok(std::path::absolute(path)?);
    };
    let models = pull::directory()?;
    ensure!(
        listed.state(&models) == State::Ready,
        "{model} is not in {}: run `bessemer pull {model}` first",
        models.display()
    );
    Ok(listed.path(&models))
}

/// The prompt text, which is repeated.
const TEXT: &str = "A forge is never quiet. Before the sun is up someone rakes the ashes, lays new coal and \
    works the bellows until the first sparks fly. The iron waits in bars along the wall, each marked with chalk \
    by the one who bought it. What it will become is settled over tea: hinges for the mill, a gate for the \
    garden, two dozen nails, a pan that must not warp. Then the hammering begins, and it does not stop until \
    the light is gone and the last piece hisses in the trough. ";

/// The first `count` tokens of the text.
pub(crate) fn tokens(path: &Path, count: usize) -> Result<Vec<u32>> {
    let model = Model::open(path)?;
    let once = Tokenizer::of(&model)?.encode(TEXT, false)?;
    ensure!(!once.is_empty(), "the model has no tokens for a text");
    Ok(once.into_iter().cycle().take(count).collect())
}

/// Converts the model to a format; the file is cached below `target`.
pub(crate) fn cached_file(source: &Path, format: Format, is_wide: bool) -> Result<PathBuf> {
    let model = Model::open(source)?;
    let stem = source.file_stem().unwrap_or_default().to_string_lossy();
    let folder = root().join("target/bench-models");
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let model = if is_wide {
        let path = folder.join(format!("{stem}-wide.gguf"));
        if !path.exists() {
            widen(
                &Model::open(cached_file(source, Format::F16, false)?)?,
                &path,
            )?;
        }
        Model::open(path)?
    } else if most_common_format(&model) == Some(format) {
        return Ok(source.to_owned());
    } else {
        model
    };
    let wide = if is_wide { "-wide" } else { "" };
    let path = folder.join(format!("{stem}{wide}-{}.gguf", format.name()));
    if !path.exists() {
        quantize::quantize(&model, &path, format, false, drop)?;
    }
    Ok(path)
}

/// The most common format of a model's matrices.
fn most_common_format(model: &Model) -> Option<Format> {
    let count = |format: Format| model.tensors().filter(|t| t.format == format).count();
    let matrices = model.tensors().filter(|t| t.shape.len() == 2);
    matrices.map(|t| t.format).max_by_key(|f| count(*f))
}

/// Weights of a K-quant super-block.
const SUPER_BLOCK_WEIGHTS: usize = 256;

/// Writes the same model with its width, heads and FFN padded with zeros to multiples of a super-block. The outputs are
/// the same: zeros stay zeros, and norms, whose mean is over more elements, are rescaled.
fn widen(model: &Model, path: &Path) -> Result<()> {
    let number = |key: &str| -> Result<usize> {
        let key = format!("llama.{key}");
        model
            .metadata()
            .count(&key)?
            .with_context(|| format!("the model has no {key}: it is not of the llama architecture"))
    };
    let width = number("embedding_length")?;
    let (heads, kv_heads) = (
        number("attention.head_count")?,
        number("attention.head_count_kv")?,
    );
    let ffn = number("feed_forward_length")?;
    let (dim, group) = (width / heads, heads / kv_heads);
    let wide = width.next_multiple_of(SUPER_BLOCK_WEIGHTS);
    let wide_ffn = ffn.next_multiple_of(SUPER_BLOCK_WEIGHTS);
    ensure!(
        wide.is_multiple_of(dim * group),
        "no whole number of heads of {dim} in groups of {group} fills {wide}"
    );
    let mut metadata = model.metadata().clone();
    for (key, value) in [
        ("embedding_length", wide),
        ("attention.head_count", wide / dim),
        ("attention.head_count_kv", wide / dim / group),
        ("feed_forward_length", wide_ffn),
    ] {
        metadata.set(&format!("llama.{key}"), Value::U32(u32::try_from(value)?));
    }
    // The means of norms include the padding, which is zero.
    let norm = (width as f32 / wide as f32).sqrt();
    let (kv, wide_kv) = (kv_heads * dim, wide / group);
    let length = |n: usize, is_output_of_kv: bool| match n {
        n if is_output_of_kv && n == kv => wide_kv,
        n if n == width => wide,
        n if n == ffn => wide_ffn,
        n => n,
    };
    let views: Vec<TensorView> = model
        .tensors()
        .map(|t| model.tensor(&t.name))
        .collect::<Result<_, _>>()?;
    let shape = |view: &TensorView| -> Vec<usize> {
        let is_kv = view.name().contains("attn_k.") || view.name().contains("attn_v.");
        let sides = view.shape().iter().enumerate();
        sides.map(|(i, &n)| length(n, is_kv && i == 0)).collect()
    };
    let tensors: Vec<NewTensor> = views
        .iter()
        .map(|view| NewTensor {
            name: view.name().to_owned(),
            format: if view.shape().len() == 2 {
                Format::F16
            } else {
                Format::F32
            },
            shape: shape(view),
        })
        .collect();
    let mut writer = GgufWriter::create(path, &metadata, &tensors)?;
    for (view, new) in views.iter().zip(&tensors) {
        let values = view.to_f32()?;
        let (cols, new_cols) = (
            view.shape().last().copied().unwrap_or(1),
            new.shape.last().copied().unwrap_or(1),
        );
        let scale = if view.name().ends_with("norm.weight") {
            norm
        } else {
            1.0
        };
        let mut filled = vec![0.0_f32; new.shape.iter().product()];
        for (from, to) in values.chunks(cols).zip(filled.chunks_mut(new_cols)) {
            for (to, from) in to.iter_mut().zip(from) {
                *to = from * scale;
            }
        }
        let bytes: Vec<u8> = match new.format {
            Format::F16 => filled
                .iter()
                .flat_map(|v| half::f16::from_f32(*v).to_le_bytes())
                .collect(),
            _ => filled.iter().flat_map(|v| v.to_le_bytes()).collect(),
        };
        writer.push(&bytes)?;
    }
    writer.finish()?;
    Ok(())
}
