//! Emits an instrumented function.

mod access;
mod gep;

use std::collections::{HashMap, HashSet};

use self::gep::{GepOffset, gep_offset};
use super::ParsedFunction;
use super::analysis::{
    FunctionFacts, PointerAnalysis, TrackedVariable, argument, callee, is_auto_init, is_bulk,
};
use super::arithmetic;
use super::provenance::Provenance;
use crate::soft::ir::lex::{Cursor, IrTokenKind, bare, tokens};
use crate::soft::ir::module::Module;
use crate::soft::ir::parse::{Id, Inst, Op, Operand};
use crate::soft::ir::types::{Named, Type};

/// Name prefix of shadow allocas.
const SHADOW_PREFIX: &str = "%sm.shadow";

struct FunctionWriter<'a> {
    functions: &'a [ParsedFunction<'a>],
    analysis: &'a PointerAnalysis,
    parsed: &'a ParsedFunction<'a>,
    facts: &'a FunctionFacts,
    named: &'a Named,
    /// Attachment that exempts instructions from clang's own instrumentation.
    nosanitize: String,
    /// Names of private variables of the whole module.
    variable_names: &'a mut Vec<String>,
    provenances: HashMap<Id, Provenance>,
    /// Names of the function's values, without the sigil.
    known: HashSet<&'a str>,
    /// The variable that each pointer is derived from, if it is certain.
    objects: HashMap<Id, Id>,
    /// Provenance of the source of a load that only copies.
    copied: HashMap<Id, Provenance>,
    /// Loads that pass a structure by value.
    passed: HashSet<Id>,
    /// Loads that return a structure by value.
    returned: HashSet<Id>,
    /// Variables that were already checked as a whole for the call at a location.
    checked_whole: HashSet<(Id, Option<u32>)>,
    /// Number of fresh names so far.
    fresh_names: usize,
    /// Allocas and initialisation at the start of the function.
    entry: Vec<String>,
    before: Vec<String>,
    after: Vec<String>,
}

