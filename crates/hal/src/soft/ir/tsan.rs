//! Lowers ThreadSanitizer callbacks to runtime calls with a location in the user's source.
//!
//! clang's ThreadSanitizer instrumentation marks the memory accesses. Its callbacks are replaced by calls through
//! the runtime's table, and debug metadata becomes a table of locations.

use std::collections::HashMap;

use super::FissionError;
use super::kernel::Arguments;
use super::lex::{IrToken, IrTokenKind, tokens};
use super::module::Module;
use super::parse::{Fragment, Id, Inst, IrFunction, Op, Operand, locals};
use super::types::Type;
use crate::soft::plan::Location;
use crate::soft::runtime::services::Table;

/// Name of the function in the image that reports an access.
pub(crate) const ACCESS_FN: &str = "sm.access";
const WRITE_FLAG: u32 = 1 << 31;
const ATOMIC_FLAG: u32 = 1 << 30;
/// Lowest of the five bits that encode log2 of the alignment.
const ALIGN_SHIFT: u32 = 25;
/// Largest access size that fits the encoding.
const MAX_ACCESS_BYTES: u32 = (1 << ALIGN_SHIFT) - 1;

/// Definition of [`ACCESS_FN`]; the callback is the first entry of the runtime's table.
pub(crate) const ACCESS_TEXT: &str =
    "define internal void @sm.access(ptr %p, i32 %size_and_flags, i32 %location) nounwind {
  %table = load ptr, ptr @sm_rt_table, align 8
  %callback = load ptr, ptr %table, align 8
  tail call void %callback(ptr %p, i32 %size_and_flags, i32 %location)
  ret void
}
";

/// Name of the call with which [`super::sanitize`] marks a defect: condition, kind and three values.
pub(crate) const DEFECT_MARKER: &str = "__sm_mark";
/// Name of the function in the image that reports a marked defect.
const DEFECT_FN: &str = "sm.defect";

/// Definition of [`DEFECT_FN`].
pub(crate) fn defect_text() -> String {
    format!(
        "define internal void @{DEFECT_FN}(i1 %bad, i32 %kind, i64 %a, i64 %b, i64 %c, i32 %location) nounwind {{
  br i1 %bad, label %report, label %done
report:
  %table = load ptr, ptr @sm_rt_table, align 8
  %entry = getelementptr inbounds i8, ptr %table, i64 {}
  %callback = load ptr, ptr %entry, align 8
  call void %callback(i32 %kind, i64 %a, i64 %b, i64 %c, i32 %location)
  br label %done
done:
  ret void
}}
",
        std::mem::offset_of!(Table, defect)
    )
}

/// Interned source locations.
#[derive(Debug, Clone)]
pub(crate) struct Locations {
    pub(crate) list: Vec<Location>,
    by_node: HashMap<u32, u32>,
}

/// Returns the value of `name:` in a specialized metadata node.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let list = tokens(text, 0).ok()?;
    let at = list
        .windows(2)
        .position(|pair| pair[0].is_word(name) && pair[1].is_punct(':'))?;
    list.get(at + 2).map(|t| t.text)
}

fn node_field(text: &str, name: &str) -> Option<u32> {
    field(text, name)?.strip_prefix('!')?.parse().ok()
}

