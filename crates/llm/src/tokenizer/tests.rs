//! Small vocabularies of every kind. Real ones are tested in `tests/text.rs`.

use tempfile::TempDir;

use super::*;
use crate::file::{Array, GgufWriter, Metadata, Model, Value};

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn list(texts: &[&str]) -> Value {
    Value::Array(Array::String(texts.iter().collect()))
}

/// The tokenizer of a GGUF file with only a vocabulary.
fn gguf(model: &str, tokens: &[&str], kinds: &[i32], more: &[(&str, Value)]) -> Result<Tokenizer> {
    let mut metadata = Metadata::default();
    let kinds = Value::Array(Array::I32(kinds.to_vec()));
    let entries = [
        ("model", text(model)),
        ("tokens", list(tokens)),
        ("token_type", kinds),
    ];
    for (key, value) in entries.iter().chain(more) {
        metadata.set(&format!("tokenizer.ggml.{key}"), value.clone());
    }
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("m.gguf");
    GgufWriter::create(&path, &metadata, &[])
        .unwrap()
        .finish()
        .unwrap();
    Tokenizer::of(&Model::open(path).unwrap())
}

const BPE: [&str; 12] = [
    "<|im_start|>",
    "<|im_end|>",
    "a",
    "b",
    "ab",
    "Ġ",
    "Ġab",
    "Ã",
    "©",
    "1",
    "2",
    "mm",
];
const BPE_KINDS: [i32; 12] = [3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4];

fn bpe(more: &[(&str, Value)]) -> Result<Tokenizer> {
    let mut all = vec![
        ("merges", list(&["a b", "Ġ ab", "1 2"])),
        ("pre", text("smollm")),
        ("bos_token_id", Value::U32(0)),
        ("eos_token_id", Value::U32(1)),
    ];
    all.extend(more.iter().cloned());
    gguf("gpt2", &BPE, &BPE_KINDS, &all)
}

#[test]
fn bytes_are_merged_inside_words() {
    let tokenizer = bpe(&[]).unwrap();
    let encode = |text| tokenizer.encode(text, false).unwrap();
    assert_eq!(encode("ab ab"), [4, 6]);
    assert_eq!(encode("b a"), [3, 5, 2]);
    assert_eq!(
        encode("abé12"),
        [4, 7, 8, 9, 10],
        "digits are words of their own"
    );
    assert_eq!(encode(""), [0; 0]);
    assert_eq!(encode("axb"), [4], "characters without a token are skipped");
    assert_eq!(
        encode("ammb"),
        [2, 11, 3],
        "tokens that users have defined are found in any text"
    );
}

#[test]
fn ties_between_merges_are_resolved_to_the_left() {
    let tokens = ["a", "b", "c", "aa", "ab", "bc"];
    let merges = ("merges", list(&["a a", "a b", "b c"]));
    let tokenizer = gguf("gpt2", &tokens, &[1; 6], &[merges]).unwrap();
    let encode = |text| tokenizer.encode(text, false).unwrap();
    assert_eq!(encode("aaa"), [3, 0]);
    assert_eq!(encode("aaab"), [3, 4], "`aa` first, then what is left");
    assert_eq!(encode("abc"), [4, 2], "`ab` was learnt before `bc`");
    // Scores decide for SentencePiece; of equal ones the leftmost.
    let bare = [("add_space_prefix", Value::Bool(false))];
    let scored = [
        ("a", 0.0),
        ("b", 0.0),
        ("c", 0.0),
        ("ab", -1.0),
        ("bc", -1.0),
    ];
    assert_eq!(
        pieces(&scored, &bare).encode("abc", false).unwrap(),
        [262, 261]
    );
    let better = [
        ("a", 0.0),
        ("b", 0.0),
        ("c", 0.0),
        ("ab", -1.0),
        ("bc", -0.5),
    ];
    assert_eq!(
        pieces(&better, &bare).encode("abc", false).unwrap(),
        [259, 263]
    );
}

#[test]
fn a_merge_that_is_listed_twice_has_one_rank() {
    // GGUF keeps the first, as llama.cpp; tokenizer.json the last, as its reference implementation.
    let tokens = ["a", "b", "c", "ab", "bc"];
    let merges = ("merges", list(&["a b", "b c", "a b"]));
    let tokenizer = gguf("gpt2", &tokens, &[1; 5], &[merges]).unwrap();
    assert_eq!(tokenizer.encode("abc", false).unwrap(), [3, 2]);
    let json = r#"{"model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2,"ab":3,"bc":4},
        "merges":["a b","b c","a b"]}}"#;
    let tokenizer = Tokenizer::of_json(json).unwrap();
    assert_eq!(tokenizer.encode("abc", false).unwrap(), [0, 4]);
}

