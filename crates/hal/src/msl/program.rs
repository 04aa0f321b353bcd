//! The declarations of a program that the front end needs, in token indices.

use std::ops::Range;

use super::token_stream::TokenStream;

/// Output of the declaration parser.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) scopes: Vec<Scope>,
    pub(crate) functions: Vec<FunctionDecl>,
    pub(crate) classes: Vec<Class>,
    pub(crate) variables: Vec<VariableDecl>,
    pub(crate) instantiations: Vec<Instantiation>,
    pub(crate) enumerations: Vec<Enumeration>,
}

/// A namespace or a class.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) parent: Option<usize>,
    /// Empty for the global scope and for unnamed ones.
    pub(crate) name: String,
    pub(crate) is_class: bool,
    /// Its index among the classes.
    pub(crate) class: Option<usize>,
}

/// A function declaration or definition.
#[derive(Debug)]
pub(crate) struct FunctionDecl {
    /// First token, including template heads.
    pub(crate) first: usize,
    /// The `;` or the closing brace.
    pub(crate) last: usize,
    pub(crate) scope: usize,
    /// The tokens between the angle brackets of each `template<…>`.
    pub(crate) heads: Vec<Range<usize>>,
    /// First token after the heads.
    pub(crate) specifiers: usize,
    /// The name with qualification and template arguments, or `operator` and its symbol.
    pub(crate) name: Range<usize>,
    /// The parentheses of the parameter list.
    pub(crate) open: usize,
    pub(crate) close: usize,
    /// The braces of the body.
    pub(crate) body: Option<(usize, usize)>,
    /// `= default`, `= delete`: complete without a body.
    pub(crate) defaulted: bool,
    pub(crate) kernel: bool,
}

/// A parameter of a function.
#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) range: Range<usize>,
    pub(crate) name: Option<usize>,
    /// Start of the array bounds or the default argument; otherwise the end of the range.
    pub(crate) tail: usize,
}

/// A class, struct or union with its body.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) first: usize,
    /// The `;` of the whole declaration.
    pub(crate) last: usize,
    /// The enclosing scope.
    pub(crate) parent: usize,
    /// First token after the template heads.
    pub(crate) specifiers: usize,
    /// Its name, or its typedef name.
    pub(crate) name: Option<usize>,
    pub(crate) open: usize,
    /// Members of an anonymous struct or union belong to the enclosing class.
    pub(crate) anonymous: bool,
}

/// A declaration of namespace-scope variables or of class fields.
#[derive(Debug)]
pub(crate) struct VariableDecl {
    pub(crate) first: usize,
    pub(crate) last: usize,
    pub(crate) scope: usize,
    pub(crate) heads: Vec<Range<usize>>,
    pub(crate) specifiers: usize,
    pub(crate) declarators: Vec<Declarator>,
}

/// A declared name.
#[derive(Debug, Clone)]
pub(crate) struct Declarator {
    pub(crate) name: usize,
    /// The tokens after the name: bounds, initialiser.
    pub(crate) tail: Range<usize>,
}

/// An explicit instantiation, such as `template void f<float>(…);`.
#[derive(Debug)]
pub(crate) struct Instantiation {
    pub(crate) first: usize,
    pub(crate) last: usize,
    pub(crate) scope: usize,
    pub(crate) name: Range<usize>,
    /// The parameter list, if the spelling has one.
    pub(crate) parameters: Option<(usize, usize)>,
}

/// The braces of `enum { … }`.
#[derive(Debug)]
pub(crate) struct Enumeration {
    pub(crate) open: usize,
    pub(crate) close: usize,
}

impl Program {
    /// Returns whether a function is a constructor of its class.
    pub(crate) fn is_constructor(&self, source: &TokenStream<'_>, function: &FunctionDecl) -> bool {
        let scope = &self.scopes[function.scope];
        scope.is_class && scope.name == function.base_name(source)
    }

    /// The named namespaces and classes around a scope, outermost first.
    pub(crate) fn path(&self, scope: usize) -> Vec<&str> {
        let mut path = Vec::new();
        let mut at = Some(scope);
        while let Some(index) = at {
            let scope = &self.scopes[index];
            if !scope.name.is_empty() {
                path.push(scope.name.as_str());
            }
            at = scope.parent;
        }
        path.reverse();
        path
    }
}

