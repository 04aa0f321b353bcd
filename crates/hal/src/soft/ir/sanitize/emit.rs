//! Writing an instrumented function.

mod access;
mod address;

use super::Subject;
use super::analysis::{Analysis, Facts, Variable, argument, callee, is_bulk, is_filler};
use super::arithmetic;
use super::origin::Origin;
use crate::soft::ir::lex::{Cursor, Kind, bare, tokens};
use crate::soft::ir::module::Module;
use crate::soft::ir::parse::{Id, Inst, Op, Operand};
use crate::soft::ir::types::{Named, Type};
use address::{Step, step};
use std::collections::{HashMap, HashSet};

/// What the names of shadows begin with.
const SHADOW: &str = "%sm.shadow";

struct Writer<'a> {
    subjects: &'a [Subject<'a>],
    analysis: &'a Analysis,
    subject: &'a Subject<'a>,
    facts: &'a Facts,
    named: &'a Named,
    /// Attachment of instructions that the compiler's own instrumentation leaves alone.
    skip: String,
    names: &'a mut Vec<String>,
    origins: HashMap<Id, Origin>,
    /// Names of the function's values, without the sigil.
    known: HashSet<&'a str>,
    /// The variable that a pointer was made from, where that is certain.
    objects: HashMap<Id, Id>,
    /// Where the value of a load that only copies comes from.
    copied: HashMap<Id, Origin>,
    /// Loads that pass a structure by value, with the location of the call.
    passed: HashSet<Id>,
    /// Loads that return a structure by value.
    returned: HashSet<Id>,
    /// Variables that were looked at as a whole for the call at a location.
    whole: HashSet<(Id, Option<u32>)>,
    count: usize,
    /// Declarations at the start of the function.
    entry: Vec<String>,
    before: Vec<String>,
    after: Vec<String>,
}

