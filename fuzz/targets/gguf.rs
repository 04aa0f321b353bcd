//! GGUF: headers, metadata, tensors, the description of the model, its vocabulary and its template.
#![no_main]

#[path = "../../crates/llm/tests/hostile/read.rs"]
mod read;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = bessemer_fuzz::file("m.gguf", bytes);
    if let Some(model) = read::read_model(&path) {
        read::use_words(&model);
    }
});