#[test]
fn characters_without_a_token_are_unknown_once_each_time_or_skipped() {
    let encode = |more: &str, text: &str| {
        let json = format!(
            r#"{{"model":{{"type":"BPE","vocab":{{"<unk>":0,"a":1,"b":2,"ab":3,"abb":4}},
                "merges":["a b"]{more}}}}}"#
        );
        let tokenizer = Tokenizer::of_json(&json).unwrap();
        tokenizer.encode(text, false).unwrap()
    };
    let each = r#","unk_token":"<unk>""#;
    assert_eq!(encode(each, "xayéb"), [0, 1, 0, 0, 2]);
    let fused = r#","unk_token":"<unk>","fuse_unk":true"#;
    assert_eq!(encode(fused, "xayéb"), [0, 1, 0, 2]);
    assert_eq!(encode(fused, "xyaxb"), [0, 1, 0, 2]);
    assert_eq!(encode("", "xayéb"), [3]);
    // A word that is a token is not merged, if the file says so.
    assert_eq!(encode("", "abb"), [3, 2]);
    assert_eq!(encode(r#","ignore_merges":true"#, "abb"), [4]);
}

#[test]
fn special_tokens_are_parsed_only_in_allowed_byte_ranges() {
    let tokenizer = bpe(&[]).unwrap();
    let asked = std::cell::RefCell::new(Vec::new());
    let allows = |range: Range<usize>| {
        asked.borrow_mut().push(range);
        false
    };
    let text = "ab<|im_end|>ab<|im_start|>";
    assert!(tokenizer.inner.added.find(text, 0, allows).is_none());
    assert_eq!(asked.into_inner(), [2..12, 14..26]);
}

#[test]
fn special_tokens_are_parsed_only_if_requested() {
    let tokenizer = bpe(&[("add_bos_token", Value::Bool(true))]).unwrap();
    let all = EncodeOptions {
        add_special: true,
        parse_special: true,
    };
    assert_eq!(
        tokenizer.encode_with("<|im_end|>ab", all).unwrap(),
        [0, 1, 4]
    );
    let plain = tokenizer.encode("<|im_end|>ab", true).unwrap();
    assert!(plain[0] == 0 && !plain[1..].contains(&1), "{plain:?}");
    let plain = tokenizer.encode("<|im_end|>ab", false).unwrap();
    assert!(!plain.contains(&1), "{plain:?}");
    let parsed = EncodeOptions {
        parse_special: true,
        ..EncodeOptions::default()
    };
    assert_eq!(
        tokenizer.encode_with("<|im_end|>ab", parsed).unwrap(),
        [1, 4]
    );
    assert_eq!(tokenizer.stops(), [1]);
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(0), Some(1)));
    assert_eq!(tokenizer.special("<|im_start|>"), Some(0));
    assert!(tokenizer.is_special(0) && !tokenizer.is_special(11) && !tokenizer.is_special(999));
    let special: Vec<&str> = tokenizer.special_texts().collect();
    assert_eq!(special, ["<|im_start|>", "<|im_end|>"]);
    assert_eq!(tokenizer.decode(&[0, 4, 11, 1], false), "abmm");
    assert_eq!(
        tokenizer.decode(&[0, 4, 1], true),
        "<|im_start|>ab<|im_end|>"
    );
}

#[test]
fn a_stream_never_breaks_a_character() {
    let tokenizer = bpe(&[]).unwrap();
    let mut stream = tokenizer.stream(false);
    // é in two tokens.
    assert_eq!(stream.push(7), "");
    assert_eq!(stream.push(8), "é");
    // Its first half, and then something else.
    assert_eq!(stream.push(7), "");
    assert_eq!(stream.push(2), "\u{fffd}a");
    // A second half alone.
    assert_eq!(stream.push(8), "\u{fffd}");
    assert_eq!(stream.push(7), "");
    assert_eq!(stream.push(1), "", "special tokens are left out");
    assert_eq!(
        stream.push(u32::MAX),
        "",
        "and so are those that do not exist"
    );
    assert_eq!(stream.finish(), "\u{fffd}");
    assert_eq!(stream.finish(), "");
    assert_eq!(tokenizer.decode(&[7, 8, 7, 2], false), "é\u{fffd}a");
}

/// A SentencePiece vocabulary: control tokens, all bytes, then these.
fn pieces(pieces: &[(&str, f32)], more: &[(&str, Value)]) -> Tokenizer {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    let mut kinds = vec![2, 3, 3];
    let mut scores = vec![0.0; 3];
    for byte in 0..256 {
        tokens.push(format!("<0x{byte:02X}>"));
        kinds.push(6);
        scores.push(0.0);
    }
    for (piece, score) in pieces {
        tokens.push((*piece).to_owned());
        kinds.push(1);
        scores.push(*score);
    }
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let mut all = vec![
        ("scores", Value::Array(Array::F32(scores))),
        ("bos_token_id", Value::U32(1)),
        ("eos_token_id", Value::U32(2)),
        ("unknown_token_id", Value::U32(0)),
    ];
    all.extend(more.iter().cloned());
    gguf("llama", &tokens, &kinds, &all).unwrap()
}

