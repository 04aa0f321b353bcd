//! The estimate of `bessemer inspect` against the memory of `bessemer generate`.

use std::path::Path;

use bessemer::quant::{BlockFormat, quantize};
use bessemer_llm::file::{Format, GgufWriter, Model, NewTensor, Value};
use bessemer_llm::pull::{self, State};

use crate::harness::TestDir;

/// Writes a model of 0.4 billion weights with the vocabulary of another model.
fn write_large(source: &Model, path: &Path) {
    let (layers, width, ffn, heads, kv) = (24, 896, 4864, 14, 2);
    let vocab = source.info("token_embd.weight").unwrap().shape[0];
    let mut metadata = source.metadata().clone();
    for (key, value) in [
        ("block_count", layers),
        ("embedding_length", width),
        ("feed_forward_length", ffn),
        ("attention.head_count", heads),
        ("attention.head_count_kv", kv),
        ("rope.dimension_count", width / heads),
    ] {
        metadata.set(&format!("llama.{key}"), Value::U32(value as u32));
    }
    let kv = width / heads * kv;
    let tensor = |name: String, format, shape: &[usize]| NewTensor {
        name: name + ".weight",
        format,
        shape: shape.to_vec(),
    };
    let mut tensors = vec![
        tensor("token_embd".to_owned(), Format::Q8_0, &[vocab, width]),
        tensor("output_norm".to_owned(), Format::F32, &[width]),
    ];
    for i in 0..layers {
        tensors.extend(
            [
                ("attn_norm", Format::F32, &[width][..]),
                ("attn_q", Format::Q4_0, &[width, width]),
                ("attn_k", Format::Q4_0, &[kv, width]),
                ("attn_v", Format::Q8_0, &[kv, width]),
                ("attn_output", Format::Q4_0, &[width, width]),
                ("ffn_norm", Format::F32, &[width]),
                ("ffn_gate", Format::Q4_0, &[ffn, width]),
                ("ffn_up", Format::Q4_0, &[ffn, width]),
                ("ffn_down", Format::Q5_0, &[width, ffn]),
            ]
            .map(|(name, format, shape)| tensor(format!("blk.{i}.{name}"), format, shape)),
        );
    }
    let values: Vec<f32> = (0..ffn).map(|i| (i as f32 * 0.61).sin() * 0.05).collect();
    let mut writer = GgufWriter::create(path, &metadata, &tensors).unwrap();
    for tensor in &tensors {
        let cols = *tensor.shape.last().unwrap();
        let row = match tensor
            .format
            .ggml_id()
            .and_then(BlockFormat::from_ggml_type)
        {
            Some(format) => quantize(format, &values[..cols]).unwrap(),
            None => [1.0_f32.to_le_bytes()].concat().repeat(cols),
        };
        let rows = tensor.shape.iter().product::<usize>() / cols;
        writer.push(&row.repeat(rows)).unwrap();
    }
    writer.finish().unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn inspect_predicts_the_peak_of_generate_within_five_percent() {
    let folder = pull::directory().unwrap();
    let listed = pull::find("smollm2").unwrap();
    assert_eq!(
        listed.state(&folder),
        State::Ready,
        "run `bessemer pull smollm2` first"
    );
    let small = listed.path(&folder);
    let test_dir = TestDir::new();
    let large = test_dir.path("large.gguf");
    write_large(&Model::open(&small).unwrap(), &large);
    // Every word is a token: the prompt and the answer fill the context.
    struct Case<'a>(&'a Path, usize);
    for Case(path, context) in [Case(&small, 512), Case(&large, 128)] {
        let prompt = "river ".repeat(context - 24);
        for options in [&[][..], &["--exact"]] {
            let context = context.to_string();
            let run = |args: &[&str]| {
                let output = test_dir
                    .command()
                    .args(args)
                    .args(options)
                    .args(["--json", "--context", &context])
                    .output()
                    .unwrap();
                assert!(output.status.success(), "{output:?}");
                serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
            };
            let model = path.to_str().unwrap();
            let predicted = &run(&["inspect", "--brief", model])["memory"];
            let answer = [
                "generate", "--raw", "-m", model, "--device", "cpu", "-n", "16", &prompt,
            ];
            let result = run(&answer);
            let tokens = result["prompt_ids"].as_array().unwrap().len();
            assert!(
                tokens + 40 >= context.parse::<usize>().unwrap(),
                "{tokens} tokens"
            );
            let (total, peak) = (
                predicted["total"].as_f64().unwrap(),
                result["peak_memory"].as_f64().unwrap(),
            );
            let error = total / peak - 1.0;
            assert!(
                error.abs() <= 0.05,
                "{model} {options:?}: predicted {total}, was {peak}: {error:+.3}: {predicted}"
            );
        }
    }
}
