//! Models larger than the caches: random weights in the shapes of Qwen2.5, in the mixture of formats `Q4_K_M`.
//!
//! They have the llama architecture, which every contestant supports, and the tokenizer of the given model, padded with
//! unused tokens. Weights are drawn as blocks, not quantised from floats: the speed does not depend on their values.
//! Their standard deviation is that of trained weights, so that the contestants' logits can be compared.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use bessemer_llm::file::{Array, Format, GgufWriter, Metadata, Model, NewTensor, Value};
use half::f16;

use crate::ops::worker::root;

/// The sizes of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The name for `--formats`.
    pub(crate) name: &'static str,
    layers: usize,
    width: usize,
    ffn: usize,
    heads: usize,
    kv_heads: usize,
    vocabulary: usize,
}

/// Qwen2.5 0.5B and 1.5B.
pub(crate) const SHAPES: [Shape; 2] = [
    Shape {
        name: "0.5b-q4_k_m",
        layers: 24,
        width: 896,
        ffn: 4864,
        heads: 14,
        kv_heads: 2,
        vocabulary: 151_936,
    },
    Shape {
        name: "1.5b-q4_k_m",
        layers: 28,
        width: 1536,
        ffn: 8960,
        heads: 12,
        kv_heads: 2,
        vocabulary: 151_936,
    },
];

impl Shape {
    /// The file, which is cached below `target`.
    pub(crate) fn cached_file(&self, tokenizer: &Path) -> Result<PathBuf> {
        let folder = root().join("target/bench-models");
        std::fs::create_dir_all(&folder)?;
        let path = folder.join(format!("random-{}.gguf", self.name));
        if !path.exists() {
            self.write(Model::open(tokenizer)?.metadata(), &path)?;
        }
        Ok(path)
    }

    fn write(&self, tokenizer: &Metadata, path: &Path) -> Result<()> {
        let metadata = self.metadata(tokenizer)?;
        let tensors = self.tensors();
        let mut writer = GgufWriter::create(path, &metadata, &tensors)?;
        let mut random = Random(0x9E37_79B9_7F4A_7C15);
        for tensor in &tensors {
            writer.push(&bytes(tensor, &mut random)?)?;
        }
        writer.finish()?;
        Ok(())
    }

