//! Constructs that MSL does not have, or not in this position: lambdas, misplaced address spaces and attributes,
//! `half` as a name.

use super::Strict;
use crate::language::LanguageVersion;
use crate::msl::program::FunctionDecl;
use crate::msl::rewrite::threadgroup_declaration;
use crate::msl::version::needs;

impl Strict<'_, '_> {
    pub(super) fn forms(&mut self) {
        for i in 0..self.source.len() {
            if self.source.tokens[i].system {
                continue;
            }
            self.lambda(i);
            self.half_name(i);
        }
        for function in &self.program.functions {
            if self.source.tokens[function.first].system {
                continue;
            }
            self.attribute_position(function);
            self.locals(function);
        }
        self.fields();
    }

    /// Returns whether a `[` is neither a subscript nor an array bound.
    fn is_free_bracket(&self, i: usize) -> bool {
        let source = self.source;
        source.text_at(i) == "["
            && !matches!(source.before(i), ")" | "]" | ">" | "*" | "&" | "")
            && (!source.is_identifier(i - 1) || source.before(i) == "return")
    }

    /// Rejects `[…](…) { … }` in the position of a value.
    fn lambda(&mut self, i: usize) {
        let source = self.source;
        if !self.is_free_bracket(i) {
            return;
        }
        let next = source.after(i, false);
        let is_lambda = match source.text_at(next) {
            "{" => true,
            "(" => matches!(
                source.text_at(source.after(next, false)),
                "{" | "->" | "mutable" | "constexpr" | "thread" | "const"
            ),
            _ => false,
        };
        let since = LanguageVersion::Metal3_2;
        if is_lambda && self.language < since {
            self.reject(i, needs("lambda expressions", since, self.language));
        }
    }

    /// Rejects `uint half = 4;`: the name is a type.
    fn half_name(&mut self, i: usize) {
        let source = self.source;
        if source.text_at(i) == "half"
            && i > 0
            && self.types.is_known(source.before(i))
            && matches!(source.text_at(i + 1), "=" | ";" | "," | "[")
        {
            self.reject(
                i,
                "'half' is a type in Metal and cannot be the name of a variable",
            );
        }
    }

    /// Attributes of a function precede it. After the parameters they would apply to its type, after `kernel` to
    /// nothing.
    fn attribute_position(&mut self, function: &FunctionDecl) {
        let source = self.source;
        let kernel =
            (function.specifiers..function.name.start).find(|&i| source.text_at(i) == "kernel");
        let after_kernel = kernel.and_then(|i| source.attributes_in(i + 1, i + 1).first());
        if let Some(attribute) = after_kernel {
            self.reject_at(
                attribute.token,
                "an attribute list cannot appear here: it must precede 'kernel'",
            );
        }
        let end = function.trailing(source).end;
        let misplaced = source
            .attributes_in(function.close + 1, end)
            .iter()
            .find(|a| {
                matches!(
                    a.name.as_str(),
                    "max_total_threads_per_threadgroup" | "host_name" | "kernel"
                )
            });
        if let Some(attribute) = misplaced {
            let message = format!(
                "'{}' attribute cannot be applied to types: it must precede the function",
                attribute.name
            );
            self.reject_at(attribute.token, message);
        }
    }

    fn locals(&mut self, function: &FunctionDecl) {
        let source = self.source;
        let Some((open, close)) = function.body else {
            return;
        };
        for i in open + 1..close {
            let is_threadgroup =
                || threadgroup_declaration(source, i, close, &self.aliases).is_some();
            if !function.kernel && is_threadgroup() {
                self.reject(
                    i,
                    "threadgroup variables can be declared in kernel functions only",
                );
            }
            let begins = matches!(source.before(i), ";" | "{" | "}" | ")");
            if begins && source.text_at(i) == "static" && !self.is_constant(i) {
                self.reject(
                    i,
                    "static local variables must be in the constant address space",
                );
            }
        }
    }

    /// Returns whether `constant` or `threadgroup` occurs in the declaration at `i`, before its initialiser. Member
    /// functions of a local class may be static.
    fn is_constant(&self, mut i: usize) -> bool {
        loop {
            match self.source.text_at(i) {
                "constant" | "threadgroup" | "(" | "" => return true,
                "=" | ";" | "{" | "[" => return false,
                _ => i = self.source.after(i, true),
            }
        }
    }

    /// Rejects address spaces of fields: a field is in the address space of its object.
    fn fields(&mut self) {
        let source = self.source;
        for variable in &self.program.variables {
            let Some(declarator) = variable.declarators.first() else {
                continue;
            };
            let words = variable.specifiers..declarator.name;
            if !self.program.scopes[variable.scope].is_class
                || source.tokens[variable.first].system
                || words
                    .clone()
                    .any(|i| matches!(source.text_at(i), "*" | "&" | "("))
            {
                continue;
            }
            let placed = words
                .clone()
                .find(|&i| matches!(source.text_at(i), "threadgroup" | "device"));
            if let Some(i) = placed
                && self.types.is_type_sequence(source, i + 1..declarator.name)
            {
                let space = source.text_at(i);
                self.reject(
                    i,
                    format!("field may not be qualified with an address space: '{space}'"),
                );
            }
        }
    }
}
