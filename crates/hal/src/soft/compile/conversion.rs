//! Conversions between `thread` and the other address spaces, found in clang's dump of the syntax tree.
//!
//! `thread` is clang's default space, which includes the others: clang itself converts a `device` pointer to a `thread` one
//! without a word. Metal has no such conversion. The tree names each of them, in instantiated templates too.
//!
//! Left alone, because Metal has them as well: the object of a method, operands of the library's functions, and references to
//! `const`, which may refer to a copy. Casts from `thread` of what a function returned are left alone, too: the elements of
//! vectors and matrices have no address space here, wherever these are.

use std::collections::{HashMap, HashSet};

/// A conversion that Metal does not have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Conversion {
    /// The file that clang names.
    pub(super) file: String,
    pub(super) line: u32,
    pub(super) column: u32,
    /// What is wrong with it, in clang's names of types.
    pub(super) message: String,
}

/// A node of the tree on the path from the root.
#[derive(Debug, Clone, Copy)]
struct Node<'a> {
    depth: usize,
    kind: &'a str,
    /// Where it begins, if that is in the user's text.
    place: Option<(&'a str, u32, u32)>,
    /// Children seen so far.
    children: usize,
    /// The function that a call names, if it is not a method, and its address.
    callee: Option<(bool, &'a str)>,
}

/// A conversion whose operand, which is on the next line, has not been read.
struct Pending<'a> {
    depth: usize,
    place: (&'a str, u32, u32),
    target: &'a str,
    context: Context<'a>,
}

/// What a conversion is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Context<'a> {
    /// An argument, by number from 1, of the function at an address.
    Argument(usize, &'a str),
    /// The initialiser of a variable.
    Variable,
    Cast,
    /// A reference is bound.
    Reference(Option<&'a str>),
    Other,
}

/// Reads the dump line by line.
struct Reader<'a, F> {
    is_hidden: F,
    file: &'a str,
    line: u32,
    path: Vec<Node<'a>>,
    /// Addresses of the functions that the user's text declares.
    functions: HashSet<&'a str>,
    pending: Option<Pending<'a>>,
    found: Vec<(Option<&'a str>, Conversion)>,
    /// The depth of a cast from `thread` that was found last, while its operand is read.
    cast: Option<usize>,
}

/// All conversions in a dump, each place once. `is_hidden` says which files are not the user's.
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
    let mut places = HashMap::new();
    let Reader {
        found, functions, ..
    } = reader;
    found
        .into_iter()
        .filter(|(callee, _)| callee.is_none_or(|callee| functions.contains(callee)))
        .map(|(_, conversion)| conversion)
        .filter(|c| {
            places
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
        let place = self.places(kind, rest);
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
            self.convert(kind, rest, place, depth);
        }
        self.path.push(Node {
            depth,
            kind,
            place,
            children: 0,
            callee: None,
        });
    }

    /// Follows the places of a line; returns the first if it is the user's. Clang leaves out the file or the line where they
    /// are those of the place before.
    fn places(&mut self, kind: &str, rest: &'a str) -> Option<(&'a str, u32, u32)> {
        let at = rest.find(" <")?;
        if rest[..at].contains('\'') {
            return None;
        }
        let (first, mut rest) = self.place(&rest[at + 2..])?;
        if let Some(more) = rest.strip_prefix(", ") {
            (_, rest) = self.place(more)?;
        }
        // The place of the name follows.
        if kind.ends_with("Decl")
            && let Some(name) = rest.strip_prefix("> ")
            && !name.starts_with('<')
        {
            let end = name.find(' ').unwrap_or(name.len());
            self.place(&name[..end]);
        }
        first
    }

    /// `file:3:7`, `line:3:7`, `col:7` or `<invalid sloc>`, and what follows.
    #[expect(
        clippy::type_complexity,
        reason = "a place, if it is the user's, and the rest"
    )]
    fn place(&mut self, text: &'a str) -> Option<(Option<(&'a str, u32, u32)>, &'a str)> {
        if let Some(rest) = text.strip_prefix("<invalid sloc>") {
            return Some((None, rest));
        }
        if let Some(column) = text.strip_prefix("col:") {
            let (column, rest) = number(column)?;
            return Some((self.users(column), rest));
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
            return Some((self.users(column), rest));
        }
        None
    }

    fn users(&self, column: u32) -> Option<(&'a str, u32, u32)> {
        (!(self.is_hidden)(self.file)).then_some((self.file, self.line, column))
    }

    /// The first child of a call names its function.
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
        place: Option<(&'a str, u32, u32)>,
        depth: usize,
    ) {
        let Some(parent) = self.path.last() else {
            return;
        };
        let outer = || self.path.iter().rev().find_map(|node| node.place);
        let Some(place) = place.or_else(outer) else {
            return;
        };
        let Some((target, after)) = types(rest) else {
            return;
        };
        let is_cast = kind != "ImplicitCastExpr" || rest.ends_with("part_of_explicit_cast");
        let is_reference = after.starts_with(" lvalue") || after.starts_with(" xvalue");
        let argument = match (parent.kind, parent.callee) {
            ("CallExpr" | "CXXMemberCallExpr", Some((_, callee))) => {
                Some((parent.children - 1, callee))
            }
            ("CXXOperatorCallExpr", Some((true, callee))) => Some((parent.children - 1, callee)),
            // The object of a method is its first operand.
            ("CXXOperatorCallExpr", Some((false, callee))) if parent.children > 2 => {
                Some((parent.children - 2, callee))
            }
            ("CXXOperatorCallExpr" | "MemberExpr", _) => return,
            _ => None,
        };
        let context = match argument {
            _ if is_cast => Context::Cast,
            _ if is_reference && is_constant(target) => return,
            Some((_, callee)) if is_reference => Context::Reference(Some(callee)),
            None if is_reference => Context::Reference(None),
            Some((number, callee)) => Context::Argument(number, callee),
            None if parent.kind == "VarDecl" => Context::Variable,
            None => Context::Other,
        };
        self.pending = Some(Pending {
            depth,
            place,
            target,
            context,
        });
    }

    /// `operand` is the line of what is converted.
    fn report(&mut self, pending: Pending<'a>, operand: &'a str) {
        let Pending {
            depth,
            place: (file, line, column),
            target,
            context,
        } = pending;
        let Some((source, _)) = types(operand) else {
            return;
        };
        let (from, to) = (placed(source), placed(target));
        let (from_space, to_space) = (space(source), space(target));
        let message = match context {
            Context::Argument(number, _) => format!(
                "cannot pass pointer to address space '{from_space}' as a pointer to address space '{to_space}' in {} argument",
                ordinal(number)
            ),
            Context::Variable => {
                format!("cannot initialize a variable of type '{to}' with a value of type '{from}'")
            }
            Context::Cast => {
                format!("cast from '{from}' to '{to}' converts between mismatching address spaces")
            }
            Context::Reference(_) => format!(
                "binding reference of type '{to}' to value of type '{from}' changes address space"
            ),
            Context::Other => {
                format!("converting '{from}' to type '{to}' changes address space of pointer")
            }
        };
        let callee = match context {
            Context::Argument(_, callee) => Some(callee),
            Context::Reference(callee) => callee,
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
        if context == Context::Cast && from_space == "thread" {
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

/// The type of an expression, `'P':'__global_device float *'` without its alias, and what follows.
fn types(rest: &str) -> Option<(&str, &str)> {
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

/// Metal's name of the address space that a type points to.
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

/// The type with `thread` where Metal would have it.
fn placed(target: &str) -> String {
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
