//! Instrumentation of check mode for what no memory access shows, made before the code is optimised: once the optimiser
//! has seen it, a variable that was never written has no value any more, and an index past the end no meaning.
//!
//! - Private variables of the user's functions have a *shadow*: a byte for each of theirs, all ones until it is written. A
//!   pointer into a variable travels with its [`Origin`](origin::Origin): shadow, offset, and size with name; through
//!   local variables, parameters and results, so that accesses in inlined functions are checked too. Where a pointer
//!   goes elsewhere, its variable counts as written from then on.
//! - Integer divisions get a divisor that does not trap, and scalar shifts an amount below the width.
//!
//! Defects become calls of [`check::MARK`], which the optimiser cannot remove, and which [`check`] turns into reports. A
//! read is only reported if none of its bytes was written: bytes between members are copied with their structure. Of
//! structures passed by value, only those of which nothing was written are reported.

mod analysis;
mod arithmetic;
mod emit;
mod helper;
mod origin;

use super::Error;
use super::check::{self, MARK};
use super::lex::{Kind, bare, tokens};
use super::module::{Definition, Module};
use super::parse::{self, Function, Id};
use super::types::Type;
use analysis::Analysis;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// Named metadata that lists the names of private variables.
const NAMES: &str = "!sm.privates";

/// A function of the module that could be read.
struct Subject<'a> {
    definition: &'a Definition<'a>,
    function: Function,
    /// Whether each parameter is a pointer.
    pointers: Vec<bool>,
    /// The operands of its `ret ptr`, by line.
    returned: HashMap<usize, Option<Id>>,
    /// Whether it is the user's own, and not of the headers.
    user: bool,
    /// Whether parameters can be added: it is only called by name.
    extensible: bool,
}

impl<'a> Subject<'a> {
    fn new(
        definition: &'a Definition<'a>,
        module: &Module<'_>,
        headers: &str,
        taken: &HashSet<String>,
    ) -> Option<Self> {
        if definition.name.starts_with("__") {
            return None;
        }
        // What cannot be read is left alone: pointers that go there count as written.
        let function = parse::function(definition, &module.named).ok()?;
        let parameters = parse::typed_parameters(&definition.header, definition.line).ok()?;
        let ids: HashMap<&str, Id> = function
            .names
            .iter()
            .enumerate()
            .map(|(id, name)| (name.as_str(), id))
            .collect();
        let mut returned = HashMap::new();
        for (index, text) in definition.body.iter().enumerate() {
            if let Some(rest) = text.trim_start().strip_prefix("ret ptr ") {
                let name = rest.split([',', ' ']).next().unwrap_or_default();
                returned.insert(definition.line + 1 + index, ids.get(name).copied());
            }
        }
        let file = file_of(definition, module).unwrap_or_default();
        Some(Self {
            definition,
            pointers: parameters.iter().map(|(ty, _)| *ty == Type::Ptr).collect(),
            returned,
            user: !file.is_empty() && !file.starts_with(headers),
            extensible: !taken.contains(&definition.name) && definition.name != super::KERNEL,
            function,
        })
    }

    fn raw(&self, line: usize) -> &'a str {
        let index = line.wrapping_sub(self.definition.line + 1);
        self.definition.body.get(index).copied().unwrap_or_default()
    }
}

/// The source file of a function.
fn file_of(definition: &Definition<'_>, module: &Module<'_>) -> Option<String> {
    let node = definition.header.rsplit_once("!dbg !")?.1;
    let node = node.split(' ').next()?.parse().ok()?;
    Some(check::file_of(module, node))
}

/// Functions whose address is taken.
fn taken(module: &Module<'_>) -> Result<HashSet<String>, Error> {
    let mut taken = HashSet::new();
    for global in &module.globals {
        let list = tokens(&global.text, global.line)?;
        let names = list.iter().skip(1).filter(|t| t.kind == Kind::Global);
        taken.extend(names.map(|t| bare(t.text).to_owned()));
    }
    for function in &module.functions {
        for (index, text) in function.body.iter().enumerate() {
            if !text.contains('@') {
                continue;
            }
            let list = tokens(text, function.line + 1 + index)?;
            // The callee is the first global that an argument list follows; further names are arguments.
            let mut call = list.iter().any(|t| t.is_word("call"));
            for (at, token) in list.iter().enumerate() {
                if token.kind != Kind::Global {
                    continue;
                }
                let callee = call && list.get(at + 1).is_some_and(|t| t.is('('));
                call &= !callee;
                if !callee {
                    taken.insert(bare(token.text).to_owned());
                }
            }
        }
    }
    Ok(taken)
}

/// Instruments a module as clang's front end wrote it; functions of files below `headers` are the library's.
pub(crate) fn sanitize(text: &str, headers: &str) -> Result<String, Error> {
    let module = Module::parse(text)?;
    let taken = taken(&module)?;
    let subjects: Vec<Subject<'_>> = module
        .functions
        .iter()
        .filter_map(|definition| Subject::new(definition, &module, headers, &taken))
        .collect();
    let analysis = Analysis::new(&subjects, &module.named);
    let mut names = vec![String::new()];
    let mut replaced: HashMap<usize, String> = HashMap::new();
    for (index, subject) in subjects.iter().enumerate() {
        let text = emit::function(&subjects, index, &analysis, &module, &mut names);
        replaced.insert(subject.definition.line, text);
    }

    let nosanitize = module.free_metadata();
    let mut out = String::with_capacity(text.len() * 2);
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        if let Some(function) = replaced.get(&(index + 1)) {
            out.push_str(function);
            for (_, line) in lines.by_ref() {
                if line == "}" {
                    break;
                }
            }
            continue;
        }
        let declares = |name: &str| line.starts_with("declare ") && line.contains(name);
        if declares(&format!("@{MARK}("))
            || declares("@llvm.memset.p0.i64(")
            || declares("@llvm.memmove.p0.p0.i64(")
        {
            continue;
        }
        out.push_str(line);
        out.push('\n');
    }
    out.push_str(&helper::definitions(nosanitize));
    let list: Vec<String> = names.iter().map(|name| format!("!\"{name}\"")).collect();
    let _ = writeln!(
        out,
        "!{nosanitize} = !{{}}\n{NAMES} = !{{!{}}}\n!{} = !{{{}}}",
        nosanitize + 1,
        nosanitize + 1,
        list.join(", ")
    );
    Ok(out)
}

/// The names of private variables that [`sanitize`] left in a module.
pub(super) fn variable_names(module: &Module<'_>) -> Vec<String> {
    let node = module
        .named_metadata
        .iter()
        .find_map(|line| line.strip_prefix(NAMES))
        .and_then(|rest| rest.trim_matches([' ', '=', '!', '{', '}']).parse().ok())
        .and_then(|node| module.node(node));
    let Some(list) = node.and_then(|text| tokens(text, 0).ok()) else {
        return Vec::new();
    };
    list.iter()
        .filter(|token| token.kind == Kind::Text)
        .map(|token| check::unescape(token.text))
        .collect()
}
