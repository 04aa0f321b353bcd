//! What Metal has and the software device has not: each is an error that names it, never a wrong result.

use std::collections::{HashMap, HashSet};

use super::diagnostic::{Diagnostic, DiagnosticKind};
use super::program::{Function, Program};
use super::reflect::{AddressSpace, Shape};
use super::source::Source;

/// Types that are unmistakable by name.
const TYPES: [(&str, &str); 13] = [
    ("acceleration_structure", "ray tracing"),
    ("instance_acceleration_structure", "ray tracing"),
    ("primitive_acceleration_structure", "ray tracing"),
    ("intersection_query", "ray tracing"),
    ("intersection_params", "ray tracing"),
    (
        "intersection_function_table",
        "intersection function tables",
    ),
    ("visible_function_table", "visible function tables"),
    ("threadgroup_imageblock", "imageblocks"),
    ("ray_data", "ray tracing"),
    ("object_data", "mesh shaders"),
    ("mesh_grid_properties", "mesh shaders"),
    ("cooperative_tensor", "tensors"),
    ("tensor_handle", "tensors"),
];

/// Class templates that are unmistakable with their angle bracket.
const TEMPLATES: [(&str, &str); 21] = [
    ("texture1d", "textures"),
    ("texture1d_array", "textures"),
    ("texture2d", "textures"),
    ("texture2d_array", "textures"),
    ("texture2d_ms", "textures"),
    ("texture2d_ms_array", "textures"),
    ("texture3d", "textures"),
    ("texturecube", "textures"),
    ("texturecube_array", "textures"),
    ("texture_buffer", "textures"),
    ("depth2d", "textures"),
    ("depth2d_array", "textures"),
    ("depth2d_ms", "textures"),
    ("depth2d_ms_array", "textures"),
    ("depthcube", "textures"),
    ("depthcube_array", "textures"),
    ("intersector", "ray tracing"),
    ("intersection_result", "ray tracing"),
    ("imageblock", "imageblocks"),
    ("interpolant", "graphics functions"),
    ("mesh", "mesh shaders"),
];

/// Types that may be a user's name for something else unless a declared name follows.
const DECLARED: [(&str, &str); 5] = [
    ("sampler", "samplers"),
    ("command_buffer", "indirect command buffers"),
    ("render_command", "indirect command buffers"),
    ("compute_command", "indirect command buffers"),
    ("compute_pipeline_state", "indirect command buffers"),
];

/// C++ that MSL leaves out.
const KEYWORDS: [&str; 12] = [
    "goto",
    "dynamic_cast",
    "typeid",
    "new",
    "delete",
    "throw",
    "try",
    "catch",
    "virtual",
    "thread_local",
    "asm",
    "__asm__",
];

/// Stages whose functions no compute device runs.
const STAGES: [&str; 7] = [
    "vertex",
    "fragment",
    "mesh",
    "object",
    "intersection",
    "tile",
    "amplification",
];

/// Everything in the program that is not supported.
pub(crate) fn check(source: &Source<'_>, program: &Program) -> Vec<Diagnostic> {
    let mut checker = Checker {
        source,
        program,
        classes: program
            .classes
            .iter()
            .filter_map(|class| class.name)
            .map(|name| source.text_at(name))
            .collect(),
        diagnostics: Vec::new(),
    };
    for i in 0..source.len() {
        if source.is_identifier(i) && !source.tokens[i].system {
            checker.word(i);
        }
    }
    checker.stages();
    checker.argument_buffers();
    checker.program_scope();
    checker.diagnostics
}

struct Checker<'s, 'a> {
    source: &'s Source<'a>,
    program: &'s Program,
    classes: HashSet<&'a str>,
    diagnostics: Vec<Diagnostic>,
}

impl Checker<'_, '_> {
    fn unsupported(&mut self, i: usize, what: &str) {
        let name = self.source.text_at(i);
        let message = format!("{what} are not supported by the software device: '{name}'");
        let message = message.replace("tracing are", "tracing is");
        self.diagnostics.push(
            self.source
                .error_at(i, DiagnosticKind::Unsupported, message),
        );
    }

