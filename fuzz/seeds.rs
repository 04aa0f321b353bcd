//! Writes the seeds in `corpus/` that are made by the generators of the tests: `cargo run --bin seeds` in this directory.

#[path = "../crates/engine/src/file/tests/fixture.rs"]
mod fixture;
#[path = "../crates/llm/tests/hostile/sample.rs"]
#[expect(dead_code, reason = "llama2.c has no target")]
mod sample;

use std::path::Path;

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let write = |target: &str, name: &str, bytes: &[u8]| {
        std::fs::create_dir_all(corpus.join(target))?;
        std::fs::write(corpus.join(target).join(name), bytes)
    };
    for (name, bytes) in sample::gguf().files {
        write("gguf", name, &bytes)?;
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
