//! Removes duplicate declarations: those that differ only in the address space of their object, or in `thread`, are
//! the same in C++. The first is kept. If their bodies differ, the program is rejected: C++ cannot distinguish
//! them.
//!
//! This concerns methods, constructors (`T() threadgroup = default;`), conversion operators (`operator T() const
//! device`), and specializations for `T*` next to those for `thread T*`.

use std::collections::HashMap;
use std::ops::Range;

use super::Rewrite;
use crate::msl::diagnostic::DiagnosticKind;
use crate::msl::program::{Class, FunctionDecl, VariableDecl};
use crate::msl::unsupported::Unsupported;

/// Identity of a declaration: its scope and its words without address spaces.
#[derive(PartialEq, Eq, Hash)]
struct DeclarationKey {
    scope: String,
    words: String,
    defines: bool,
}

/// A declaration seen before.
struct SeenDeclaration {
    /// Its words.
    original: String,
    /// Its first and last token.
    range: (usize, usize),
    /// The tokens of its definition.
    content: Range<usize>,
    is_default: bool,
    /// Its index among the functions.
    function: Option<usize>,
}

impl Rewrite<'_, '_> {
    /// Deletes declarations that the device does not support.
    pub(super) fn drop_unsupported(&mut self, unsupported: &Unsupported) {
        for &function in unsupported.functions.keys() {
            let FunctionDecl { first, last, .. } = self.program.functions[function];
            self.delete(first, last);
            self.dropped.insert(function);
        }
        for (&first, &last) in &unsupported.ranges {
            self.delete(first, last);
        }
    }

    pub(super) fn drop_duplicates(&mut self) {
        let scopes: Vec<String> = (0..self.program.scopes.len())
            .map(|scope| self.scope_key(scope))
            .collect();
        let mut seen: HashMap<DeclarationKey, SeenDeclaration> = HashMap::new();
        let program = self.program;
        for (index, function) in program.functions.iter().enumerate() {
            if self.dropped.contains(&index) {
                continue;
            }
            let (words, original) = self.function_words(function);
            let key = DeclarationKey {
                scope: scopes[function.scope].clone(),
                words,
                defines: function.body.is_some() || function.defaulted,
            };
            let declared = SeenDeclaration {
                original,
                range: (function.first, function.last),
                content: function.close + 1..function.last,
                is_default: function.defaulted && !self.is_deleted(function),
                function: Some(index),
            };
            self.drop_if_duplicate(&mut seen, key, declared);
        }
        for class in &program.classes {
            let (words, original) = self.class_words(class);
            let key = DeclarationKey {
                scope: scopes[class.parent].clone(),
                words,
                defines: true,
            };
            let declared = SeenDeclaration {
                original,
                range: (class.first, class.last),
                content: class.open..class.last,
                is_default: false,
                function: None,
            };
            self.drop_if_duplicate(&mut seen, key, declared);
        }
        for variable in program.variables.iter().filter(|v| !v.heads.is_empty()) {
            let (words, original) = self.variable_words(variable);
            let key = DeclarationKey {
                scope: scopes[variable.scope].clone(),
                words,
                defines: true,
            };
            let tail = variable.declarators.first().map(|d| d.tail.clone());
            let declared = SeenDeclaration {
                original,
                range: (variable.first, variable.last),
                content: tail.unwrap_or_default(),
                is_default: false,
                function: None,
            };
            self.drop_if_duplicate(&mut seen, key, declared);
        }
    }

    /// Namespaces may be reopened, so they are identified by name; a class is identified by its index.
    fn scope_key(&self, scope: usize) -> String {
        let mut key = String::new();
        let mut at = Some(scope);
        while let Some(index) = at {
            let scope = &self.program.scopes[index];
            if scope.is_class {
                key += &format!("#{index}");
                break;
            }
            key.push_str("::");
            key.push_str(&scope.name);
            at = scope.parent;
        }
        key
    }

    /// Deletes a declaration that was seen before with other address spaces. Of constructors, one with a body is
    /// kept rather than `= default`: the latter is meant for threadgroup variables, which are not constructed.
    fn drop_if_duplicate(
        &mut self,
        seen: &mut HashMap<DeclarationKey, SeenDeclaration>,
        key: DeclarationKey,
        declared: SeenDeclaration,
    ) {
        let Some(other) = seen.get_mut(&key) else {
            seen.insert(key, declared);
            return;
        };
        if other.original == declared.original {
            return;
        }
        self.merged.insert(other.range.0);
        if other.is_default && !declared.is_default {
            self.merged.insert(declared.range.0);
            let before = std::mem::replace(other, declared);
            return self.drop_declaration(&before);
        }
        if !declared.is_default && !self.are_equivalent(&other.content, &declared.content) {
            self.diagnostics.push(self.source.error_at(
                declared.range.0,
                DiagnosticKind::Unsupported,
                "a declaration that differs from another one in the address space of its object only, and does \
                 something else, is not supported by the software device",
            ));
        }
        self.drop_declaration(&declared);
    }

