//! `tokenizer.json`: every model, normalizer, splitter and decoder, and texts through them.
#![no_main]

#[path = "../../crates/llm/tests/hostile/read.rs"]
#[expect(
    dead_code,
    reason = "of what is done with a model, this is the tokenizer's part"
)]
mod read;

// For its limit on memory.
use bessemer_fuzz as _;
use bessemer_llm::Tokenizer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|json: &str| {
    if let Ok(tokenizer) = Tokenizer::of_json(json) {
        read::use_tokenizer(&tokenizer);
    }
});
