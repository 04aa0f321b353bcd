//! Hugging Face's `config.json` and related files, translated to GGUF's keys.

use std::path::Path;

use serde_json::Value as Json;

use super::metadata::{Array, Metadata, Value};
use crate::{Error, Result};

/// Maximum size of a JSON file, which is read as a whole.
const MAX_JSON_BYTES: u64 = 64 << 20;

/// Reads a JSON file, if it exists.
pub(crate) fn read_json(path: &Path) -> Result<Option<Json>> {
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io(path, e)),
    };
    if meta.len() > MAX_JSON_BYTES {
        return Err(Error::bad_file(path, "larger than 64 MiB"));
    }
    let text = std::fs::read(path).map_err(|e| Error::io(path, e))?;
    let json = serde_json::from_slice(&text).map_err(|e| Error::bad_file(path, e))?;
    Ok(Some(json))
}

/// Metadata from the files in the directory of a model.
pub(super) fn metadata(model: &Path) -> Result<Metadata> {
    let mut metadata = Metadata::default();
    if let Some(config) = read_json(&model.with_file_name("config.json"))? {
        translate(&config, &mut metadata);
    }
    chat_template(model, &mut metadata)?;
    Ok(metadata)
}

/// Reads the chat template: from `chat_template.jinja`, or from `tokenizer_config.json`, alone or among others.
fn chat_template(model: &Path, metadata: &mut Metadata) -> Result<()> {
    let own = model.with_file_name("chat_template.jinja");
    let template = if own.is_file() {
        Some(std::fs::read_to_string(&own).map_err(|e| Error::io(&own, e))?)
    } else {
        let config = read_json(&model.with_file_name("tokenizer_config.json"))?;
        match config.as_ref().and_then(|c| c.get("chat_template")) {
            Some(Json::String(template)) => Some(template.clone()),
            Some(Json::Array(named)) => named
                .iter()
                .find(|t| t["name"] == "default")
                .and_then(|t| t["template"].as_str())
                .map(str::to_owned),
            _ => None,
        }
    };
    if let Some(template) = template {
        metadata.set("tokenizer.chat_template", Value::String(template));
    }
    Ok(())
}

/// Scalars that are only renamed: Hugging Face's and GGUF's key.
const RENAMED_KEYS: [(&str, &str); 19] = [
    ("num_hidden_layers", "block_count"),
    ("max_position_embeddings", "context_length"),
    ("hidden_size", "embedding_length"),
    ("intermediate_size", "feed_forward_length"),
    ("vocab_size", "vocab_size"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    ("head_dim", "attention.key_length"),
    ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    ("layer_norm_eps", "attention.layer_norm_epsilon"),
    ("rope_theta", "rope.freq_base"),
    ("rope_local_base_freq", "rope.freq_base_swa"),
    ("sliding_window_pattern", "attention.sliding_window_pattern"),
    (
        "_sliding_window_pattern",
        "attention.sliding_window_pattern",
    ),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("type_vocab_size", "token_type_count"),
    (
        "original_max_position_embeddings",
        "rope.scaling.original_context_length",
    ),
    ("max_window_layers", "attention.max_window_layers"),
];

/// Values that Gemma 3's files omit because they are defaults of the code that wrote them.
const GEMMA3_DEFAULTS: [(&str, f64); 7] = [
    ("context_length", 131_072.0),
    ("attention.head_count", 8.0),
    ("attention.head_count_kv", 4.0),
    ("attention.key_length", 256.0),
    ("attention.layer_norm_rms_epsilon", 1e-6),
    ("rope.freq_base", 1e6),
    ("attention.scale", 0.0625),
];

/// GGUF's name of a model type.
fn architecture(model_type: &str) -> &str {
    match model_type {
        // The same architecture; the sliding window is in the config.
        "mistral" | "smollm" => "llama",
        "gemma3_text" => "gemma3",
        other => other,
    }
}

fn number(json: &Json) -> Option<Value> {
    json.as_u64()
        .map(Value::U64)
        .or_else(|| json.as_f64().map(Value::F64))
}

fn floats(json: &Json) -> Option<Value> {
    let numbers: Option<Vec<f64>> = json.as_array()?.iter().map(Json::as_f64).collect();
    Some(Value::Array(Array::F64(numbers?)))
}

fn translate(config: &Json, metadata: &mut Metadata) {
    // Multimodal models have a nested config for the language model.
    let text = config.get("text_config").filter(|t| t.is_object());
    let config = text.unwrap_or(config);
    let Some(model_type) = config["model_type"].as_str() else {
        return;
    };
    let arch = architecture(model_type).to_owned();
    metadata.set("general.architecture", Value::String(arch.clone()));
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            metadata.set(&format!("{arch}.{key}"), value);
        }
    };
    if arch == "gemma3" {
        for (ours, value) in GEMMA3_DEFAULTS {
            set(ours, number(&Json::from(value)).map(whole));
        }
    }
    for (theirs, ours) in RENAMED_KEYS {
        set(ours, number(&config[theirs]));
    }
    if let Some(scalar) = config["query_pre_attn_scalar"].as_f64() {
        set("attention.scale", Some(Value::F64(scalar.powf(-0.5))));
    }
    if let (Some(factor), Some(head)) = (config["partial_rotary_factor"].as_f64(), head_dim(config))
    {
        let dims = (head as f64 * factor) as u64;
        set("rope.dimension_count", Some(Value::U64(dims)));
    }
    for key in ["hidden_activation", "hidden_act"] {
        let activation = config[key].as_str();
        set(
            "hidden_activation",
            activation.map(|a| Value::String(a.to_owned())),
        );
    }
    window(config, &arch, &mut set);
    for key in ["rope_parameters", "rope_scaling"] {
        rope(&config[key], &mut set);
    }
}

