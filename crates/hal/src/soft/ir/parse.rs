//! Parser for functions in LLVM IR text.

use std::collections::HashMap;

use super::FissionError;
use super::instruction::{call, operation, skip_attributes};
use super::lex::{Cursor, IrToken, IrTokenKind, tokens};
use super::module::Definition;
use super::types::{Layout, Named, Type};

/// Number of a value or basic block of a function.
pub(crate) type Id = usize;

/// A fragment of an instruction's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fragment {
    Text(String),
    Local(Id),
}

/// Operand of an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operand {
    Local(Id),
    /// A constant, as text.
    Constant(String),
}

/// Operation of an instruction, as far as the passes interpret it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    Alloca {
        layout: Layout,
    },
    /// `plain`: neither atomic nor volatile.
    Load {
        pointer: Operand,
        plain: bool,
    },
    Store {
        value: Operand,
        pointer: Operand,
        plain: bool,
    },
    Gep {
        base: Operand,
    },
    Phi {
        incoming: Vec<(Operand, Id)>,
    },
    Call {
        callee: Option<String>,
        arguments: Vec<(Type, Operand)>,
    },
    /// Anything else, identified by its opcode only.
    Other,
}

/// An instruction other than a terminator.
#[derive(Debug, Clone)]
pub(crate) struct Inst {
    pub(crate) result: Option<Id>,
    pub(crate) opcode: String,
    pub(crate) ty: Type,
    pub(crate) op: Op,
    /// The text without result, debug location and alias scopes.
    pub(crate) fragments: Vec<Fragment>,
    /// Metadata node of the debug location.
    pub(crate) location: Option<u32>,
    pub(crate) line: usize,
}

/// Terminator of a basic block.
#[derive(Debug, Clone)]
pub(crate) enum Terminator {
    Return,
    Unreachable,
    /// A branch or switch, as text, with its targets.
    Jump {
        fragments: Vec<Fragment>,
        targets: Vec<Id>,
    },
    /// Waits at synchronisation site `site` (from 1); the site has the call's operands.
    Sync {
        site: usize,
    },
}

/// A basic block.
#[derive(Debug, Clone)]
pub(crate) struct BasicBlock {
    pub(crate) label: Id,
    pub(crate) insts: Vec<Inst>,
    pub(crate) end: Terminator,
    /// Metadata node of the terminator's debug location.
    pub(crate) location: Option<u32>,
}

/// A function.
#[derive(Debug, Clone)]
pub(crate) struct IrFunction {
    pub(crate) arguments: Vec<Id>,
    pub(crate) blocks: Vec<BasicBlock>,
    /// Number of ids in use.
    pub(crate) ids: usize,
    /// Names by id, as written.
    pub(crate) names: Vec<String>,
}

impl Inst {
    /// Returns the values the instruction uses, incoming values of phis included.
    pub(crate) fn uses(&self) -> Vec<Id> {
        if let Op::Phi { incoming } = &self.op {
            return incoming
                .iter()
                .filter_map(|(operand, _)| {
                    if let Operand::Local(id) = operand {
                        Some(*id)
                    } else {
                        None
                    }
                })
                .collect();
        }
        locals(&self.fragments)
    }
}

/// Returns the ids in `fragments`.
pub(crate) fn locals(fragments: &[Fragment]) -> Vec<Id> {
    fragments
        .iter()
        .filter_map(|p| {
            if let Fragment::Local(id) = p {
                Some(*id)
            } else {
                None
            }
        })
        .collect()
}

/// Ids of the names in one function.
pub(super) struct NameTable<'n> {
    ids: HashMap<String, Id>,
    pub(super) types: &'n Named,
}

impl NameTable<'_> {
    pub(super) fn id(&mut self, name: &str) -> Id {
        let next = self.ids.len();
        *self.ids.entry(name.to_owned()).or_insert(next)
    }

    pub(super) fn is_type(&self, text: &str) -> bool {
        let name = super::lex::bare(text);
        self.types.contains_key(name) && !self.ids.contains_key(text)
    }
}

/// A logical line: a label, or an instruction with its continuation lines.
struct LogicalLine {
    text: String,
    number: usize,
}

fn logical_lines(body: &[&str], first: usize) -> Vec<LogicalLine> {
    let mut lines: Vec<LogicalLine> = Vec::new();
    let mut open = false;
    for (index, text) in body.iter().enumerate() {
        let trimmed = text.trim();
        if open {
            if let Some(last) = lines.last_mut() {
                last.text.push(' ');
                last.text.push_str(trimmed);
            }
            open = !trimmed.starts_with(']');
            continue;
        }
        if trimmed.is_empty() || trimmed.starts_with(';') || trimmed.starts_with("#dbg_") {
            continue;
        }
        open = trimmed.starts_with("switch ") && trimmed.ends_with('[');
        lines.push(LogicalLine {
            text: trimmed.to_owned(),
            number: first + index,
        });
    }
    lines
}

