//! Language models as candle's own examples run them.

use std::fs::File;
use std::io::BufReader;

use bench_protocol::{Model, Op, Output, Prepared, Work};
use candle_core::quantized::gguf_file;
use candle_core::{Device, Result, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;

/// Loads a model and computes the case once.
pub(crate) fn prepare(op: Op, given: &Model) -> Result<Prepared> {
    let mut file = BufReader::new(File::open(&given.path)?);
    let content = gguf_file::Content::read(&mut file)?;
    let empty = ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?;
    // A clone shares the weights and has a separate KV cache.
    let mut filled = empty.clone();
    let mut logits = forward(&mut filled, &given.prompt, 0)?;
    let start = given.prompt.len();
    let Some(&token) = given.next.first() else {
        candle_core::bail!("no token follows the prompt");
    };
    let woken = filled.clone();
    let wake: Work = Box::new(move || {
        let mut model = woken.clone();
        forward(&mut model, &[token], start)
            .map(drop)
            .map_err(|e| e.to_string())
    });
    let work: Work = if op == Op::Prefill {
        let prompt = given.prompt.clone();
        Box::new(move || {
            let mut model = empty.clone();
            forward(&mut model, &prompt, 0)
                .map(drop)
                .map_err(|e| e.to_string())
        })
    } else {
        logits = steps(&mut filled.clone(), &given.next, start)?;
        let next = given.next.clone();
        Box::new(move || {
            let mut model = filled.clone();
            steps(&mut model, &next, start)
                .map(drop)
                .map_err(|e| e.to_string())
        })
    };
    Ok(Prepared {
        work,
        output: Output::of(&logits, f64::from),
        wake: Some(wake),
    })
}

/// The logits after the last of these tokens.
fn forward(model: &mut ModelWeights, tokens: &[u32], position: usize) -> Result<Vec<f32>> {
    let tokens = Tensor::new(tokens, &Device::Cpu)?.unsqueeze(0)?;
    model.forward(&tokens, position)?.squeeze(0)?.to_vec1()
}

fn steps(model: &mut ModelWeights, next: &[u32], start: usize) -> Result<Vec<f32>> {
    let mut logits = Vec::new();
    for (i, &token) in next.iter().enumerate() {
        logits = forward(model, &[token], start + i)?;
    }
    Ok(logits)
}
