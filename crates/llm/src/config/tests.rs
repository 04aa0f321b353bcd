//! Configs read from small files of every family.

use std::path::Path;

use bessemer::{RopeScaling, RopeStyle};
use tempfile::TempDir;

use super::*;
use crate::file::{Array, Format, GgufWriter, Model, NewTensor};

/// A GGUF file with this metadata and these tensors in f32.
fn gguf(dir: &TempDir, entries: &[(&str, Value)], tensors: &[(String, Vec<usize>)]) -> Model {
    let mut metadata = Metadata::default();
    for (key, value) in entries {
        metadata.set(key, value.clone());
    }
    let new = |(name, shape): &(String, Vec<usize>)| NewTensor {
        name: name.clone(),
        format: Format::F32,
        shape: shape.clone(),
    };
    let tensors: Vec<NewTensor> = tensors.iter().map(new).collect();
    let path = dir.path().join("m.gguf");
    let mut writer = GgufWriter::create(&path, &metadata, &tensors).unwrap();
    for tensor in &tensors {
        let ones = 1_f32.to_le_bytes().repeat(tensor.shape.iter().product());
        writer.push(&ones).unwrap();
    }
    writer.finish().unwrap();
    Model::open(path).unwrap()
}

/// Metadata of a small model: 2 layers, width 8, FFN 12, 4 query heads of 4, 2 KV heads.
fn entries(architecture: &str) -> Vec<(String, Value)> {
    let mut all = vec![(
        "general.architecture".to_owned(),
        Value::String(architecture.to_owned()),
    )];
    for (key, value) in [
        ("block_count", 2),
        ("embedding_length", 8),
        ("feed_forward_length", 12),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("attention.key_length", 4),
        ("attention.value_length", 4),
        ("context_length", 64),
    ] {
        all.push((format!("{architecture}.{key}"), Value::U32(value)));
    }
    let key = format!("{architecture}.attention.layer_norm_rms_epsilon");
    all.push((key, Value::F32(1e-6)));
    all
}

fn shape(shape: &[usize]) -> Vec<usize> {
    shape.to_vec()
}

/// The tensors of that model.
fn tensors(extra: &[(&str, &[usize])]) -> Vec<(String, Vec<usize>)> {
    let mut all = vec![
        ("token_embd.weight".to_owned(), shape(&[10, 8])),
        ("output_norm.weight".to_owned(), shape(&[8])),
    ];
    let layer: [(&str, &[usize]); 9] = [
        ("attn_q.weight", &[16, 8]),
        ("attn_k.weight", &[8, 8]),
        ("attn_v.weight", &[8, 8]),
        ("attn_output.weight", &[8, 16]),
        ("ffn_gate.weight", &[12, 8]),
        ("ffn_up.weight", &[12, 8]),
        ("ffn_down.weight", &[8, 12]),
        ("attn_norm.weight", &[8]),
        ("ffn_norm.weight", &[8]),
    ];
    for i in 0..2 {
        for (name, axes) in layer.iter().chain(extra) {
            all.push((format!("blk.{i}.{name}"), shape(axes)));
        }
    }
    all
}

fn read(
    architecture: &str,
    more: &[(&str, Value)],
    tensors: &[(String, Vec<usize>)],
) -> Result<Config> {
    let own = entries(architecture);
    let mut all: Vec<(&str, Value)> = own.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
    all.extend(more.iter().cloned());
    let dir = TempDir::new().unwrap();
    Config::of(&gguf(&dir, &all, tensors))
}

#[test]
fn llama_in_gguf_rotates_interleaved_pairs() {
    let config = read("llama", &[], &tensors(&[])).unwrap();
    assert_eq!(config.architecture, Architecture::Llama);
    assert_eq!((config.layers, config.width, config.ffn), (2, 8, 12));
    assert_eq!((config.heads, config.kv_heads, config.head_dim), (4, 2, 4));
    assert_eq!((config.vocab, config.context), (10, 64));
    let rope = config.rope.as_ref().unwrap();
    assert_eq!(
        (rope.style, rope.base, rope.dims),
        (RopeStyle::Interleaved, 10_000.0, 4)
    );
    assert!(config.tied_head && config.is_causal && config.is_gated);
    assert!(!config.qkv_bias && !config.qk_norm && !config.post_norms);
    assert_eq!(config.attention_scale, 0.5);
    assert_eq!(config.window(0), None);
}

#[test]
fn mistral_uses_the_window_in_every_layer() {
    let window = [("llama.attention.sliding_window", Value::U32(16))];
    let config = read("llama", &window, &tensors(&[])).unwrap();
    assert_eq!((config.window(0), config.window(1)), (Some(16), Some(16)));
}