    fn drop_declaration(&mut self, declared: &SeenDeclaration) {
        let (first, last) = declared.range;
        self.delete(first, last);
        self.dropped.extend(declared.function);
    }

    /// Deletes a declaration with the attributes before it.
    fn delete(&mut self, first: usize, last: usize) {
        let bytes = self.source.bytes(first, last);
        let start = self
            .source
            .attributes_in(first, first)
            .first()
            .map_or(bytes.start, |attribute| attribute.bytes.start)
            .min(bytes.start);
        self.edits.delete(self.source, start..bytes.end);
    }

    fn is_deleted(&self, function: &FunctionDecl) -> bool {
        (function.close..function.last).any(|i| self.source.text_at(i) == "delete")
    }

    /// Returns whether two token ranges are equal except for address spaces.
    fn are_equivalent(&self, a: &Range<usize>, b: &Range<usize>) -> bool {
        let words = |range: &Range<usize>| {
            range
                .clone()
                .map(|i| self.source.text_at(i))
                .filter(|text| !matches!(*text, "device" | "thread" | "threadgroup" | "constant"))
        };
        words(a).eq(words(b))
    }

    fn function_words(&self, function: &FunctionDecl) -> (String, String) {
        let mut words = DeclarationWords::default();
        self.plain(&mut words, function.first, function.open + 1);
        for parameter in function.parameters(self.source) {
            let declarator = parameter.name.unwrap_or(parameter.tail);
            // A leading `const` may precede or follow the type.
            let pointer = (parameter.range.start..declarator)
                .find(|&i| matches!(self.source.text_at(i), "*" | "&" | "&&"))
                .unwrap_or(declarator);
            let constant = (parameter.range.start..pointer)
                .any(|i| matches!(self.source.text_at(i), "const" | "constant"));
            if constant {
                words.erased.push_str("const ");
            }
            for i in parameter.range.start..parameter.tail {
                let text = self.source.text_at(i);
                if Some(i) == parameter.name {
                    continue;
                }
                words.original.push_str(text);
                words.original.push(' ');
                let leading = i < pointer && matches!(text, "const" | "constant");
                match text {
                    _ if !leading => words.keep(text),
                    "constant" => words.keep(text),
                    _ => {}
                }
            }
            if parameter.tail < parameter.range.end && self.source.text_at(parameter.tail) == "[" {
                words.erased.push('*');
            }
            words.erased.push(',');
        }
        let constructor = self.program.is_constructor(self.source, function);
        for i in function.trailing(self.source) {
            let text = self.source.text_at(i);
            if constructor && text == "constant" {
                words.original.push_str("constant ");
            } else {
                words.push(text);
            }
        }
        (words.erased, words.original)
    }

    fn class_words(&self, class: &Class) -> (String, String) {
        let mut words = DeclarationWords::default();
        // A class without a name is always distinct.
        if class.name.is_none() {
            words.erased = format!("#{}", class.open);
        }
        let mut end = class.specifiers;
        while end < class.open && self.source.text_at(end) != ":" {
            end = self.source.after(end, true).min(class.open);
        }
        self.plain(&mut words, class.first, end);
        (words.erased, words.original)
    }

    fn variable_words(&self, variable: &VariableDecl) -> (String, String) {
        let mut words = DeclarationWords::default();
        let end = variable
            .declarators
            .first()
            .map_or(variable.last, |declarator| declarator.tail.start);
        self.plain(&mut words, variable.first, end);
        (words.erased, words.original)
    }

    fn plain(&self, words: &mut DeclarationWords, start: usize, end: usize) {
        for i in start..end {
            let text = self.source.text_at(i);
            if self.returned.contains(&i) {
                words.push(text);
                continue;
            }
            words.original.push_str(text);
            words.original.push(' ');
            words.keep(text);
        }
    }
}

/// The words of a declaration, as written and with address spaces erased.
#[derive(Default)]
struct DeclarationWords {
    erased: String,
    original: String,
}

impl DeclarationWords {
    fn push(&mut self, text: &str) {
        self.original.push_str(text);
        self.original.push(' ');
        self.erase(text);
    }

    /// Adds a word of a type, in which only `thread` is redundant.
    fn keep(&mut self, text: &str) {
        if text != "thread" {
            self.erased.push_str(text);
            self.erased.push(' ');
        }
    }

    /// Adds a word after the parameters, where all address spaces are redundant.
    fn erase(&mut self, text: &str) {
        match text {
            "device" | "thread" | "threadgroup" => {}
            "constant" | "const" => {
                if !self.erased.ends_with("const ") {
                    self.erased.push_str("const ");
                }
            }
            _ => {
                self.erased.push_str(text);
                self.erased.push(' ');
            }
        }
    }
}
