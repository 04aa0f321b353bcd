//! The MSL sources, and the resolver that makes one text of a file and what it includes.
//!
//! A source includes headers by `#include "name.h"`. Metal compiles one text at run time, so the resolver
//! puts them in its place, each once, and marks whose line is whose, so that a compiler's message names the
//! file it is about.

/// Embeds the files of `msl/`.
macro_rules! files {
    ($($name:literal),* $(,)?) => {
        const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!("msl/", $name)))),*];
    };
}

files![
    "activation.h",
    "arange.metal",
    "arithmetic.h",
    "around.h",
    "attention.h",
    "attention.metal",
    "attention_prefill.metal",
    "band.h",
    "binary.metal",
    "cache.h",
    "cast.metal",
    "concat.metal",
    "conv.metal",
    "conv_direct.metal",
    "copy.metal",
    "cross_entropy.metal",
    "decode.h",
    "decode_attention.metal",
    "decode_embed.metal",
    "decode_feed.metal",
    "decode_head.metal",
    "decode_heads.h",
    "decode_project.metal",
    "decode_qkv.metal",
    "decode_turn.metal",
    "double.h",
    "each.h",
    "element.h",
    "erf.h",
    "exp.h",
    "fault.h",
    "fold.h",
    "full.metal",
    "gather.metal",
    "group.h",
    "group_norm.metal",
    "hyperbolic.h",
    "index.h",
    "inverse_trig.h",
    "key.h",
    "kind.h",
    "layer_norm.metal",
    "log.h",
    "matmul.metal",
    "matmul_narrow.metal",
    "matmul_whole.metal",
    "norm.h",
    "pad.metal",
    "pooling.metal",
    "power.h",
    "prefill_attention.metal",
    "prefill_embed.metal",
    "prefill_feed.metal",
    "prefill_norm.metal",
    "prefill_project.metal",
    "prefill_turn.metal",
    "product.h",
    "quant.h",
    "quant_batch.h",
    "quant_matmul.metal",
    "quant_tile.h",
    "random.metal",
    "real.h",
    "reduce.metal",
    "region.h",
    "rms_norm.metal",
    "rope.metal",
    "rows.h",
    "sample.metal",
    "scan.metal",
    "scatter.metal",
    "slice_update.metal",
    "softmax.metal",
    "sort.metal",
    "take.metal",
    "ternary.metal",
    "tile.h",
    "triangle.metal",
    "trig.h",
    "turn.h",
    "types.h",
    "unary.metal",
    "view.h",
    "windows.h",
];

fn file(name: &str) -> &'static str {
    let found = FILES.iter().find(|(n, _)| *n == name);
    found.expect("a file of the list").1
}

/// The text of a file with all that it includes.
pub(super) fn resolve(name: &str) -> String {
    let mut seen = Vec::new();
    let mut text = String::new();
    splice(name, file(name), &mut seen, &mut text);
    text
}

/// A text of the engine's own with all that it includes.
pub(super) fn resolve_text(name: &str, source: &str) -> String {
    let mut seen = Vec::new();
    let mut text = String::new();
    splice(name, source, &mut seen, &mut text);
    text
}

fn splice(name: &str, source: &str, seen: &mut Vec<String>, text: &mut String) {
    use std::fmt::Write as _;
    seen.push(name.to_owned());
    let _ = writeln!(text, "#line 1 \"{name}\"");
    for (i, line) in source.lines().enumerate() {
        let included = line
            .strip_prefix("#include \"")
            .and_then(|rest| rest.strip_suffix('"'));
        match included {
            None => {
                text.push_str(line);
                text.push('\n');
            }
            Some(header) => {
                if !seen.iter().any(|s| s == header) {
                    splice(header, file(header), seen, text);
                }
                let _ = writeln!(text, "#line {} \"{name}\"", i + 2);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_in_the_list() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/metal/msl");
        let mut found: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort();
        let listed: Vec<_> = FILES.iter().map(|(name, _)| *name).collect();
        assert_eq!(listed, found, "the list of metal/msl.rs, in order");
    }

    #[test]
    fn what_is_included_twice_is_there_once() {
        for (name, _) in FILES {
            let text = resolve(name);
            assert!(!text.contains("#include \""), "{name}");
            let marks = text.matches("#line 1 \"types.h\"").count();
            assert!(marks <= 1, "{name} has types.h {marks} times");
        }
    }
}
