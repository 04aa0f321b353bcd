//! MSL to C++14: the edits that let clang compile a program for the CPU.
//!
//! | MSL | C++ | where |
//! |---|---|---|
//! | `[[…]]`, `thread`, `coherent(…)` | removed | [`erase`] |
//! | `device`, `threadgroup`, `constant` | `sm_device`, `sm_threadgroup`, `sm_constant const`, which are part of the type | [`erase`] |
//! | `device` and the others after a parameter list, and in the result if they are the same | removed | [`erase`] |
//! | `template <…> void f(thread T* p)` | a candidate only if `T` has no address space | [`address_space`] |
//! | `c ? a : b` of objects in memory | `c ? SM_OPERAND(a) : SM_OPERAND(b)` | [`address_space`] |
//! | `threadgroup T x[n]` as a parameter | `sm_threadgroup T *x` | [`address_space`] |
//! | `1.0`, `1.0h`, `1.0bf` | `1.0f`, `1.0f16`, `((__bf16)1.0)` | [`literal`] |
//! | `1e-40`, `1e-20` | `0.0f`, `::sm::literal(1e-20f)`: see [`erase`] | [`literal`] |
//! | `static_cast<T>` | `::sm::scast<T>`, except for pointers and references | [`erase`] |
//! | `v.xyz` | `v.swz(::sm::I<0,1,2>{})` | [`swizzle`] |
//! | `threadgroup T x[n];` in a body | `struct sm_tg_ID { T x[n]; }; auto& x = ::sm::tgvar<ID, sm_tg_ID>().x;` | [`threadgroup`] |
//! | unsupported declarations | removed, see `unsupported` | [`duplicate`] |
//! | declarations that differ only in the address space of `this`, or in `thread` | the first of them, if all have equivalent bodies | [`duplicate`] |
//! | `constant T x [[function_constant(i)]];` | `const T x = ::sm::fconst{(i), "x"};` | [`specialise`] |
//! | functions, kernels | `inline`, `static`: no code unless used | [`linkage`] |
//! | explicit instantiations | removed; kernels among them are reflected | [`linkage`] |

mod address_space;
mod duplicate;
mod erase;
mod linkage;
mod literal;
mod specialise;
mod swizzle;
mod threadgroup;

pub(crate) use address_space::may_convert;
pub(crate) use threadgroup::{
    aliases as threadgroup_aliases, declaration as threadgroup_declaration,
};

use std::collections::{BTreeSet, HashSet};

use serde::{Deserialize, Serialize};

use super::diagnostic::Diagnostic;
use super::edit::{ColumnMap, Edits};
use super::program::{FunctionDecl, Program};
use super::token_stream::TokenStream;
use super::unsupported::Unsupported;

/// A threadgroup variable declared in a kernel, with its ID in the C++ text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadgroupVariableName {
    /// The first argument of `sm::tgvar`.
    pub id: u32,
    /// The user's name.
    pub name: String,
    /// File of its declaration.
    pub file: String,
    /// Line of its declaration, from 1.
    pub line: u32,
}

/// The edits of one program, pass by pass.
#[derive(Debug)]
pub(crate) struct Rewrite<'s, 'a> {
    pub(crate) source: &'s TokenStream<'a>,
    pub(crate) program: &'s Program,
    pub(crate) edits: Edits,
    pub(crate) variables: Vec<ThreadgroupVariableName>,
    /// Indices of the functions that are removed.
    pub(crate) dropped: HashSet<usize>,
    /// First tokens of declarations that also stand for removed duplicates.
    merged: HashSet<usize>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Fields of the user's classes whose names look like swizzles.
    swizzle_fields: HashSet<&'a str>,
    /// `constant` tokens that qualify a constructor, where C++ allows no `const`.
    bare: HashSet<usize>,
    /// Tokens between the parameters and the body of a function.
    trailing: HashSet<usize>,
    /// The address space in the result of a method, if it is that of the object.
    returned: HashSet<usize>,
}