#[test]
fn qwen2_has_biases_and_qwen3_has_qk_norms() {
    let bias: [(&str, &[usize]); 3] = [
        ("attn_q.bias", &[16]),
        ("attn_k.bias", &[8]),
        ("attn_v.bias", &[8]),
    ];
    let config = read("qwen2", &[], &tensors(&bias)).unwrap();
    assert!(config.qkv_bias && !config.qk_norm);
    assert_eq!(config.rope.unwrap().style, RopeStyle::HalfSplit);
    let norms: [(&str, &[usize]); 2] = [("attn_q_norm.weight", &[4]), ("attn_k_norm.weight", &[4])];
    let config = read("qwen3", &[], &tensors(&norms)).unwrap();
    assert!(!config.qkv_bias && config.qk_norm);
    let missing = read("qwen2", &[], &tensors(&bias[..1])).unwrap_err();
    assert!(
        missing
            .to_string()
            .contains("no tensor `blk.0.attn_k.bias`"),
        "{missing}"
    );
}

#[test]
fn gemma_has_local_layers_with_their_own_rope_base() {
    let norms: [(&str, &[usize]); 4] = [
        ("attn_q_norm.weight", &[4]),
        ("attn_k_norm.weight", &[4]),
        ("post_attention_norm.weight", &[8]),
        ("post_ffw_norm.weight", &[8]),
    ];
    let more = [
        ("gemma3.attention.sliding_window", Value::U32(16)),
        ("gemma3.attention.sliding_window_pattern", Value::U32(2)),
        ("gemma3.rope.freq_base", Value::F32(1e6)),
        (
            "gemma3.rope.scaling.type",
            Value::String("linear".to_owned()),
        ),
        ("gemma3.rope.scaling.factor", Value::F32(8.0)),
        ("gemma3.final_logit_softcapping", Value::F32(30.0)),
    ];
    let config = read("gemma3", &more, &tensors(&norms)).unwrap();
    assert!(config.post_norms && config.qk_norm);
    assert_eq!(config.embedding_scale, 8_f64.sqrt());
    assert_eq!(config.activation, Activation::GeluTanh);
    assert_eq!(config.final_softcap, Some(30.0));
    assert_eq!(config.norm.offset, 0.0, "GGUF weights include the 1");
    assert_eq!((config.window(0), config.window(1)), (Some(16), None));
    let second = |layer| {
        let table = config.rope_table(layer, 64).unwrap().unwrap();
        table.frequencies().to_vec::<f64>().unwrap()[1]
    };
    assert_eq!(second(0), 1e4_f64.powf(-0.5));
    assert_eq!(second(1), 1e6_f64.powf(-0.5) / 8.0);
    let default = read("gemma3", &more[..1], &tensors(&norms)).unwrap();
    assert_eq!(
        default.local_layers,
        [true, true],
        "the sixth would be the first global layer"
    );
    let gemma2 = [("gemma2.attention.sliding_window", Value::U32(16))];
    let config = read("gemma2", &gemma2, &tensors(&norms[2..])).unwrap();
    assert_eq!(config.local_layers, [true, false]);
    assert_eq!(
        (config.attention_softcap, config.final_softcap),
        (Some(50.0), Some(30.0))
    );
}

#[test]
fn fused_weights_are_found_as_rows() {
    let mut fused = tensors(&[]);
    fused.retain(|(name, _)| {
        !["attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"]
            .iter()
            .any(|n| name.contains(&format!("{n}.")))
    });
    for i in 0..2 {
        fused.push((format!("blk.{i}.attn_qkv.weight"), shape(&[32, 8])));
        fused.push((format!("blk.{i}.ffn_up.weight"), shape(&[24, 8])));
    }
    let own = entries("phi3");
    let all: Vec<_> = own.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
    let dir = TempDir::new().unwrap();
    let model = gguf(&dir, &all, &fused);
    let config = Config::of(&model).unwrap();
    let whole = model.tensor("blk.1.attn_qkv.weight").unwrap();
    let start = |name: &str| {
        let part = config.weight(&model, name).unwrap();
        let offset = part.bytes().as_ptr().addr() - whole.bytes().as_ptr().addr();
        (part.shape()[0], offset / 4 / 8)
    };
    assert_eq!(start("blk.1.attn_q.weight"), (16, 0));
    assert_eq!(start("blk.1.attn_k.weight"), (8, 16));
    assert_eq!(start("blk.1.attn_v.weight"), (8, 24));
    let gate = config.weight(&model, "blk.0.ffn_gate.weight").unwrap();
    let up = config.weight(&model, "blk.0.ffn_up.weight").unwrap();
    assert_eq!((gate.shape(), up.shape()), (&[12, 8][..], &[12, 8][..]));
    assert!(gate.bytes().as_ptr() < up.bytes().as_ptr());
    assert_eq!(
        config
            .optional_weight(&model, "blk.0.attn_q.bias")
            .unwrap()
            .map(|_| ()),
        None
    );
    // Fewer rows than the metadata requires.
    for (name, axes) in &mut fused {
        if name.contains("attn_qkv") {
            axes[0] = 31;
        }
    }
    assert!(Config::of(&gguf(&dir, &all, &fused)).is_err());
}

