//! Shared code of the commands that run language models: options, and loading a model.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bessemer::CacheType;
use bessemer::Device;
use bessemer::quant::Precision;
use bessemer_hal::DeviceKind;
use bessemer_llm::file::Model;
use bessemer_llm::generate::{Finish, Report, Session, WhenFull};
use bessemer_llm::memory::{self, Estimate};
use bessemer_llm::model::Options;
use bessemer_llm::pull::{self as models, State};
use bessemer_llm::{ChatTemplate, Config, Sampling, Tokenizer, Transformer};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;

use crate::args::count;
use crate::failure::Usage;
use crate::pull;
use crate::terminal::{self, style};

/// Model options.
#[derive(Debug, Clone, Args)]
pub(crate) struct ModelArgs {
    /// Model to use: a file, a directory or a name listed by `bessemer models`, which is pulled on first use
    #[arg(short, long, value_name = "PATH|NAME", default_value = DEFAULT_MODEL)]
    pub(crate) model: String,
    /// Device to run on
    #[arg(long, value_enum, default_value_t = DeviceArg::Auto)]
    pub(crate) device: DeviceArg,
    /// Multiply dequantised weights with f32 activations, and keep f32 keys and values
    ///
    /// Otherwise activations on the CPU are quantised to 8 bits with a scale per 32 of them, as in llama.cpp: the error of
    /// each is at most 0.4 % of the largest of its 32. Prompts may be multiplied by f16 or bf16 weights in 13-bit fixed
    /// point: the error of activations is at most 0.013 % of the largest of 128, that of weights at most 0.025 %.
    #[arg(long)]
    pub(crate) exact: bool,
    /// Context size in tokens [default: the model's own, at most 4096]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) context: Option<usize>,
    /// Type of the KV cache [default: f16; with --exact f32]
    ///
    /// q8_0 has 8 bits and a scale per 32 elements: the error of each is at most 0.45 % of the largest of its 32, and
    /// the cache takes about half the memory of f16. All three types are supported on every device.
    #[arg(long, value_enum, value_name = "TYPE")]
    pub(crate) cache: Option<CacheArg>,
    /// Shift the context when it is full, instead of ending the answer
    ///
    /// The first tokens are kept, the older half of the others is dropped, and the rest is recomputed at its new
    /// positions. A chat also drops its oldest questions and answers if they take more than half of the context.
    #[arg(long)]
    pub(crate) context_shift: bool,
    /// Number of first tokens to keep when the context is shifted [default: the prompt; at most half of the context]
    #[arg(long, value_name = "N", requires = "context_shift")]
    pub(crate) keep: Option<usize>,
    /// Threads to use [default: all cores]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) threads: Option<usize>,
}

/// Default model.
pub(crate) const DEFAULT_MODEL: &str = "smollm2";

/// Default context size in tokens, unless the model's is smaller; the KV cache is allocated for it.
const DEFAULT_CONTEXT_TOKENS: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceArg {
    /// An Apple GPU if there is one, otherwise the CPU; or the device set by BESSEMER_DEVICE
    Auto,
    /// The CPU
    Cpu,
    /// An Apple GPU
    Metal,
    /// The software Metal device: the GPU's kernels on the CPU, for testing rather than speed
    Soft,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CacheArg {
    /// Full precision
    F32,
    /// Half the memory
    F16,
    /// A quarter of the memory
    #[value(name = "q8_0")]
    Q8_0,
}

impl From<CacheArg> for CacheType {
    fn from(arg: CacheArg) -> Self {
        match arg {
            CacheArg::F32 => Self::F32,
            CacheArg::F16 => Self::F16,
            CacheArg::Q8_0 => Self::Q8_0,
        }
    }
}

/// Sampling options.
#[derive(Debug, Clone, Args)]
pub(crate) struct SamplingArgs {
    /// Sampling temperature: 0 is greedy, higher is more varied [default: 0, in a chat 0.7]
    #[arg(short, long, value_name = "T", allow_negative_numbers = true)]
    pub(crate) temperature: Option<f32>,
    /// Sample from the K most likely tokens only; 0 is all of them
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub(crate) top_k: usize,
    /// Sample from the most likely tokens whose probabilities add up to P
    #[arg(
        long,
        value_name = "P",
        default_value_t = 1.0,
        allow_negative_numbers = true
    )]
    pub(crate) top_p: f32,
    /// Sample from tokens with at least this share of the most likely token's probability
    #[arg(
        long,
        value_name = "P",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    pub(crate) min_p: f32,
    /// Locally typical sampling, up to probability P
    #[arg(
        long,
        value_name = "P",
        default_value_t = 1.0,
        allow_negative_numbers = true
    )]
    pub(crate) typical: f32,
    /// Repetition penalty; values above 1 discourage repeats
    #[arg(
        long,
        value_name = "X",
        default_value_t = 1.0,
        allow_negative_numbers = true
    )]
    pub(crate) repetition_penalty: f32,
    /// Subtract this from the logits of tokens that have occurred
    #[arg(
        long,
        value_name = "X",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    pub(crate) presence_penalty: f32,
    /// Subtract this from the logits of tokens for every time they have occurred
    #[arg(
        long,
        value_name = "X",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    pub(crate) frequency_penalty: f32,
    /// Add X to the logit of a token, given by its id; may be repeated
    #[arg(long, value_name = "TOKEN=X", value_parser = bias)]
    pub(crate) logit_bias: Vec<(u32, f32)>,
    /// Stop at this text; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    /// Seed of the sampler; the same seed gives the same text
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Maximum number of tokens to generate [default: until the model stops or the context is full]
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    pub(crate) max_tokens: Option<usize>,
}

