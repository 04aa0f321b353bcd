//! Reads the parameters of a kernel from their attributes and the visible part of their types.

use std::collections::HashMap;

use super::kernel::Reflector;
use super::{AddressSpace, Argument, ArgumentKind, Builtin, SLOTS};
use crate::msl::diagnostic::DiagnosticKind;
use crate::msl::lexer::Token;
use crate::msl::program::{FunctionDecl, Parameter};
use crate::msl::token_stream::{Attribute, TokenStream};

/// Attributes that do not affect the source of a value.
const IGNORED_ATTRIBUTES: [&str; 9] = [
    "maybe_unused",
    "deprecated",
    "nodiscard",
    "noreturn",
    "user",
    "raster_order_group",
    "access",
    "unlikely",
    "likely",
];

/// Attributes of kernel functions.
const KERNEL_ATTRIBUTES: [&str; 6] = [
    "kernel",
    "host_name",
    "max_total_threads_per_threadgroup",
    "required_threads_per_threadgroup",
    "visible",
    "stitchable",
];

/// An argument before template parameters are substituted.
#[derive(Clone)]
pub(super) struct ArgumentDraft {
    pub(super) argument: Argument,
    /// The tokens of its type.
    pub(super) words: Vec<usize>,
}

impl Reflector<'_, '_, '_> {
    pub(super) fn check_attributes(&mut self, function: &FunctionDecl) {
        let source = self.source();
        for attribute in source.attributes_in(function.first, function.open) {
            let name = attribute.name.as_str();
            let known = name.is_empty()
                || name.contains("::")
                || KERNEL_ATTRIBUTES.contains(&name)
                || IGNORED_ATTRIBUTES.contains(&name);
            // Attributes inside the parentheses belong to parameters.
            if !known && attribute.before <= function.open {
                self.unknown(attribute);
            }
        }
    }

    fn unknown(&mut self, attribute: &Attribute) {
        let message = format!("unknown attribute '{}'", attribute.name);
        self.diagnostics.push(self.source().error(
            attribute.token,
            DiagnosticKind::UnknownAttribute,
            message,
        ));
    }

    pub(super) fn signature(&mut self, index: usize) -> Vec<ArgumentDraft> {
        if let Some(known) = self.signatures.get(&index) {
            return known.clone();
        }
        let function = &self.rewrite.program.functions[index];
        let drafts = self.arguments(function);
        self.signatures.insert(index, drafts.clone());
        drafts
    }

    fn arguments(&mut self, function: &FunctionDecl) -> Vec<ArgumentDraft> {
        let source = self.source();
        let parameters = function.parameters(source);
        let mut slots = SlotTables::default();
        let mut kinds = Vec::with_capacity(parameters.len());
        for parameter in &parameters {
            let (kind, gate) = self.attributed(parameter);
            if let Some(kind) = kind
                && !slots.take(kind, gate.is_some())
            {
                let message = match kind {
                    ArgumentKind::Buffer { index } => {
                        format!("two parameters at [[buffer({index})]]")
                    }
                    ArgumentKind::ThreadgroupMemory { index } => {
                        format!("two parameters at [[threadgroup({index})]]")
                    }
                    ArgumentKind::Builtin(_) => continue,
                };
                self.diagnostics.push(source.error_at(
                    parameter.range.start,
                    DiagnosticKind::DuplicateIndex,
                    message,
                ));
            }
            kinds.push((kind, gate));
        }
        let mut drafts = Vec::with_capacity(parameters.len());
        let mut dimensions = None;
        for (parameter, (kind, gate)) in parameters.iter().zip(kinds) {
            if let Some(draft) = self.draft(parameter, kind, gate, &mut slots) {
                self.check_builtin(parameter, &draft.argument, &mut dimensions);
                drafts.push(draft);
            }
        }
        drafts
    }

    /// Checks that positions and sizes are integers, and that all of a kernel have the same number of dimensions.
    /// `dimensions` is that of the first one.
    fn check_builtin(
        &mut self,
        parameter: &Parameter,
        argument: &Argument,
        dimensions: &mut Option<(Builtin, u32)>,
    ) {
        let ArgumentKind::Builtin(builtin) = argument.kind else {
            return;
        };
        let name = builtin.name();
        let type_name = argument.type_name.as_str();
        let message = match components(type_name) {
            Components::NoInteger => {
                format!(
                    "invalid type '{type_name}' for [[{name}]]: it must be ushort, uint or a vector of them"
                )
            }
            Components::Integer(count) if builtin.has_dimensions() => match *dimensions {
                Some((first, other)) if other != count => format!(
                    "[[{name}]] and [[{}]] must have the same number of components, not {count} and {other}",
                    first.name()
                ),
                _ => {
                    *dimensions = Some((builtin, count));
                    return;
                }
            },
            _ => return,
        };
        self.diagnostics.push(self.source().error_at(
            parameter.range.start,
            DiagnosticKind::Refused,
            message,
        ));
    }

    /// Evaluates a parameter's attributes.
    fn attributed(&mut self, parameter: &Parameter) -> (Option<ArgumentKind>, Option<String>) {
        let source = self.source();
        let mut kind = None;
        let mut gate = None;
        for attribute in source.attributes_in(parameter.range.start, parameter.range.end) {
            let name = attribute.name.as_str();
            match name {
                "buffer" => {
                    kind = self
                        .index(attribute)
                        .map(|index| ArgumentKind::Buffer { index });
                }
                "threadgroup" => {
                    kind = self
                        .index(attribute)
                        .map(|index| ArgumentKind::ThreadgroupMemory { index });
                }
                "function_constant" => gate = Some(words(source, &attribute.arguments)),
                _ => match Builtin::from_name(name) {
                    Some(builtin) => kind = Some(ArgumentKind::Builtin(builtin)),
                    None if name.is_empty()
                        || name.contains("::")
                        || IGNORED_ATTRIBUTES.contains(&name) => {}
                    None => self.unknown(attribute),
                },
            }
        }
        (kind, gate)
    }

    fn index(&mut self, attribute: &Attribute) -> Option<u32> {
        let source = self.source();
        let name = &attribute.name;
        let message = match self.constants.evaluate(source, &attribute.arguments) {
            Some(value) => match u32::try_from(value) {
                Ok(index) if index < SLOTS => return Some(index),
                _ => format!("[[{name}({value})]]: the index must be 0 to {}", SLOTS - 1),
            },
            None => format!(
                "[[{name}({})]]: the index is not an integer constant",
                words(source, &attribute.arguments)
            ),
        };
        self.diagnostics
            .push(source.error(attribute.token, DiagnosticKind::Index, message));
        None
    }

    fn draft(
        &mut self,
        parameter: &Parameter,
        kind: Option<ArgumentKind>,
        gate: Option<String>,
        slots: &mut SlotTables,
    ) -> Option<ArgumentDraft> {
        let source = self.source();
        let shape = Shape::read(source, parameter);
        let kind = match kind {
            Some(kind) => kind,
            None if !shape.indirect => {
                let name = parameter.name.map_or("", |name| source.text_at(name));
                // Invalid attributes have been reported already.
                if source
                    .attributes_in(parameter.range.start, parameter.range.end)
                    .is_empty()
                {
                    let message = format!(
                        "kernel parameter '{name}' needs an attribute such as [[thread_position_in_grid]], \
                         or an address space"
                    );
                    self.diagnostics.push(source.error_at(
                        parameter.range.start,
                        DiagnosticKind::Refused,
                        message,
                    ));
                }
                return None;
            }
            None => match slots.next(shape.space == Some(AddressSpace::Threadgroup)) {
                Some(kind) => kind,
                None => {
                    let message = format!("a kernel has at most {SLOTS} buffers");
                    self.diagnostics.push(source.error_at(
                        parameter.range.start,
                        DiagnosticKind::Index,
                        message,
                    ));
                    return None;
                }
            },
        };
        let builtin = matches!(kind, ArgumentKind::Builtin(_));
        let space = shape.space.unwrap_or(AddressSpace::Thread);
        let type_name = join(shape.words.iter().map(|&i| source.text_at(i).to_owned()));
        Some(ArgumentDraft {
            argument: Argument {
                name: parameter
                    .name
                    .map_or("", |name| source.text_at(name))
                    .to_owned(),
                kind,
                address_space: space,
                writable: !builtin && !shape.constant && space != AddressSpace::Constant,
                type_name,
                by_reference: shape.reference,
                gate,
            },
            words: shape.words,
        })
    }
}