/// Emits function `index` with its instrumentation; adds the names of its variables to `names`.
pub(super) fn function(
    functions: &[ParsedFunction<'_>],
    index: usize,
    analysis: &PointerAnalysis,
    module: &Module<'_>,
    names: &mut Vec<String>,
) -> String {
    let parsed = &functions[index];
    let facts = &analysis.facts[index];
    let mut writer = FunctionWriter {
        functions,
        analysis,
        parsed,
        facts,
        named: &module.named,
        nosanitize: format!(", !nosanitize !{}", module.free_metadata()),
        variable_names: names,
        provenances: HashMap::new(),
        known: parsed
            .function
            .names
            .iter()
            .map(|name| bare(name))
            .collect(),
        objects: HashMap::new(),
        copied: HashMap::new(),
        passed: HashSet::new(),
        returned: HashSet::new(),
        checked_whole: HashSet::new(),
        fresh_names: 0,
        entry: Vec::new(),
        before: Vec::new(),
        after: Vec::new(),
    };
    writer.find_copies();
    let header = writer.header();
    let body = writer.body();
    let mut out = header;
    out.push('\n');
    let mut lines = body.iter();
    let labelled = parsed
        .definition
        .body
        .first()
        .is_some_and(|line| !line.starts_with([' ', '\t']) && line.contains(':'));
    let first = if labelled { lines.next() } else { None };
    let indented = writer.entry.iter().map(|line| format!("  {line}"));
    for line in first
        .cloned()
        .into_iter()
        .chain(indented)
        .chain(lines.cloned())
    {
        out.push_str(&line);
        out.push('\n');
    }
    out.push_str("}\n");
    out
}

/// Appends `added` to the argument or parameter list after the first global name `name`.
fn append_to_list(text: &str, name: &str, added: &str) -> Option<String> {
    let list = tokens(text, 0).ok()?;
    let at = list
        .iter()
        .position(|t| t.kind == IrTokenKind::Global && bare(t.text) == name)?;
    let mut cursor = Cursor::new(&list[at + 1..], 0);
    let empty = list.get(at + 2).is_some_and(|t| t.is_punct(')'));
    cursor.skip_group();
    let close = list.get(at + cursor.position())?.start;
    let comma = if empty { "" } else { ", " };
    Some(format!(
        "{}{comma}{added}{}",
        &text[..close],
        &text[close..]
    ))
}

impl FunctionWriter<'_> {
    fn fresh(&mut self) -> String {
        self.fresh_names += 1;
        format!("%sm.{}", self.fresh_names)
    }

    /// Finds the loads by which clang passes and returns structures by value: they have the location of the call.
    fn find_copies(&mut self) {
        let ids: HashMap<&str, Id> = self
            .parsed
            .function
            .names
            .iter()
            .enumerate()
            .map(|(id, name)| (name.as_str(), id))
            .collect();
        for text in &self.parsed.definition.body {
            if text.trim_start().starts_with("ret ")
                && let Ok(list) = tokens(text, 0)
            {
                let locals = list.iter().filter(|t| t.kind == IrTokenKind::Local);
                self.returned
                    .extend(locals.filter_map(|t| ids.get(t.text).copied()));
            }
        }
        for block in &self.parsed.function.blocks {
            let mut loads: HashMap<Id, u32> = HashMap::new();
            for inst in &block.insts {
                match (&inst.op, inst.result, inst.location) {
                    (Op::Load { .. }, Some(id), Some(location)) => {
                        loads.insert(id, location);
                    }
                    (Op::Call { arguments, .. }, _, Some(location)) => {
                        for (_, value) in arguments {
                            if let Operand::Local(id) = value
                                && loads.get(id) == Some(&location)
                            {
                                self.passed.insert(*id);
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn header(&mut self) -> String {
        let definition = self.parsed.definition;
        let mut added = Vec::new();
        for &at in &self.facts.parameters {
            let provenance = Provenance {
                shadow: format!("%sm.p{at}.s"),
                offset: format!("%sm.p{at}.o"),
                info: format!("%sm.p{at}.i"),
            };
            added.push(provenance.arguments());
            self.provenances
                .insert(self.parsed.function.arguments[at], provenance);
        }
        if self.facts.result {
            added.push("ptr %sm.result".to_owned());
        }
        if added.is_empty() {
            return definition.header.clone();
        }
        append_to_list(&definition.header, &definition.name, &added.join(", "))
            .unwrap_or_else(|| definition.header.clone())
    }

    fn body(&mut self) -> Vec<String> {
        let parsed = self.parsed;
        let by_line: HashMap<usize, &Inst> = parsed
            .function
            .blocks
            .iter()
            .flat_map(|b| &b.insts)
            .map(|inst| (inst.line, inst))
            .collect();
        let mut out = Vec::with_capacity(parsed.definition.body.len() * 2);
        for (index, &raw) in parsed.definition.body.iter().enumerate() {
            let line = parsed.definition.line + 1 + index;
            let replaced = match by_line.get(&line) {
                Some(inst) => self.instruction(inst, raw),
                None => {
                    if let Some(returned) = parsed.returned.get(&line) {
                        self.return_provenance(*returned);
                    }
                    None
                }
            };
            let indent = |line: String| format!("  {line}");
            out.extend(self.before.drain(..).map(indent));
            out.push(replaced.unwrap_or_else(|| raw.to_owned()));
            out.extend(self.after.drain(..).map(indent));
        }
        out
    }

    fn provenance(&self, operand: &Operand) -> Option<Provenance> {
        match operand {
            Operand::Local(id) => self.provenances.get(id).cloned(),
            Operand::Constant(_) => None,
        }
    }

    fn provenance_or_unknown(&self, operand: &Operand) -> Provenance {
        self.provenance(operand).unwrap_or_else(Provenance::unknown)
    }

    /// Loads the provenance stored at `base`.
    fn load_provenance(&mut self, base: &str) -> Provenance {
        let nosanitize = self.nosanitize.clone();
        let [shadow, offset, info] = [(); 3].map(|()| self.fresh());
        let [second, third] = [(); 2].map(|()| self.fresh());
        self.after.extend([
            format!("{shadow} = load ptr, ptr {base}, align 8{nosanitize}"),
            format!("{second} = getelementptr i8, ptr {base}, i64 8"),
            format!("{offset} = load i64, ptr {second}, align 8{nosanitize}"),
            format!("{third} = getelementptr i8, ptr {base}, i64 16"),
            format!("{info} = load i64, ptr {third}, align 8{nosanitize}"),
        ]);
        Provenance {
            shadow,
            offset,
            info,
        }
    }

    fn store_provenance(&mut self, provenance: &Provenance, base: &str) -> Vec<String> {
        let nosanitize = self.nosanitize.clone();
        let [second, third] = [(); 2].map(|()| self.fresh());
        vec![
            format!(
                "store ptr {}, ptr {base}, align 8{nosanitize}",
                provenance.shadow
            ),
            format!("{second} = getelementptr i8, ptr {base}, i64 8"),
            format!(
                "store i64 {}, ptr {second}, align 8{nosanitize}",
                provenance.offset
            ),
            format!("{third} = getelementptr i8, ptr {base}, i64 16"),
            format!(
                "store i64 {}, ptr {third}, align 8{nosanitize}",
                provenance.info
            ),
        ]
    }

    fn slot_name(id: Id) -> String {
        format!("%sm.slot{id}")
    }

    fn escape(&mut self, provenance: &Provenance) {
        if provenance.has_shadow() {
            self.before.push(format!(
                "call void @sm.escape(ptr {}, i64 {})",
                provenance.shadow, provenance.info
            ));
        }
    }

    /// Marks all operands of an instruction as escaping.
    fn escape_all(&mut self, inst: &Inst) {
        let mut ids = inst.uses();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            if let Some(provenance) = self.provenances.get(&id).cloned() {
                self.escape(&provenance);
            }
        }
    }

    fn return_provenance(&mut self, returned: Option<Id>) {
        let provenance = returned.and_then(|id| self.provenances.get(&id).cloned());
        if self.facts.result {
            let provenance = provenance.unwrap_or_else(Provenance::unknown);
            let lines = self.store_provenance(&provenance, "%sm.result");
            self.before.extend(lines);
        } else if let Some(provenance) = provenance {
            self.escape(&provenance);
        }
    }

    /// Instruments one instruction; returns the line that replaces it, if any.
    fn instruction(&mut self, inst: &Inst, raw: &str) -> Option<String> {
        let location = inst
            .location
            .map(|node| format!(", !dbg !{node}"))
            .unwrap_or_default();
        match &inst.op {
            Op::Alloca { .. } => {
                if let Some(id) = inst.result {
                    self.declare(id);
                }
            }
            Op::Load { pointer, .. } => self.load(inst, pointer, &location),
            Op::Store { value, pointer, .. } => self.store(value, pointer, raw, &location),
            Op::Gep { base } => {
                if let Some(provenance) = self.provenance(base) {
                    self.advance(inst, base, provenance, raw);
                }
            }
            Op::Phi { incoming } => self.merge(inst, incoming),
            Op::Call { .. } => return self.call(inst, raw, &location),
            Op::Other => {
                let shifts = matches!(inst.opcode.as_str(), "shl" | "lshr" | "ashr");
                if !shifts || self.parsed.is_user_code {
                    let count = &mut self.fresh_names;
                    let mut fresh = || {
                        *count += 1;
                        format!("%sm.{count}")
                    };
                    if let Some(found) =
                        arithmetic::replace(raw, &inst.opcode, &location, &mut fresh)
                    {
                        self.before.extend(found.before);
                        return Some(found.line);
                    }
                }
                let source = inst
                    .uses()
                    .first()
                    .and_then(|id| self.provenances.get(id))
                    .cloned();
                match (inst.opcode.as_str(), source, inst.result) {
                    ("icmp", ..) => {}
                    ("bitcast" | "addrspacecast" | "freeze", Some(provenance), Some(id))
                        if inst.ty == Type::Ptr =>
                    {
                        self.provenances.insert(id, provenance);
                    }
                    _ => self.escape_all(inst),
                }
            }
        }
        None
    }

    fn declare(&mut self, id: Id) {
        if self.facts.tracked_slots.contains(&id) {
            let slot = Self::slot_name(id);
            self.entry
                .push(format!("{slot} = alloca {{ ptr, i64, i64 }}, align 8"));
            let lines = self.store_provenance(&Provenance::unknown(), &slot);
            self.entry.extend(lines);
            return;
        }
        let Some(&TrackedVariable { size, shadow }) = self.facts.variables.get(&id) else {
            return;
        };
        let name = self.variable_name(id);
        let number = match self.variable_names.iter().position(|known| *known == name) {
            Some(number) => number,
            None => {
                self.variable_names.push(name);
                self.variable_names.len() - 1
            }
        };
        let mut provenance = Provenance {
            info: (size | (number as u64) << 32).to_string(),
            ..Provenance::unknown()
        };
        if shadow {
            provenance.shadow = format!("{SHADOW_PREFIX}{id}");
            self.entry.push(format!(
                "{} = alloca [{size} x i8], align 16",
                provenance.shadow
            ));
            let line = self.mark_unwritten(&provenance.shadow, size);
            self.entry.push(line);
        }
        self.provenances.insert(id, provenance);
        self.objects.insert(id, id);
    }

    fn mark_unwritten(&self, shadow: &str, size: u64) -> String {
        format!(
            "call void @llvm.memset.p0.i64(ptr {shadow}, i8 -1, i64 {size}, i1 false){}",
            self.nosanitize
        )
    }

    /// Returns the name of a variable in the source; empty for compiler temporaries.
    fn variable_name(&self, id: Id) -> String {
        let function = &self.parsed.function;
        let name = bare(&function.names[id]);
        if matches!(name, "retval" | "tmp" | "coerce") || name.parse::<u64>().is_ok() {
            return String::new();
        }
        // LLVM numbers duplicate names; the first one has no number.
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_numbered = stem.len() < name.len() && self.known.contains(stem);
        let name = if is_numbered { stem } else { name };
        name.replace('"', "")
    }

    fn advance(&mut self, inst: &Inst, base: &Operand, provenance: Provenance, raw: &str) {
        let Some(id) = inst.result.filter(|_| inst.ty == Type::Ptr) else {
            return self.escape_all(inst);
        };
        let Some(gep_offset) = gep_offset(raw, self.named) else {
            return self.escape_all(inst);
        };
        let offset = match (gep_offset, provenance.offset.parse::<i64>()) {
            (GepOffset::Bytes(0), _) => provenance.offset.clone(),
            (GepOffset::Bytes(bytes), Ok(offset)) => offset.wrapping_add(bytes).to_string(),
            (gep_offset, _) => {
                let bytes = match gep_offset {
                    GepOffset::Bytes(bytes) => bytes.to_string(),
                    GepOffset::Text(text) => {
                        let [address, bytes] = [(); 2].map(|()| self.fresh());
                        self.after.extend([
                            format!("{address} = {text}"),
                            format!("{bytes} = ptrtoint ptr {address} to i64"),
                        ]);
                        bytes
                    }
                };
                let sum = self.fresh();
                self.after
                    .push(format!("{sum} = add i64 {}, {bytes}", provenance.offset));
                sum
            }
        };
        if let Operand::Local(base) = base
            && let Some(object) = self.objects.get(base).copied()
        {
            self.objects.insert(id, object);
        }
        self.provenances.insert(
            id,
            Provenance {
                offset,
                ..provenance
            },
        );
    }

    fn merge(&mut self, inst: &Inst, incoming: &[(Operand, Id)]) {
        let Some(id) = inst.result.filter(|id| self.facts.pointers.contains(id)) else {
            return;
        };
        let names = &self.parsed.function.names;
        let edges: Vec<(Provenance, &str)> = incoming
            .iter()
            .map(|(value, block)| (self.provenance_or_unknown(value), names[*block].as_str()))
            .collect();
        let phi = |ty: &str, field: fn(&Provenance) -> &str| {
            let edges: Vec<String> = edges
                .iter()
                .map(|(provenance, block)| format!("[ {}, {block} ]", field(provenance)))
                .collect();
            format!("phi {ty} {}", edges.join(", "))
        };
        let texts = [
            phi("ptr", |o| &o.shadow),
            phi("i64", |o| &o.offset),
            phi("i64", |o| &o.info),
        ];
        let [shadow, offset, info] = [(); 3].map(|()| self.fresh());
        for (name, text) in [&shadow, &offset, &info].into_iter().zip(texts) {
            self.after.push(format!("{name} = {text}"));
        }
        self.provenances.insert(
            id,
            Provenance {
                shadow,
                offset,
                info,
            },
        );
    }

    fn call(&mut self, inst: &Inst, raw: &str, location: &str) -> Option<String> {
        let name = callee(inst);
        if name.starts_with("llvm.lifetime.") {
            let pointer = argument(inst, 1).or_else(|| argument(inst, 0));
            if name.starts_with("llvm.lifetime.start")
                && let Some(Operand::Local(id)) = pointer
                && let Some(variable) = self.facts.variables.get(id).filter(|v| v.shadow)
            {
                let line = self.mark_unwritten(&format!("{SHADOW_PREFIX}{id}"), variable.size);
                self.after.push(line);
            }
            return None;
        }
        if is_bulk(name) {
            if !is_auto_init(raw) {
                self.bulk(inst, name, location);
            }
            return None;
        }
        let target = self.analysis.target(self.functions, inst);
        let Some((target, callee_facts)) = target.map(|t| (t, &self.analysis.facts[t])) else {
            self.escape_all(inst);
            return None;
        };
        let Op::Call { arguments, .. } = &inst.op else {
            return None;
        };
        let mut added = Vec::new();
        for (at, (_, value)) in arguments.iter().enumerate() {
            if callee_facts.parameters.contains(&at) {
                added.push(self.provenance_or_unknown(value).arguments());
            } else if let Some(provenance) = self.provenance(value) {
                self.escape(&provenance);
            }
        }
        if callee_facts.result {
            let result = self.fresh();
            self.entry
                .push(format!("{result} = alloca {{ ptr, i64, i64 }}, align 8"));
            added.push(format!("ptr {result}"));
            if let Some(id) = inst.result {
                let provenance = self.load_provenance(&result);
                self.provenances.insert(id, provenance);
            }
        }
        if added.is_empty() {
            return None;
        }
        append_to_list(
            raw,
            &self.functions[target].definition.name,
            &added.join(", "),
        )
    }
}