fn bias(text: &str) -> Result<(u32, f32), String> {
    let parse = || {
        let (token, bias) = text.split_once('=')?;
        Some((token.parse().ok()?, bias.parse().ok()?))
    };
    parse().ok_or_else(|| "expected TOKEN=BIAS, such as 42=-1.5".to_owned())
}

impl SamplingArgs {
    /// The sampling parameters; `temperature` is the default temperature.
    pub(crate) fn sampling(&self, temperature: f32) -> Result<Sampling> {
        let sampling = Sampling {
            logit_bias: self.logit_bias.clone(),
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            top_k: self.top_k,
            typical: self.typical,
            top_p: self.top_p,
            min_p: self.min_p,
            temperature: self.temperature.unwrap_or(temperature),
            seed: self.seed,
            ..Sampling::default()
        };
        let checked = sampling.check();
        checked.map_err(|e| Usage::error(e.to_string()))?;
        Ok(sampling)
    }

    /// Rejects biases of unknown tokens.
    pub(crate) fn check_tokens(&self, tokenizer: &Tokenizer) -> Result<()> {
        let count = tokenizer.vocab();
        match self.logit_bias.iter().find(|(id, _)| *id as usize >= count) {
            Some((id, _)) => Err(Usage::error(format!(
                "--logit-bias: there is no token {id}; the vocabulary has {count}"
            ))),
            None => Ok(()),
        }
    }

    /// Maximum number of tokens to generate.
    pub(crate) fn limit(&self) -> usize {
        self.max_tokens.unwrap_or(usize::MAX)
    }
}

/// The name of a device on the command line.
pub(crate) fn short_name(device: &Device) -> &'static str {
    match device.hal().map(|hal| hal.info().kind) {
        None => "cpu",
        Some(DeviceKind::Apple) => "metal",
        Some(DeviceKind::Software) => "soft",
        Some(_) => "other",
    }
}

/// Bytes of memory that a model may take on a device, if known.
fn available(device: &Device) -> Option<u64> {
    let limit = device.hal().map(|hal| {
        let all = hal.info().recommended_working_set;
        all.saturating_sub(device.memory().in_use) as u64
    });
    memory::available().into_iter().chain(limit).min()
}

/// A model that is ready to generate.
pub(crate) struct Loaded {
    /// The name from the command line, or the file name.
    pub(crate) name: String,
    /// Its device, as named on the command line.
    pub(crate) device: &'static str,
    pub(crate) file: Model,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) session: Session,
}

impl ModelArgs {
    /// Options with defaults for everything else.
    pub(crate) fn of(model: &str, device: DeviceArg, threads: Option<usize>) -> Self {
        Self {
            model: model.to_owned(),
            device,
            exact: true,
            context: None,
            cache: None,
            context_shift: false,
            keep: None,
            threads,
        }
    }

    /// Opens the device.
    pub(crate) fn device(&self) -> Result<Device> {
        let device = match self.device {
            DeviceArg::Auto => Device::current(),
            DeviceArg::Cpu => Ok(Device::cpu()),
            DeviceArg::Metal => Device::metal(),
            DeviceArg::Soft => Device::software(),
        };
        device.map_err(|e| Usage::error(e.to_string()))
    }

    /// Opens the model file; a model named by `bessemer models` is pulled first if it is missing.
    pub(crate) fn open(&self) -> Result<Model> {
        if let Some(n) = self.threads {
            let used = bessemer::pool::set_threads(n);
            if used < n {
                let note = format!("using {used} threads, one for each core");
                terminal::write_message("note", style::WARNING, &note);
            }
        }
        let path = locate(&self.model)?;
        Ok(Model::open(&path)?)
    }

