//! Compiler options, and the digests that cache keys are made of.

use std::sync::LazyLock;

use sha2::{Digest, Sha256};

use crate::library::MathMode;
use crate::msl::Reflection;
use crate::soft::cache::hex;
use crate::soft::shim;

/// The options of one section of `flags.txt`.
pub(super) fn flags(section: &str) -> Vec<String> {
    let header = format!("[{section}]");
    shim::FLAGS
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .skip_while(|line| *line != header)
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .map(str::to_owned)
        .collect()
}

/// The preprocessor definition of a math mode.
///
/// In every mode each operation is rounded as written: no contraction, reassociation or estimates, so that results
/// are the same on every processor. Relaxed and Fast allow Apple's compiler more than that; here they only change
/// the accuracy of the elementary functions, see `default_accuracy` in the shim. A test for both
/// must tolerate a difference in the last bit.
pub(super) fn math_defines(math: MathMode) -> Option<String> {
    (math == MathMode::Fast).then(|| "-D__FAST_MATH__=1".to_owned())
}

/// Returns whether the text includes nothing but Metal's own headers, so that its own hash can be the cache key.
pub(super) fn is_self_contained(source: &str) -> bool {
    let spliced;
    let text = if source.contains("\\\n") {
        spliced = source.replace("\\\n", "");
        &spliced
    } else {
        source
    };
    let known = |target: &str| {
        target
            .strip_prefix('<')
            .and_then(|rest| rest.split_once('>'))
            .is_some_and(|(name, _)| shim::STUBS.iter().any(|(stub, _)| *stub == name))
    };
    !text.contains("__has_include")
        && !text.contains("__has_embed")
        && text.lines().all(|line| {
            let Some(directive) = line.trim_start().strip_prefix('#') else {
                return true;
            };
            let directive = directive.trim_start();
            match ["include", "import", "embed"]
                .iter()
                .find_map(|word| directive.strip_prefix(word))
            {
                Some(target) => known(target.trim_start()),
                None => true,
            }
        })
}

/// Returns the function constants that code outside the initialisers reads. They are recognised by the mangled names of their
/// variables, `_ZL5scale` or `_ZN1aL5scaleE`.
pub(super) fn used_constants(text: &str, reflection: &Reflection) -> Vec<u32> {
    let mut used = Vec::new();
    let mut inside = false;
    let suffixes: Vec<(u32, String)> = reflection
        .constants
        .iter()
        .map(|constant| {
            (
                constant.index,
                format!("L{}{}", constant.name.len(), constant.name),
            )
        })
        .collect();
    if suffixes.is_empty() {
        return used;
    }
    for line in text.lines() {
        if line.starts_with("define ") {
            inside = !line.contains("_GLOBAL__sub_I")
                && !line.contains("__cxx_global_var_init")
                && !line.contains("@sm_init")
                && !line.contains("@sm_gate");
        }
        if !inside || !line.contains("load") {
            continue;
        }
        for (index, suffix) in &suffixes {
            let found = line.match_indices(suffix.as_str()).any(|(at, _)| {
                let rest = &line[at + suffix.len()..];
                line[..at].contains("@_Z")
                    && !rest.starts_with(|c: char| c.is_alphanumeric() && c != 'E' || c == '_')
            });
            if found && !used.contains(index) {
                used.push(*index);
            }
        }
    }
    used.sort_unstable();
    used
}

/// Finds the arguments that the optimised code of a kernel still uses, as a bit set numbered by the shim's
/// `sm_argument`, and replaces those marker calls.
pub(super) fn used_arguments(text: &str) -> (String, u64) {
    const CALL: &str = "@sm_argument(";
    let mut used = 0;
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        // `%7 = tail call ptr @sm_argument(ptr noundef %6, i32 noundef 3) #4`
        let call = line
            .split_once(CALL)
            .filter(|(head, _)| !head.starts_with("declare"))
            .and_then(|(head, rest)| {
                let (result, _) = head.split_once('=')?;
                let (arguments, _) = rest.split_once(')')?;
                let (address, index) = arguments.split_once(',')?;
                let address = address.split_whitespace().last()?;
                let index: u32 = index.split_whitespace().last()?.parse().ok()?;
                Some((result, address, index))
            });
        match call {
            Some((result, address, index)) => {
                used |= 1_u64.checked_shl(index).unwrap_or(0);
                out.push_str(&format!("{result}= getelementptr i8, ptr {address}, i64 0"));
            }
            None => out.push_str(line),
        }
        out.push('\n');
    }
    (out, used)
}

/// Content hash of headers, stubs and flags.
pub(super) fn shim_digest() -> &'static str {
    static DIGEST: LazyLock<String> = LazyLock::new(|| {
        let mut hash = Sha256::new();
        for (path, text) in shim::HEADERS.iter().chain(shim::STUBS) {
            hash.update(path);
            hash.update([0]);
            hash.update(text);
            hash.update([0]);
        }
        hash.update(shim::FLAGS);
        hex(&hash.finalize())
    });
    &DIGEST
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::msl;

    #[test]
    fn text_that_includes_only_metals_own_headers_is_self_contained() {
        for (text, expected) in [
            ("#include <metal_stdlib>\nusing namespace metal;", true),
            ("  #  include <metal_stdlib> // maths", true),
            ("// #include \"a.h\" is not a directive", true),
            ("#include \"a.h\"", false),
            ("#include <vector>", false),
            ("#include HEADER", false),
            ("#inc\\\nlude \"a.h\"", false),
            ("#if __has_include(\"a.h\")", false),
        ] {
            assert_eq!(is_self_contained(text), expected, "{text}");
        }
    }

    #[test]
    fn arguments_are_used_if_their_markers_remain() {
        let text = "define void @sm_kernel(ptr %g) {\n  %6 = load ptr, ptr %g, align 8\n  \
                    %7 = tail call ptr @sm_argument(ptr noundef %6, i32 noundef 3) #4\n  \
                    %8 = call ptr @sm_argument(ptr %7, i32 33)\n}\n\
                    declare ptr @sm_argument(ptr noundef, i32 noundef) #2\n";
        let (text, used) = used_arguments(text);
        assert_eq!(used, 1 << 3 | 1 << 33);
        assert!(text.contains("  %7 = getelementptr i8, ptr %6, i64 0\n"));
        assert!(text.contains("  %8 = getelementptr i8, ptr %7, i64 0\n"));
        assert_eq!(text.matches("sm_argument").count(), 1);
    }

    #[test]
    fn constants_are_used_if_code_loads_them() {
        let reflection = Reflection {
            constants: [("scale", 3), ("sca", 4), ("flag", 5), ("deep", 6)]
                .map(|(name, index)| msl::FunctionConstant {
                    name: name.to_owned(),
                    index,
                    type_name: "float".to_owned(),
                })
                .into(),
            ..Reflection::default()
        };
        let text = "define void @sm_region_0(ptr %g) {\n  %1 = load float, ptr @_ZL5scale, align 4\n  \
                    %2 = load float, ptr @_ZN1aL4deepE, align 4\n}\n\
                    define void @sm_init(ptr %t) {\n  %1 = load i8, ptr @_ZL4flag\n}\n";
        assert_eq!(used_constants(text, &reflection), [3, 6]);
    }
}
