//! What the host must know of a program: its kernels with their arguments, and its function constants.

use std::collections::HashMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use super::builtin::Builtin;
use super::constant::Constants;
use super::diagnostic::{Diagnostic, DiagnosticKind};
use super::glue::Entry;
use super::lexer::{Token, TokenKind};
use super::program::{Function, Instantiation, Parameter, base_name};
use super::rewrite::Rewrite;
use super::source::{Attribute, Source};

/// Metal's argument tables have this many buffer and threadgroup-memory slots.
pub const SLOTS: u32 = 31;

/// The kernels and function constants of a program, in the order of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reflection {
    /// Every kernel that the host can ask for.
    pub kernels: Vec<Kernel>,
    /// Every function constant that the host can set.
    pub constants: Vec<FunctionConstant>,
}

impl Reflection {
    /// The kernel of a host name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }
}

/// A kernel function, or one instantiation of a kernel template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// The name that the host asks for.
    pub name: String,
    /// The function, qualified and with its template arguments.
    pub function: String,
    /// In the order of the parameters.
    pub arguments: Vec<Argument>,
    /// `[[max_total_threads_per_threadgroup(n)]]`
    pub max_total_threads: Option<u32>,
    /// Where it is defined or instantiated.
    pub file: String,
    /// Where it is defined or instantiated, from 1.
    pub line: u32,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    /// Empty where the parameter has none.
    pub name: String,
    /// Where its value comes from.
    pub kind: ArgumentKind,
    /// As written; `thread` for values.
    pub address_space: AddressSpace,
    /// The kernel may write through it: neither `const` nor `constant`.
    pub writable: bool,
    /// The type, or what a pointer, reference or array refers to; without address space and `const`.
    pub type_name: String,
    /// `T&` rather than `T*` or `T[n]`.
    pub by_reference: bool,
    /// The condition of `[[function_constant(…)]]`; the argument exists where it is true.
    pub gate: Option<String>,
}

/// Where a kernel argument comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ArgumentKind {
    /// A slot of the buffer table.
    Buffer {
        /// 0 to 30
        index: u32,
    },
    /// Threadgroup memory that the host sizes.
    ThreadgroupMemory {
        /// 0 to 30
        index: u32,
    },
    /// The thread's place in the grid and its relatives.
    Builtin(Builtin),
}

/// Metal's address spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressSpace {
    /// Buffers, read and write.
    Device,
    /// Buffers and program-scope variables, read only.
    Constant,
    /// Shared by the threads of a threadgroup.
    Threadgroup,
    /// A thread's own.
    Thread,
}

impl AddressSpace {
    /// The address space of a keyword.
    pub(crate) fn from_keyword(word: &str) -> Option<Self> {
        match word {
            "device" => Some(Self::Device),
            "constant" => Some(Self::Constant),
            "threadgroup" => Some(Self::Threadgroup),
            "thread" => Some(Self::Thread),
            _ => None,
        }
    }

    /// The keyword.
    pub fn keyword(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Constant => "constant",
            Self::Threadgroup => "threadgroup",
            Self::Thread => "thread",
        }
    }
}

/// A function constant: `constant bool x [[function_constant(3)]];`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionConstant {
    /// Its name.
    pub name: String,
    /// Its index, 0 to 65535.
    pub index: u32,
    /// Its type as written.
    pub type_name: String,
}

