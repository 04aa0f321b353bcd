//! Our side: a model as the command line runs it.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::{Context as _, Result};
use bench_protocol::{Model, Op, Output, Prepared, Work};
use bessemer::CacheType;
use bessemer::quant::Precision;
use bessemer_llm::model::{Input, Logits, Options, PREFILL_BATCH_TOKENS, Workspace};
use bessemer_llm::{Cache, Transformer, file};

/// A sequence of a model.
pub(super) struct Sequence {
    transformer: Transformer,
    cache: Cache,
    workspace: Workspace,
    prompt: Vec<u32>,
    next: Vec<u32>,
}

/// Loads a model and computes the case once.
pub(crate) fn prepare(op: Op, given: &Model, exact: bool) -> Result<Prepared> {
    let mut sequence = Sequence::open(given, exact)?;
    sequence.prefill()?;
    if op == Op::Decode {
        sequence.decode(given.next.len())?;
    }
    let output = Output::of(sequence.workspace.logits(), f64::from);
    let sequence = Rc::new(RefCell::new(sequence));
    let waking = Rc::clone(&sequence);
    let wake: Work = Box::new(move || to_message(waking.borrow_mut().decode(1)));
    let work: Work = match op {
        Op::Prefill => Box::new(move || to_message(sequence.borrow_mut().prefill())),
        _ => Box::new(move || {
            let mut sequence = sequence.borrow_mut();
            let count = sequence.next.len();
            to_message(sequence.decode(count))
        }),
    };
    Ok(Prepared {
        work,
        output,
        wake: Some(wake),
    })
}

fn to_message(result: Result<()>) -> Result<(), String> {
    result.map_err(|e| format!("{e:#}"))
}

impl Sequence {
    /// Loads a model.
    pub(super) fn open(given: &Model, exact: bool) -> Result<Self> {
        let (precision, cache) = if exact {
            (Precision::Exact, CacheType::F32)
        } else {
            (Precision::Fast, CacheType::F16)
        };
        let options = Options {
            precision,
            context: given.context(),
        };
        let model = file::Model::open(&given.path)?;
        let transformer = Transformer::new(&model, options)?;
        let cache = Cache::new(&transformer, cache, 1, given.context())?;
        Ok(Self {
            transformer,
            cache,
            workspace: Workspace::default(),
            prompt: given.prompt.clone(),
            next: given.next.clone(),
        })
    }

    /// Ends calls with an error once `is_cancelled` returns `true`.
    pub(super) fn cancel_when(&mut self, is_cancelled: impl Fn() -> bool + Send + Sync + 'static) {
        self.workspace.cancel_when(is_cancelled);
    }

    pub(super) fn prefill(&mut self) -> Result<()> {
        self.cache.truncate(0, 0)?;
        let pieces = self.prompt.chunks(PREFILL_BATCH_TOKENS);
        let last = pieces.len().checked_sub(1).context("an empty prompt")?;
        for (i, tokens) in pieces.enumerate() {
            let input = Input {
                sequence: 0,
                tokens,
                logits: if i == last {
                    Logits::Last
                } else {
                    Logits::None
                },
            };
            self.transformer
                .forward(&mut self.cache, &[input], &mut self.workspace)?;
        }
        Ok(())
    }

    pub(super) fn decode(&mut self, count: usize) -> Result<()> {
        self.cache.truncate(0, self.prompt.len())?;
        for token in &self.next[..count] {
            let input = Input {
                sequence: 0,
                tokens: std::slice::from_ref(token),
                logits: Logits::Last,
            };
            self.transformer
                .forward(&mut self.cache, &[input], &mut self.workspace)?;
        }
        Ok(())
    }
}
