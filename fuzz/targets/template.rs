//! Chat templates: parsed and rendered, with the limits on steps that keep them from running for ever.
#![no_main]

use std::sync::LazyLock;

// For its limit on memory.
use bessemer_fuzz as _;
use bessemer_llm::{ChatTemplate, Message, Tokenizer};
use libfuzzer_sys::fuzz_target;

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let json = include_str!("../corpus/tokenizer/byte_level.json");
    Tokenizer::of_json(json).expect("a valid seed")
});

fuzz_target!(|source: &str| {
    let Ok(template) = ChatTemplate::new(source, "<s>", "</s>", &TOKENIZER) else {
        return;
    };
    let messages = [
        Message::system("be brief"),
        Message::user("hi <s> \u{e9}"),
        Message::assistant(""),
    ];
    let add_generation_prompt = source.len() % 2 == 0;
    if let Ok(prompt) = template.render(&messages, add_generation_prompt) {
        let _ = TOKENIZER.encode_prompt(&prompt);
    }
});
