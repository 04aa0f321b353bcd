//! Binding the arguments of a kernel in a whole source.

use bessemer_hal::{Argument, ArgumentKind};

use super::definition::{Definition, Role};
use crate::{Error, Result};

/// Indices of the declared arguments, in the order of their declaration.
pub(super) struct ArgumentSlots {
    pub(super) tensors: Vec<u32>,
    pub(super) scalars: Vec<u32>,
    pub(super) threadgroup: Vec<u32>,
}

impl ArgumentSlots {
    /// The declared order: that of a generated signature.
    pub(super) fn declared(definition: &Definition) -> Self {
        Self {
            tensors: definition.tensors.iter().map(|t| t.slot).collect(),
            scalars: definition.scalars.iter().map(|s| s.slot).collect(),
            threadgroup: definition.threadgroup.iter().map(|m| m.slot).collect(),
        }
    }

    /// The indices that a kernel's own signature gives the declared names. A device that cannot tell its arguments, the
    /// recording device, gets the declared order.
    ///
    /// # Errors
    /// [`Error::Invalid`] for names that only one of the two has, and for an input that the kernel writes.
    pub(super) fn reflected(definition: &Definition, arguments: &[Argument]) -> Result<Self> {
        if arguments.is_empty() {
            return Ok(Self::declared(definition));
        }
        let invalid = |reason| Error::Invalid {
            op: definition.name,
            reason,
        };
        let find = |name: &str| {
            arguments.iter().find(|a| a.name == name).ok_or_else(|| {
                let known: Vec<_> = arguments.iter().map(|a| format!("`{}`", a.name)).collect();
                invalid(format!(
                    "`{name}` is declared, but the kernel has only {}",
                    known.join(", ")
                ))
            })
        };
        let buffer = |name: &str| match find(name)?.kind {
            ArgumentKind::Buffer(index) => Ok(index),
            ArgumentKind::ThreadgroupMemory(_) => Err(invalid(format!(
                "`{name}` is threadgroup memory in the kernel; declare it with `threadgroup`"
            ))),
        };
        let memory = |name: &str| match find(name)?.kind {
            ArgumentKind::ThreadgroupMemory(index) => Ok(index),
            ArgumentKind::Buffer(_) => Err(invalid(format!(
                "`{name}` is a buffer in the kernel, not threadgroup memory"
            ))),
        };
        for tensor in definition.tensors.iter().filter(|t| t.role == Role::Input) {
            if find(&tensor.name)?.access.writes() {
                return Err(invalid(format!(
                    "the kernel may write input `{}`; make it `const` there, or declare it as in-out",
                    tensor.name
                )));
            }
        }
        let scalars = definition.scalars.iter();
        let slots = Self {
            tensors: definition
                .tensors
                .iter()
                .map(|t| buffer(&t.name))
                .collect::<Result<_>>()?,
            scalars: scalars.map(|s| buffer(&s.name)).collect::<Result<_>>()?,
            threadgroup: definition
                .threadgroup
                .iter()
                .map(|m| memory(&m.name))
                .collect::<Result<_>>()?,
        };
        for argument in arguments.iter().filter(|a| a.active) {
            let is_bound = match argument.kind {
                ArgumentKind::Buffer(index) => {
                    slots.tensors.contains(&index) || slots.scalars.contains(&index)
                }
                ArgumentKind::ThreadgroupMemory(index) => slots.threadgroup.contains(&index),
            };
            if !is_bound {
                return Err(invalid(format!(
                    "the kernel has an argument `{}` that is not declared",
                    argument.name
                )));
            }
        }
        Ok(slots)
    }
}

/// The index of a function constant that a source declares as `constant T name [[function_constant(index)]]`.
pub(super) fn constant_index(source: &str, name: &str) -> Option<u32> {
    const ATTRIBUTE: &str = "function_constant(";
    source.match_indices(ATTRIBUTE).find_map(|(at, _)| {
        let before = source.get(..at)?.trim_end().strip_suffix("[[")?.trim_end();
        let start = before
            .rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .map_or(0, |at| at + 1);
        let rest = source.get(at + ATTRIBUTE.len()..)?;
        let digits = rest.split(')').next()?.trim();
        (before.get(start..)? == name).then(|| digits.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_found_by_name() {
        let source = "constant bool FAST [[function_constant(0)]];\n\
                      constant uint N [[ function_constant( 12 ) ]];\n\
                      constant int broken [[function_constant(x)]];";
        assert_eq!(constant_index(source, "FAST"), Some(0));
        assert_eq!(constant_index(source, "N"), Some(12));
        for name in ["broken", "AST", "constant", ""] {
            assert_eq!(constant_index(source, name), None, "{name}");
        }
        assert_eq!(constant_index("function_constant(", "x"), None);
    }
}