/// Converts an integral float to an integer.
fn whole(value: Value) -> Value {
    match value {
        Value::F64(v) if v.fract() == 0.0 && v >= 0.0 => Value::U64(v as u64),
        other => other,
    }
}

fn head_dim(config: &Json) -> Option<u64> {
    config["head_dim"].as_u64().or_else(|| {
        let width = config["hidden_size"].as_u64()?;
        width.checked_div(config["num_attention_heads"].as_u64()?)
    })
}

/// The sliding window, unless it is disabled, and the layers that use it.
fn window(config: &Json, arch: &str, set: &mut impl FnMut(&str, Option<Value>)) {
    let is_on = match config["use_sliding_window"].as_bool() {
        Some(is_on) => is_on,
        // Qwen's files have a window that is disabled by default.
        None => !arch.starts_with("qwen"),
    };
    if !is_on {
        return;
    }
    set(
        "attention.sliding_window",
        number(&config["sliding_window"]),
    );
    let layers = config["num_hidden_layers"].as_u64();
    let local = match (&config["layer_types"], config["max_window_layers"].as_u64()) {
        (Json::Array(types), _) => types.iter().map(|t| t == "sliding_attention").collect(),
        // With a sanity limit; the number of layers is checked against this list later.
        (_, Some(full)) if layers.is_some_and(|n| n <= 4096) => {
            (0..layers.unwrap_or(0)).map(|i| i >= full).collect()
        }
        _ => return,
    };
    let pattern = Value::Array(Array::Bool(local));
    set("attention.sliding_window_pattern", Some(pattern));
}

/// RoPE parameters, including context extension.
fn rope(scaling: &Json, set: &mut impl FnMut(&str, Option<Value>)) {
    // Newer files have separate parameters for each layer type.
    if scaling["full_attention"].is_object() {
        set(
            "rope.freq_base_swa",
            number(&scaling["sliding_attention"]["rope_theta"]),
        );
        return rope(&scaling["full_attention"], set);
    }
    set("rope.freq_base", number(&scaling["rope_theta"]));
    let kind = scaling["rope_type"]
        .as_str()
        .or_else(|| scaling["type"].as_str());
    set(
        "rope.scaling.type",
        kind.map(|k| Value::String(k.to_owned())),
    );
    let numbers = [
        ("factor", "factor"),
        ("low_freq_factor", "low_freq_factor"),
        ("high_freq_factor", "high_freq_factor"),
        (
            "original_max_position_embeddings",
            "original_context_length",
        ),
        ("beta_fast", "yarn_beta_fast"),
        ("beta_slow", "yarn_beta_slow"),
        ("attention_factor", "attention_factor"),
    ];
    for (theirs, ours) in numbers {
        set(&format!("rope.scaling.{ours}"), number(&scaling[theirs]));
    }
    for key in ["short_factor", "long_factor"] {
        set(&format!("rope.scaling.{key}"), floats(&scaling[key]));
    }
}