/// Returns the label that a line defines, as a local name.
fn label_of(line: &LogicalLine) -> Option<String> {
    let text = &line.text;
    if let Some(rest) = text.strip_prefix('"') {
        let end = rest.find('"')? + 2;
        return text[end..]
            .starts_with(':')
            .then(|| format!("%{}", &text[..end]));
    }
    let end = text.find(':')?;
    let name = &text[..end];
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '$' | '.' | '_');
    (!name.is_empty() && name.chars().all(is_name)).then(|| format!("%{name}"))
}

/// Parses the parameter names of a `define` line, implicit ones included.
pub(crate) fn parameters(header: &str, line: usize) -> Result<Vec<String>, FissionError> {
    let list = typed_parameters(header, line)?;
    Ok(list.into_iter().map(|(_, name)| name).collect())
}

/// Parses the types and names of the parameters of a `define` line.
pub(crate) fn typed_parameters(
    header: &str,
    line: usize,
) -> Result<Vec<(Type, String)>, FissionError> {
    let list = tokens(header, line)?;
    let name = list.iter().position(|t| t.kind == IrTokenKind::Global);
    let start = name.ok_or_else(|| FissionError::Syntax {
        line,
        what: "expected a function name".into(),
    })? + 1;
    let mut cursor = Cursor::new(&list[start..], line);
    cursor.expect('(')?;
    let mut names = Vec::new();
    let mut unnamed = 0usize;
    while !cursor.eat(')') {
        let ty = Type::parse(&mut cursor)?;
        skip_attributes(&mut cursor);
        match cursor.peek() {
            Some(token) if token.kind == IrTokenKind::Local => {
                cursor.next();
                names.push((ty, token.text.to_owned()));
                unnamed += usize::from(token.text[1..].parse::<u64>().is_ok());
            }
            _ => {
                names.push((ty, format!("%{unnamed}")));
                unnamed += 1;
            }
        }
        if !cursor.eat(',') && !cursor.peek_is(')') {
            return Err(cursor.error("unknown parameter attribute"));
        }
    }
    Ok(names)
}

/// Parses the blocks and instructions of `definition`.
pub(crate) fn function(
    definition: &Definition<'_>,
    types: &Named,
) -> Result<IrFunction, FissionError> {
    let mut names = NameTable {
        ids: HashMap::new(),
        types,
    };
    let parameters = parameters(&definition.header, definition.line)?;
    let arguments: Vec<Id> = parameters.iter().map(|name| names.id(name)).collect();
    let unnamed = parameters
        .iter()
        .filter(|name| name[1..].parse::<u64>().is_ok())
        .count();
    let lines = logical_lines(&definition.body, definition.line + 1);

    // Collect all definitions first, so that a name is known to be a value at any use.
    if lines.first().is_some_and(|line| label_of(line).is_none()) {
        names.id(&format!("%{unnamed}"));
    }
    for line in &lines {
        if let Some(label) = label_of(line) {
            names.id(&label);
        } else if line.text.starts_with('%') {
            let list = tokens(&line.text, line.number)?;
            if list.len() > 1 && list[1].is_punct('=') {
                names.id(list[0].text);
            }
        }
    }

    let mut blocks: Vec<BasicBlock> = Vec::new();
    let mut open: Option<(Id, Vec<Inst>)> = None;
    for (index, line) in lines.iter().enumerate() {
        let syntax = |what: &str| FissionError::Syntax {
            line: line.number,
            what: what.into(),
        };
        if let Some(label) = label_of(line) {
            if open.is_some() {
                return Err(syntax("a block without a terminator"));
            }
            open = Some((names.id(&label), Vec::new()));
            continue;
        }
        if index == 0 {
            open = Some((names.id(&format!("%{unnamed}")), Vec::new()));
        }
        let list = tokens(&line.text, line.number)?;
        let Some((label, mut insts)) = open.take() else {
            return Err(syntax("an instruction outside a block"));
        };
        match statement(line, &list, &mut names)? {
            Statement::Inst(inst) => {
                insts.push(inst);
                open = Some((label, insts));
            }
            Statement::Skip => open = Some((label, insts)),
            Statement::End(end, location) => blocks.push(BasicBlock {
                label,
                insts,
                end,
                location,
            }),
        }
    }
    if open.is_some() || blocks.is_empty() {
        let line = definition.line;
        return Err(FissionError::Syntax {
            line,
            what: "a function that does not end in a terminator".into(),
        });
    }
    let ids = names.ids.len();
    let mut written = vec![String::new(); ids];
    for (name, id) in names.ids {
        written[id] = name;
    }
    Ok(IrFunction {
        arguments,
        blocks,
        ids,
        names: written,
    })
}

