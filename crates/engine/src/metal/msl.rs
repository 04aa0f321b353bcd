//! The MSL sources, and the resolver of their includes.
//!
//! A source includes headers by `#include "name.h"`. Metal compiles one text at run time, so the resolver splices each
//! in once, and marks the lines of each file, so that the messages of a compiler name the right one. The headers of
//! `host/` define the structs that kernels share with the host ([`msl_struct`]).

use super::msl_struct;

/// A file's name and text.
type File = (&'static str, &'static str);

/// Embeds `msl/x.metal` for every op X that has kernels of its own.
macro_rules! op_files {
    ($($(#[$doc:meta])* $module:ident::$name:ident $($boxed:ident)? $(=> $msl:ident)?,)*) => {
        const OP_FILES: &[Option<File>] = &[$(op_files!(@file $module $(=> $msl)?)),*];
    };
    (@file $module:ident => $msl:ident) => { None };
    (@file $module:ident) => {{
        const NAME: &str = concat!(stringify!($module), ".metal");
        Some((NAME, include_str!(concat!("msl/", stringify!($module), ".metal"))))
    }};
}

crate::for_each_op!(op_files);

/// Embeds the other files of `msl/`: headers, and kernels that are not named after an op.
macro_rules! files {
    ($($name:literal),* $(,)?) => {
        const FILES: &[File] = &[$(($name, include_str!(concat!("msl/", $name)))),*];
    };
}

files![
    "activation.h",
    "arithmetic.h",
    "attention.h",
    "attention_prefill.metal",
    "axis_rows.h",
    "axis_split.h",
    "band.h",
    "conv_direct.metal",
    "conv_windows.h",
    "decode_attention.metal",
    "decode_embed.metal",
    "decode_ffn_gate_up.metal",
    "decode_gemv.h",
    "decode_head.metal",
    "decode_heads.h",
    "decode_project.metal",
    "decode_qkv.metal",
    "decode_rope.metal",
    "double.h",
    "element.h",
    "element_kind.h",
    "elementwise.h",
    "erf.h",
    "exp.h",
    "fault.h",
    "fold.h",
    "hyperbolic.h",
    "index.h",
    "inverse_trig.h",
    "kv_cache.h",
    "log.h",
    "matmul.h",
    "matmul_integer.metal",
    "matmul_skinny.metal",
    "matmul_tile.h",
    "norm.h",
    "power.h",
    "prefill_attention.metal",
    "prefill_embed.metal",
    "prefill_ffn_gate_up.metal",
    "prefill_norm.metal",
    "prefill_project.metal",
    "prefill_rope.metal",
    "program.h",
    "quant.h",
    "quant_skinny.h",
    "quant_tile.h",
    "real.h",
    "region.h",
    "rope.h",
    "sample.metal",
    "sort_key.h",
    "threadgroup_reduce.h",
    "trig.h",
    "types.h",
    "view.h",
];

fn files() -> impl Iterator<Item = &'static File> {
    OP_FILES.iter().flatten().chain(FILES)
}

fn file(name: &str) -> &'static str {
    let found = files().find(|(n, _)| *n == name);
    found.expect("a file of the list").1
}

/// The text of a file with its includes spliced in.
pub(super) fn resolve(name: &str) -> String {
    let mut seen = Vec::new();
    let mut text = String::new();
    splice(name, file(name), &mut seen, &mut text);
    text
}

/// A generated source with its includes spliced in.
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
                    match msl_struct::header(header) {
                        Some(source) => splice(header, &source, seen, text),
                        None => splice(header, file(header), seen, text),
                    }
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
        let mut listed: Vec<_> = files().map(|(name, _)| *name).collect();
        listed.sort_unstable();
        assert_eq!(listed, found, "the files of metal/msl.rs");
    }

    #[test]
    fn a_header_is_included_once() {
        for (name, _) in files() {
            let text = resolve(name);
            assert!(!text.contains("#include \""), "{name}");
            let marks = text.matches("#line 1 \"types.h\"").count();
            assert!(marks <= 1, "{name} has types.h {marks} times");
        }
    }
}