/// Attributes that say nothing about where a value comes from.
const HARMLESS: [&str; 9] = [
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

/// Attributes of Metal that no kernel on the software device can have.
const UNSUPPORTED: [&str; 31] = [
    "texture",
    "sampler",
    "stage_in",
    "imageblock_data",
    "imageblock",
    "color",
    "position",
    "vertex_id",
    "instance_id",
    "base_vertex",
    "base_instance",
    "amplification_id",
    "payload",
    "patch_id",
    "position_in_patch",
    "sample_id",
    "sample_mask",
    "front_facing",
    "point_coord",
    "primitive_id",
    "barycentric_coord",
    "render_target_array_index",
    "viewport_array_index",
    "pixel_position_in_tile",
    "tile_index",
    "pixels_per_tile",
    "alias_implicit_imageblock",
    "origin",
    "direction",
    "world_space_origin",
    "thread_index_in_imageblock",
];

/// Attributes of kernel functions.
const OF_KERNELS: [&str; 6] = [
    "kernel",
    "host_name",
    "max_total_threads_per_threadgroup",
    "required_threads_per_threadgroup",
    "visible",
    "stitchable",
];

/// Reads kernels and constants; what is wrong with them goes to the diagnostics.
pub(crate) fn reflect<'a>(
    rewrite: &Rewrite<'_, 'a>,
    constants: &Constants<'a>,
) -> (Reflection, Vec<Entry>, Vec<Diagnostic>) {
    let mut reflector = Reflector {
        rewrite,
        constants,
        kernels: Vec::new(),
        diagnostics: Vec::new(),
        signatures: HashMap::new(),
    };
    reflector.functions();
    reflector.instantiations();
    let constants = reflector.constants();
    let mut diagnostics = reflector.diagnostics;
    let mut found = reflector.kernels;
    found.sort_by_key(|(first, ..)| *first);
    let mut names: HashMap<String, (String, u32)> = HashMap::with_capacity(found.len());
    let mut reflection = Reflection {
        kernels: Vec::with_capacity(found.len()),
        constants,
    };
    let mut entries = Vec::with_capacity(found.len());
    for (first, kernel, entry) in found {
        if let Some((file, line)) = names.get(&kernel.name) {
            let message = format!(
                "two kernels are named '{}'; the first is at {file}:{line}",
                kernel.name
            );
            diagnostics.push(rewrite.source.error_at(
                first,
                DiagnosticKind::DuplicateKernel,
                message,
            ));
            continue;
        }
        names.insert(kernel.name.clone(), (kernel.file.clone(), kernel.line));
        reflection.kernels.push(kernel);
        entries.push(entry);
    }
    (reflection, entries, diagnostics)
}

struct Reflector<'r, 's, 'a> {
    rewrite: &'r Rewrite<'s, 'a>,
    constants: &'r Constants<'a>,
    kernels: Vec<(usize, Kernel, Entry)>,
    diagnostics: Vec<Diagnostic>,
    /// The arguments of a kernel function, read once for all its instantiations.
    signatures: HashMap<usize, Vec<Draft>>,
}

/// An argument before template parameters are replaced.
#[derive(Clone)]
struct Draft {
    argument: Argument,
    /// The tokens of its type.
    words: Vec<usize>,
}