enum Statement {
    Inst(Inst),
    /// With the metadata node of its debug location.
    End(Terminator, Option<u32>),
    Skip,
}

/// Returns whether a metadata kind is dropped: debug locations are parsed here, and alias scopes are valid for a single
/// lane only.
fn is_dropped(kind: &str) -> bool {
    matches!(
        kind,
        "!dbg"
            | "!alias.scope"
            | "!noalias"
            | "!llvm.access.group"
            | "!nosanitize"
            | "!heapallocsite"
    )
}

/// Splits off the metadata attachments: returns the tokens before them, the attachments to keep, and the debug
/// location.
fn attachments<'a, 't>(list: &'t [IrToken<'a>]) -> (&'t [IrToken<'a>], String, Option<u32>) {
    let mut end = list.len();
    let mut kept = Vec::new();
    let mut location = None;
    while end >= 3 {
        let [comma, kind, node] = [list[end - 3], list[end - 2], list[end - 1]];
        let is_node = node.kind == IrTokenKind::Meta && node.text[1..].parse::<u32>().is_ok();
        if !comma.is_punct(',') || kind.kind != IrTokenKind::Meta || kind.text.len() < 2 || !is_node
        {
            break;
        }
        if kind.text == "!dbg" {
            location = node.text[1..].parse().ok();
        } else if !is_dropped(kind.text) {
            kept.push(format!(", {} {}", kind.text, node.text));
        }
        end -= 3;
    }
    kept.reverse();
    (&list[..end], kept.concat(), location)
}

fn fragments(
    text: &str,
    list: &[IrToken<'_>],
    tail: &str,
    names: &mut NameTable<'_>,
) -> Vec<Fragment> {
    let mut out = Vec::new();
    let mut at = list.first().map_or(0, |t| t.start);
    for token in list {
        if token.kind == IrTokenKind::Local && !names.is_type(token.text) {
            if token.start > at {
                out.push(Fragment::Text(text[at..token.start].to_owned()));
            }
            out.push(Fragment::Local(names.id(token.text)));
            at = token.end();
        }
    }
    let end = list.last().map_or(at, IrToken::end);
    let rest = format!("{}{tail}", &text[at..end]);
    if !rest.is_empty() {
        out.push(Fragment::Text(rest));
    }
    out
}

fn statement(
    line: &LogicalLine,
    list: &[IrToken<'_>],
    names: &mut NameTable<'_>,
) -> Result<Statement, FissionError> {
    let number = line.number;
    let (list, kept, location) = attachments(list);
    let (result, list) = match list {
        [name, equals, rest @ ..] if name.kind == IrTokenKind::Local && equals.is_punct('=') => {
            (Some(names.id(name.text)), rest)
        }
        _ => (None, list),
    };
    let Some(first) = list.first() else {
        return Err(FissionError::Syntax {
            line: number,
            what: "expected an instruction".into(),
        });
    };
    let opcode = match first.text {
        "tail" | "notail" => "call",
        other => other,
    };
    let unsupported = |what: &str| {
        Err(FissionError::Unsupported {
            line: number,
            what: what.into(),
        })
    };
    match opcode {
        "ret" => return Ok(Statement::End(Terminator::Return, location)),
        "unreachable" => return Ok(Statement::End(Terminator::Unreachable, location)),
        "br" | "switch" => {
            let label =
                |pair: &[IrToken<'_>]| pair[0].is_word("label").then(|| pair[1].text.to_owned());
            let targets = list
                .windows(2)
                .filter_map(label)
                .map(|name| names.id(&name))
                .collect();
            let fragments = fragments(&line.text, list, &kept, names);
            return Ok(Statement::End(
                Terminator::Jump { fragments, targets },
                location,
            ));
        }
        "invoke" | "callbr" | "indirectbr" | "resume" | "landingpad" | "catchswitch"
        | "catchpad" | "cleanuppad" | "catchret" | "cleanupret" | "musttail" | "va_arg" => {
            return unsupported(opcode);
        }
        _ => {}
    }
    let mut cursor = Cursor::new(list, number);
    cursor.next();
    if first.text != opcode {
        cursor.next();
    }
    let parsed = match opcode {
        "call" => call(&mut cursor, names)?,
        _ => operation(opcode, &mut cursor, names, list)?,
    };
    let (ty, op) = parsed;
    if let Op::Call {
        callee: Some(name), ..
    } = &op
        && (name.starts_with("llvm.dbg.") || name == "llvm.experimental.noalias.scope.decl")
    {
        return Ok(Statement::Skip);
    }
    let fragments = fragments(&line.text, list, &kept, names);
    Ok(Statement::Inst(Inst {
        result,
        opcode: opcode.to_owned(),
        ty,
        op,
        fragments,
        location,
        line: number,
    }))
}
