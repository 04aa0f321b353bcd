//! Finds conversions between `thread` and the other address spaces in clang's AST dump.
//!
//! `thread` is clang's default address space, which contains the others: clang silently converts a `device` pointer
//! to a `thread` one. Metal has no such conversion. The AST has a node for each of them, in instantiated templates
//! too.
//!
//! Not reported, because Metal allows them too: the object of a method, arguments of library functions, and
//! references to `const`, which may bind to a copy. Nor are casts of a function's result from `thread`: elements of
//! vectors and matrices have no address space here, wherever the vector or matrix is stored.

use std::collections::{HashMap, HashSet};

/// A conversion that Metal does not allow.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Conversion {
    /// The file as clang names it.
    pub(super) file: String,
    pub(super) line: u32,
    pub(super) column: u32,
    /// The error message, with clang's type names.
    pub(super) message: String,
}

/// A location in the user's text.
#[derive(Debug, Clone, Copy)]
struct SourceLocation<'a> {
    file: &'a str,
    line: u32,
    column: u32,
}

/// An AST node on the path from the root.
#[derive(Debug, Clone, Copy)]
struct Node<'a> {
    depth: usize,
    kind: &'a str,
    /// Its first location, if that is in the user's text.
    location: Option<SourceLocation<'a>>,
    /// Number of children read so far.
    children: usize,
    /// For a call: whether the callee is a free function, and its address.
    callee: Option<(bool, &'a str)>,
}

/// A conversion whose operand, on the next line, has not been read yet.
struct PendingConversion<'a> {
    depth: usize,
    location: SourceLocation<'a>,
    target: &'a str,
    context: ConversionContext<'a>,
}