impl<'s, 'a> Reflector<'_, 's, 'a> {
    fn source(&self) -> &'s Source<'a> {
        self.rewrite.source
    }

    /// Kernels that are no templates.
    fn functions(&mut self) {
        let program = self.rewrite.program;
        for (index, function) in program.functions.iter().enumerate() {
            let defined = function.body.is_some() && !self.rewrite.dropped.contains(&index);
            if !function.kernel || !defined || self.source().tokens[function.first].system {
                continue;
            }
            self.check_attributes(function);
            let drafts = self.signature(index);
            if function.is_template() {
                continue;
            }
            let expression = self.expression(&function.name);
            let host = host_name(self.source(), function.first, function.open);
            let threads = self.threads(function, self.constants);
            let arguments = drafts.into_iter().map(|draft| draft.argument).collect();
            self.push(Found {
                first: function.specifiers,
                scope: function.scope,
                expression,
                host,
                cast: None,
                arguments,
                threads,
            });
        }
    }

    fn instantiations(&mut self) {
        let program = self.rewrite.program;
        let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, function) in program.functions.iter().enumerate() {
            if function.is_template() && !program.scopes[function.scope].is_class {
                by_name
                    .entry(function.base_name(self.source()))
                    .or_default()
                    .push(index);
            }
        }
        for instantiation in &program.instantiations {
            let source = self.source();
            let attributes = source.attributes_in(instantiation.first, instantiation.last);
            let asked = attributes
                .iter()
                .any(|a| a.name == "kernel" || a.name == "host_name")
                || (instantiation.first..instantiation.name.start)
                    .any(|i| source.text_at(i) == "kernel");
            let base = base_name(source, &instantiation.name);
            let candidates = by_name.get(base).map_or(&[][..], Vec::as_slice);
            let Some(function) = self.choose(instantiation, candidates) else {
                if asked {
                    let message = format!("there is no kernel template named '{base}'");
                    self.diagnostics.push(source.error_at(
                        instantiation.name.start,
                        DiagnosticKind::UnknownKernel,
                        message,
                    ));
                }
                continue;
            };
            if asked || program.functions[function].kernel {
                self.instantiate(instantiation, function);
            }
        }
    }

    /// The template that an instantiation means: a definition, a kernel, with as many parameters, in the nearest scope.
    fn choose(&self, instantiation: &Instantiation, candidates: &[usize]) -> Option<usize> {
        let source = self.source();
        let program = self.rewrite.program;
        let path = program.path(instantiation.scope);
        let parameters = instantiation
            .parameters
            .map(|(open, close)| source.split_commas(open + 1..close).len());
        let arguments = arguments(source, &instantiation.name).map_or(0, |list| list.len());
        candidates.iter().copied().max_by_key(|&index| {
            let function = &program.functions[index];
            let scope = program.path(function.scope);
            let count = source.split_commas(function.open + 1..function.close).len();
            let heads = function
                .heads
                .last()
                .map_or(0, |head| source.split_commas(head.clone()).len());
            (
                function.kernel,
                function.body.is_some(),
                parameters.is_none_or(|wanted| wanted == count),
                heads >= arguments,
                if path.starts_with(&scope) {
                    scope.len() + 1
                } else {
                    0
                },
                std::cmp::Reverse(index),
            )
        })
    }

    fn instantiate(&mut self, instantiation: &Instantiation, index: usize) {
        let source = self.source();
        let function = &self.rewrite.program.functions[index];
        let drafts = self.signature(index);
        let bound = self.bind(function, &instantiation.name);
        let arguments = drafts
            .into_iter()
            .map(|draft| self.substitute(draft, &bound))
            .collect();
        let expression = self.expression(&instantiation.name);
        let host = host_name(source, instantiation.first, instantiation.last);
        let deduced = arguments_range(source, &instantiation.name).is_none();
        let cast = instantiation
            .parameters
            .filter(|_| deduced)
            .map(|(open, close)| self.rewrite.render(open, close));
        let threads = self.threads(function, self.constants).or_else(|| {
            let mut constants = self.constants.clone();
            for (name, range) in &bound {
                let value = constants.evaluate(source, &source.tokens[range.clone()]);
                constants.bind(name, value);
            }
            self.threads(function, &constants)
        });
        self.push(Found {
            first: instantiation.first,
            scope: instantiation.scope,
            expression,
            host,
            cast,
            arguments,
            threads,
        });
    }

    fn push(&mut self, found: Found) {
        let path = self.rewrite.program.path(found.scope).join("::");
        let function = if path.is_empty() {
            found.expression.clone()
        } else {
            format!("{path}::{}", found.expression)
        };
        let place = self.source().tokens[found.first];
        let kernel = Kernel {
            name: found.host.unwrap_or_else(|| function.clone()),
            function,
            arguments: found.arguments,
            max_total_threads: found.threads,
            file: self.source().file(place).to_owned(),
            line: place.line,
        };
        let entry = Entry {
            namespace: path,
            expression: found.expression,
            cast: found.cast,
        };
        self.kernels.push((found.first, kernel, entry));
    }

    /// The C++ expression of a name, its template arguments edited.
    fn expression(&self, name: &Range<usize>) -> String {
        self.rewrite.render(name.start, name.end - 1)
    }

    /// The template parameters of a kernel with the tokens of their arguments.
    fn bind(&self, function: &Function, name: &Range<usize>) -> Vec<(&'a str, Range<usize>)> {
        let source = self.source();
        let Some(head) = function.heads.last() else {
            return Vec::new();
        };
        let given = arguments(source, name).unwrap_or_default();
        let mut bound = Vec::new();
        for (n, parameter) in source.split_commas(head.clone()).into_iter().enumerate() {
            let equals = (parameter.clone()).find(|&i| source.text_at(i) == "=");
            let end = equals.unwrap_or(parameter.end);
            let Some(last) = end
                .checked_sub(1)
                .filter(|&last| source.is_identifier(last))
            else {
                continue;
            };
            let default = equals.map(|equals| equals + 1..parameter.end);
            if let Some(range) = given.get(n).cloned().or(default) {
                bound.push((source.text_at(last), range));
            }
        }
        bound
    }

    fn substitute(&self, draft: Draft, bound: &[(&'a str, Range<usize>)]) -> Argument {
        let source = self.source();
        let mut argument = draft.argument;
        let dependent = |i: &usize| {
            bound
                .iter()
                .find(|(name, _)| *name == source.text_at(*i))
                .filter(|(_, range)| !range.is_empty())
        };
        if draft.words.iter().any(|i| dependent(i).is_some()) {
            let words = draft.words.iter().map(|i| match dependent(i) {
                Some((_, range)) => self.rewrite.render(range.start, range.end - 1),
                None => source.text_at(*i).to_owned(),
            });
            argument.type_name = join(words);
        }
        argument
    }

    fn threads(&self, function: &Function, constants: &Constants<'a>) -> Option<u32> {
        let attribute = self
            .source()
            .attributes_in(function.first, function.open)
            .iter()
            .find(|a| a.name == "max_total_threads_per_threadgroup")?;
        let value = constants.evaluate(self.source(), &attribute.arguments)?;
        u32::try_from(value).ok()
    }

    fn check_attributes(&mut self, function: &Function) {
        let source = self.source();
        for attribute in source.attributes_in(function.first, function.open) {
            let name = attribute.name.as_str();
            let known = name.is_empty()
                || name.contains("::")
                || OF_KERNELS.contains(&name)
                || HARMLESS.contains(&name);
            // Attributes inside the parentheses belong to parameters.
            if !known && attribute.before <= function.open {
                self.unknown(attribute);
            }
        }
    }

    fn unknown(&mut self, attribute: &Attribute) {
        let message = format!("unknown attribute '{}'", attribute.name);
        self.diagnostics.push(self.source().error(
            attribute.place,
            DiagnosticKind::UnknownAttribute,
            message,
        ));
    }

    fn signature(&mut self, index: usize) -> Vec<Draft> {
        if let Some(known) = self.signatures.get(&index) {
            return known.clone();
        }
        let function = &self.rewrite.program.functions[index];
        let drafts = self.arguments(function);
        self.signatures.insert(index, drafts.clone());
        drafts
    }

    fn arguments(&mut self, function: &Function) -> Vec<Draft> {
        let source = self.source();
        let parameters = function.parameters(source);
        let mut slots = Slots::default();
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
        for (parameter, (kind, gate)) in parameters.iter().zip(kinds) {
            if let Some(draft) = self.draft(parameter, kind, gate, &mut slots) {
                drafts.push(draft);
            }
        }
        drafts
    }

    /// What a parameter's attributes say of it.
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
                _ if UNSUPPORTED.contains(&name) => {
                    let message = format!("[[{name}]] is not supported by the software device");
                    self.diagnostics.push(source.error(
                        attribute.place,
                        DiagnosticKind::Unsupported,
                        message,
                    ));
                }
                _ => match Builtin::from_name(name) {
                    Some(builtin) => kind = Some(ArgumentKind::Builtin(builtin)),
                    None if name.is_empty() || name.contains("::") || HARMLESS.contains(&name) => {}
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
            .push(source.error(attribute.place, DiagnosticKind::Index, message));
        None
    }

    fn draft(
        &mut self,
        parameter: &Parameter,
        kind: Option<ArgumentKind>,
        gate: Option<String>,
        slots: &mut Slots,
    ) -> Option<Draft> {
        let source = self.source();
        let shape = Shape::read(source, parameter);
        let kind = match kind {
            Some(kind) => kind,
            None if !shape.indirect => {
                let name = parameter.name.map_or("", |name| source.text_at(name));
                // Attributes that are wrong have been reported.
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
        Some(Draft {
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

    fn constants(&mut self) -> Vec<FunctionConstant> {
        let source = self.source();
        let program = self.rewrite.program;
        let mut found = Vec::new();
        for variable in &program.variables {
            for attribute in source.attributes_in(variable.first, variable.last) {
                if attribute.name != "function_constant" || attribute.before == 0 {
                    continue;
                }
                let value = self.constants.evaluate(source, &attribute.arguments);
                let Some(index) = value.and_then(|v| u16::try_from(v).ok()) else {
                    let message = format!(
                        "[[function_constant({})]]: the index must be a constant from 0 to 65535",
                        words(source, &attribute.arguments)
                    );
                    self.diagnostics.push(source.error(
                        attribute.place,
                        DiagnosticKind::Index,
                        message,
                    ));
                    continue;
                };
                let first = variable
                    .declarators
                    .first()
                    .map_or(variable.last, |d| d.name);
                let kept =
                    (variable.specifiers..first).filter(|&i| !is_specifier(source.text_at(i)));
                found.push(FunctionConstant {
                    name: source.text_at(attribute.before - 1).to_owned(),
                    index: u32::from(index),
                    type_name: join(kept.map(|i| source.text_at(i).to_owned())),
                });
            }
        }
        found
    }
}

struct Found {
    first: usize,
    scope: usize,
    expression: String,
    host: Option<String>,
    cast: Option<String>,
    arguments: Vec<Argument>,
    threads: Option<u32>,
}

/// Which indices of the two tables are taken; the flag says that all who took it are gated.
#[derive(Default)]
struct Slots {
    buffers: HashMap<u32, bool>,
    memories: HashMap<u32, bool>,
}

impl Slots {
    /// Two arguments may share an index only where a function constant decides between them.
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

/// What the tokens of a parameter say of its type.
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
    pub(crate) fn read(source: &Source<'_>, parameter: &Parameter) -> Self {
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

fn is_specifier(text: &str) -> bool {
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

/// Words of a type with blanks only where C++ needs or wants them.
fn join(words: impl Iterator<Item = String>) -> String {
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

fn words(source: &Source<'_>, tokens: &[Token]) -> String {
    let texts: Vec<&str> = tokens
        .iter()
        .map(|&token| source.token_text(token))
        .collect();
    texts.join(" ")
}

/// The tokens between the angle brackets that end a name.
fn arguments_range(source: &Source<'_>, name: &Range<usize>) -> Option<Range<usize>> {
    let last = name.end.checked_sub(1)?;
    let open = source
        .partner(last)
        .filter(|_| source.text_at(last) == ">")?;
    Some(open + 1..last)
}

fn arguments(source: &Source<'_>, name: &Range<usize>) -> Option<Vec<Range<usize>>> {
    arguments_range(source, name).map(|range| source.split_commas(range))
}

/// `[[host_name("a" "b")]]` among the attributes of a declaration.
fn host_name(source: &Source<'_>, first: usize, last: usize) -> Option<String> {
    let attribute = source
        .attributes_in(first, last)
        .iter()
        .find(|attribute| attribute.name == "host_name")?;
    let mut name = String::new();
    for token in &attribute.arguments {
        if token.kind == TokenKind::String {
            let text = source.token_text(*token);
            let open = text.find('"').map_or(0, |open| open + 1);
            name.push_str(text[open..].strip_suffix('"').unwrap_or_default());
        }
    }
    Some(name)
}
