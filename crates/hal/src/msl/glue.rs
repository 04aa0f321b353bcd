//! Glue code: the C++ that makes one kernel the entry point of an image, with `SM_KERNEL` and `SM_GATES` of the
//! shim.
//!
//! `SM_KERNEL((&f<float>), ::sm::B<::sm::BUFFER,0>, …)` names the function, in parentheses because of its commas,
//! and the source of each parameter; parameter types are deduced in C++. `SM_GATES(true, (has_mask), …)` follows
//! with one condition per parameter (a single `true` for a kernel without parameters).

use super::reflect::{ArgumentKind, Kernel};
use super::rewrite::marker;

/// The C++ name of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryPoint {
    /// `a::b`; empty at global scope.
    pub(crate) namespace: String,
    /// The function as written inside that namespace.
    pub(crate) expression: String,
    /// The rewritten parameter list of an instantiation whose template arguments are deduced.
    pub(crate) cast: Option<String>,
}

/// The text to append for one kernel.
pub(crate) fn glue(kernel: &Kernel, entry: &EntryPoint) -> String {
    let line = marker(kernel.line, &kernel.file);
    let inside = !entry.namespace.is_empty();
    // A kernel at global scope may share its name with one of Metal's functions that a using directive makes
    // visible.
    let scope = match entry.expression.chars().next() {
        Some(c) if !inside && (c.is_alphabetic() || c == '_') => "::",
        _ => "",
    };
    let function = match &entry.cast {
        Some(parameters) => format!(
            "static_cast<void (*){parameters}>(&{scope}{})",
            entry.expression
        ),
        None => format!("&{scope}{}", entry.expression),
    };
    let mut text = String::from("\n");
    let mut gates = Vec::with_capacity(kernel.arguments.len());
    let mut helpers = String::new();
    for (i, argument) in kernel.arguments.iter().enumerate() {
        gates.push(match &argument.gate {
            None => "true".to_owned(),
            Some(gate) if inside => {
                helpers += &format!(" static inline bool sm_gate_{i}() {{ return ({gate}); }}");
                format!("::{}::sm_gate_{i}()", entry.namespace)
            }
            Some(gate) => format!("({gate})"),
        });
    }
    if gates.is_empty() {
        gates.push("true".to_owned());
    }
    // Names in the expression are looked up where the user wrote them.
    let mut callee = function.clone();
    if inside {
        text += &line;
        text += &format!(
            "namespace {} {{ static constexpr auto sm_entry = {function};{helpers} }}\n",
            entry.namespace
        );
        callee = format!("::{}::sm_entry", entry.namespace);
    }
    let mut bindings = String::new();
    for argument in &kernel.arguments {
        bindings += ", ";
        bindings += &match argument.kind {
            ArgumentKind::Buffer { index } => format!("::sm::B<::sm::BUFFER,{index}>"),
            ArgumentKind::ThreadgroupMemory { index } => format!("::sm::B<::sm::TG,{index}>"),
            ArgumentKind::Builtin(builtin) => format!("::sm::B<::sm::BI_{},0>", builtin.name()),
        };
    }
    text += &line;
    text += &format!("SM_KERNEL(({callee}){bindings})\n");
    text += &line;
    text += &format!("SM_GATES({})\n", gates.join(", "));
    text
}
