use crate::harness::{TestDir, small_gguf};

#[test]
fn a_model_is_written_in_fewer_bits_with_its_errors() {
    let test_dir = TestDir::new();
    test_dir.write("m.gguf", &small_gguf("llama"));
    let result = test_dir
        .bessemer("quantize m.gguf q.gguf --to q8_0")
        .exits(0);
    assert!(result.stdout.contains("blk.0.attn_q.weight"), "{result:?}");
    assert!(result.stdout.contains("largest error: "), "{result:?}");
    let json = test_dir.bessemer("inspect q.gguf --json").exits(0).json();
    assert_eq!(json["formats"]["q8_0"]["tensors"], 8);
    assert_eq!(json["formats"]["f32"]["tensors"], 3, "norms stay");
    assert_eq!(json["metadata"]["general.file_type"], 7);
    assert_eq!(json["metadata"]["llama.block_count"], 1);

    let again = test_dir
        .bessemer("quantize m.gguf q.gguf --to q8_0")
        .exits(2);
    assert!(again.stderr.contains("--force"), "{again:?}");
    let json = test_dir
        .bessemer("quantize m.gguf q.gguf --to q4_0 --pure --force --json")
        .exits(0)
        .json();
    assert_eq!(json["to"], "q4_0");
    let tensors = json["tensors"].as_array().unwrap();
    let embedding = &tensors[0];
    assert_eq!(embedding["to"], "q4_0");
    let error = embedding["relative_error"].as_f64().unwrap();
    assert!(error > 0.001 && error < 0.12, "{error}");
    assert_eq!(
        tensors[1]["relative_error"],
        serde_json::Value::Null,
        "a norm"
    );
    assert!(json["bytes"].as_u64() < json["bytes_before"].as_u64());
}

#[test]
fn failed_quantization_leaves_no_file() {
    let test_dir = TestDir::new();
    test_dir.write("m.gguf", &small_gguf("llama"));
    let own = test_dir
        .bessemer("quantize m.gguf m.gguf --to q8_0 --force")
        .exits(2);
    assert!(
        own.stderr.contains("cannot overwrite the source model"),
        "{own:?}"
    );
    test_dir.write("m.bin", b"not a model");
    test_dir
        .bessemer("quantize m.bin q.gguf --to q8_0")
        .exits(2);
    assert!(!test_dir.path("q.gguf").exists());
    assert_eq!(test_dir.read("m.gguf"), small_gguf("llama"));
}