    fn metadata(&self, tokenizer: &Metadata) -> Result<Metadata> {
        let mut metadata = tokenizer.clone();
        metadata.set("general.name", Value::String(self.name.to_owned()));
        let head = self.width / self.heads;
        for (key, value) in [
            ("block_count", self.layers),
            ("context_length", 32_768),
            ("embedding_length", self.width),
            ("feed_forward_length", self.ffn),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
            ("rope.dimension_count", head),
            ("vocab_size", self.vocabulary),
        ] {
            metadata.set(&format!("llama.{key}"), Value::U32(u32::try_from(value)?));
        }
        metadata.set("llama.rope.freq_base", Value::F32(1e6));
        // llama.cpp's id of this mixture.
        metadata.set("general.file_type", Value::U32(15));
        let Some(Value::Array(Array::String(tokens))) = metadata.get("tokenizer.ggml.tokens")
        else {
            anyhow::bail!("the model has no tokenizer in GGUF's own form");
        };
        let count = tokens.len();
        ensure!(count <= self.vocabulary, "the tokenizer has {count} tokens");
        let unused = (count..self.vocabulary).map(|i| format!("<|unused_{i}|>"));
        let tokens = tokens.iter().map(str::to_owned).chain(unused).collect();
        metadata.set("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
        if let Some(Value::Array(Array::I32(types))) = metadata.get("tokenizer.ggml.token_type") {
            const UNUSED: i32 = 5;
            let mut types = types.clone();
            types.resize(self.vocabulary, UNUSED);
            metadata.set("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
        }
        Ok(metadata)
    }

    fn tensors(&self) -> Vec<NewTensor> {
        let (width, ffn) = (self.width, self.ffn);
        let kv = self.width / self.heads * self.kv_heads;
        let matrix = |name: String, rows: usize, cols: usize, is_fine: bool| NewTensor {
            name,
            format: format(cols, is_fine),
            shape: vec![rows, cols],
        };
        let norm = |name: String| NewTensor {
            name,
            format: Format::F32,
            shape: vec![width],
        };
        // The output head is tied to the embedding.
        let mut all = vec![
            matrix("token_embd.weight".to_owned(), self.vocabulary, width, true),
            norm("output_norm.weight".to_owned()),
        ];
        for i in 0..self.layers {
            let name = |stem: &str| format!("blk.{i}.{stem}.weight");
            let is_fine = is_fine(i, self.layers);
            all.extend([
                norm(name("attn_norm")),
                matrix(name("attn_q"), width, width, false),
                matrix(name("attn_k"), kv, width, false),
                matrix(name("attn_v"), kv, width, is_fine),
                matrix(name("attn_output"), width, width, false),
                norm(name("ffn_norm")),
                matrix(name("ffn_gate"), ffn, width, false),
                matrix(name("ffn_up"), ffn, width, false),
                matrix(name("ffn_down"), width, ffn, is_fine),
            ]);
        }
        all
    }
}

/// Layers in which the mixture has more bits for `v` and `down`: the first eighth, the last eighth, and every third in
/// between.
fn is_fine(layer: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

/// As in llama.cpp: rows whose length is not a multiple of 256 use legacy quants with more bits.
fn format(cols: usize, is_fine: bool) -> Format {
    match (cols.is_multiple_of(256), is_fine) {
        (true, true) => Format::Q6_K,
        (true, false) => Format::Q4_K,
        (false, true) => Format::Q8_0,
        (false, false) => Format::Q5_0,
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// The bytes of a tensor: norms are ones, matrices have mean 0 and standard deviation `1 / √cols`.
fn bytes(tensor: &NewTensor, random: &mut Random) -> Result<Vec<u8>> {
    let size = tensor.format.bytes(&tensor.shape);
    let mut bytes = vec![0; size.context("a shape of whole blocks")?];
    if tensor.format == Format::F32 {
        for value in bytes.chunks_exact_mut(4) {
            value.copy_from_slice(&1_f32.to_le_bytes());
        }
        return Ok(bytes);
    }
    random.fill(&mut bytes);
    let deviation = 1.0 / (tensor.shape[1] as f32).sqrt();
    for block in bytes.chunks_exact_mut(tensor.format.block_bytes()) {
        scale(tensor.format, block, deviation);
    }
    Ok(bytes)
}

/// Sets the scales of a block of random bits.
fn scale(format: Format, block: &mut [u8], deviation: f32) {
    let mut half = |at: usize, value: f32| {
        block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
    };
    // The standard deviation of uniformly distributed integers is their count divided by √12.
    let of_bits = |bits: i32| 2_f32.powi(bits) / 12_f32.sqrt();
    match format {
        Format::Q5_0 => half(0, deviation / of_bits(5)),
        Format::Q8_0 => half(0, deviation / of_bits(8)),
        Format::Q4_K => {
            // 6-bit scales and offsets have the same distribution, with a root mean square of 37: the offset cancels
            // the mean of 7.5.
            let d = deviation / of_bits(4) / 37.0;
            half(0, d);
            half(2, 7.5 * d);
            let scales: &mut [u8] = &mut block[4..16];
            scales.copy_within(0..4, 4);
            for byte in &mut scales[8..] {
                *byte = (*byte & 15) | (*byte << 4);
            }
        }
        Format::Q6_K => {
            // Signed 8-bit scales: root mean square 74.
            half(208, deviation / of_bits(6) / 74.0);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use bessemer::quant::{self, BlockFormat};

    use super::*;

    /// A small model with both kinds of rows.
    fn small(width: usize) -> Shape {
        Shape {
            name: "small",
            layers: 2,
            width,
            ffn: 512,
            heads: 4,
            kv_heads: 2,
            vocabulary: 64,
        }
    }

    fn tokenizer() -> Metadata {
        let mut metadata = Metadata::default();
        let text = |text: &str| Value::String(text.to_owned());
        metadata.set("general.architecture", text("llama"));
        metadata.set("tokenizer.ggml.model", text("gpt2"));
        let tokens = (0..40).map(|i| format!("t{i}")).collect();
        metadata.set("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
        metadata.set(
            "tokenizer.ggml.token_type",
            Value::Array(Array::I32(vec![1; 40])),
        );
        metadata
    }

    fn written(shape: &Shape) -> Result<(tempfile::TempDir, Model)> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("small.gguf");
        shape.write(&tokenizer(), &path)?;
        Ok((folder, Model::open(&path)?))
    }

    #[test]
    fn weights_have_the_requested_mean_and_deviation_in_every_format() -> Result<()> {
        for width in [256, 288] {
            let (_folder, model) = written(&small(width))?;
            let mut formats = Vec::new();
            for tensor in model.tensors().filter(|t| t.shape.len() == 2) {
                let id = tensor.format.ggml_id().context("a format of GGUF")?;
                let blocks = BlockFormat::from_ggml_type(id).context("blocks")?;
                let mut values = vec![0.0; tensor.shape.iter().product()];
                quant::dequantize(blocks, model.tensor(&tensor.name)?.bytes(), &mut values)?;
                let count = values.len() as f64;
                let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / count;
                let square = values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / count;
                let wanted = 1.0 / (tensor.shape[1] as f64).sqrt();
                let deviation = square.sqrt() / wanted;
                assert!((0.85..1.15).contains(&deviation), "{tensor:?}: {deviation}");
                assert!(mean.abs() < 0.1 * wanted, "{tensor:?}: mean {mean}");
                formats.push(tensor.format);
            }
            let wanted = match width {
                256 => [Format::Q4_K, Format::Q6_K],
                _ => [Format::Q5_0, Format::Q8_0],
            };
            assert!(wanted.iter().all(|f| formats.contains(f)), "{formats:?}");
        }
        Ok(())
    }

    #[test]
    fn vocabularies_are_padded() -> Result<()> {
        let (_folder, model) = written(&small(256))?;
        let tokens = model.metadata().get("tokenizer.ggml.tokens");
        let Some(Value::Array(tokens)) = tokens else {
            anyhow::bail!("no tokens");
        };
        assert_eq!(tokens.len(), 64);
        assert_eq!(tokens.get(39), Some(Value::String("t39".to_owned())));
        assert_eq!(model.tensor("token_embd.weight")?.shape(), [64, 256]);
        Ok(())
    }

    #[test]
    fn the_mixture_matches_llama_cpp() {
        let fine: Vec<usize> = (0..24).filter(|&i| is_fine(i, 24)).collect();
        assert_eq!(fine, [0, 1, 2, 5, 8, 11, 14, 17, 20, 21, 22, 23]);
    }
}