impl<'s, 'a> Rewrite<'s, 'a> {
    /// Makes all edits.
    pub(crate) fn new(
        source: &'s TokenStream<'a>,
        program: &'s Program,
        unsupported: &Unsupported,
    ) -> Self {
        let swizzle_fields = program
            .variables
            .iter()
            .filter(|variable| program.scopes[variable.scope].is_class)
            .flat_map(|variable| &variable.declarators)
            .map(|declarator| source.text_at(declarator.name))
            .filter(|name| swizzle::indices(name).is_some())
            .collect();
        let bare = program
            .functions
            .iter()
            .filter(|function| program.is_constructor(source, function))
            .flat_map(|function| function.trailing(source))
            .filter(|&i| source.text_at(i) == "constant")
            .collect();
        let trailing = program
            .functions
            .iter()
            .flat_map(|function| function.trailing(source))
            .collect();
        let returned = program
            .functions
            .iter()
            .filter(|function| program.scopes[function.scope].is_class)
            .flat_map(|function| object_space(source, function))
            .collect();
        let mut rewrite = Self {
            source,
            program,
            edits: Edits::default(),
            variables: Vec::new(),
            dropped: HashSet::new(),
            merged: HashSet::new(),
            diagnostics: Vec::new(),
            swizzle_fields,
            bare,
            trailing,
            returned,
        };
        rewrite.erase();
        rewrite.field_accessors();
        rewrite.specialise();
        rewrite.conditionals();
        rewrite.array_parameters();
        rewrite.edits.sort();
        rewrite.threadgroup_variables();
        rewrite.drop_unsupported(unsupported);
        rewrite.drop_duplicates();
        rewrite.restrict_thread_templates();
        rewrite.linkage();
        rewrite.edits.sort();
        rewrite
    }

    /// The C++ text. Everything the user defines is inlined into its kernel, which has no calls at run time.
    pub(crate) fn emit(mut self) -> (String, ColumnMap) {
        let (body, columns) = self.edits.apply(self.source);
        let first = self.source.files.first().map_or("", String::as_str);
        let mut cpp = String::with_capacity(body.len() + 256);
        cpp.push_str(&self.plain_functions());
        cpp.push_str(
            "#pragma clang attribute push(__attribute__((always_inline)), apply_to = function)\n",
        );
        cpp.push_str(&marker(1, first));
        cpp.push_str(&body);
        cpp.push_str("\n#pragma clang attribute pop\n");
        (cpp, columns)
    }

    /// Requests the library's non-template overloads of functions that a template of the user's would otherwise
    /// compete with, see the shim's `overload.h`.
    fn plain_functions(&self) -> String {
        let names: BTreeSet<&str> = self
            .program
            .functions
            .iter()
            .filter(|f| f.is_template() && !self.program.scopes[f.scope].is_class)
            .filter(|f| f.name.len() == 1 && self.source.is_identifier(f.name.start))
            .map(|f| f.base_name(self.source))
            .collect();
        let lines = names.iter().map(|name| {
            format!("#ifdef SM_PLAIN_{name}\nnamespace metal {{ SM_PLAIN_{name} }}\n#endif\n")
        });
        lines.collect()
    }

    fn replace(&mut self, i: usize, text: impl Into<String>) {
        let bytes = self.source.bytes(i, i);
        self.edits.replace(bytes, text);
    }

    /// The edited text of the tokens `first..=last`, on one line.
    pub(crate) fn render(&self, first: usize, last: usize) -> String {
        self.edits
            .render(self.source, self.source.bytes(first, last))
    }
}

/// `device` in `device T& operator[](uint) device`: a C++ method does not know the address space of its object, so
/// it returns a reference without one.
fn object_space(source: &TokenStream<'_>, function: &FunctionDecl) -> Option<usize> {
    let space = function
        .trailing(source)
        .map(|i| source.text_at(i))
        .find(|text| matches!(*text, "device" | "threadgroup" | "constant"))?;
    let mut result = function.specifiers..function.name.start;
    result.find(|&i| source.text_at(i) == space)
}

/// A line marker for clang, with its newline.
pub(crate) fn marker(line: u32, file: &str) -> String {
    let file = file.replace('\\', "\\\\").replace('"', "\\\"");
    let file: String = file.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    format!("# {line} \"{file}\"\n")
}
