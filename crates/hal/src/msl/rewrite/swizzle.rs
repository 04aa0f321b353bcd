//! Swizzles: `v.xyz` becomes `v.swz(::sm::I<0,1,2>{})`, or `v.swzref(…)` if it is written to.
//!
//! Fields named like a swizzle (`float ba;`) work without type information: their class gets members
//! `swz(::sm::I<2,3>)` and `swzref(…)` that return the field, so the rewritten access finds a vector's components
//! or the user's field, depending on the object.

use std::collections::HashMap;

use super::Rewrite;
use crate::msl::diagnostic::DiagnosticKind;
use crate::msl::token_stream::TokenStream;

/// Maximum length of a chain of members and subscripts; keeps hostile input linear.
const MAX_CHAIN_LEN: usize = 32;

/// The component indices of a swizzle of two to four components.
pub(super) fn indices(text: &str) -> Option<Vec<u8>> {
    if !(2..=4).contains(&text.len()) {
        return None;
    }
    let of = |set: &str| {
        text.chars()
            .map(|c| set.find(c).and_then(|i| u8::try_from(i).ok()))
            .collect::<Option<Vec<u8>>>()
    };
    of("xyzw").or_else(|| of("rgba"))
}

fn tag(indices: &[u8]) -> String {
    let list: Vec<String> = indices.iter().map(u8::to_string).collect();
    format!("::sm::I<{}>", list.join(","))
}

impl Rewrite<'_, '_> {
    /// Rewrites the swizzle at token `i`, if it is one.
    pub(super) fn swizzle(&mut self, i: usize) {
        let source = self.source;
        let Some(components) = indices(source.text_at(i)) else {
            return;
        };
        if !matches!(source.before(i), "." | "->") || source.text_at(i + 1) == "(" {
            return;
        }
        // `{.xy = …}` is a designated initialiser.
        if i >= 2 && source.before(i) == "." && matches!(source.text_at(i - 2), "{" | ",") {
            return;
        }
        let written = self.is_written(i);
        let users = self.swizzle_fields.contains(source.text_at(i));
        if written && !users && source.text_at(i + 1) == "." && self.compose(i, &components) {
            return;
        }
        let member = if written { "swzref" } else { "swz" };
        self.replace(i, format!("{member}({}{{}})", tag(&components)));
    }

    /// `v.zyx.xy = …` writes components 2 and 1 of `v`: composes the two swizzles into one.
    fn compose(&mut self, i: usize, outer: &[u8]) -> bool {
        let source = self.source;
        let name = source.text_at(i + 2);
        let single = ["xr", "yg", "zb", "wa"]
            .iter()
            .position(|pair| name.len() == 1 && pair.contains(name));
        let inner = match single {
            Some(index) => vec![u8::try_from(index).unwrap_or(0)],
            None => match indices(name) {
                Some(inner) => inner,
                None => return false,
            },
        };
        let composed: Option<Vec<u8>> = inner
            .iter()
            .map(|&index| outer.get(usize::from(index)).copied())
            .collect();
        let Some(composed) = composed else {
            return false;
        };
        let text = match composed.as_slice() {
            [one] => ["x", "y", "z", "w"][usize::from(*one & 3)].to_owned(),
            _ => format!("swzref({}{{}})", tag(&composed)),
        };
        let bytes = source.bytes(i, i + 2);
        self.edits.replace_lines(source, bytes, text);
        true
    }

    /// Returns whether the member access at `i` is assigned to, directly or through further members and subscripts.
    fn is_written(&self, i: usize) -> bool {
        let source = self.source;
        let mut end = i + 1;
        for _ in 0..MAX_CHAIN_LEN {
            match source.text_at(end) {
                "." if source.is_identifier(end + 1) && source.text_at(end + 2) != "(" => end += 2,
                "[" => end = source.after(end, false),
                _ => break,
            }
        }
        let assigned = match source.text_at(end) {
            "=" | "+=" | "-=" | "*=" | "/=" | "%=" | "&=" | "|=" | "^=" | "<<=" | ">>=" | "++"
            | "--" => true,
            // `>>=` after a template bracket would be two tokens; here it never is.
            _ => false,
        };
        assigned || matches!(source.before(expression_start(source, i)), "++" | "--")
    }

    /// Adds the members that rewritten accesses call to classes with fields named like swizzles.
    pub(super) fn field_accessors(&mut self) {
        let source = self.source;
        let program = self.program;
        let mut taken: HashMap<(usize, Vec<u8>), &str> = HashMap::new();
        for variable in &program.variables {
            if !program.scopes[variable.scope].is_class {
                continue;
            }
            for declarator in &variable.declarators {
                let name = source.text_at(declarator.name);
                let Some(components) = indices(name) else {
                    continue;
                };
                let (scope, token) = self.named_class(variable.scope, variable.last);
                if let Some(other) = taken.insert((scope, components.clone()), name)
                    && other != name
                {
                    let message = format!(
                        "fields '{other}' and '{name}' in one class are not supported: both spell the same swizzle"
                    );
                    self.diagnostics.push(source.error_at(
                        declarator.name,
                        DiagnosticKind::Unsupported,
                        message,
                    ));
                }
                let tag = tag(&components);
                let mut text = String::new();
                for member in ["swz", "swzref"] {
                    for qualifier in ["", "const "] {
                        text += &format!(
                            " auto {member}({tag}) {qualifier}-> decltype((this->{name})) {{ return (this->{name}); }}"
                        );
                    }
                }
                self.edits.insert(source.bytes(token, token).end, text);
            }
        }
    }

    /// The innermost named class around a field, and the last token of the field's declaration in it.
    fn named_class(&self, mut scope: usize, mut last: usize) -> (usize, usize) {
        while let Some(parent) = self.program.scopes[scope].parent {
            let class = self.program.scopes[scope]
                .class
                .and_then(|index| self.program.classes.get(index))
                .filter(|class| class.anonymous && self.program.scopes[parent].is_class);
            let Some(class) = class else { break };
            scope = parent;
            last = class.last;
        }
        (scope, last)
    }
}

/// The first token of the postfix expression whose last member name is at `i`.
fn expression_start(source: &TokenStream<'_>, mut i: usize) -> usize {
    for _ in 0..MAX_CHAIN_LEN {
        // `i` is a name, a closing bracket, or an opening one just reached from its end.
        match source.before(i) {
            "." | "->" | "::" if i >= 2 => {
                i -= 2;
                while let ")" | "]" = source.text_at(i) {
                    let Some(open) = source.partner(i) else {
                        return i;
                    };
                    let called = open > 0
                        && (source.is_identifier(open - 1)
                            || matches!(source.before(open), ")" | "]"));
                    if !called {
                        return open;
                    }
                    i = open - 1;
                }
            }
            _ => return i,
        }
    }
    i
}

#[cfg(test)]
mod tests {
    use super::indices;

    #[test]
    fn knows_swizzles_by_their_letters() {
        assert_eq!(indices("xyz"), Some(vec![0, 1, 2]));
        assert_eq!(indices("bgra"), Some(vec![2, 1, 0, 3]));
        assert_eq!(indices("x"), None);
        assert_eq!(indices("xg"), None);
        assert_eq!(indices("xyzwx"), None);
    }
}
