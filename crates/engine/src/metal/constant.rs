//! Function constants, known by name on both sides.
//!
//! A kernel source declares one as `FUNCTION_CONSTANT(bool, CAUSAL);` on a line of its own, and the host sets
//! `.flag("CAUSAL", …)`. The indices that Metal wants are assigned here, in the order of the declarations, once all
//! headers are spliced in: headers need not agree on indices, and a name that no source declares is an error on every
//! device.

use bessemer_hal::ConstantValue;

/// A function constant that a source declares; its position among them is its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Declaration {
    name: String,
    /// Its MSL type.
    type_name: String,
}

/// Replaces the declarations of a source by Metal's own, and returns them in the order of their indices.
pub(super) fn assign_indices(text: &str) -> (String, Vec<Declaration>) {
    let mut declared: Vec<Declaration> = Vec::new();
    let mut resolved = String::with_capacity(text.len() + 1024);
    for line in text.lines() {
        match parse(line) {
            Some(found) => {
                let Declaration { name, type_name } = &found;
                let known = declared.iter().position(|other| other.name == *name);
                let index = known.unwrap_or(declared.len());
                resolved += &format!("constant {type_name} {name} [[function_constant({index})]];");
                if known.is_none() {
                    declared.push(found);
                }
            }
            None => resolved += line,
        }
        resolved.push('\n');
    }
    (resolved, declared)
}

/// Parses a line that is a declaration.
fn parse(line: &str) -> Option<Declaration> {
    let inner = line.strip_prefix("FUNCTION_CONSTANT(")?;
    let (type_name, name) = inner.strip_suffix(");")?.split_once(", ")?;
    Some(Declaration {
        name: name.to_owned(),
        type_name: type_name.to_owned(),
    })
}

/// The index of the constant with this name, which takes this value, or the reason why there is none.
pub(super) fn index_of(
    declared: &[Declaration],
    name: &str,
    value: ConstantValue,
) -> Result<u32, String> {
    let Some(index) = declared.iter().position(|other| other.name == name) else {
        let names: Vec<&str> = declared.iter().map(|other| other.name.as_str()).collect();
        return Err(format!(
            "a value is given, but the source declares only [{}]",
            names.join(", ")
        ));
    };
    let type_name = &declared[index].type_name;
    if type_name != value.type_name() {
        return Err(format!(
            "a value of type {} is given, but the source declares a {type_name}",
            value.type_name()
        ));
    }
    Ok(index as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "// x\nFUNCTION_CONSTANT(bool, CAUSAL);\nFUNCTION_CONSTANT(uint, MASK);\nint x;";

    #[test]
    fn indices_follow_the_order_of_the_declarations_and_lines_stay_lines() {
        let (text, declared) = assign_indices(TEXT);
        let expected = "// x\nconstant bool CAUSAL [[function_constant(0)]];\n\
                        constant uint MASK [[function_constant(1)]];\nint x;\n";
        assert_eq!(text, expected);
        assert_eq!(
            index_of(&declared, "CAUSAL", ConstantValue::Bool(true)),
            Ok(0)
        );
        assert_eq!(index_of(&declared, "MASK", ConstantValue::U32(2)), Ok(1));
    }

    #[test]
    fn a_name_declared_twice_has_one_index() {
        let (text, declared) = assign_indices(&format!("{TEXT}\n{TEXT}"));
        assert_eq!(declared.len(), 2);
        assert_eq!(text.matches("MASK [[function_constant(1)]]").count(), 2);
    }

    #[test]
    fn rejects_unknown_names_and_other_types() {
        let (_, declared) = assign_indices(TEXT);
        let unknown = index_of(&declared, "CAUSA", ConstantValue::Bool(true));
        let message = "a value is given, but the source declares only [CAUSAL, MASK]";
        assert_eq!(unknown, Err(message.to_owned()));
        let typed = index_of(&declared, "MASK", ConstantValue::Bool(true));
        let message = "a value of type bool is given, but the source declares a uint";
        assert_eq!(typed, Err(message.to_owned()));
    }
}
