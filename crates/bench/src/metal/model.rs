//! Prefill and decode of a language model, on the device and on the CPU.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use bessemer::CacheType;
use bessemer::Device;
use bessemer::quant::{self, BlockFormat, Precision};
use bessemer::random::{self, Key};
use bessemer_llm::file::{Format, GgufWriter, Metadata, Model, NewTensor, Value};
use bessemer_llm::generate::{Options, Session};
use bessemer_llm::model::{self, Input, Logits, Workspace};
use bessemer_llm::pull::{self, State};
use bessemer_llm::{Cache, Sampling, Transformer};

use super::case::agree;
use crate::measure::Timing;
use crate::report::Comparison;

/// The model to run.
pub(super) struct ModelCase {
    /// Keeps the temporary directory of the file alive.
    #[expect(dead_code, reason = "removes the file at its end")]
    folder: tempfile::TempDir,
    path: PathBuf,
    name: String,
    prompt: usize,
    tokens: usize,
}

/// Sizes of a generated model.
struct Sizes {
    layers: usize,
    width: usize,
    ffn: usize,
    heads: usize,
    kv_heads: usize,
    vocab: usize,
    format: BlockFormat,
}

impl ModelCase {
    /// The given model; otherwise SmolLM2 if it was pulled, or else a generated one with 0.4 billion weights.
    pub(super) fn of(model: Option<&Path>, quick: bool) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let made = folder.path().join("made.gguf");
        let smollm2 = pull::find("smollm2").context("a listed model")?;
        let models = pull::directory()?;
        let is_there = smollm2.state(&models) == State::Ready;
        let (path, name) = match model {
            Some(path) => (path.to_owned(), path.display().to_string()),
            None if quick => {
                write(&made, &TINY)?;
                (made, "made model, tiny".to_owned())
            }
            None if is_there => (smollm2.path(&models), "SmolLM2 135M".to_owned()),
            None => {
                write(&made, &HALF_BILLION)?;
                (made, "made model, 0.4B q4_0".to_owned())
            }
        };
        let (prompt, tokens) = if quick { (9, 4) } else { (256, 64) };
        Ok(Self {
            folder,
            path,
            name,
            prompt,
            tokens,
        })
    }

    /// Comparisons of prefill and decode, with the device's absolute rates.
    pub(super) fn measure(
        &self,
        device: &Device,
        rounds: usize,
    ) -> Result<Vec<(Comparison, String)>> {
        let file = Model::open(&self.path)?;
        let load = |device: &Device, precision| {
            let options = model::Options {
                precision,
                context: self.prompt + self.tokens + 1,
            };
            Transformer::on(device, &file, options).map(Arc::new)
        };
        let ours = load(device, Precision::Exact)?;
        let vocab = u32::try_from(ours.config().vocab)?;
        let prompt: Vec<u32> = (0..self.prompt as u32)
            .map(|i| (7 + i * 31) % vocab)
            .collect();
        let exact = load(&Device::cpu(), Precision::Exact)?;
        // Another order of summation and f16 keys: relative to the largest logit.
        agree(&logits(&ours, &prompt)?, &logits(&exact, &prompt)?, 0.02)
            .with_context(|| format!("logits of {}", self.name))?;
        drop(exact);
        let contestants = [ours, load(&Device::cpu(), Precision::Fast)?];
        // Prefill and decode of both, interleaved; the first round compiles kernels.
        let mut times = [const { [Vec::new(), Vec::new()] }; 2];
        for round in 0..=rounds {
            for (transformer, times) in contestants.iter().zip(&mut times) {
                let seconds = self.once(transformer, &prompt)?;
                for (times, seconds) in times.iter_mut().zip(seconds) {
                    if round > 0 {
                        times.push(seconds);
                    }
                }
            }
        }
        let [ours, cpu] = times.map(|t| t.map(Timing::of));
        let [ours_prefill, ours_decode] = ours;
        let [cpu_prefill, cpu_decode] = cpu;
        let row = |what: &str, count: usize, ours: Timing, cpu: Timing| {
            let case = format!("{what} {}, {count} tokens", self.name);
            let note = format!(
                "{case}: {:.1} tok/s, on the CPU {:.1}",
                count as f64 / ours.median,
                count as f64 / cpu.median
            );
            let row = Comparison {
                case,
                ours,
                peer: Some(("CPU".to_owned(), cpu)),
                goal: 1.0,
            };
            (row, note)
        };
        Ok(vec![
            row("prefill", self.prompt, ours_prefill, cpu_prefill),
            row("decode", self.tokens, ours_decode, cpu_decode),
        ])
    }

    /// Seconds of the prefill, and of decoding the tokens after the first.
    fn once(&self, transformer: &Arc<Transformer>, prompt: &[u32]) -> Result<[f64; 2]> {
        let mut session = Session::new(Arc::clone(transformer), CacheType::F16)?;
        let options = Options {
            sampling: Sampling::default(),
            max_tokens: self.tokens + 1,
            stops: Vec::new(),
        };
        let report = session.generate(prompt, &options, |_| ControlFlow::Continue(()))?;
        ensure!(
            report.ids.len() == self.tokens + 1 && report.prefilled == prompt.len(),
            "{} tokens after a prompt of {}",
            report.ids.len(),
            report.prefilled
        );
        Ok([report.prefill.as_secs_f64(), report.decode.as_secs_f64()])
    }
}

