//! Canonical tensor names: GGUF's.

/// The canonical name of a tensor of a Hugging Face file, if known.
pub(super) fn canonical(architecture: &str, name: &str) -> Option<String> {
    let name = ["language_model.", "bert."]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name);
    let name = name.strip_prefix("model.").unwrap_or(name);
    let name = name.strip_prefix("language_model.").unwrap_or(name);
    let layer = ["layers.", "encoder.layer."]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix));
    let (table, prefix, name) = match layer {
        Some(rest) => {
            let (number, name) = rest.split_once('.')?;
            let number: u32 = number.parse().ok()?;
            (&LAYER_TENSOR_NAMES[..], format!("blk.{number}."), name)
        }
        None => (&MODEL_TENSOR_NAMES[..], String::new(), name),
    };
    let (stem, kind) = name.rsplit_once('.')?;
    if !matches!(kind, "weight" | "bias") {
        return None;
    }
    // Gemma uses this name for the post-attention norm, other families for the FFN norm.
    let stem = match (architecture, stem) {
        ("gemma2" | "gemma3", "post_attention_layernorm") => "after_attention",
        (_, stem) => stem,
    };
    let found = table.iter().find(|(theirs, _)| *theirs == stem);
    found.map(|(_, ours)| format!("{prefix}{ours}.{kind}"))
}

/// Tensors of a layer: Hugging Face's and GGUF's name.
const LAYER_TENSOR_NAMES: [(&str, &str); 24] = [
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("after_attention", "post_attention_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.gate_up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("attention.self.query", "attn_q"),
    ("attention.self.key", "attn_k"),
    ("attention.self.value", "attn_v"),
    ("attention.output.dense", "attn_output"),
    ("attention.output.LayerNorm", "attn_output_norm"),
    ("intermediate.dense", "ffn_up"),
    ("output.dense", "ffn_down"),
    ("output.LayerNorm", "layer_output_norm"),
];

/// Tensors outside of the layers: Hugging Face's and GGUF's name.
const MODEL_TENSOR_NAMES: [(&str, &str); 8] = [
    ("embed_tokens", "token_embd"),
    ("norm", "output_norm"),
    ("lm_head", "output"),
    ("embeddings.word_embeddings", "token_embd"),
    ("embeddings.position_embeddings", "position_embd"),
    ("embeddings.token_type_embeddings", "token_types"),
    ("embeddings.LayerNorm", "token_embd_norm"),
    ("pooler.dense", "pooler"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hugging_face_names_are_translated_to_gguf_names() {
        struct Case(&'static str, &'static str, Option<&'static str>);
        let cases = [
            Case(
                "llama",
                "model.embed_tokens.weight",
                Some("token_embd.weight"),
            ),
            Case("llama", "lm_head.weight", Some("output.weight")),
            Case("llama", "model.norm.weight", Some("output_norm.weight")),
            Case(
                "llama",
                "model.layers.11.post_attention_layernorm.weight",
                Some("blk.11.ffn_norm.weight"),
            ),
            Case(
                "gemma3",
                "model.layers.11.post_attention_layernorm.weight",
                Some("blk.11.post_attention_norm.weight"),
            ),
            Case(
                "gemma3",
                "language_model.model.layers.0.pre_feedforward_layernorm.weight",
                Some("blk.0.ffn_norm.weight"),
            ),
            Case(
                "gemma3",
                "model.language_model.layers.0.self_attn.q_norm.weight",
                Some("blk.0.attn_q_norm.weight"),
            ),
            Case(
                "qwen2",
                "model.layers.0.self_attn.q_proj.bias",
                Some("blk.0.attn_q.bias"),
            ),
            Case(
                "phi3",
                "model.layers.0.self_attn.qkv_proj.weight",
                Some("blk.0.attn_qkv.weight"),
            ),
            Case(
                "bert",
                "encoder.layer.5.attention.output.LayerNorm.bias",
                Some("blk.5.attn_output_norm.bias"),
            ),
            Case(
                "bert",
                "bert.embeddings.LayerNorm.weight",
                Some("token_embd_norm.weight"),
            ),
            Case("bert", "embeddings.position_ids", None),
            Case(
                "llama",
                "model.layers.0.self_attn.rotary_emb.inv_freq",
                None,
            ),
            Case("llama", "model.layers.x.input_layernorm.weight", None),
            Case("gemma3", "vision_tower.vision_model.head.weight", None),
        ];
        for Case(architecture, theirs, ours) in cases {
            assert_eq!(
                canonical(architecture, theirs).as_deref(),
                ours,
                "{architecture}: {theirs}"
            );
        }
    }
}