/// The expression or declaration that a conversion is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConversionContext<'a> {
    /// An argument, by number from 1, of the function at an address.
    Argument(usize, &'a str),
    /// The initialiser of a variable.
    Variable,
    Cast,
    /// A reference binding.
    Reference(Option<&'a str>),
    Other,
}

/// Parses the AST dump line by line.
struct Reader<'a, F> {
    is_hidden: F,
    file: &'a str,
    line: u32,
    path: Vec<Node<'a>>,
    /// Addresses of the functions that the user's text declares.
    functions: HashSet<&'a str>,
    pending: Option<PendingConversion<'a>>,
    found: Vec<(Option<&'a str>, Conversion)>,
    /// The depth of the last cast from `thread`, while its operand is read.
    cast: Option<usize>,
}

/// Finds all conversions in a dump, one per location. `is_hidden` returns whether a file is not the user's.
pub(super) fn find(dump: &str, is_hidden: impl Fn(&str) -> bool) -> Vec<Conversion> {
    let mut reader = Reader {
        is_hidden,
        file: "",
        line: 0,
        path: Vec::new(),
        functions: HashSet::new(),
        pending: None,
        found: Vec::new(),
        cast: None,
    };
    for line in dump.lines() {
        reader.read(line);
    }
    let mut locations = HashMap::new();
    let Reader {
        found, functions, ..
    } = reader;
    found
        .into_iter()
        .filter(|(callee, _)| callee.is_none_or(|callee| functions.contains(callee)))
        .map(|(_, conversion)| conversion)
        .filter(|c| {
            locations
                .insert((c.file.clone(), c.line, c.column), ())
                .is_none()
        })
        .collect()
}

impl<'a, F: Fn(&str) -> bool> Reader<'a, F> {
    fn read(&mut self, line: &'a str) {
        let text = line.trim_start_matches([' ', '|', '`', '-']);
        let depth = (line.len() - text.len()) / 2;
        let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
        let address = rest.split(' ').next().unwrap_or_default();
        let location = self.locations(kind, rest);
        while self.path.last().is_some_and(|node| node.depth >= depth) {
            self.path.pop();
        }
        if let Some(pending) = self.pending.take() {
            self.report(pending, rest);
        }
        self.cast = self.cast.filter(|cast| *cast < depth);
        if self.cast.is_some() && (kind.ends_with("CallExpr") || kind == "StringLiteral") {
            self.found.pop();
            self.cast = None;
        }
        if kind.ends_with("Decl") {
            self.functions.insert(address);
        }
        if let Some(parent) = self.path.last_mut() {
            parent.children += 1;
        }
        self.name_callee(kind, rest);
        if rest.contains("<AddressSpaceConversion>") && kind.ends_with("CastExpr") {
            self.convert(kind, rest, location, depth);
        }
        self.path.push(Node {
            depth,
            kind,
            location,
            children: 0,
            callee: None,
        });
    }

    /// Tracks the locations of a line; returns the first one if it is in the user's text. clang omits the file or
    /// the line if they are the same as in the previous location.
    fn locations(&mut self, kind: &str, rest: &'a str) -> Option<SourceLocation<'a>> {
        let at = rest.find(" <")?;
        if rest[..at].contains('\'') {
            return None;
        }
        let (first, mut rest) = self.location(&rest[at + 2..])?;
        if let Some(more) = rest.strip_prefix(", ") {
            (_, rest) = self.location(more)?;
        }
        // The location of the name follows.
        if kind.ends_with("Decl")
            && let Some(name) = rest.strip_prefix("> ")
            && !name.starts_with('<')
        {
            let end = name.find(' ').unwrap_or(name.len());
            self.location(&name[..end]);
        }
        first
    }

    /// Parses `file:3:7`, `line:3:7`, `col:7` or `<invalid sloc>`, and returns the rest.
    fn location(&mut self, text: &'a str) -> Option<(Option<SourceLocation<'a>>, &'a str)> {
        if let Some(rest) = text.strip_prefix("<invalid sloc>") {
            return Some((None, rest));
        }
        if let Some(column) = text.strip_prefix("col:") {
            let (column, rest) = number(column)?;
            return Some((self.in_user_text(column), rest));
        }
        for (colon, _) in text.match_indices(':') {
            let Some((line, rest)) = number(&text[colon + 1..]) else {
                continue;
            };
            let Some((column, rest)) = rest.strip_prefix(':').and_then(number) else {
                continue;
            };
            if &text[..colon] != "line" {
                self.file = &text[..colon];
            }
            self.line = line;
            return Some((self.in_user_text(column), rest));
        }
        None
    }

    fn in_user_text(&self, column: u32) -> Option<SourceLocation<'a>> {
        (!(self.is_hidden)(self.file)).then_some(SourceLocation {
            file: self.file,
            line: self.line,
            column,
        })
    }

    /// The first child of a call names its callee.
    fn name_callee(&mut self, kind: &str, rest: &'a str) {
        let named = match kind {
            "DeclRefExpr" => rest
                .rfind(" Function 0x")
                .map(|at| (true, &rest[at + 10..]))
                .or_else(|| {
                    rest.rfind(" CXXMethod 0x")
                        .map(|at| (false, &rest[at + 11..]))
                }),
            "MemberExpr" => rest.rfind(" 0x").map(|at| (false, &rest[at + 1..])),
            _ => None,
        };
        let Some((is_free, text)) = named else { return };
        let address = text.split(' ').next().unwrap_or_default();
        for node in self.path.iter_mut().rev() {
            match node.kind {
                "ImplicitCastExpr" | "ParenExpr" => {}
                "CallExpr" | "CXXMemberCallExpr" | "CXXOperatorCallExpr" if node.children == 1 => {
                    node.callee = Some((is_free, address));
                    return;
                }
                _ => return,
            }
        }
    }

    fn convert(
        &mut self,
        kind: &str,
        rest: &'a str,
        location: Option<SourceLocation<'a>>,
        depth: usize,
    ) {
        let Some(parent) = self.path.last() else {
            return;
        };
        let outer = || self.path.iter().rev().find_map(|node| node.location);
        let Some(location) = location.or_else(outer) else {
            return;
        };
        let Some((target, after)) = expression_type(rest) else {
            return;
        };
        let is_cast = kind != "ImplicitCastExpr" || rest.ends_with("part_of_explicit_cast");
        let is_reference = after.starts_with(" lvalue") || after.starts_with(" xvalue");
        let argument = match (parent.kind, parent.callee) {
            ("CallExpr" | "CXXMemberCallExpr", Some((_, callee))) => {
                Some((parent.children - 1, callee))
            }
            ("CXXOperatorCallExpr", Some((true, callee))) => Some((parent.children - 1, callee)),
            // The first operand is the object of the method.
            ("CXXOperatorCallExpr", Some((false, callee))) if parent.children > 2 => {
                Some((parent.children - 2, callee))
            }
            ("CXXOperatorCallExpr" | "MemberExpr", _) => return,
            _ => None,
        };
        let context = match argument {
            _ if is_cast => ConversionContext::Cast,
            _ if is_reference && is_constant(target) => return,
            Some((_, callee)) if is_reference => ConversionContext::Reference(Some(callee)),
            None if is_reference => ConversionContext::Reference(None),
            Some((number, callee)) => ConversionContext::Argument(number, callee),
            None if parent.kind == "VarDecl" => ConversionContext::Variable,
            None => ConversionContext::Other,
        };
        self.pending = Some(PendingConversion {
            depth,
            location,
            target,
            context,
        });
    }

    /// Records a conversion; `operand` is the line of its operand.
    fn report(&mut self, pending: PendingConversion<'a>, operand: &'a str) {
        let PendingConversion {
            depth,
            location: SourceLocation { file, line, column },
            target,
            context,
        } = pending;
        let Some((source, _)) = expression_type(operand) else {
            return;
        };
        let (from, to) = (with_thread_space(source), with_thread_space(target));
        let (from_space, to_space) = (space(source), space(target));
        let message = match context {
            ConversionContext::Argument(number, _) => format!(
                "cannot pass pointer to address space '{from_space}' as a pointer to address space '{to_space}' in {} argument",
                ordinal(number)
            ),
            ConversionContext::Variable => {
                format!("cannot initialize a variable of type '{to}' with a value of type '{from}'")
            }
            ConversionContext::Cast => {
                format!("cast from '{from}' to '{to}' converts between mismatching address spaces")
            }
            ConversionContext::Reference(_) => format!(
                "binding reference of type '{to}' to value of type '{from}' changes address space"
            ),
            ConversionContext::Other => {
                format!("converting '{from}' to type '{to}' changes address space of pointer")
            }
        };
        let callee = match context {
            ConversionContext::Argument(_, callee) => Some(callee),
            ConversionContext::Reference(callee) => callee,
            _ => None,
        };
        self.found.push((
            callee,
            Conversion {
                file: file.to_owned(),
                line,
                column,
                message,
            },
        ));
        if context == ConversionContext::Cast && from_space == "thread" {
            self.cast = Some(depth);
        }
    }
}

fn number(text: &str) -> Option<(u32, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// Parses the type of an expression, `'P':'__global_device float *'` without its alias, and returns the rest.
fn expression_type(rest: &str) -> Option<(&str, &str)> {
    let (_, quoted) = rest.split_once('\'')?;
    let (mut name, mut after) = quoted.split_once('\'')?;
    if let Some(more) = after.strip_prefix(":'") {
        (name, after) = more.split_once('\'')?;
    }
    Some((name, after))
}

fn is_constant(target: &str) -> bool {
    target.starts_with("const ") || target.starts_with("volatile const ")
}

/// Returns Metal's name of the address space that a type points to.
fn space(target: &str) -> &'static str {
    let outer = target
        .rsplit_once('*')
        .map_or(target, |(pointee, _)| pointee);
    let outer = outer.rsplit_once('*').map_or(outer, |(_, last)| last);
    match outer {
        _ if outer.contains("__global_device") => "device",
        _ if outer.contains("__global_host") => "constant",
        _ if outer.contains("__local") => "threadgroup",
        _ => "thread",
    }
}

/// Adds `thread` to a type where Metal would have it.
fn with_thread_space(target: &str) -> String {
    if space(target) != "thread" || target.contains("**") {
        return target.to_owned();
    }
    let mut at = 0;
    while let Some(word) = ["const ", "volatile "]
        .iter()
        .find(|word| target[at..].starts_with(**word))
    {
        at += word.len();
    }
    format!("{}thread {}", &target[..at], &target[at..])
}

fn ordinal(number: usize) -> String {
    let suffix = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{suffix}")
}