/// The logits after a prompt and after one more token.
fn logits(transformer: &Transformer, prompt: &[u32]) -> Result<Vec<f32>> {
    let mut cache = Cache::new(transformer, CacheType::F16, 1, transformer.context())?;
    let mut workspace = Workspace::default();
    let mut all = Vec::new();
    for tokens in [prompt, &prompt[..1]] {
        let input = Input {
            sequence: 0,
            tokens,
            logits: Logits::Last,
        };
        transformer.forward(&mut cache, &[input], &mut workspace)?;
        all.extend_from_slice(workspace.logits());
    }
    Ok(all)
}

const TINY: Sizes = Sizes {
    layers: 2,
    width: 64,
    ffn: 96,
    heads: 2,
    kv_heads: 1,
    vocab: 96,
    format: BlockFormat::Q8_0,
};

/// The sizes of Qwen2.5 0.5B, with a smaller vocabulary.
const HALF_BILLION: Sizes = Sizes {
    layers: 24,
    width: 896,
    ffn: 4864,
    heads: 14,
    kv_heads: 2,
    vocab: 32768,
    format: BlockFormat::Q4_0,
};

/// Writes a model of the llama architecture with random weights.
fn write(path: &Path, sizes: &Sizes) -> Result<()> {
    let &Sizes {
        layers,
        width,
        ffn,
        heads,
        kv_heads,
        vocab,
        format,
    } = sizes;
    let mut metadata = Metadata::default();
    metadata.set("general.architecture", Value::String("llama".to_owned()));
    for (key, value) in [
        ("block_count", layers),
        ("context_length", 4096),
        ("embedding_length", width),
        ("feed_forward_length", ffn),
        ("attention.head_count", heads),
        ("attention.head_count_kv", kv_heads),
    ] {
        metadata.set(&format!("llama.{key}"), Value::U32(u32::try_from(value)?));
    }
    metadata.set("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5));
    let kv = width / heads * kv_heads;
    let blocks = Format::of_name(format.name()).context("a format of files too")?;
    let mut tensors = Vec::new();
    let mut add = |name: String, format, shape: &[usize]| {
        tensors.push(NewTensor {
            name: name + ".weight",
            format,
            shape: shape.to_vec(),
        });
    };
    add("token_embd".to_owned(), blocks, &[vocab, width]);
    add("output_norm".to_owned(), Format::F32, &[width]);
    for i in 0..layers {
        for (name, format, shape) in [
            ("attn_norm", Format::F32, &[width][..]),
            ("attn_q", blocks, &[width, width]),
            ("attn_k", blocks, &[kv, width]),
            ("attn_v", blocks, &[kv, width]),
            ("attn_output", blocks, &[width, width]),
            ("ffn_norm", Format::F32, &[width]),
            ("ffn_gate", blocks, &[ffn, width]),
            ("ffn_up", blocks, &[ffn, width]),
            ("ffn_down", blocks, &[width, ffn]),
        ] {
            add(format!("blk.{i}.{name}"), format, shape);
        }
    }
    let mut writer = GgufWriter::create(path, &metadata, &tensors)?;
    for (i, tensor) in tensors.iter().enumerate() {
        let count: usize = tensor.shape.iter().product();
        let cols = tensor.shape.last().copied().unwrap_or(1);
        let bytes: Vec<u8> = match tensor.format {
            Format::F32 => [1.0_f32.to_le_bytes()].concat().repeat(count),
            _ => {
                let key = Key::new(i as u64);
                let values = Device::cpu().scope(|| {
                    let scale = 1.0 / (cols as f64).sqrt();
                    let x = random::normal(&key, [count], bessemer::DType::F32);
                    (&x * scale).to_vec::<f32>()
                })?;
                quant::quantize(format, &values)?
            }
        };
        writer.push(&bytes)?;
    }
    writer.finish()?;
    Ok(())
}
