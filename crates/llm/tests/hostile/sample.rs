//! Small valid files.

use std::path::{Path, PathBuf};

use bessemer_llm::file::{Array, Format, GgufWriter, Metadata, NewTensor, Value};
use tempfile::TempDir;

/// A model's files by name, the one to open first.
pub(crate) struct Sample {
    pub(crate) files: Vec<(&'static str, Vec<u8>)>,
}

impl Sample {
    pub(crate) fn write(&self, dir: &Path) {
        for (name, bytes) in &self.files {
            std::fs::write(dir.join(name), bytes).unwrap();
        }
    }

    pub(crate) fn open(&self, dir: &Path) -> PathBuf {
        dir.join(self.files[0].0)
    }
}

/// Tensors of a model with one layer: width 8, ffn 32, 2 heads of 4, 6 tokens.
fn tensors() -> Vec<(&'static str, Vec<usize>)> {
    vec![
        ("token_embd.weight", vec![6, 8]),
        ("output_norm.weight", vec![8]),
        ("blk.0.attn_norm.weight", vec![8]),
        ("blk.0.attn_q.weight", vec![8, 8]),
        ("blk.0.attn_k.weight", vec![8, 8]),
        ("blk.0.attn_v.weight", vec![8, 8]),
        ("blk.0.attn_output.weight", vec![8, 8]),
        ("blk.0.ffn_norm.weight", vec![8]),
        ("blk.0.ffn_gate.weight", vec![32, 8]),
        ("blk.0.ffn_up.weight", vec![32, 8]),
        ("blk.0.ffn_down.weight", vec![8, 32]),
    ]
}

pub(crate) fn gguf() -> Sample {
    let mut metadata = Metadata::default();
    let text = |text: &str| Value::String(text.to_owned());
    let list = |texts: &[&str]| Value::Array(Array::String(texts.iter().collect()));
    for (key, value) in [
        ("general.architecture", text("llama")),
        ("llama.block_count", Value::U32(1)),
        ("llama.context_length", Value::U32(16)),
        ("llama.embedding_length", Value::U32(8)),
        ("llama.feed_forward_length", Value::U32(32)),
        ("llama.attention.head_count", Value::U32(2)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
        ("llama.rope.freq_base", Value::F64(1e4)),
        ("llama.rope.scaling.type", text("linear")),
        ("llama.rope.scaling.factor", Value::F32(2.0)),
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("smollm")),
        (
            "tokenizer.ggml.tokens",
            list(&["<s>", "a", "b", "ab", "Ġ", "Ġa"]),
        ),
        ("tokenizer.ggml.merges", list(&["a b", "Ġ a"])),
        (
            "tokenizer.ggml.token_type",
            Value::Array(Array::I32(vec![3, 1, 1, 1, 1, 1])),
        ),
        (
            "tokenizer.ggml.scores",
            Value::Array(Array::F32(vec![0.0; 6])),
        ),
        ("tokenizer.ggml.bos_token_id", Value::U32(0)),
        ("tokenizer.ggml.add_bos_token", Value::Bool(true)),
        (
            "tokenizer.chat_template",
            text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"),
        ),
        ("other", Value::I64(-1)),
    ] {
        metadata.set(key, value);
    }
    let tensors: Vec<NewTensor> = tensors()
        .into_iter()
        .map(|(name, shape)| NewTensor {
            name: name.to_owned(),
            format: match name {
                "blk.0.ffn_down.weight" => Format::Q4_0,
                _ => Format::F32,
            },
            shape,
        })
        .collect();
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("m.gguf");
    let mut writer = GgufWriter::create(&path, &metadata, &tensors).unwrap();
    for tensor in &tensors {
        let bytes = tensor.format.bytes(&tensor.shape).unwrap();
        writer.push(&vec![0; bytes]).unwrap();
    }
    writer.finish().unwrap();
    Sample {
        files: vec![("m.gguf", std::fs::read(path).unwrap())],
    }
}

const TOKENIZER_JSON: &str = r###"{"added_tokens":[{"id":0,"content":"<s>","special":true,"lstrip":false,
    "rstrip":true,"single_word":false,"normalized":false}],
    "normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},
        {"type":"Replace","pattern":{"String":"x"},"content":"a"}]},
    "pre_tokenizer":{"type":"Sequence","pretokenizers":[
        {"type":"Split","pattern":{"Regex":" ?\\p{L}+|\\s+"},"behavior":"Isolated","invert":false},
        {"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},
    "post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},
        {"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"<s>":{"id":"<s>","ids":[0],"tokens":["<s>"]}}},
    "decoder":{"type":"ByteLevel"},
    "model":{"type":"BPE","vocab":{"<s>":0,"a":1,"b":2,"ab":3,"\u0120":4,"\u0120a":5},
        "merges":["a b",["\u0120","a"]]}}"###;

pub(crate) fn safetensors() -> Sample {
    let theirs = [
        "model.embed_tokens.weight",
        "model.norm.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.k_proj.weight",
        "model.layers.0.self_attn.v_proj.weight",
        "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.post_attention_layernorm.weight",
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.0.mlp.down_proj.weight",
    ];
    let shapes = tensors();
    // Two files: the embedding alone, and the rest.
    let file = |range: std::ops::Range<usize>| {
        let mut entries = vec![r#""__metadata__":{"format":"pt"}"#.to_owned()];
        let mut at = 0;
        for i in range {
            let (name, shape) = (theirs[i], &shapes[i].1);
            let end = at + 2 * shape.iter().product::<usize>();
            entries.push(format!(
                r#""{name}":{{"dtype":"BF16","shape":{shape:?},"data_offsets":[{at},{end}]}}"#
            ));
            at = end;
        }
        let header = format!("{{{}}}", entries.join(","));
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.resize(bytes.len() + at, 0);
        bytes
    };
    let shard = |i: usize| match i {
        0 => "1.safetensors",
        _ => "2.safetensors",
    };
    let map: Vec<String> = (0..theirs.len())
        .map(|i| format!(r#""{}":"{}""#, theirs[i], shard(i)))
        .collect();
    let config = r#"{"model_type":"llama","hidden_size":8,"intermediate_size":32,"num_hidden_layers":1,
        "num_attention_heads":2,"max_position_embeddings":16,"rms_norm_eps":1e-5,"rope_theta":1e4,
        "rope_scaling":{"rope_type":"yarn","factor":2.0,"original_max_position_embeddings":8}}"#;
    Sample {
        files: vec![
            (
                "model.safetensors.index.json",
                format!("{{\"weight_map\":{{{}}}}}", map.join(",")).into_bytes(),
            ),
            ("1.safetensors", file(0..1)),
            ("2.safetensors", file(1..theirs.len())),
            ("config.json", config.as_bytes().to_vec()),
            ("tokenizer.json", TOKENIZER_JSON.as_bytes().to_vec()),
            (
                "tokenizer_config.json",
                br#"{"bos_token":"<s>","chat_template":"{{ bos_token }}{{ messages[0].content }}"}"#.to_vec(),
            ),
        ],
    }
}

pub(crate) fn llama2c() -> Sample {
    let header = [8_i32, 32, 1, 2, 2, 6, 4];
    let mut bytes: Vec<u8> = header.iter().flat_map(|v| v.to_le_bytes()).collect();
    let floats = 6 * 8 + 2 * 8 + 4 * 64 + 3 * 256 + 8 + 2 * 4 * 2;
    bytes.resize(bytes.len() + 4 * floats, 0);
    let mut tokenizer = 4_u32.to_le_bytes().to_vec();
    for id in 0..262 {
        let text = match id {
            0 => "<unk>".to_owned(),
            1 => "\n<s>\n".to_owned(),
            2 => "\n</s>\n".to_owned(),
            3..259 => format!("<0x{:02X}>", id - 3),
            259 => " ".to_owned(),
            260 => "a".to_owned(),
            _ => " a".to_owned(),
        };
        tokenizer.extend((id as f32).to_le_bytes());
        tokenizer.extend((text.len() as i32).to_le_bytes());
        tokenizer.extend(text.as_bytes());
    }
    Sample {
        files: vec![("m.bin", bytes), ("tokenizer.bin", tokenizer)],
    }
}
