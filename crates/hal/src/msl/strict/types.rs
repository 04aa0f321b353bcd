//! Names that are certainly types, and certainly carry no address space.

use std::collections::HashSet;
use std::ops::Range;

use crate::msl::program::Program;
use crate::msl::token_stream::TokenStream;

/// Maximum length of a typedef in tokens, with brackets counted as one.
const MAX_ALIAS_TOKENS: usize = 256;

/// The types that are known for certain.
pub(super) struct KnownTypes<'a> {
    classes: HashSet<&'a str>,
    /// Names that mean something else somewhere: template parameters, aliases.
    doubtful: HashSet<&'a str>,
}

impl<'a> KnownTypes<'a> {
    pub(super) fn new(source: &TokenStream<'a>, program: &Program) -> Self {
        let classes = program
            .classes
            .iter()
            .filter_map(|class| class.name)
            .map(|name| source.text_at(name))
            .collect();
        let mut doubtful = HashSet::new();
        for i in 0..source.len() {
            match source.text_at(i) {
                "typename" | "class" if source.is_identifier(i + 1) => {
                    // `class Foo {` declares a class; in a template head, `class` declares a parameter.
                    if matches!(source.text_at(i + 2), "," | ">" | "=" | "...") {
                        doubtful.insert(source.text_at(i + 1));
                    }
                }
                "typename" | "class" if source.text_at(i + 1) == "..." => {
                    doubtful.insert(source.text_at(i + 2));
                }
                "using" if source.text_at(i + 2) == "=" => {
                    doubtful.insert(source.text_at(i + 1));
                }
                "typedef" => {
                    let mut end = i;
                    for _ in 0..MAX_ALIAS_TOKENS {
                        if matches!(source.text_at(end), ";" | "") {
                            break;
                        }
                        end = source.after(end, false);
                    }
                    // `typedef struct {…} name;` defines a class; any other alias may carry an address space.
                    if source.before(end) != "}"
                        && !matches!(source.text_at(i + 1), "struct" | "union")
                    {
                        doubtful.insert(source.before(end));
                    }
                }
                _ => {}
            }
        }
        Self { classes, doubtful }
    }

    pub(super) fn is_known(&self, name: &str) -> bool {
        !self.doubtful.contains(name) && (is_builtin(name) || self.classes.contains(name))
    }

    /// Returns whether the tokens are one type without address space: `const unsigned int`, `metal::float4`, `Foo`.
    pub(super) fn is_type_sequence(&self, source: &TokenStream<'a>, range: Range<usize>) -> bool {
        let words: Vec<&str> = range
            .map(|i| source.text_at(i))
            .filter(|text| {
                !matches!(
                    *text,
                    "const" | "volatile" | "struct" | "static" | "constexpr"
                )
            })
            .collect();
        match words.as_slice() {
            [one] => self.is_known(one),
            ["metal", "::", one] => is_builtin(one) && !self.doubtful.contains(one),
            ["unsigned" | "signed", "int" | "char" | "short" | "long"] => true,
            _ => false,
        }
    }
}

/// Returns whether a name is one of MSL's scalar, vector, matrix, packed and atomic types.
pub(super) fn is_builtin(name: &str) -> bool {
    if matches!(
        name,
        "void"
            | "size_t"
            | "ptrdiff_t"
            | "unsigned"
            | "signed"
            | "int8_t"
            | "uint8_t"
            | "int16_t"
            | "uint16_t"
            | "int32_t"
            | "uint32_t"
            | "int64_t"
            | "uint64_t"
            | "atomic_int"
            | "atomic_uint"
            | "atomic_bool"
            | "atomic_float"
            | "atomic_ulong"
    ) {
        return true;
    }
    let name = name.strip_prefix("packed_").unwrap_or(name);
    let base = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == 'x');
    let shape = &name[base.len()..];
    let scalar = matches!(
        base,
        "bool"
            | "char"
            | "uchar"
            | "short"
            | "ushort"
            | "int"
            | "uint"
            | "long"
            | "ulong"
            | "half"
            | "float"
            | "bfloat"
    );
    let sized = match shape.as_bytes() {
        [] => true,
        [n] => (b'2'..=b'4').contains(n),
        [n, b'x', m] => (b'2'..=b'4').contains(n) && (b'2'..=b'4').contains(m),
        _ => false,
    };
    scalar && sized
}

#[cfg(test)]
mod tests {
    use super::is_builtin;

    #[test]
    fn knows_metals_types() {
        for name in [
            "float",
            "half4",
            "uint3",
            "float4x4",
            "packed_float3",
            "uchar",
            "bfloat2",
        ] {
            assert!(is_builtin(name), "{name}");
        }
        for name in ["float5", "T", "vec", "float16_t", "x", "floatx", "halfx4"] {
            assert!(!is_builtin(name), "{name}");
        }
    }
}
