//! The `.bin` of llama2.c, version 0: a header of seven integers, then f32 weights, ordered by kind.

use std::sync::Arc;

use bessemer::Mapping;

use super::metadata::{Metadata, Value};
use super::{Container, Contents, Format, TensorInfo};
use crate::{Error, Result};

/// Bytes of the header.
const HEADER_BYTES: usize = 7 * 4;
/// Magic number of later versions.
const LATER_VERSION_MAGIC: u32 = 0x616b_3432;
/// Maximum value in the header; a larger one means another kind of file.
const MAX_HEADER_VALUE: i32 = 1 << 24;

struct Header {
    width: usize,
    ffn: usize,
    layers: usize,
    heads: usize,
    kv_heads: usize,
    vocab: usize,
    context: usize,
    is_tied: bool,
}

impl Header {
    /// Reads the header, if it is plausible.
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut numbers = [0_i32; 7];
        for (number, chunk) in numbers
            .iter_mut()
            .zip(bytes.get(..HEADER_BYTES)?.chunks_exact(4))
        {
            *number = i32::from_le_bytes(chunk.try_into().ok()?);
        }
        let [width, ffn, layers, heads, kv_heads, vocab, context] = numbers;
        let count = |n: i32| {
            usize::try_from(n)
                .ok()
                .filter(|&n| n > 0 && n <= MAX_HEADER_VALUE as usize)
        };
        let header = Self {
            width: count(width)?,
            ffn: count(ffn)?,
            layers: count(layers)?,
            heads: count(heads)?,
            kv_heads: count(kv_heads)?,
            vocab: count(vocab.checked_abs()?)?,
            context: count(context)?,
            is_tied: vocab > 0,
        };
        let fits = header.width.is_multiple_of(header.heads)
            && header.heads.is_multiple_of(header.kv_heads)
            && (header.width / header.heads).is_multiple_of(2);
        fits.then_some(header)
    }

    /// The tensors in file order: name, with `#` for the layer, and shape. Those without a name
    /// are unused.
    fn kinds(&self) -> Vec<(&'static str, Vec<usize>)> {
        let Self { width, ffn, .. } = *self;
        let head = width / self.heads;
        let kv = head * self.kv_heads;
        let mut kinds = vec![
            ("token_embd.weight", vec![self.vocab, width]),
            ("blk.#.attn_norm.weight", vec![width]),
            ("blk.#.attn_q.weight", vec![width, width]),
            ("blk.#.attn_k.weight", vec![kv, width]),
            ("blk.#.attn_v.weight", vec![kv, width]),
            ("blk.#.attn_output.weight", vec![width, width]),
            ("blk.#.ffn_norm.weight", vec![width]),
            ("blk.#.ffn_gate.weight", vec![ffn, width]),
            ("blk.#.ffn_down.weight", vec![width, ffn]),
            ("blk.#.ffn_up.weight", vec![ffn, width]),
            ("output_norm.weight", vec![width]),
            // RoPE cosines and sines.
            ("", vec![self.context, head / 2]),
            ("", vec![self.context, head / 2]),
        ];
        if !self.is_tied {
            kinds.push(("output.weight", vec![self.vocab, width]));
        }
        kinds
    }
}

pub(super) fn open(mapping: Arc<Mapping>) -> Result<Contents> {
    let bytes = mapping.bytes();
    let unknown = || {
        Error::bad_file(
            mapping.path(),
            "neither GGUF nor safetensors nor llama2.c: not a model file, or damaged",
        )
    };
    if bytes.starts_with(&LATER_VERSION_MAGIC.to_le_bytes()) {
        let reason = "a later version of llama2.c's files is not supported; export it as version 0";
        return Err(Error::bad_file(mapping.path(), reason));
    }
    let header = Header::read(bytes).ok_or_else(unknown)?;
    let mut tensors = Vec::new();
    let mut at = HEADER_BYTES;
    for (name, shape) in header.kinds() {
        let repeats = if name.contains('#') { header.layers } else { 1 };
        let len = Format::F32.bytes(&shape).ok_or_else(unknown)?;
        // Check that the data of all layers exists before allocating anything for them.
        let end = len.checked_mul(repeats).and_then(|n| n.checked_add(at));
        let end = end.filter(|&e| e <= bytes.len()).ok_or_else(unknown)?;
        if !name.is_empty() {
            for layer in 0..repeats {
                let start = at + layer * len;
                tensors.push(TensorInfo {
                    name: name.replace('#', &layer.to_string()),
                    source: None,
                    format: Format::F32,
                    shape: shape.clone(),
                    shard: 0,
                    range: start..start + len,
                });
            }
        }
        at = end;
    }
    // Random bytes may look like a header, but the length would not match.
    if at != bytes.len() {
        return Err(unknown());
    }
    Ok(Contents {
        container: Container::Llama2c,
        metadata: metadata(&header)?,
        mappings: vec![mapping],
        tensors,
    })
}

fn metadata(header: &Header) -> Result<Metadata> {
    let mut metadata = Metadata::default();
    let mut insert = |key: &str, value| metadata.insert(key.to_owned(), value);
    insert("general.architecture", Value::String("llama".to_owned()))?;
    let counts = [
        ("llama.block_count", header.layers),
        ("llama.context_length", header.context),
        ("llama.embedding_length", header.width),
        ("llama.feed_forward_length", header.ffn),
        ("llama.attention.head_count", header.heads),
        ("llama.attention.head_count_kv", header.kv_heads),
        ("llama.vocab_size", header.vocab),
        ("llama.rope.dimension_count", header.width / header.heads),
    ];
    for (key, count) in counts {
        insert(key, Value::U64(count as u64))?;
    }
    insert("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5))?;
    insert("llama.rope.freq_base", Value::F32(10_000.0))?;
    Ok(metadata)
}