impl FunctionDecl {
    pub(crate) fn is_template(&self) -> bool {
        self.heads.iter().any(|head| !head.is_empty())
    }

    /// Returns whether it is `template<> void f<float>()`.
    pub(crate) fn is_specialisation(&self) -> bool {
        !self.heads.is_empty() && !self.is_template()
    }

    /// The last identifier of the name: `f` in `a::f<float>`.
    pub(crate) fn base_name<'a>(&self, source: &TokenStream<'a>) -> &'a str {
        base_name(source, &self.name)
    }

    /// The tokens between the parameter list and the body, initialisers or `= default`.
    pub(crate) fn trailing(&self, source: &TokenStream<'_>) -> Range<usize> {
        let start = self.close + 1;
        let mut end = start;
        while end < self.last && !matches!(source.text_at(end), ":" | "=" | "{" | ";") {
            end = source.after(end, false);
        }
        start..end
    }

    pub(crate) fn parameters(&self, source: &TokenStream<'_>) -> Vec<Parameter> {
        parameters(source, self.open, self.close)
    }
}

/// The last identifier of a qualified name outside its template arguments.
pub(crate) fn base_name<'a>(source: &TokenStream<'a>, name: &Range<usize>) -> &'a str {
    let mut found = "";
    let mut i = name.start;
    while i < name.end {
        if source.is_identifier(i) {
            found = source.text_at(i);
        }
        i = source.after(i, true);
    }
    found
}

/// Words that may precede or replace the type of a parameter, and never name it.
const NEVER_NAMES: [&str; 34] = [
    "const",
    "constant",
    "device",
    "thread",
    "threadgroup",
    "volatile",
    "struct",
    "class",
    "union",
    "enum",
    "typename",
    "unsigned",
    "signed",
    "int",
    "char",
    "short",
    "long",
    "float",
    "half",
    "double",
    "bool",
    "void",
    "auto",
    "uint",
    "uchar",
    "ushort",
    "ulong",
    "bfloat",
    "static",
    "constexpr",
    "inline",
    "register",
    "restrict",
    "__restrict",
];

/// Words that qualify a type without being one.
pub(crate) const QUALIFIERS: [&str; 14] = [
    "const",
    "constant",
    "device",
    "thread",
    "threadgroup",
    "volatile",
    "struct",
    "class",
    "union",
    "enum",
    "typename",
    "static",
    "constexpr",
    "inline",
];

/// The parameters between two parentheses; none for `(void)`.
pub(crate) fn parameters(source: &TokenStream<'_>, open: usize, close: usize) -> Vec<Parameter> {
    let parts = source.split_commas(open + 1..close);
    if let [only] = parts.as_slice()
        && only.len() == 1
        && source.text_at(only.start) == "void"
    {
        return Vec::new();
    }
    parts
        .into_iter()
        .map(|range| parameter(source, range))
        .collect()
}

fn parameter(source: &TokenStream<'_>, range: Range<usize>) -> Parameter {
    let mut end = range.end;
    let mut grouped = None;
    let mut i = range.start;
    while i < range.end {
        match source.text_at(i) {
            "=" => {
                end = i;
                break;
            }
            "[" => {
                end = i;
                break;
            }
            "(" if matches!(source.text_at(i + 1), "*" | "&" | "&&") && grouped.is_none() => {
                let inside = source.after(i, false).saturating_sub(2);
                grouped = Some(inside).filter(|&at| source.is_identifier(at));
            }
            _ => {}
        }
        i = source.after(i, true);
    }
    let name = grouped.or_else(|| {
        let last = end.checked_sub(1).filter(|&last| last > range.start)?;
        let names = source.is_identifier(last)
            && !NEVER_NAMES.contains(&source.text_at(last))
            && source.text_at(last - 1) != "::"
            && (range.start..last)
                .any(|i| source.text_at(i) != "::" && !QUALIFIERS.contains(&source.text_at(i)));
        names.then_some(last)
    });
    Parameter {
        range,
        name,
        tail: end,
    }
}
