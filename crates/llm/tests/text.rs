//! Tokenizers and the chat template of real models, against ids from other implementations.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::path::{Path, PathBuf};

use bessemer_llm::file::Model;
use bessemer_llm::pull::{self, State};
use bessemer_llm::{ChatTemplate, EncodeOptions, Message, Tokenizer};
use serde_json::Value;

/// The path of a pulled model.
fn path(name: &str) -> PathBuf {
    let models = pull::directory().unwrap();
    let listed = pull::find(name).unwrap();
    assert_eq!(
        listed.state(&models),
        State::Ready,
        "{name} is not in {}: run `bessemer pull {name}`",
        models.display()
    );
    listed.path(&models)
}

fn golden(name: &str) -> Value {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let text = std::fs::read_to_string(data.join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    let id = |v: &Value| u32::try_from(v.as_u64().unwrap()).unwrap();
    value.as_array().unwrap().iter().map(id).collect()
}

#[test]
fn smollm2_encodes_the_golden_prompts() {
    let model = Model::open(path("smollm2")).unwrap();
    let tokenizer = Tokenizer::of(&model).unwrap();
    for name in ["once_upon_64", "chat_france"] {
        let golden = golden(&format!("smollm2-135m-instruct-q4_1_{name}.json"));
        let prompt = golden["prompt"].as_str().unwrap();
        let options = EncodeOptions {
            add_special: true,
            parse_special: true,
        };
        assert_eq!(
            tokenizer.encode_with(prompt, options).unwrap(),
            ids(&golden["prompt_ids"])
        );
        assert_eq!(tokenizer.decode(&ids(&golden["prompt_ids"]), true), prompt);
        let answer = tokenizer.decode(&ids(&golden["generated_ids"]), true);
        assert_eq!(answer, golden["generated_text"]);
    }
    assert_eq!(tokenizer.vocab(), 49_152);
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(1), Some(2)));
    assert_eq!(tokenizer.stops(), [0, 2]);
}

#[test]
fn smollm2_renders_the_golden_chat() {
    let model = Model::open(path("smollm2")).unwrap();
    let tokenizer = Tokenizer::of(&model).unwrap();
    let template = ChatTemplate::of(&model, &tokenizer).unwrap().unwrap();
    let golden = golden("smollm2-135m-instruct-q4_1_chat_france.json");
    let messages = [Message::user("What is the capital of France?")];
    let prompt = template.render(&messages, true).unwrap();
    assert_eq!(prompt.text(), golden["prompt"]);
    assert_eq!(
        tokenizer.encode_prompt(&prompt).unwrap(),
        ids(&golden["prompt_ids"])
    );
}

#[test]
fn stories15m_encodes_the_golden_texts() {
    let model = Model::open(path("stories15m")).unwrap();
    let tokenizer = Tokenizer::of(&model).unwrap();
    let cases = golden("llama_spm_tokenizer_cases.json");
    for case in cases["cases"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        assert_eq!(
            tokenizer.encode(text, true).unwrap(),
            ids(&case["ids"]),
            "{text}"
        );
        assert_eq!(tokenizer.decode(&ids(&case["ids"]), false), text);
    }
    let story = golden("stories15M_once_upon_64.json");
    let all: Vec<u32> = [ids(&story["prompt_ids"]), ids(&story["generated_ids"])].concat();
    assert_eq!(tokenizer.decode(&all, false), story["text"]);
    assert!(ChatTemplate::of(&model, &tokenizer).unwrap().is_none());
}

#[test]
fn minilm_encodes_the_golden_texts() {
    let model = Model::open(path("minilm")).unwrap();
    let tokenizer = Tokenizer::of(&model).unwrap();
    let golden = golden("all-MiniLM-L6-v2_embeddings.json");
    for case in golden["cases"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        assert_eq!(
            tokenizer.encode(text, true).unwrap(),
            ids(&case["input_ids"]),
            "{text}"
        );
    }
    assert_eq!(
        tokenizer.decode(&[101, 2008, 2003, 1037, 3407, 2711, 999, 102], false),
        "that is a happy person!"
    );
}

#[test]
fn streaming_decodes_to_the_same_text() {
    let model = Model::open(path("smollm2")).unwrap();
    let tokenizer = Tokenizer::of(&model).unwrap();
    let text = "naïve café 你好, 世界 🙂👩‍👩‍👧 𝕳 — Straße\n\ttab  two";
    let ids = tokenizer.encode(text, true).unwrap();
    let mut stream = tokenizer.stream(false);
    let mut said = String::new();
    for id in ids {
        let piece = stream.push(id);
        assert!(
            !piece.contains('\u{fffd}'),
            "a character was broken: {piece:?}"
        );
        said.push_str(&piece);
    }
    said.push_str(&stream.finish());
    assert_eq!(said, text);
}
