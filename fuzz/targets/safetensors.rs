//! safetensors, as tensors and as a model with a description beside it.
#![no_main]

#[path = "../../crates/llm/tests/hostile/read.rs"]
#[expect(dead_code, reason = "the vocabulary is the tokenizer's target")]
mod read;
#[path = "../../crates/llm/tests/hostile/sample.rs"]
#[expect(dead_code, reason = "other formats have targets of their own")]
mod sample;

use std::sync::Once;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    static BESIDE: Once = Once::new();
    BESIDE.call_once(|| {
        for (name, bytes) in sample::safetensors().files {
            bessemer_fuzz::file(name, &bytes);
        }
    });
    let path = bessemer_fuzz::file("model.safetensors", bytes);
    if let Ok(file) = bessemer::safetensors::load(&path) {
        for (_, tensor) in &file.tensors {
            assert!(tensor.eval().is_ok());
            assert!(!tensor.to_string().is_empty());
        }
    }
    read::read_model(&path);
});
