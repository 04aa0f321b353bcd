//! Metal features that the software device does not support: each kernel that needs one is rejected, by name and
//! location, and removed from the program. Functions of other stages are removed silently, as long as a kernel
//! remains.

mod propagate;

use std::collections::{BTreeMap, HashMap, HashSet};

use super::diagnostic::{Diagnostic, DiagnosticKind};
use super::program::{FunctionDecl, Program};
use super::reflect::{AddressSpace, Shape};
use super::token_stream::TokenStream;

/// Types that are unmistakable by name.
const UNSUPPORTED_TYPES: [(&str, &str); 15] = [
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
    ("tensor_inline", "tensors"),
    ("tensor_offset", "tensors"),
    ("tensor_handle", "tensors"),
];

/// Class templates that are unmistakable with their angle bracket.
const UNSUPPORTED_TEMPLATES: [(&str, &str); 21] = [
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

/// Types that may be a user's own name unless a declared name follows.
const UNSUPPORTED_DECLARED_TYPES: [(&str, &str); 4] = [
    ("command_buffer", "indirect command buffers"),
    ("render_command", "indirect command buffers"),
    ("compute_command", "indirect command buffers"),
    ("compute_pipeline_state", "indirect command buffers"),
];

/// C++ keywords that MSL does not have.
const REJECTED_KEYWORDS: [&str; 12] = [
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

/// Stages whose functions a compute device cannot run.
const STAGES: [&str; 7] = [
    "vertex",
    "fragment",
    "mesh",
    "object",
    "intersection",
    "tile",
    "amplification",
];

/// Argument attributes that the software device does not support.
const UNSUPPORTED_ATTRIBUTES: [&str; 31] = [
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

/// Unsupported features of a program.
#[derive(Debug, Default)]
pub(crate) struct Unsupported {
    /// Errors that concern the whole program.
    pub(crate) errors: Vec<Diagnostic>,
    /// Everything that was found, in text order.
    pub(crate) found: Vec<Diagnostic>,
    /// Functions to remove, and why. Kernels among them are rejected.
    pub(crate) functions: HashMap<usize, Diagnostic>,
    /// Explicit instantiations with unsupported arguments.
    pub(crate) instantiations: HashMap<usize, Diagnostic>,
    /// First and last tokens of other declarations to remove.
    pub(crate) ranges: BTreeMap<usize, usize>,
}

/// Finds everything in the program that is not supported.
pub(crate) fn check(source: &TokenStream<'_>, program: &Program) -> Unsupported {
    let mut features = FeatureChecker {
        source,
        program,
        classes: program
            .classes
            .iter()
            .filter_map(|class| class.name)
            .map(|name| source.text_at(name))
            .collect(),
        errors: Vec::new(),
        marks: Vec::new(),
        functions: HashMap::new(),
    };
    for i in 0..source.len() {
        if source.is_identifier(i) && !source.tokens[i].system {
            features.word(i);
        }
    }
    features.stages();
    features.arguments();
    features.argument_buffers();
    features.program_scope();
    let mut found: Vec<_> = features
        .marks
        .iter()
        .map(|(_, found)| found.clone())
        .collect();
    // Of several features, the first one is reported.
    features.marks.reverse();
    let propagated = propagate::propagate(source, program, features.marks, &features.functions);
    let whole_functions = features.functions.into_iter();
    found.extend(whole_functions.filter_map(|(function, diagnostic)| {
        (propagated.functions.get(&function) == Some(&diagnostic)).then_some(diagnostic)
    }));
    Unsupported {
        errors: features.errors,
        found,
        ..propagated
    }
}

struct FeatureChecker<'s, 'a> {
    source: &'s TokenStream<'a>,
    program: &'s Program,
    classes: HashSet<&'a str>,
    errors: Vec<Diagnostic>,
    /// Tokens that name a feature.
    marks: Vec<(usize, Diagnostic)>,
    /// Functions that are unsupported as a whole.
    functions: HashMap<usize, Diagnostic>,
}

impl FeatureChecker<'_, '_> {
    fn unsupported(&mut self, i: usize, what: &str) {
        let name = self.source.text_at(i);
        let message = format!("{what} are not supported by the software device: '{name}'");
        let message = message.replace("tracing are", "tracing is");
        let diagnostic = self
            .source
            .error_at(i, DiagnosticKind::Unsupported, message);
        self.marks.push((i, diagnostic));
    }

    /// Marks a whole function as unsupported; the first reason is kept.
    fn mark_function(&mut self, function: usize, diagnostic: Diagnostic) {
        self.functions.entry(function).or_insert(diagnostic);
    }

    fn word(&mut self, i: usize) {
        let source = self.source;
        let text = source.text_at(i);
        let next = source.text_at(i + 1);
        let member = matches!(source.before(i), "." | "->");
        if REJECTED_KEYWORDS.contains(&text) && !member {
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
        let what = find(&UNSUPPORTED_TYPES)
            .or_else(|| find(&UNSUPPORTED_TEMPLATES).filter(|_| next == "<"))
            .or_else(|| find(&UNSUPPORTED_DECLARED_TYPES).filter(|_| source.is_identifier(i + 1)))
            .or_else(|| match (text, next) {
                ("raytracing", "::") if source.text_at(i + 2) != "ray" => Some("ray tracing"),
                ("mpp", "::") => Some("Metal performance primitives"),
                ("mpp", _) if source.before(i) == "namespace" => {
                    Some("Metal performance primitives")
                }
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
        self.errors
            .push(source.error_at(i, DiagnosticKind::Refused, message));
    }

    /// Finds vertex, fragment, mesh and object functions.
    fn stages(&mut self) {
        let source = self.source;
        for (index, function) in self.program.functions.iter().enumerate() {
            if source.tokens[function.first].system {
                continue;
            }
            let word = (function.specifiers..function.name.start)
                .find(|&i| matches!(source.text_at(i), "vertex" | "fragment"))
                .map(|i| (source.tokens[i], source.text_at(i)));
            let attribute = source
                .attributes_in(function.first, function.open)
                .iter()
                .find(|attribute| STAGES.contains(&attribute.name.as_str()))
                .map(|attribute| (attribute.token, attribute.name.as_str()));
            if let Some((token, stage)) = word.or(attribute) {
                let message = format!("{stage} functions are not supported by the software device");
                let error = source.error(token, DiagnosticKind::Unsupported, message);
                self.mark_function(index, error);
            }
        }
    }

    /// Finds kernel arguments that are neither buffers, threadgroup memory nor positions.
    fn arguments(&mut self) {
        let source = self.source;
        for (index, function) in self.program.functions.iter().enumerate() {
            if !function.kernel || source.tokens[function.first].system {
                continue;
            }
            for parameter in function.parameters(source) {
                let sampler = parameter
                    .range
                    .clone()
                    .find(|&i| source.text_at(i) == "sampler" && Some(i) != parameter.name);
                if let Some(i) = sampler {
                    let message = "samplers are not supported by the software device: 'sampler'";
                    let error = source.error_at(i, DiagnosticKind::Unsupported, message);
                    self.mark_function(index, error);
                }
                let attributes = source.attributes_in(parameter.range.start, parameter.range.end);
                let unsupported = attributes
                    .iter()
                    .find(|attribute| UNSUPPORTED_ATTRIBUTES.contains(&attribute.name.as_str()));
                if let Some(attribute) = unsupported {
                    let name = &attribute.name;
                    let message = format!("[[{name}]] is not supported by the software device");
                    let error = source.error(attribute.token, DiagnosticKind::Unsupported, message);
                    self.mark_function(index, error);
                }
            }
        }
    }

    /// Finds structs with pointers that are passed to a kernel: the host would have to write GPU addresses.
    fn argument_buffers(&mut self) {
        let source = self.source;
        let mut pointers: HashMap<&str, &str> = HashMap::new();
        let mut fields: HashMap<&str, Vec<(&str, &str)>> = HashMap::new();
        for variable in &self.program.variables {
            let scope = &self.program.scopes[variable.scope];
            if !scope.is_class {
                continue;
            }
            for declarator in &variable.declarators {
                let name = source.text_at(declarator.name);
                let words = variable.specifiers..declarator.name;
                let has = |list: &[&str]| words.clone().any(|i| list.contains(&source.text_at(i)));
                if has(&["*", "&"]) && has(&["device", "constant"]) {
                    pointers.insert(&scope.name, name);
                }
                for i in words.filter(|&i| self.classes.contains(source.text_at(i))) {
                    let holders = fields.entry(source.text_at(i)).or_default();
                    holders.push((&scope.name, name));
                }
            }
        }
        // A class contains what its fields contain.
        let mut work: Vec<&str> = pointers.keys().copied().collect();
        while let Some(class) = work.pop() {
            for (holder, field) in fields.remove(class).unwrap_or_default() {
                if !pointers.contains_key(holder) {
                    pointers.insert(holder, field);
                    work.push(holder);
                }
            }
        }
        for (index, function) in self.program.functions.iter().enumerate() {
            if function.kernel {
                self.kernel_arguments(index, function, &pointers);
            }
        }
    }

    fn kernel_arguments(
        &mut self,
        index: usize,
        function: &FunctionDecl,
        pointers: &HashMap<&str, &str>,
    ) {
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
                    "argument buffers are not supported by the software device: '{class}' contains the pointer '{field}'"
                );
                let error = source.error_at(*last, DiagnosticKind::Unsupported, message);
                self.mark_function(index, error);
            }
        }
    }

    /// Finds threadgroup variables outside functions.
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
                self.errors
                    .push(source.error_at(i, DiagnosticKind::Unsupported, message));
            }
        }
    }
}