    /// Loads a model for generation, if it fits in memory.
    pub(crate) fn load(&self) -> Result<Loaded> {
        self.load_for(DEFAULT_CONTEXT_TOKENS)
    }

    /// As [`ModelArgs::load`], with another default context size.
    pub(crate) fn load_for(&self, default_context: usize) -> Result<Loaded> {
        let device = self.device()?;
        let file = self.open()?;
        let config = Config::of(&file)?;
        let kind = if self.exact {
            CacheType::F32
        } else {
            CacheType::F16
        };
        let precision = if self.exact || !device.is_cpu() {
            Precision::Exact
        } else {
            Precision::Fast
        };
        let kind = self.cache.map_or(kind, CacheType::from);
        let context = self.context.unwrap_or(config.context.min(default_context));
        if context > config.context {
            let note = format!(
                "a context of {context} is longer than the {} that the model was trained for",
                config.context
            );
            terminal::write_message("note", style::WARNING, &note);
        }
        let tokenizer = Tokenizer::of(&file)?;
        if let Some(available) = available(&device) {
            Estimate::of(&file, &config, context, kind, precision).check(available)?;
        }
        let transformer = Transformer::on(&device, &file, Options { precision, context })?;
        let mut session = Session::new(Arc::new(transformer), kind)?;
        // Kernels are compiled on first use, which takes a minute on the software device.
        let wait = ProgressBar::new_spinner().with_message("compiling kernels");
        if !device.is_cpu() {
            wait.enable_steady_tick(Duration::from_millis(120));
        }
        let outcome = session.warm_up();
        wait.finish_and_clear();
        outcome?;
        Ok(Loaded {
            name: name(&self.model),
            device: short_name(&device),
            session,
            tokenizer,
            file,
        })
    }
}

impl Loaded {
    /// Enables context shift if requested; by default, `prompt` tokens are kept.
    pub(crate) fn shift(&mut self, args: &ModelArgs, prompt: usize) {
        if args.context_shift {
            let keep = args.keep.unwrap_or(prompt);
            self.session.when_full(WhenFull::Shift { keep });
        }
    }

    /// The chat template, if the model has one.
    pub(crate) fn template(&self) -> Result<Option<ChatTemplate>> {
        Ok(ChatTemplate::of(&self.file, &self.tokenizer)?)
    }
}

/// The display name of a model: its name, or the file name.
fn name(model: &str) -> String {
    let path = Path::new(model);
    match path.file_name() {
        Some(file) if path.exists() => file.to_string_lossy().into_owned(),
        _ => model.to_owned(),
    }
}

/// Resolves the path or name of a model, and pulls it if it is missing.
fn locate(model: &str) -> Result<PathBuf> {
    let path = PathBuf::from(model);
    if path.exists() {
        return Ok(path);
    }
    let Some(listed) = models::find(model) else {
        let names: Vec<_> = models::MODELS.iter().map(|m| m.name).collect();
        return Err(Usage::error(format!(
            "no file or model `{model}`; known models are {}",
            names.join(", ")
        )));
    };
    let folder = models::directory()?;
    match listed.state(&folder) {
        State::Ready => Ok(listed.path(&folder)),
        _ => pull::fetch(listed, &folder),
    }
}

/// Writes the speed to standard error, and the limit that truncated the text, if any.
pub(crate) fn write_speed(report: &Report, context: usize) {
    let quiet = style::QUIET;
    // If standard error is closed, there is nowhere to report it.
    let _ = writeln!(
        terminal::stderr(),
        "{quiet}prompt {}{} at {:.1} tok/s · {} at {:.1} tok/s · first after {:.0} ms{} · {}{quiet:#}",
        terminal::counted(report.prefilled + report.reused, "token"),
        match report.reused {
            0 => String::new(),
            n => format!(" ({n} reused)"),
        },
        report.prefill_speed(),
        terminal::counted(report.ids.len(), "token"),
        report.decode_speed(),
        report.first.as_secs_f64() * 1000.0,
        match report.shifts {
            0 => String::new(),
            n => format!(" · context shifted {}", terminal::times(n)),
        },
        report.finish.name()
    );
    let note = match report.finish {
        Finish::MaxTokens => format!(
            "the text was cut off after {}: see --max-tokens",
            terminal::counted(report.ids.len(), "token")
        ),
        Finish::Context => format!(
            "the text was cut off: the context of {context} tokens is full; see --context and --context-shift"
        ),
        _ => return,
    };
    terminal::write_message("note", style::WARNING, &note);
}
