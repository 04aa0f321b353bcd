//! Instrumentation pass of check mode for defects that the accesses to bound memory do not reveal. It runs before the
//! optimiser, which would otherwise treat an uninitialised variable or an out-of-bounds index as undefined and remove it.
//!
//! - Private variables of the user's functions have *shadow memory*: one byte per byte, all ones until it is
//!   written. A pointer into a variable carries its [`Provenance`](provenance::Provenance): shadow, offset, and
//!   size with name. It is passed through local variables, parameters and results, so that accesses in inlined
//!   functions are checked too. If a pointer escapes, its variable counts as initialised from then on.
//! - Integer divisions get a divisor that does not trap, and scalar shifts an amount below the width.
//!
//! Defects become calls of [`tsan::DEFECT_MARKER`], which the optimiser cannot remove and which [`tsan`] lowers to
//! reports. A read is only reported if none of its bytes was written: padding is copied along with its structure. A
//! structure passed by value is only reported if none of its bytes was written.

mod analysis;
mod arithmetic;
mod emit;
mod helper;
mod provenance;

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use self::analysis::PointerAnalysis;
use super::FissionError;
use super::lex::{IrTokenKind, bare, tokens};
use super::module::{Definition, Module};
use super::parse::{self, Id, IrFunction};
use super::tsan::{self, DEFECT_MARKER};
use super::types::Type;

/// Named metadata with the names of private variables.
const PRIVATE_NAMES_NODE: &str = "!sm.privates";

/// A function of the module that was parsed.
struct ParsedFunction<'a> {
    definition: &'a Definition<'a>,
    function: IrFunction,
    /// Whether each parameter is a pointer.
    pointers: Vec<bool>,
    /// The operands of its `ret ptr`, by line.
    returned: HashMap<usize, Option<Id>>,
    /// Whether it is in the user's source, not in the headers.
    is_user_code: bool,
    /// Whether parameters can be added: it is only called directly.
    extensible: bool,
}

impl<'a> ParsedFunction<'a> {
    fn new(
        definition: &'a Definition<'a>,
        module: &Module<'_>,
        headers: &str,
        address_taken: &HashSet<String>,
    ) -> Option<Self> {
        if definition.name.starts_with("__") {
            return None;
        }
        // Functions that cannot be parsed are left alone: pointers passed to them escape.
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
            is_user_code: !file.is_empty() && !file.starts_with(headers),
            extensible: !address_taken.contains(&definition.name)
                && definition.name != super::KERNEL,
            function,
        })
    }

    /// Returns the text of a line of the module.
    fn raw(&self, line: usize) -> &'a str {
        let index = line.wrapping_sub(self.definition.line + 1);
        self.definition.body.get(index).copied().unwrap_or_default()
    }
}

/// Returns the source file of a function.
fn file_of(definition: &Definition<'_>, module: &Module<'_>) -> Option<String> {
    let node = definition.header.rsplit_once("!dbg !")?.1;
    let node = node.split(' ').next()?.parse().ok()?;
    Some(tsan::file_of(module, node))
}

/// Returns the functions whose address is taken.
fn address_taken(module: &Module<'_>) -> Result<HashSet<String>, FissionError> {
    let mut address_taken = HashSet::new();
    for global in &module.globals {
        let list = tokens(&global.text, global.line)?;
        let names = list
            .iter()
            .skip(1)
            .filter(|t| t.kind == IrTokenKind::Global);
        address_taken.extend(names.map(|t| bare(t.text).to_owned()));
    }
    for function in &module.functions {
        for (index, text) in function.body.iter().enumerate() {
            if !text.contains('@') {
                continue;
            }
            let list = tokens(text, function.line + 1 + index)?;
            // The callee is the first global before an argument list; further names are arguments.
            let mut call = list.iter().any(|t| t.is_word("call"));
            for (at, token) in list.iter().enumerate() {
                if token.kind != IrTokenKind::Global {
                    continue;
                }
                let callee = call && list.get(at + 1).is_some_and(|t| t.is_punct('('));
                call &= !callee;
                if !callee {
                    address_taken.insert(bare(token.text).to_owned());
                }
            }
        }
    }
    Ok(address_taken)
}

/// Instruments a module that clang's front end printed; functions of files below `headers` belong to the library.
pub(crate) fn sanitize(text: &str, headers: &str) -> Result<String, FissionError> {
    let module = Module::parse(text)?;
    let address_taken = address_taken(&module)?;
    let functions: Vec<ParsedFunction<'_>> = module
        .functions
        .iter()
        .filter_map(|definition| ParsedFunction::new(definition, &module, headers, &address_taken))
        .collect();
    let analysis = PointerAnalysis::new(&functions, &module.named);
    let mut names = vec![String::new()];
    let mut replaced: HashMap<usize, String> = HashMap::new();
    for (index, parsed) in functions.iter().enumerate() {
        let text = emit::function(&functions, index, &analysis, &module, &mut names);
        replaced.insert(parsed.definition.line, text);
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
        if declares(&format!("@{DEFECT_MARKER}("))
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
        "!{nosanitize} = !{{}}\n{PRIVATE_NAMES_NODE} = !{{!{}}}\n!{} = !{{{}}}",
        nosanitize + 1,
        nosanitize + 1,
        list.join(", ")
    );
    Ok(out)
}

/// Returns the names of private variables that [`sanitize`] recorded in a module.
pub(super) fn variable_names(module: &Module<'_>) -> Vec<String> {
    let node = module
        .named_metadata
        .iter()
        .find_map(|line| line.strip_prefix(PRIVATE_NAMES_NODE))
        .and_then(|rest| rest.trim_matches([' ', '=', '!', '{', '}']).parse().ok())
        .and_then(|node| module.node(node));
    let Some(list) = node.and_then(|text| tokens(text, 0).ok()) else {
        return Vec::new();
    };
    list.iter()
        .filter(|token| token.kind == IrTokenKind::Text)
        .map(|token| tsan::unescape(token.text))
        .collect()
}