/// Component count of a builtin's type, as far as its name shows.
enum Components {
    Integer(u32),
    NoInteger,
    /// A template parameter or an alias.
    Unknown,
}

fn components(type_name: &str) -> Components {
    let (base, count) = match type_name.as_bytes() {
        [.., digit @ b'2'..=b'4'] => (&type_name[..type_name.len() - 1], u32::from(digit - b'0')),
        _ => (type_name, 1),
    };
    match base {
        "uint" | "ushort" | "unsigned" | "unsigned int" | "unsigned short" | "uint32_t"
        | "uint16_t" => Components::Integer(count),
        "float" | "half" | "bfloat" | "bool" => Components::NoInteger,
        _ => Components::Unknown,
    }
}

/// Indices in use in the two tables; the flag is set if all their users are gated.
#[derive(Default)]
struct SlotTables {
    buffers: HashMap<u32, bool>,
    memories: HashMap<u32, bool>,
}

impl SlotTables {
    /// Two arguments may share an index only if a function constant selects between them.
    fn take(&mut self, kind: ArgumentKind, gated: bool) -> bool {
        let (table, index) = match kind {
            ArgumentKind::Buffer { index } => (&mut self.buffers, index),
            ArgumentKind::ThreadgroupMemory { index } => (&mut self.memories, index),
            ArgumentKind::Builtin(_) => return true,
        };
        match table.insert(index, gated) {
            Some(other) => other && gated,
            None => true,
        }
    }