    fn word(&mut self, i: usize) {
        let source = self.source;
        let text = source.text_at(i);
        let next = source.text_at(i + 1);
        let member = matches!(source.before(i), "." | "->");
        if KEYWORDS.contains(&text) && !member {
            self.keyword(i);
            return;
        }
        if member || self.classes.contains(text) {
            return;
        }
        let find = |list: &[(&str, &'static str)]| {
            list.iter()
                .find(|(name, _)| *name == text)
                .map(|(_, what)| *what)
        };
        let what = find(&TYPES)
            .or_else(|| find(&TEMPLATES).filter(|_| next == "<"))
            .or_else(|| find(&DECLARED).filter(|_| source.is_identifier(i + 1)))
            .or_else(|| match (text, next) {
                ("raytracing", "::") => Some("ray tracing"),
                ("mpp", "::") => Some("Metal performance primitives"),
                ("tensor", "<") if AddressSpace::from_keyword(source.text_at(i + 2)).is_some() => {
                    Some("tensors")
                }
                _ => None,
            });
        if let Some(what) = what {
            self.unsupported(i, what);
        }
    }

    fn keyword(&mut self, i: usize) {
        let source = self.source;
        let text = source.text_at(i);
        let deleted = text == "delete" && source.before(i) == "=";
        if deleted || source.before(i) == "operator" {
            return;
        }
        let message = format!("'{text}' is not supported in Metal");
        self.diagnostics
            .push(source.error_at(i, DiagnosticKind::Refused, message));
    }

    /// Vertex, fragment, mesh and object functions.
    fn stages(&mut self) {
        let source = self.source;
        for function in &self.program.functions {
            if source.tokens[function.first].system {
                continue;
            }
            for i in function.specifiers..function.name.start {
                if matches!(source.text_at(i), "vertex" | "fragment") {
                    self.unsupported_stage(
                        source.error_at(i, DiagnosticKind::Unsupported, ""),
                        source.text_at(i),
                    );
                }
            }
            for attribute in source.attributes_in(function.first, function.open) {
                if STAGES.contains(&attribute.name.as_str()) {
                    let error = source.error(attribute.place, DiagnosticKind::Unsupported, "");
                    self.unsupported_stage(error, &attribute.name);
                }
            }
        }
    }

    fn unsupported_stage(&mut self, mut error: Diagnostic, stage: &str) {
        error.message = format!("{stage} functions are not supported by the software device");
        self.diagnostics.push(error);
    }

    /// Structs with pointers in them, passed to a kernel: the host would have to write GPU addresses.
    fn argument_buffers(&mut self) {
        let source = self.source;
        let mut pointers: HashMap<&str, &str> = HashMap::new();
        for variable in &self.program.variables {
            let scope = &self.program.scopes[variable.scope];
            for declarator in &variable.declarators {
                let words = variable.specifiers..declarator.name;
                let pointer = words
                    .clone()
                    .any(|i| matches!(source.text_at(i), "*" | "&"));
                let spaced = words
                    .clone()
                    .any(|i| matches!(source.text_at(i), "device" | "constant"));
                if scope.is_class && pointer && spaced {
                    pointers.insert(&scope.name, source.text_at(declarator.name));
                }
            }
        }
        for function in self.program.functions.iter().filter(|f| f.kernel) {
            self.kernel_arguments(function, &pointers);
        }
    }

    fn kernel_arguments(&mut self, function: &Function, pointers: &HashMap<&str, &str>) {
        let source = self.source;
        for parameter in function.parameters(source) {
            let shape = Shape::read(source, &parameter);
            let buffer = matches!(
                shape.space,
                Some(AddressSpace::Device | AddressSpace::Constant)
            );
            let [.., last] = shape.words.as_slice() else {
                continue;
            };
            let class = source.text_at(*last);
            if let Some(field) = pointers.get(class)
                && buffer
            {
                let message = format!(
                    "argument buffers are not supported by the software device: '{class}' holds the pointer '{field}'"
                );
                self.diagnostics
                    .push(source.error_at(*last, DiagnosticKind::Unsupported, message));
            }
        }
    }

    /// Threadgroup variables outside functions.
    fn program_scope(&mut self) {
        let source = self.source;
        for variable in &self.program.variables {
            let Some(declarator) = variable.declarators.first() else {
                continue;
            };
            let mut words = variable.specifiers..declarator.name;
            let pointer = words
                .clone()
                .any(|i| matches!(source.text_at(i), "*" | "&"));
            if let Some(i) = words.find(|&i| source.text_at(i) == "threadgroup")
                && !pointer
                && !self.program.scopes[variable.scope].is_class
            {
                let message = "threadgroup variables at program scope are not supported by the software device";
                self.diagnostics
                    .push(source.error_at(i, DiagnosticKind::Unsupported, message));
            }
        }
    }
}
