//! Function constants: initialised from the host's values when the image is loaded, before anything derived from
//! them.

use std::collections::HashSet;

use super::Rewrite;

impl Rewrite<'_, '_> {
    pub(super) fn specialise(&mut self) {
        let source = self.source;
        let program = self.program;
        let mut specialised: HashSet<&str> = HashSet::new();
        for variable in &program.variables {
            if program.scopes[variable.scope].is_class {
                continue;
            }
            let mut found = false;
            for attribute in source.attributes_in(variable.first, variable.last) {
                if attribute.name != "function_constant" || attribute.before == 0 {
                    continue;
                }
                let name = source.text_at(attribute.before - 1);
                let index: Vec<&str> = attribute
                    .arguments
                    .iter()
                    .map(|&token| source.token_text(token))
                    .collect();
                let text = format!(" = ::sm::fconst{{({}), \"{name}\"}}", index.join(" "));
                self.edits.insert(attribute.bytes.start, text);
                specialised.insert(name);
                found = true;
            }
            // Anything computed from a function constant is not a compile-time constant either.
            let derived = variable.declarators.iter().any(|declarator| {
                declarator
                    .tail
                    .clone()
                    .any(|i| specialised.contains(source.text_at(i)))
            });
            if !found && !derived {
                continue;
            }
            for declarator in &variable.declarators {
                specialised.insert(source.text_at(declarator.name));
            }
            let end = variable
                .declarators
                .first()
                .map_or(variable.last, |declarator| declarator.name);
            let constant = (variable.specifiers..end)
                .any(|i| matches!(source.text_at(i), "const" | "constant"));
            for i in variable.specifiers..end {
                if source.text_at(i) == "constexpr" {
                    self.replace(i, if constant { "" } else { "const" });
                }
            }
        }
    }
}