    fn next(&mut self, threadgroup: bool) -> Option<ArgumentKind> {
        let table = if threadgroup {
            &mut self.memories
        } else {
            &mut self.buffers
        };
        let index = (0..SLOTS).find(|index| !table.contains_key(index))?;
        table.insert(index, false);
        Some(if threadgroup {
            ArgumentKind::ThreadgroupMemory { index }
        } else {
            ArgumentKind::Buffer { index }
        })
    }
}

/// The type of a parameter, as far as its tokens show.
pub(crate) struct Shape {
    pub(crate) space: Option<AddressSpace>,
    /// `const` or `constant` before the pointer.
    pub(crate) constant: bool,
    pub(crate) reference: bool,
    /// A pointer, reference or array.
    pub(crate) indirect: bool,
    /// The tokens of the type itself.
    pub(crate) words: Vec<usize>,
}

impl Shape {
    pub(crate) fn read(source: &TokenStream<'_>, parameter: &Parameter) -> Self {
        let end = parameter.name.unwrap_or(parameter.tail);
        let array = source.text_at(parameter.tail) == "[" && parameter.tail < parameter.range.end;
        let mut shape = Self {
            space: None,
            constant: false,
            reference: false,
            indirect: array,
            words: Vec::new(),
        };
        let mut pointed = false;
        let mut i = parameter.range.start;
        while i < end {
            let next = source.after(i, true).min(end.max(i + 1));
            let text = source.text_at(i);
            match text {
                "*" | "&" | "&&" => {
                    shape.reference = text != "*";
                    shape.indirect = true;
                    pointed = true;
                }
                // `threadgroup float (&x)[4]`
                "(" if matches!(source.text_at(i + 1), "*" | "&") => {
                    shape.reference = source.text_at(i + 1) == "&";
                    shape.indirect = true;
                    pointed = true;
                }
                _ => {
                    let space = AddressSpace::from_keyword(text);
                    shape.space = shape.space.or(space);
                    if !pointed {
                        shape.constant |= matches!(text, "const" | "constant");
                        if text == "coherent" && source.text_at(i + 1) == "(" {
                            i = source.after(i + 1, false);
                            continue;
                        }
                        if !is_specifier(text) {
                            shape.words.extend(i..next);
                        }
                    }
                }
            }
            i = next;
        }
        shape
    }
}

pub(super) fn is_specifier(text: &str) -> bool {
    AddressSpace::from_keyword(text).is_some()
        || matches!(
            text,
            "const"
                | "volatile"
                | "static"
                | "constexpr"
                | "inline"
                | "coherent"
                | "struct"
                | "restrict"
                | "__restrict"
                | "typename"
        )
}

/// Joins the words of a type, with spaces only where C++ needs them.
pub(super) fn join(words: impl Iterator<Item = String>) -> String {
    let mut out = String::new();
    for word in words {
        let tight = |c: char| matches!(c, '<' | ':' | '(');
        let close = matches!(word.as_str(), "<" | ">" | "::" | "," | "(" | ")");
        if !out.is_empty() && !close && !out.ends_with(tight) {
            out.push(' ');
        }
        out.push_str(&word);
    }
    out
}

pub(super) fn words(source: &TokenStream<'_>, tokens: &[Token]) -> String {
    let texts: Vec<&str> = tokens
        .iter()
        .map(|&token| source.token_text(token))
        .collect();
    texts.join(" ")
}