#[test]
fn reads_rope_scalings() {
    let scaling = |kind: &str, more: &[(&str, Value)]| {
        let mut all = vec![("llama.rope.scaling.type", Value::String(kind.to_owned()))];
        all.extend(more.iter().cloned());
        let config = read("llama", &all, &tensors(&[]))?;
        Ok::<_, Error>(config.rope.unwrap())
    };
    let factor = ("llama.rope.scaling.factor", Value::F32(4.0));
    let original = ("llama.rope.scaling.original_context_length", Value::U32(16));
    let both = [factor.clone(), original.clone()];
    let fixed = |kind: &str| match scaling(kind, &both).unwrap().scaling {
        Scaling::Fixed(fixed) => fixed,
        other => panic!("{other:?}"),
    };
    assert_eq!(fixed("none"), RopeScaling::None);
    assert_eq!(fixed("linear"), RopeScaling::Linear { factor: 4.0 });
    assert_eq!(fixed("ntk"), RopeScaling::Ntk { factor: 4.0 });
    assert_eq!(
        fixed("yarn"),
        RopeScaling::Yarn {
            factor: 4.0,
            original_context: 16,
            beta_fast: 32.0,
            beta_slow: 1.0
        }
    );
    assert_eq!(
        fixed("llama3"),
        RopeScaling::Llama3 {
            factor: 4.0,
            low_factor: 1.0,
            high_factor: 4.0,
            original_context: 16
        }
    );
    let rope = scaling("dynamic", &both).unwrap();
    let slowest = |context| {
        let table = rope.table(4, context, false).unwrap();
        table.frequencies().to_vec::<f64>().unwrap()[1]
    };
    assert_eq!(slowest(16), 0.01);
    assert!(
        slowest(32) < slowest(17),
        "a longer context rotates more slowly"
    );
    assert!(
        scaling("su", &both)
            .unwrap_err()
            .to_string()
            .contains("`su`")
    );
}

#[test]
fn factors_divide_frequencies_one_by_one() {
    let mut all = tensors(&[]);
    all.push(("rope_freqs.weight".to_owned(), shape(&[2])));
    let config = read("llama", &[], &all).unwrap();
    let plain = read("llama", &[], &tensors(&[])).unwrap();
    let frequencies = |config: &Config| {
        let table = config.rope_table(0, 64).unwrap().unwrap();
        table.frequencies().to_vec::<f64>().unwrap()
    };
    // All factors are 1 in these files.
    assert_eq!(frequencies(&config), frequencies(&plain));
    let lists = |short: f64, long: f64| {
        let list = |v| Value::Array(Array::F64(vec![v; 2]));
        let more = [
            (
                "phi3.rope.scaling.type",
                Value::String("longrope".to_owned()),
            ),
            ("phi3.rope.scaling.original_context_length", Value::U32(16)),
            ("phi3.rope.scaling.short_factor", list(short)),
            ("phi3.rope.scaling.long_factor", list(long)),
        ];
        read("phi3", &more, &tensors(&[]))
    };
    let rope = lists(1.0, 2.0).unwrap().rope.unwrap();
    let first = |context| {
        let table = rope.table(4, context, false).unwrap();
        table.frequencies().to_vec::<f64>().unwrap()[0]
    };
    assert_eq!((first(16), first(17)), (1.0, 0.5));
    assert_eq!(
        rope.attention_factor,
        Some((1.0 + 4_f64.ln() / 16_f64.ln()).sqrt())
    );
    assert!(lists(1.0, 0.0).is_err());
}