/// Decodes `\xx` in a metadata string.
pub(super) fn unescape(text: &str) -> String {
    let inner = text.trim_matches('"').as_bytes();
    let mut out = Vec::with_capacity(inner.len());
    let mut at = 0;
    while at < inner.len() {
        let code = inner
            .get(at + 1..at + 3)
            .and_then(|h| std::str::from_utf8(h).ok());
        match (inner[at], code.and_then(|h| u8::from_str_radix(h, 16).ok())) {
            (b'\\', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

impl Locations {
    pub(crate) fn new() -> Self {
        Self {
            list: vec![Location::default()],
            by_node: HashMap::new(),
        }
    }

    /// Returns the index of the location that metadata node `node` describes; 0 if there is none.
    pub(crate) fn resolve(&mut self, module: &Module<'_>, node: Option<u32>) -> u32 {
        let Some(node) = node else { return 0 };
        if let Some(index) = self.by_node.get(&node) {
            return *index;
        }
        // Enters the node before its parents are resolved, so that a cycle in malformed text terminates.
        self.by_node.insert(node, 0);
        let Some(text) = module.node(node).filter(|t| t.contains("!DILocation(")) else {
            return 0;
        };
        let number = |name| field(text, name).and_then(|n| n.parse().ok()).unwrap_or(0);
        let file = node_field(text, "scope")
            .map(|scope| file_of(module, scope))
            .unwrap_or_default();
        let inlined_at = node_field(text, "inlinedAt").map(|at| self.resolve(module, Some(at)));
        let location = Location {
            file,
            line: number("line"),
            column: number("column"),
            inlined_at,
        };
        let index = u32::try_from(self.list.len()).unwrap_or(0);
        self.list.push(location);
        self.by_node.insert(node, index);
        index
    }
}

/// Returns the file of a scope: its own, or that of the enclosing scope.
pub(super) fn file_of(module: &Module<'_>, mut scope: u32) -> String {
    for _ in 0..64 {
        let Some(text) = module.node(scope) else {
            break;
        };
        if let Some(file) = node_field(text, "file").and_then(|f| module.node(f)) {
            return field(file, "filename").map(unescape).unwrap_or_default();
        }
        match node_field(text, "scope") {
            Some(outer) => scope = outer,
            None => break,
        }
    }
    String::new()
}

/// Decodes size and flags of the access from a callback's name.
fn decode(name: &str) -> Option<u32> {
    let rest = name.strip_prefix("__tsan_")?;
    if let Some(atomic) = rest.strip_prefix("atomic") {
        let (bits, operation) = atomic.split_once('_')?;
        let bytes: u32 = bits.parse::<u32>().ok()? / 8;
        return Some(bytes | ATOMIC_FLAG | if operation == "load" { 0 } else { WRITE_FLAG });
    }
    match rest {
        "vptr_update" => return Some(8 | WRITE_FLAG),
        "vptr_read" => return Some(8),
        _ => {}
    }
    let rest = rest.strip_prefix("unaligned_").unwrap_or(rest);
    let rest = rest.strip_prefix("volatile_").unwrap_or(rest);
    let number = |prefix: &str| {
        rest.strip_prefix(prefix)
            .and_then(|n| n.parse::<u32>().ok())
    };
    if let Some(bytes) = number("read_write").or_else(|| number("write")) {
        return Some(bytes | WRITE_FLAG);
    }
    number("read")
}

/// Returns whether a callback carries no information that is used.
fn is_ignored_callback(name: &str) -> bool {
    matches!(
        name,
        "__tsan_func_entry" | "__tsan_func_exit" | "__tsan_init" | "__tsan_ignore_thread_begin"
    ) || name == "__tsan_ignore_thread_end"
}

/// Lowers the instrumentation of the kernel.
///
/// `original` are the lines of the module as clang printed them, with the alignment of every access.
pub(crate) fn lower_function(
    function: &mut IrFunction,
    module: &Module<'_>,
    original: &[&str],
    locations: &mut Locations,
) {
    let [g, x, y, z, lane] = function.arguments[..] else {
        return;
    };
    let arguments = Arguments { g, x, y, z, lane };
    let mut ids = function.ids;
    // Fields of the group descriptor are not the user's memory.
    let fields: Vec<Id> = function
        .blocks
        .iter()
        .flat_map(|b| &b.insts)
        .filter(|i| matches!(i.op, Op::Gep { base: Operand::Local(id) } if id == arguments.g))
        .filter(|i| locals(&i.fragments).len() == 1)
        .filter_map(|i| i.result)
        .collect();
    let is_group = |operand: &Operand| matches!(operand, Operand::Local(id) if *id == arguments.g || fields.contains(id));
    for block in &mut function.blocks {
        let mut insts = Vec::with_capacity(block.insts.len());
        let mut rest = std::mem::take(&mut block.insts).into_iter().peekable();
        while let Some(inst) = rest.next() {
            let Op::Call {
                callee: Some(name),
                arguments,
            } = &inst.op
            else {
                insts.push(inst);
                continue;
            };
            if name == DEFECT_MARKER {
                let location = locations.resolve(module, inst.location);
                insts.extend(lower_marker(&inst, arguments, location));
                continue;
            }
            if !name.starts_with("__tsan_") {
                insts.push(inst);
                continue;
            }
            if is_ignored_callback(name) {
                continue;
            }
            let location = locations.resolve(module, inst.location);
            if let Some(size_and_flags) = decode(name) {
                if let Some((_, pointer)) = arguments.first()
                    && !is_group(pointer)
                {
                    let aligned = if size_and_flags & ATOMIC_FLAG != 0 {
                        alignment_bits(size_and_flags & MAX_ACCESS_BYTES)
                    } else {
                        rest.peek()
                            .filter(|next| accesses(next, pointer))
                            .map_or(0, |next| declared_alignment(original, next.line))
                    };
                    insts.push(access(
                        &inst,
                        pointer,
                        &Operand::Constant((size_and_flags | aligned).cast_signed().to_string()),
                        location,
                    ));
                }
                if size_and_flags & ATOMIC_FLAG == 0 {
                    continue;
                }
            } else if let Some((read, write, bytes)) = ranges(name, arguments) {
                for (pointer, flag) in [(read, 0), (write, WRITE_FLAG)] {
                    let Some(pointer) = pointer else { continue };
                    let size_and_flags = match &bytes {
                        Operand::Constant(text) => {
                            let size = text.parse::<u32>().unwrap_or(0).min(MAX_ACCESS_BYTES);
                            Operand::Constant((size | flag).cast_signed().to_string())
                        }
                        Operand::Local(size) => {
                            let [narrow, bytes, size_and_flags] = [ids, ids + 1, ids + 2];
                            ids += 3;
                            insts.push(convert(&inst, narrow, "trunc i64 ", *size, " to i32"));
                            let mask = format!(", {MAX_ACCESS_BYTES}");
                            insts.push(convert(&inst, bytes, "and i32 ", narrow, &mask));
                            let flags = format!(", {}", flag.cast_signed());
                            insts.push(convert(&inst, size_and_flags, "or i32 ", bytes, &flags));
                            Operand::Local(size_and_flags)
                        }
                    };
                    insts.push(access(&inst, &pointer, &size_and_flags, location));
                }
                if name.contains("_range") {
                    continue;
                }
            }
            insts.push(inst);
        }
        block.insts = insts;
    }
    function.ids = ids;
}

/// Returns whether `inst` is the access through `pointer` that the callback before it reports.
fn accesses(inst: &Inst, pointer: &Operand) -> bool {
    match &inst.op {
        Op::Load { pointer: own, .. } | Op::Store { pointer: own, .. } => own == pointer,
        _ => false,
    }
}

/// Returns the alignment that the access on a line (from 1) declares, as bits of the encoding.
fn declared_alignment(original: &[&str], line: usize) -> u32 {
    let align = original
        .get(line.wrapping_sub(1))
        .and_then(|text| text.rsplit_once(", align "))
        .and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next())
        .and_then(|digits| digits.parse::<u32>().ok());
    align.map_or(0, alignment_bits)
}

fn alignment_bits(align: u32) -> u32 {
    if align.is_power_of_two() {
        align.trailing_zeros() << ALIGN_SHIFT
    } else {
        0
    }
}

/// Returns the ranges that a bulk operation reads and writes, and their size.
fn ranges(
    name: &str,
    arguments: &[(Type, Operand)],
) -> Option<(Option<Operand>, Option<Operand>, Operand)> {
    let get = |index: usize| arguments.get(index).map(|(_, value)| value.clone());
    Some(match name {
        "__tsan_memcpy" | "__tsan_memmove" => (get(1), get(0), get(2)?),
        "__tsan_memset" => (None, get(0), get(2)?),
        "__tsan_read_range" => (get(0), None, get(1)?),
        "__tsan_write_range" => (None, get(0), get(1)?),
        _ => return None,
    })
}

fn push(fragments: &mut Vec<Fragment>, operand: &Operand) {
    fragments.push(match operand {
        Operand::Local(id) => Fragment::Local(*id),
        Operand::Constant(text) => Fragment::Text(text.clone()),
    });
}

fn access(from: &Inst, pointer: &Operand, size_and_flags: &Operand, location: u32) -> Inst {
    let mut fragments = vec![Fragment::Text(format!("call void @{ACCESS_FN}(ptr "))];
    push(&mut fragments, pointer);
    fragments.push(Fragment::Text(", i32 ".into()));
    push(&mut fragments, size_and_flags);
    fragments.push(Fragment::Text(format!(", i32 {location})")));
    Inst {
        result: None,
        opcode: "call".into(),
        ty: Type::Void,
        op: Op::Call {
            callee: Some(ACCESS_FN.into()),
            arguments: vec![
                (Type::Ptr, pointer.clone()),
                (Type::Int(32), Operand::Constant(location.to_string())),
            ],
        },
        fragments,
        location: None,
        line: from.line,
    }
}

/// Lowers a defect marker; `None` if its condition is always false.
fn lower_marker(from: &Inst, arguments: &[(Type, Operand)], location: u32) -> Option<Inst> {
    if matches!(arguments.first(), Some((_, Operand::Constant(bad))) if bad == "false") {
        return None;
    }
    let mut fragments = vec![Fragment::Text(format!("call void @{DEFECT_FN}("))];
    for (ty, value) in arguments {
        fragments.push(Fragment::Text(format!("{ty} ")));
        push(&mut fragments, value);
        fragments.push(Fragment::Text(", ".into()));
    }
    fragments.push(Fragment::Text(format!("i32 {location})")));
    Some(Inst {
        result: None,
        opcode: "call".into(),
        ty: Type::Void,
        op: Op::Call {
            callee: Some(DEFECT_FN.into()),
            arguments: arguments.to_vec(),
        },
        fragments,
        location: None,
        line: from.line,
    })
}

fn convert(from: &Inst, result: Id, before: &str, value: Id, after: &str) -> Inst {
    Inst {
        result: Some(result),
        opcode: before.split(' ').next().unwrap_or_default().to_owned(),
        ty: Type::Int(32),
        op: Op::Other,
        fragments: vec![
            Fragment::Text(before.into()),
            Fragment::Local(value),
            Fragment::Text(after.into()),
        ],
        location: None,
        line: from.line,
    }
}

/// Lowers one line of a function other than the kernel; `reported` functions keep their accesses.
pub(crate) fn lower_line(
    text: &str,
    line: usize,
    reported: bool,
    module: &Module<'_>,
    locations: &mut Locations,
) -> Result<Option<String>, FissionError> {
    if text.contains("@__sm_mark(") {
        return lower_marker_line(text, line, reported, module, locations);
    }
    if !text.contains("@__tsan_") {
        return Ok(Some(text.to_owned()));
    }
    let list = tokens(text, line)?;
    let Some(at) = list
        .iter()
        .position(|t| t.kind == IrTokenKind::Global && t.text.starts_with("@__tsan_"))
    else {
        return Ok(Some(text.to_owned()));
    };
    let name = &list[at].text[1..];
    if is_ignored_callback(name) {
        return Ok(None);
    }
    let Some(size_and_flags) = decode(name) else {
        return Ok(Some(text.to_owned()));
    };
    let atomic = size_and_flags & ATOMIC_FLAG != 0;
    let keep = if atomic { Some(text.to_owned()) } else { None };
    if !reported {
        return Ok(keep);
    }
    let node = list
        .windows(2)
        .find(|pair| pair[0].text == "!dbg")
        .and_then(|pair| pair[1].text[1..].parse().ok());
    let location = locations.resolve(module, node);
    // `(ptr [attributes] %p` up to the first comma or the closing bracket.
    let mut end = at + 2;
    let mut depth = 0usize;
    while let Some(token) = list.get(end) {
        match token.kind {
            IrTokenKind::Punct('(') => depth += 1,
            IrTokenKind::Punct(')' | ',') if depth == 0 => break,
            IrTokenKind::Punct(')') => depth -= 1,
            _ => {}
        }
        end += 1;
    }
    let (Some(first), Some(last)) = (list.get(at + 2), list.get(end.saturating_sub(1))) else {
        return Ok(keep);
    };
    let pointer = &text[first.start..last.end()];
    let call = format!(
        "  call void @{ACCESS_FN}({pointer}, i32 {}, i32 {location})",
        size_and_flags.cast_signed()
    );
    Ok(Some(match keep {
        Some(text) => format!("{call}\n{text}"),
        None => call,
    }))
}

/// Lowers a line with a defect marker in a function other than the kernel.
fn lower_marker_line(
    text: &str,
    line: usize,
    reported: bool,
    module: &Module<'_>,
    locations: &mut Locations,
) -> Result<Option<String>, FissionError> {
    let list = tokens(text, line)?;
    let callee = |t: &IrToken<'_>| t.kind == IrTokenKind::Global && &t.text[1..] == DEFECT_MARKER;
    let (Some(at), true) = (list.iter().position(callee), reported) else {
        return Ok(None);
    };
    let (Some(open), Some(close)) = (
        list.get(at + 1).filter(|t| t.is_punct('(')),
        list[at..].iter().find(|t| t.is_punct(')')),
    ) else {
        return Ok(None);
    };
    let node = list
        .windows(2)
        .find(|pair| pair[0].text == "!dbg")
        .and_then(|pair| pair[1].text[1..].parse().ok());
    let location = locations.resolve(module, node);
    let arguments = &text[open.end()..close.start];
    Ok(Some(format!(
        "  call void @{DEFECT_FN}({arguments}, i32 {location})"
    )))
}

/// Returns a definition of an instrumentation function that the module only declares; `None` if it is never called.
pub(crate) fn definition(name: &str) -> Option<String> {
    let bulk = |arguments: &str, call: &str| {
        Some(format!(
            "define internal ptr @{name}({arguments}) nounwind {{\n  {call}\n  ret ptr %d\n}}\n"
        ))
    };
    match name {
        "__tsan_memcpy" => {
            return bulk(
                "ptr %d, ptr %s, i64 %n",
                "call void @llvm.memcpy.p0.p0.i64(ptr %d, ptr %s, i64 %n, i1 false)",
            );
        }
        "__tsan_memmove" => {
            return bulk(
                "ptr %d, ptr %s, i64 %n",
                "call void @llvm.memmove.p0.p0.i64(ptr %d, ptr %s, i64 %n, i1 false)",
            );
        }
        "__tsan_memset" => {
            return bulk(
                "ptr %d, i32 %v, i64 %n",
                "%b = trunc i32 %v to i8\n  call void @llvm.memset.p0.i64(ptr %d, i8 %b, i64 %n, i1 false)",
            );
        }
        "__tsan_atomic_thread_fence" => {
            return Some(format!(
                "define internal void @{name}(i32 %o) nounwind {{\n  fence seq_cst\n  ret void\n}}\n"
            ));
        }
        "__tsan_atomic_signal_fence" => {
            return Some(format!(
                "define internal void @{name}(i32 %o) nounwind {{\n  ret void\n}}\n"
            ));
        }
        _ => {}
    }
    let (bits, operation) = name.strip_prefix("__tsan_atomic")?.split_once('_')?;
    let bits: u32 = bits.parse().ok()?;
    let (ty, align) = (format!("i{bits}"), bits / 8);
    Some(match operation {
        "load" => format!(
            "define internal {ty} @{name}(ptr %p, i32 %o) nounwind {{\n  %r = load atomic {ty}, ptr %p seq_cst, align {align}\n  ret {ty} %r\n}}\n"
        ),
        "store" => format!(
            "define internal void @{name}(ptr %p, {ty} %v, i32 %o) nounwind {{\n  store atomic {ty} %v, ptr %p seq_cst, align {align}\n  ret void\n}}\n"
        ),
        "compare_exchange_val" => format!(
            "define internal {ty} @{name}(ptr %p, {ty} %c, {ty} %v, i32 %o, i32 %f) nounwind {{\n  %x = cmpxchg ptr %p, {ty} %c, {ty} %v seq_cst seq_cst\n  %r = extractvalue {{ {ty}, i1 }} %x, 0\n  ret {ty} %r\n}}\n"
        ),
        _ => {
            let rmw = match operation {
                "exchange" => "xchg",
                "fetch_add" => "add",
                "fetch_sub" => "sub",
                "fetch_and" => "and",
                "fetch_or" => "or",
                "fetch_xor" => "xor",
                "fetch_nand" => "nand",
                _ => return None,
            };
            format!(
                "define internal {ty} @{name}(ptr %p, {ty} %v, i32 %o) nounwind {{\n  %r = atomicrmw {rmw} ptr %p, {ty} %v seq_cst\n  ret {ty} %r\n}}\n"
            )
        }
    })
}

/// The intrinsics that [`definition`] uses.
pub(crate) const DEFINITION_INTRINSICS: [(&str, &str); 3] = [
    (
        "llvm.memcpy.p0.p0.i64",
        "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    ),
    (
        "llvm.memmove.p0.p0.i64",
        "declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)",
    ),
    (
        "llvm.memset.p0.i64",
        "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
    ),
];