/// The text of the function `index` with its instrumentation; `names` takes the names of its variables.
pub(super) fn function(
    subjects: &[Subject<'_>],
    index: usize,
    analysis: &Analysis,
    module: &Module<'_>,
    names: &mut Vec<String>,
) -> String {
    let subject = &subjects[index];
    let facts = &analysis.facts[index];
    let mut writer = Writer {
        subjects,
        analysis,
        subject,
        facts,
        named: &module.named,
        skip: format!(", !nosanitize !{}", module.free_metadata()),
        names,
        origins: HashMap::new(),
        known: subject
            .function
            .names
            .iter()
            .map(|name| bare(name))
            .collect(),
        objects: HashMap::new(),
        copied: HashMap::new(),
        passed: HashSet::new(),
        returned: HashSet::new(),
        whole: HashSet::new(),
        count: 0,
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
    let labelled = subject
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

/// Puts `more` at the end of the argument or parameter list that follows the first global name `name`.
fn append_to_list(text: &str, name: &str, more: &str) -> Option<String> {
    let list = tokens(text, 0).ok()?;
    let at = list
        .iter()
        .position(|t| t.kind == Kind::Global && bare(t.text) == name)?;
    let mut cursor = Cursor::new(&list[at + 1..], 0);
    let empty = list.get(at + 2).is_some_and(|t| t.is(')'));
    cursor.skip_group();
    let close = list.get(at + cursor.position())?.start;
    let comma = if empty { "" } else { ", " };
    Some(format!("{}{comma}{more}{}", &text[..close], &text[close..]))
}

impl Writer<'_> {
    fn fresh(&mut self) -> String {
        self.count += 1;
        format!("%sm.{}", self.count)
    }

    /// Finds the loads by which clang passes and returns structures by value: they have the location of the call itself.
    fn find_copies(&mut self) {
        let ids: HashMap<&str, Id> = self
            .subject
            .function
            .names
            .iter()
            .enumerate()
            .map(|(id, name)| (name.as_str(), id))
            .collect();
        for text in &self.subject.definition.body {
            if text.trim_start().starts_with("ret ")
                && let Ok(list) = tokens(text, 0)
            {
                let locals = list.iter().filter(|t| t.kind == Kind::Local);
                self.returned
                    .extend(locals.filter_map(|t| ids.get(t.text).copied()));
            }
        }
        for block in &self.subject.function.blocks {
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
        let definition = self.subject.definition;
        let mut more = Vec::new();
        for &at in &self.facts.parameters {
            let origin = Origin {
                shadow: format!("%sm.p{at}.s"),
                offset: format!("%sm.p{at}.o"),
                info: format!("%sm.p{at}.i"),
            };
            more.push(origin.arguments());
            self.origins
                .insert(self.subject.function.arguments[at], origin);
        }
        if self.facts.result {
            more.push("ptr %sm.result".to_owned());
        }
        if more.is_empty() {
            return definition.header.clone();
        }
        append_to_list(&definition.header, &definition.name, &more.join(", "))
            .unwrap_or_else(|| definition.header.clone())
    }

    fn body(&mut self) -> Vec<String> {
        let subject = self.subject;
        let by_line: HashMap<usize, &Inst> = subject
            .function
            .blocks
            .iter()
            .flat_map(|b| &b.insts)
            .map(|inst| (inst.line, inst))
            .collect();
        let mut out = Vec::with_capacity(subject.definition.body.len() * 2);
        for (index, &raw) in subject.definition.body.iter().enumerate() {
            let line = subject.definition.line + 1 + index;
            let replaced = match by_line.get(&line) {
                Some(inst) => self.instruction(inst, raw),
                None => {
                    if let Some(returned) = subject.returned.get(&line) {
                        self.give_back(*returned);
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

    fn origin(&self, operand: &Operand) -> Option<Origin> {
        match operand {
            Operand::Local(id) => self.origins.get(id).cloned(),
            Operand::Constant(_) => None,
        }
    }

    fn origin_or_unknown(&self, operand: &Operand) -> Origin {
        self.origin(operand).unwrap_or_else(Origin::unknown)
    }

    /// The origin that was left in memory at `base`.
    fn load_origin(&mut self, base: &str) -> Origin {
        let skip = self.skip.clone();
        let [shadow, offset, info] = [(); 3].map(|()| self.fresh());
        let [second, third] = [(); 2].map(|()| self.fresh());
        self.after.extend([
            format!("{shadow} = load ptr, ptr {base}, align 8{skip}"),
            format!("{second} = getelementptr i8, ptr {base}, i64 8"),
            format!("{offset} = load i64, ptr {second}, align 8{skip}"),
            format!("{third} = getelementptr i8, ptr {base}, i64 16"),
            format!("{info} = load i64, ptr {third}, align 8{skip}"),
        ]);
        Origin {
            shadow,
            offset,
            info,
        }
    }

    fn store_origin(&mut self, origin: &Origin, base: &str) -> Vec<String> {
        let skip = self.skip.clone();
        let [second, third] = [(); 2].map(|()| self.fresh());
        vec![
            format!("store ptr {}, ptr {base}, align 8{skip}", origin.shadow),
            format!("{second} = getelementptr i8, ptr {base}, i64 8"),
            format!("store i64 {}, ptr {second}, align 8{skip}", origin.offset),
            format!("{third} = getelementptr i8, ptr {base}, i64 16"),
            format!("store i64 {}, ptr {third}, align 8{skip}", origin.info),
        ]
    }

    fn slot_name(id: Id) -> String {
        format!("%sm.slot{id}")
    }

    fn escape(&mut self, origin: &Origin) {
        if origin.has_shadow() {
            self.before.push(format!(
                "call void @sm.escape(ptr {}, i64 {})",
                origin.shadow, origin.info
            ));
        }
    }

    /// Escapes everything that an instruction uses.
    fn escape_all(&mut self, inst: &Inst) {
        let mut ids = inst.uses();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            if let Some(origin) = self.origins.get(&id).cloned() {
                self.escape(&origin);
            }
        }
    }

    fn give_back(&mut self, returned: Option<Id>) {
        let origin = returned.and_then(|id| self.origins.get(&id).cloned());
        if self.facts.result {
            let origin = origin.unwrap_or_else(Origin::unknown);
            let lines = self.store_origin(&origin, "%sm.result");
            self.before.extend(lines);
        } else if let Some(origin) = origin {
            self.escape(&origin);
        }
    }

    /// Instruments one instruction; the line that takes its place, if one does.
    fn instruction(&mut self, inst: &Inst, raw: &str) -> Option<String> {
        let place = inst
            .location
            .map(|node| format!(", !dbg !{node}"))
            .unwrap_or_default();
        match &inst.op {
            Op::Alloca { .. } => {
                if let Some(id) = inst.result {
                    self.declare(id);
                }
            }
            Op::Load { pointer, .. } => self.load(inst, pointer, &place),
            Op::Store { value, pointer, .. } => self.store(value, pointer, raw, &place),
            Op::Gep { base } => {
                if let Some(origin) = self.origin(base) {
                    self.advance(inst, base, origin, raw);
                }
            }
            Op::Phi { incoming } => self.merge(inst, incoming),
            Op::Call { .. } => return self.call(inst, raw, &place),
            Op::Other => {
                let shifts = matches!(inst.opcode.as_str(), "shl" | "lshr" | "ashr");
                if !shifts || self.subject.user {
                    let count = &mut self.count;
                    let mut fresh = || {
                        *count += 1;
                        format!("%sm.{count}")
                    };
                    if let Some(found) = arithmetic::replace(raw, &inst.opcode, &place, &mut fresh)
                    {
                        self.before.extend(found.before);
                        return Some(found.line);
                    }
                }
                let source = inst
                    .uses()
                    .first()
                    .and_then(|id| self.origins.get(id))
                    .cloned();
                match (inst.opcode.as_str(), source, inst.result) {
                    ("icmp", ..) => {}
                    ("bitcast" | "addrspacecast" | "freeze", Some(origin), Some(id))
                        if inst.ty == Type::Ptr =>
                    {
                        self.origins.insert(id, origin);
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
            let lines = self.store_origin(&Origin::unknown(), &slot);
            self.entry.extend(lines);
            return;
        }
        let Some(&Variable { size, shadow }) = self.facts.variables.get(&id) else {
            return;
        };
        let name = self.variable_name(id);
        let number = match self.names.iter().position(|known| *known == name) {
            Some(number) => number,
            None => {
                self.names.push(name);
                self.names.len() - 1
            }
        };
        let mut origin = Origin {
            info: (size | (number as u64) << 32).to_string(),
            ..Origin::unknown()
        };
        if shadow {
            origin.shadow = format!("{SHADOW}{id}");
            self.entry.push(format!(
                "{} = alloca [{size} x i8], align 16",
                origin.shadow
            ));
            let line = self.unwritten(&origin.shadow, size);
            self.entry.push(line);
        }
        self.origins.insert(id, origin);
        self.objects.insert(id, id);
    }

    fn unwritten(&self, shadow: &str, size: u64) -> String {
        format!(
            "call void @llvm.memset.p0.i64(ptr {shadow}, i8 -1, i64 {size}, i1 false){}",
            self.skip
        )
    }

    /// The name of a variable in the source; empty for the compiler's own.
    fn variable_name(&self, id: Id) -> String {
        let function = &self.subject.function;
        let name = bare(&function.names[id]);
        if matches!(name, "retval" | "tmp" | "coerce") || name.parse::<u64>().is_ok() {
            return String::new();
        }
        // LLVM numbers equal names; the first one has none.
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let is_numbered = stem.len() < name.len() && self.known.contains(stem);
        let name = if is_numbered { stem } else { name };
        name.replace('"', "")
    }

    fn advance(&mut self, inst: &Inst, base: &Operand, origin: Origin, raw: &str) {
        let Some(id) = inst.result.filter(|_| inst.ty == Type::Ptr) else {
            return self.escape_all(inst);
        };
        let Some(step) = step(raw, self.named) else {
            return self.escape_all(inst);
        };
        let offset = match (step, origin.offset.parse::<i64>()) {
            (Step::Bytes(0), _) => origin.offset.clone(),
            (Step::Bytes(bytes), Ok(offset)) => offset.wrapping_add(bytes).to_string(),
            (step, _) => {
                let bytes = match step {
                    Step::Bytes(bytes) => bytes.to_string(),
                    Step::Text(text) => {
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
                    .push(format!("{sum} = add i64 {}, {bytes}", origin.offset));
                sum
            }
        };
        if let Operand::Local(base) = base
            && let Some(object) = self.objects.get(base).copied()
        {
            self.objects.insert(id, object);
        }
        self.origins.insert(id, Origin { offset, ..origin });
    }

    fn merge(&mut self, inst: &Inst, incoming: &[(Operand, Id)]) {
        let Some(id) = inst.result.filter(|id| self.facts.pointers.contains(id)) else {
            return;
        };
        let names = &self.subject.function.names;
        let parts: Vec<(Origin, &str)> = incoming
            .iter()
            .map(|(value, block)| (self.origin_or_unknown(value), names[*block].as_str()))
            .collect();
        let phi = |ty: &str, part: fn(&Origin) -> &str| {
            let edges: Vec<String> = parts
                .iter()
                .map(|(origin, block)| format!("[ {}, {block} ]", part(origin)))
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
        self.origins.insert(
            id,
            Origin {
                shadow,
                offset,
                info,
            },
        );
    }

    fn call(&mut self, inst: &Inst, raw: &str, place: &str) -> Option<String> {
        let name = callee(inst);
        if name.starts_with("llvm.lifetime.") {
            let pointer = argument(inst, 1).or_else(|| argument(inst, 0));
            if name.starts_with("llvm.lifetime.start")
                && let Some(Operand::Local(id)) = pointer
                && let Some(variable) = self.facts.variables.get(id).filter(|v| v.shadow)
            {
                let line = self.unwritten(&format!("{SHADOW}{id}"), variable.size);
                self.after.push(line);
            }
            return None;
        }
        if is_bulk(name) {
            if !is_filler(raw) {
                self.bulk(inst, name, place);
            }
            return None;
        }
        let target = self.analysis.target(self.subjects, inst);
        let Some((target, callee_facts)) = target.map(|t| (t, &self.analysis.facts[t])) else {
            self.escape_all(inst);
            return None;
        };
        let Op::Call { arguments, .. } = &inst.op else {
            return None;
        };
        let mut more = Vec::new();
        for (at, (_, value)) in arguments.iter().enumerate() {
            if callee_facts.parameters.contains(&at) {
                more.push(self.origin_or_unknown(value).arguments());
            } else if let Some(origin) = self.origin(value) {
                self.escape(&origin);
            }
        }
        if callee_facts.result {
            let result = self.fresh();
            self.entry
                .push(format!("{result} = alloca {{ ptr, i64, i64 }}, align 8"));
            more.push(format!("ptr {result}"));
            if let Some(id) = inst.result {
                let origin = self.load_origin(&result);
                self.origins.insert(id, origin);
            }
        }
        if more.is_empty() {
            return None;
        }
        append_to_list(
            raw,
            &self.subjects[target].definition.name,
            &more.join(", "),
        )
    }
}