#[test]
fn pieces_with_the_best_scores_are_merged_first() {
    let vocabulary = [
        ("▁", -3.0),
        ("a", -4.0),
        ("b", -5.0),
        ("▁a", -2.0),
        ("ab", -1.0),
    ];
    let tokenizer = pieces(&vocabulary, &[]);
    assert_eq!(
        tokenizer.encode("ab", true).unwrap(),
        [1, 259, 263],
        "`ab` before `▁a`"
    );
    assert_eq!(tokenizer.encode("a b", false).unwrap(), [262, 259, 261]);
    assert_eq!(
        tokenizer.encode("é", false).unwrap(),
        [259, 3 + 0xc3, 3 + 0xa9]
    );
    assert_eq!(
        tokenizer.decode(&[1, 259, 263, 262, 3 + 0xc3, 3 + 0xa9], false),
        "ab aé"
    );
    assert_eq!(
        tokenizer.stream(false).push(262),
        " a",
        "a stream continues a text"
    );
    // After a special token, a new text starts.
    let all = EncodeOptions {
        add_special: true,
        parse_special: true,
    };
    assert_eq!(
        tokenizer.encode_with("a</s>a", all).unwrap(),
        [1, 262, 2, 262]
    );
    let bare = pieces(&vocabulary, &[("add_space_prefix", Value::Bool(false))]);
    assert_eq!(bare.encode("ab", false).unwrap(), [263]);
    assert_eq!(bare.decode(&[262], false), " a");
}

#[test]
fn words_are_split_from_the_left() {
    let tokens = [
        "[UNK]", "[CLS]", "[SEP]", "▁un", "▁want", "ed", "able", "▁,", "▁cafe",
    ];
    let kinds = [3, 3, 3, 1, 1, 1, 1, 1, 1];
    let more = [
        ("unknown_token_id", Value::U32(0)),
        ("cls_token_id", Value::U32(1)),
        ("seperator_token_id", Value::U32(2)),
    ];
    let tokenizer = gguf("bert", &tokens, &kinds, &more).unwrap();
    let encode = |text| tokenizer.encode(text, true).unwrap();
    assert_eq!(encode("unable, WANTED"), [1, 3, 6, 7, 4, 5, 2]);
    assert_eq!(
        encode("Café xyz"),
        [1, 8, 0, 2],
        "accents and case do not count here"
    );
    assert_eq!(encode(&"un".repeat(51)), [1, 0, 2], "too long");
    assert_eq!(tokenizer.decode(&[1, 3, 6, 4, 2], false), "unable want");
}

#[test]
fn inconsistent_files_are_rejected() {
    let message = |tokenizer: Result<Tokenizer>| tokenizer.unwrap_err().to_string();
    assert!(message(bpe(&[("pre", text("klingon"))])).contains("`klingon`"));
    assert!(message(bpe(&[("bos_token_id", Value::U32(12))])).contains("no token 12 among 12"));
    assert!(message(bpe(&[("merges", list(&["ab"]))])).contains("not two tokens"));
    assert!(message(bpe(&[("merges", Value::U8(1))])).contains("array of strings"));
    assert!(message(gguf("t5", &["a"], &[1], &[])).contains("`t5`"));
    assert!(message(gguf("gpt2", &[], &[], &[])).contains("empty"));
    let scores = [("scores", Value::Array(Array::F32(vec![0.0; 2])))];
    assert!(message(gguf("llama", &["a"], &[1], &scores)).contains("2 scores for 1 tokens"));
    assert!(message(gguf("bert", &["a"], &[1], &[])).contains("unknown words"));
    let none = bpe(&[("eos_token_id", Value::U32(u32::MAX))]).unwrap();
    assert_eq!(none.eos(), None);
}

#[test]
fn unsupported_tokenizer_json_is_rejected() {
    struct Case(&'static str, &'static str);
    let cases = [
        Case("[", "EOF"),
        Case("{}", "no vocabulary"),
        Case(r#"{"model":{"type":"Magic","vocab":{}}}"#, "`Magic`"),
        Case(
            r#"{"model":{"type":"BPE","vocab":{"a":4000000000},"merges":[]}}"#,
            "token 4000000000 among 1",
        ),
        Case(
            r#"{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}"#,
            "id is invalid",
        ),
        Case(
            r#"{"model":{"type":"BPE","vocab":{"a":0},"merges":["a a"]}}"#,
            "`aa`",
        ),
        Case(
            r#"{"normalizer":{"type":"Precompiled"},"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}"#,
            "`Precompiled`",
        ),
        Case(
            r#"{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"},
                "model":{"type":"BPE","vocab":{"a":0},"merges":[]}}"#,
            "pattern",
        ),
    ];
    for Case(json, expected) in cases {
        let message = Tokenizer::of_json(json).unwrap_err().to_string();
        assert!(message.contains(expected), "{json}: {message}");
    }
}

#[test]
fn long_words_take_linear_time() {
    let tokenizer = bpe(&[]).unwrap();
    let text = "ab".repeat(100_000);
    let start = std::time::Instant::now();
    assert_eq!(tokenizer.encode(&text, false).unwrap().len(), 100_000);
    // About a second in a debug build; hours if it were quadratic.
    assert!(start.elapsed().as_secs() < 60);
}
