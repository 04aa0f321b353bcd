//! Writes the seeds in `corpus/` that are made by the generators of the tests: `cargo run --bin seeds` in this directory.

#[path = "../crates/engine/src/file/tests/fixture.rs"]
mod fixture;
#[path = "../crates/llm/tests/hostile/sample.rs"]
#[expect(dead_code, reason = "llama2.c has no target")]
mod sample;

use std::path::Path;

use bessemer_llm::Tokenizer;
use bessemer_llm::file::{Array, GgufWriter, Model, NewTensor, Value};

/// The sample with the words of another kind of tokenizer: its name, six tokens, and the ids that it wants.
fn with_words(sample: &[u8], kind: &str, tokens: [&str; 6], ids: &[(&str, u32)]) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("m.gguf");
    std::fs::write(&path, sample).expect("room for the sample");
    let sample = Model::open(&path).expect("the sample is right");
    let mut metadata = sample.metadata().clone();
    let tokens = Value::Array(Array::String(tokens.iter().collect()));
    metadata.set("tokenizer.ggml.model", Value::String(kind.to_owned()));
    metadata.set("tokenizer.ggml.tokens", tokens);
    for (name, id) in ids {
        metadata.set(&format!("tokenizer.ggml.{name}_token_id"), Value::U32(*id));
    }
    let tensors: Vec<NewTensor> = sample
        .tensors()
        .map(|t| NewTensor {
            name: t.name.clone(),
            format: t.format,
            shape: t.shape.clone(),
        })
        .collect();
    let path = dir.path().join("other.gguf");
    let mut writer = GgufWriter::create(&path, &metadata, &tensors).expect("a right header");
    for tensor in sample.tensors() {
        let view = sample.tensor(&tensor.name).expect("it is listed");
        writer.push(view.bytes()).expect("room for the tensor");
    }
    writer.finish().expect("all tensors are there");
    Tokenizer::of(&Model::open(&path).expect("it was just written")).expect("right words");
    std::fs::read(path).expect("it was just written")
}

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let write = |target: &str, name: &str, bytes: &[u8]| {
        std::fs::create_dir_all(corpus.join(target))?;
        std::fs::write(corpus.join(target).join(name), bytes)
    };
    for (name, bytes) in sample::gguf().files {
        write("gguf", name, &bytes)?;
        let pieces = ["<unk>", "<s>", "\u{2581}", "a", "b", "ab"];
        let ids = [("unknown", 0), ("bos", 1)];
        let bytes_of = |kind, tokens, ids| with_words(&bytes, kind, tokens, ids);
        write("gguf", "pieces.gguf", &bytes_of("llama", pieces, &ids))?;
        let words = ["[UNK]", "[CLS]", "[SEP]", "\u{2581}a", "b", "\u{2581}ab"];
        let ids = [("unknown", 0), ("cls", 1), ("seperator", 2)];
        write("gguf", "words.gguf", &bytes_of("bert", words, &ids))?;
    }
    for (name, bytes) in sample::safetensors().files {
        match name {
            "tokenizer.json" => write("tokenizer", "byte_level.json", &bytes)?,
            _ if name.ends_with(".safetensors") => write("safetensors", name, &bytes)?,
            _ => {}
        }
    }
    write("safetensors", "numpy.safetensors", fixture::SAFETENSORS)?;
    write("npy", "plain.npy", fixture::PLAIN)?;
    write("npy", "fortran_big_endian.npy", fixture::FORTRAN_BIG_ENDIAN)?;
    write("npy", "version_2.npy", fixture::VERSION_2)?;
    write("npy", "version_3.npy", fixture::VERSION_3)?;
    write("npy", "stored.npz", fixture::STORED)?;
    write("npy", "deflated.npz", fixture::DEFLATED)
}