#[test]
fn invalid_metadata_is_rejected_by_name() {
    struct Case(&'static str, Value, &'static str);
    let cases = [
        Case("llama.block_count", Value::U32(0), "must not be 0"),
        Case(
            "llama.block_count",
            Value::U32(3),
            "no tensor `blk.2.attn_q.weight`",
        ),
        Case("llama.block_count", Value::U64(1 << 40), "out of range"),
        Case("llama.block_count", Value::U32(1 << 31), "4096"),
        Case("llama.block_count", Value::F32(2.0), "not a natural number"),
        Case(
            "llama.embedding_length",
            Value::U32(9),
            "must have rows of 9",
        ),
        Case(
            "llama.attention.head_count",
            Value::U32(3),
            "does not divide",
        ),
        Case("llama.attention.key_length", Value::U32(3), "heads of keys"),
        Case(
            "llama.attention.key_length",
            Value::U32(6),
            "key heads of 6",
        ),
        Case(
            "llama.attention.layer_norm_rms_epsilon",
            Value::F32(f32::NAN),
            "finite",
        ),
        Case(
            "llama.attention.layer_norm_rms_epsilon",
            Value::F32(0.0),
            "above 0",
        ),
        Case(
            "llama.feed_forward_length",
            Value::U32(13),
            "instead of [13, 8]",
        ),
        Case("llama.rope.dimension_count", Value::U32(8), "cannot rotate"),
        Case("llama.rope.freq_base", Value::F32(-1.0), "above 0"),
        Case("general.architecture", Value::U8(1), "not a string"),
        Case(
            "general.architecture",
            Value::String("mamba".to_owned()),
            "mamba",
        ),
    ];
    for Case(key, value, expected) in cases {
        let error = read("llama", &[(key, value.clone())], &tensors(&[])).unwrap_err();
        let message = error.to_string();
        let expected = if expected == "heads of keys" {
            "3"
        } else {
            expected
        };
        assert!(message.contains(expected), "{key} = {value}: {message}");
    }
    let unknown = read("mamba", &[], &tensors(&[])).unwrap_err();
    for architecture in Architecture::ALL {
        assert!(
            unknown.to_string().contains(architecture.name()),
            "{unknown}"
        );
    }
}

#[test]
fn config_json_gives_the_same_config() {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let all: Vec<(String, Vec<usize>)> = tensors(&[
        ("attn_q_norm.weight", &[4]),
        ("attn_k_norm.weight", &[4]),
        ("post_attention_norm.weight", &[8]),
        ("post_ffw_norm.weight", &[8]),
    ]);
    let theirs = |name: &str| -> String {
        let table = [
            ("token_embd", "embed_tokens"),
            ("output_norm", "norm"),
            ("attn_q_norm", "self_attn.q_norm"),
            ("attn_k_norm", "self_attn.k_norm"),
            ("post_attention_norm", "post_attention_layernorm"),
            ("post_ffw_norm", "post_feedforward_layernorm"),
            ("ffn_norm", "pre_feedforward_layernorm"),
            ("attn_norm", "input_layernorm"),
            ("attn_q", "self_attn.q_proj"),
            ("attn_k", "self_attn.k_proj"),
            ("attn_v", "self_attn.v_proj"),
            ("attn_output", "self_attn.o_proj"),
            ("ffn_gate", "mlp.gate_proj"),
            ("ffn_up", "mlp.up_proj"),
            ("ffn_down", "mlp.down_proj"),
            ("blk", "layers"),
        ];
        let word = |w: &str| match table.iter().find(|(ours, _)| *ours == w) {
            Some((_, theirs)) => (*theirs).to_owned(),
            None => w.to_owned(),
        };
        let words: Vec<String> = name.split('.').map(word).collect();
        format!("language_model.model.{}", words.join("."))
    };
    safetensors(&dir.path().join("model.safetensors"), &all, &theirs);
    write(
        "config.json",
        r#"{"model_type":"gemma3","text_config":{"model_type":"gemma3_text","hidden_size":8,
           "intermediate_size":12,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
           "head_dim":4,"sliding_window":16,"query_pre_attn_scalar":4,
           "layer_types":["sliding_attention","full_attention"],
           "rope_scaling":{"factor":8.0,"rope_type":"linear"}}}"#,
    );
    let config = Config::of(&Model::open(dir.path()).unwrap()).unwrap();
    assert_eq!(config.architecture, Architecture::Gemma3);
    assert_eq!(
        config.norm,
        Norm {
            is_layer_norm: false,
            eps: 1e-6,
            offset: 1.0
        }
    );
    assert_eq!(config.local_layers, [true, false]);
    assert_eq!((config.attention_scale, config.context), (0.5, 131_072));
    let rope = config.rope.clone().unwrap();
    assert_eq!((rope.base, rope.local_base), (1e6, Some(1e4)));
    assert_eq!(
        rope.scaling,
        Scaling::Fixed(RopeScaling::Linear { factor: 8.0 })
    );
    write("config.json", "{}");
    let error = Config::of(&Model::open(dir.path()).unwrap()).unwrap_err();
    assert!(
        error.to_string().contains("general.architecture"),
        "{error}"
    );
    write("config.json", "{");
    assert!(Model::open(dir.path()).is_err());
}

fn safetensors(path: &Path, tensors: &[(String, Vec<usize>)], name: &dyn Fn(&str) -> String) {
    let mut at = 0;
    let mut entries = Vec::new();
    for (own, shape) in tensors {
        let end = at + 4 * shape.iter().product::<usize>();
        entries.push(format!(
            r#""{}":{{"dtype":"F32","shape":{shape:?},"data_offsets":[{at},{end}]}}"#,
            name(own)
        ));
        at = end;
    }
    let header = format!("{{{}}}", entries.join(","));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + at, 0);
    std::fs::write(path, bytes).unwrap();
}
