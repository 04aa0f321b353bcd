use crate::harness::{TestDir, small_gguf};

#[test]
fn a_file_is_shown_with_the_memory_it_needs() {
    let test_dir = TestDir::new();
    test_dir.write("m.gguf", &small_gguf("llama"));
    let result = test_dir.bessemer("inspect m.gguf").exits(0);
    for expected in [
        "m.gguf: GGUF, ",
        "llama: 1 layer, width 64, 2 heads of 32 with 2 for keys and values, ffn 64, 4 tokens, context 128",
        "llama.block_count ",
        "blk.0.attn_q.weight       64 × 64  f32     16 KiB",
        "memory at a context of 128",
        "keys and values, f16",
        "total",
    ] {
        assert!(result.stdout.contains(expected), "{expected}: {result:?}");
    }
    let brief = test_dir
        .bessemer("inspect m.gguf --brief --context 64")
        .exits(0);
    assert!(
        brief.stdout.contains("memory at a context of 64"),
        "{brief:?}"
    );
    assert!(!brief.stdout.contains("blk.0"), "{brief:?}");
}

#[test]
fn json_has_the_same() {
    let test_dir = TestDir::new();
    test_dir.write("m.gguf", &small_gguf("llama"));
    let json = test_dir
        .bessemer("inspect m.gguf --json --context 64")
        .exits(0)
        .json();
    assert_eq!(json["container"], "GGUF");
    assert_eq!(json["metadata"]["llama.block_count"], 1);
    assert_eq!(json["metadata"]["general.architecture"], "llama");
    assert_eq!(json["config"]["heads"], 2);
    assert_eq!(json["formats"]["f32"]["tensors"], 11);
    assert_eq!(json["tensors"][0]["name"], "token_embd.weight");
    assert_eq!(json["tensors"][0]["shape"], serde_json::json!([4, 64]));
    // Two vectors of 64 in f16 for each position.
    assert_eq!(json["memory"]["cache"], 64 * 2 * 64 * 2);
    let parts = ["weights", "repacked", "cache", "scratch", "program"];
    let sum: u64 = parts
        .iter()
        .map(|p| json["memory"][p].as_u64().unwrap())
        .sum();
    assert_eq!(json["memory"]["total"], sum);
}

#[test]
fn an_unknown_architecture_is_shown_and_named() {
    let test_dir = TestDir::new();
    test_dir.write("m.gguf", &small_gguf("mamba"));
    let result = test_dir.bessemer("inspect m.gguf").exits(0);
    assert!(
        result
            .stdout
            .contains("cannot be run: architecture `mamba` is not supported"),
        "{result:?}"
    );
    assert!(
        result.stdout.contains("supported: llama, qwen2"),
        "{result:?}"
    );
    assert!(!result.stdout.contains("memory at"), "{result:?}");
    let json = test_dir.bessemer("inspect m.gguf --json").exits(0).json();
    assert!(json["error"].as_str().unwrap().contains("mamba"), "{json}");
}

#[test]
fn a_damaged_file_is_an_error_and_not_a_crash() {
    let test_dir = TestDir::new();
    let whole = small_gguf("llama");
    test_dir.write("cut.gguf", &whole[..whole.len() - 1]);
    test_dir.write("text.gguf", b"not a model at all");
    let result = test_dir.bessemer("inspect cut.gguf").exits(2);
    assert!(
        result.stderr.contains("past the end of the file"),
        "{result:?}"
    );
    let result = test_dir.bessemer("inspect text.gguf").exits(2);
    assert!(result.stderr.contains("not a model file"), "{result:?}");
}
