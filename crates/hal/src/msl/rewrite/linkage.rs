//! Linkage: code is emitted only if a kernel uses it. Functions become `inline`, kernels `static`, and
//! instantiations are removed.

use super::Rewrite;
use crate::msl::lexer::TokenKind;
use crate::msl::program::FunctionDecl;

impl Rewrite<'_, '_> {
    pub(super) fn linkage(&mut self) {
        let source = self.source;
        let program = self.program;
        for (index, function) in program.functions.iter().enumerate() {
            for i in function.specifiers..function.name.start {
                if source.text_at(i) == "kernel" {
                    self.replace(i, "");
                }
            }
            let member = program.scopes[function.scope].is_class;
            if !member && !self.dropped.contains(&index) && !source.tokens[function.first].system {
                self.discardable(function);
            }
        }
        for instantiation in &program.instantiations {
            let bytes = source.bytes(instantiation.first, instantiation.last);
            self.edits.delete(source, bytes);
        }
    }

    /// Makes a function discardable if unused.
    fn discardable(&mut self, function: &FunctionDecl) {
        let source = self.source;
        let specifiers = function.specifiers..function.name.start;
        let has = |words: &[&str]| {
            specifiers
                .clone()
                .any(|i| words.contains(&source.text_at(i)))
        };
        if function.is_template() || has(&["inline", "static", "constexpr", "consteval"]) {
            return;
        }
        let qualified = function.name.clone().any(|i| source.text_at(i) == "::");
        let internal =
            function.kernel && !function.is_specialisation() && !qualified && !has(&["extern"]);
        let mut at = function.specifiers;
        if source.text_at(at) == "extern" && source.kind_at(at + 1) == TokenKind::String {
            at += 2;
        }
        if at >= function.open {
            return;
        }
        let word = if internal { "static " } else { "inline " };
        self.edits.insert(source.bytes(at, at).start, word);
    }
}
