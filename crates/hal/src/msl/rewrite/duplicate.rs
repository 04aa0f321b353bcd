//! Overloads that differ in address spaces only are one declaration in C++: the first stays, the others go.
//!
//! It concerns functions, constructors (`T() threadgroup = default;`), conversion operators (`operator T() const device`),
//! partial specialisations of classes (`struct S<device T*>`) and of variable templates.

use std::collections::HashMap;

use super::Rewrite;
use crate::msl::program::{Class, Function, Variable};

/// A declaration's place and its words, with address spaces erased.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    scope: String,
    words: String,
    defines: bool,
}

impl Rewrite<'_, '_> {
    pub(super) fn drop_duplicates(&mut self) {
        let scopes: Vec<String> = (0..self.program.scopes.len())
            .map(|scope| self.scope_key(scope))
            .collect();
        let mut seen: HashMap<Key, String> = HashMap::new();
        let program = self.program;
        for (index, function) in program.functions.iter().enumerate() {
            let (words, original) = self.function_words(function);
            let key = Key {
                scope: scopes[function.scope].clone(),
                words,
                defines: function.body.is_some() || function.defaulted,
            };
            if self.is_repeated(&mut seen, key, original, function.first, function.last) {
                self.dropped.insert(index);
            }
        }
        for class in &program.classes {
            let (words, original) = self.class_words(class);
            let key = Key {
                scope: scopes[class.parent].clone(),
                words,
                defines: true,
            };
            self.is_repeated(&mut seen, key, original, class.first, class.last);
        }
        for variable in program.variables.iter().filter(|v| !v.heads.is_empty()) {
            let (words, original) = self.variable_words(variable);
            let key = Key {
                scope: scopes[variable.scope].clone(),
                words,
                defines: true,
            };
            self.is_repeated(&mut seen, key, original, variable.first, variable.last);
        }
    }

    /// Namespaces may be reopened, so they are known by name; a class is known by its number.
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

    /// Whether the same words were there before under other address spaces; if so, the declaration is deleted.
    fn is_repeated(
        &mut self,
        seen: &mut HashMap<Key, String>,
        key: Key,
        original: String,
        first: usize,
        last: usize,
    ) -> bool {
        if let Some(other) = seen.get(&key) {
            if *other == original {
                return false;
            }
            let bytes = self.source.bytes(first, last);
            let start = self
                .source
                .attributes_in(first, first)
                .first()
                .map_or(bytes.start, |attribute| attribute.bytes.start);
            self.edits.delete(self.source, start..bytes.end);
            return true;
        }
        seen.insert(key, original);
        false
    }

    fn function_words(&self, function: &Function) -> (String, String) {
        let mut words = Words::default();
        self.plain(&mut words, function.first, function.open + 1);
        for parameter in function.parameters(self.source) {
            let declarator = parameter.name.unwrap_or(parameter.tail);
            // A leading `const` may stand before or after the type.
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
                if !leading {
                    words.erase(text);
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
        let mut words = Words::default();
        // Without a name it is a class of its own, whatever the words.
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

    fn variable_words(&self, variable: &Variable) -> (String, String) {
        let mut words = Words::default();
        let end = variable
            .declarators
            .first()
            .map_or(variable.last, |declarator| declarator.tail.start);
        self.plain(&mut words, variable.first, end);
        (words.erased, words.original)
    }

    fn plain(&self, words: &mut Words, start: usize, end: usize) {
        for i in start..end {
            words.push(self.source.text_at(i));
        }
    }
}

/// The words of a declaration as they are, and without address spaces.
#[derive(Default)]
struct Words {
    erased: String,
    original: String,
}

impl Words {
    fn push(&mut self, text: &str) {
        self.original.push_str(text);
        self.original.push(' ');
        self.erase(text);
    }

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
