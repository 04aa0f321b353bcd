//! Check mode: memory accesses become reports with a place in the user's source.
//!
//! The compiler's thread-sanitiser instrumentation says where memory is touched; its callbacks are replaced by
//! calls through the runtime's table, and its debug metadata is turned into a table of locations.

use super::Error;
use super::kernel::Arguments;
use super::lex::{Kind, Token, tokens};
use super::module::Module;
use super::parse::{Function, Id, Inst, Op, Operand, Piece, locals};
use super::types::Type;
use crate::soft::plan::Location;
use crate::soft::runtime::services::Table;
use std::collections::HashMap;

/// The function in the image that reports an access.
pub(crate) const ACCESS: &str = "sm.access";
const WRITE: u32 = 1 << 31;
const ATOMIC: u32 = 1 << 30;
/// First of the five bits that hold the binary logarithm of the alignment.
const ALIGN_SHIFT: u32 = 25;
/// Largest size of an access that can be announced.
const MAX_SIZE: u32 = (1 << ALIGN_SHIFT) - 1;

/// Definition of [`ACCESS`]; the callback is the first entry of the runtime's table.
pub(crate) const ACCESS_TEXT: &str =
    "define internal void @sm.access(ptr %p, i32 %what, i32 %place) nounwind {
  %table = load ptr, ptr @sm_rt_table, align 8
  %callback = load ptr, ptr %table, align 8
  tail call void %callback(ptr %p, i32 %what, i32 %place)
  ret void
}
";

/// The call by which [`super::sanitize`] marks a defect: whether there is one, its kind and three numbers.
pub(crate) const MARK: &str = "__sm_mark";
/// The function in the image that reports a marked defect.
const DEFECT: &str = "sm.defect";

/// Definition of [`DEFECT`].
pub(crate) fn defect_text() -> String {
    format!(
        "define internal void @{DEFECT}(i1 %bad, i32 %kind, i64 %a, i64 %b, i64 %c, i32 %place) nounwind {{
  br i1 %bad, label %report, label %done
report:
  %table = load ptr, ptr @sm_rt_table, align 8
  %entry = getelementptr inbounds i8, ptr %table, i64 {}
  %callback = load ptr, ptr %entry, align 8
  call void %callback(i32 %kind, i64 %a, i64 %b, i64 %c, i32 %place)
  br label %done
done:
  ret void
}}
",
        std::mem::offset_of!(Table, defect)
    )
}

/// Locations met so far.
#[derive(Debug, Clone)]
pub(crate) struct Locations {
    pub(crate) list: Vec<Location>,
    by_node: HashMap<u32, u32>,
}

/// The value of `name:` in a specialised metadata node.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let list = tokens(text, 0).ok()?;
    let at = list
        .windows(2)
        .position(|pair| pair[0].is_word(name) && pair[1].is(':'))?;
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

    /// The index of the location that metadata node `node` describes; 0 when there is none.
    pub(crate) fn resolve(&mut self, module: &Module<'_>, node: Option<u32>) -> u32 {
        let Some(node) = node else { return 0 };
        if let Some(index) = self.by_node.get(&node) {
            return *index;
        }
        // Claims the node before its parents are read, so that a cycle in hostile text ends.
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

/// The file of a scope: its own or that of the scope around it.
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

/// Size and flags of the access that an instrumentation callback announces.
fn decode(name: &str) -> Option<u32> {
    let rest = name.strip_prefix("__tsan_")?;
    if let Some(atomic) = rest.strip_prefix("atomic") {
        let (bits, operation) = atomic.split_once('_')?;
        let bytes: u32 = bits.parse::<u32>().ok()? / 8;
        return Some(bytes | ATOMIC | if operation == "load" { 0 } else { WRITE });
    }
    match rest {
        "vptr_update" => return Some(8 | WRITE),
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
        return Some(bytes | WRITE);
    }
    number("read")
}

/// Whether a callback says nothing that we use.
fn is_noise(name: &str) -> bool {
    matches!(
        name,
        "__tsan_func_entry" | "__tsan_func_exit" | "__tsan_init" | "__tsan_ignore_thread_begin"
    ) || name == "__tsan_ignore_thread_end"
}

/// Replaces the instrumentation of the kernel.
///
/// `original` are the lines of the module as the compiler wrote them, with the alignment of every access.
pub(crate) fn instrument(
    function: &mut Function,
    module: &Module<'_>,
    original: &[&str],
    locations: &mut Locations,
) {
    let [g, x, y, z, lane] = function.arguments[..] else {
        return;
    };
    let arguments = Arguments { g, x, y, z, lane };
    let mut ids = function.ids;
    // Fields of the group structure are not the user's memory.
    let fields: Vec<Id> = function
        .blocks
        .iter()
        .flat_map(|b| &b.insts)
        .filter(|i| matches!(i.op, Op::Gep { base: Operand::Local(id) } if id == arguments.g))
        .filter(|i| locals(&i.pieces).len() == 1)
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
            if name == MARK {
                let place = locations.resolve(module, inst.location);
                insts.extend(marked(&inst, arguments, place));
                continue;
            }
            if !name.starts_with("__tsan_") {
                insts.push(inst);
                continue;
            }
            if is_noise(name) {
                continue;
            }
            let place = locations.resolve(module, inst.location);
            if let Some(what) = decode(name) {
                if let Some((_, pointer)) = arguments.first()
                    && !is_group(pointer)
                {
                    let aligned = if what & ATOMIC != 0 {
                        alignment_bits(what & MAX_SIZE)
                    } else {
                        rest.peek()
                            .filter(|next| accesses(next, pointer))
                            .map_or(0, |next| promised(original, next.line))
                    };
                    insts.push(access(
                        &inst,
                        pointer,
                        &Operand::Constant((what | aligned).cast_signed().to_string()),
                        place,
                    ));
                }
                if what & ATOMIC == 0 {
                    continue;
                }
            } else if let Some((read, write, bytes)) = ranges(name, arguments) {
                for (pointer, flag) in [(read, 0), (write, WRITE)] {
                    let Some(pointer) = pointer else { continue };
                    let what = match &bytes {
                        Operand::Constant(text) => {
                            let size = text.parse::<u32>().unwrap_or(0).min(MAX_SIZE);
                            Operand::Constant((size | flag).cast_signed().to_string())
                        }
                        Operand::Local(size) => {
                            let [narrow, bytes, what] = [ids, ids + 1, ids + 2];
                            ids += 3;
                            insts.push(convert(&inst, narrow, "trunc i64 ", *size, " to i32"));
                            let mask = format!(", {MAX_SIZE}");
                            insts.push(convert(&inst, bytes, "and i32 ", narrow, &mask));
                            let flags = format!(", {}", flag.cast_signed());
                            insts.push(convert(&inst, what, "or i32 ", bytes, &flags));
                            Operand::Local(what)
                        }
                    };
                    insts.push(access(&inst, &pointer, &what, place));
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

/// Whether `inst` is the access through `pointer` that was announced right before it.
fn accesses(inst: &Inst, pointer: &Operand) -> bool {
    match &inst.op {
        Op::Load { pointer: own, .. } | Op::Store { pointer: own, .. } => own == pointer,
        _ => false,
    }
}

/// The alignment that the access on a line (from 1) promises, as bits of its announcement.
fn promised(original: &[&str], line: usize) -> u32 {
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

/// What a bulk operation reads and writes, and how many bytes.
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

fn push(pieces: &mut Vec<Piece>, operand: &Operand) {
    pieces.push(match operand {
        Operand::Local(id) => Piece::Local(*id),
        Operand::Constant(text) => Piece::Text(text.clone()),
    });
}

fn access(from: &Inst, pointer: &Operand, what: &Operand, place: u32) -> Inst {
    let mut pieces = vec![Piece::Text(format!("call void @{ACCESS}(ptr "))];
    push(&mut pieces, pointer);
    pieces.push(Piece::Text(", i32 ".into()));
    push(&mut pieces, what);
    pieces.push(Piece::Text(format!(", i32 {place})")));
    Inst {
        result: None,
        opcode: "call".into(),
        ty: Type::Void,
        op: Op::Call {
            callee: Some(ACCESS.into()),
            arguments: vec![
                (Type::Ptr, pointer.clone()),
                (Type::Int(32), Operand::Constant(place.to_string())),
            ],
        },
        pieces,
        location: None,
        line: from.line,
    }
}

/// The report of a marked defect; none for what cannot happen.
fn marked(from: &Inst, arguments: &[(Type, Operand)], place: u32) -> Option<Inst> {
    if matches!(arguments.first(), Some((_, Operand::Constant(bad))) if bad == "false") {
        return None;
    }
    let mut pieces = vec![Piece::Text(format!("call void @{DEFECT}("))];
    for (ty, value) in arguments {
        pieces.push(Piece::Text(format!("{ty} ")));
        push(&mut pieces, value);
        pieces.push(Piece::Text(", ".into()));
    }
    pieces.push(Piece::Text(format!("i32 {place})")));
    Some(Inst {
        result: None,
        opcode: "call".into(),
        ty: Type::Void,
        op: Op::Call {
            callee: Some(DEFECT.into()),
            arguments: arguments.to_vec(),
        },
        pieces,
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
        pieces: vec![
            Piece::Text(before.into()),
            Piece::Local(value),
            Piece::Text(after.into()),
        ],
        location: None,
        line: from.line,
    }
}

/// One line of a function other than the kernel, without instrumentation; `reported` functions keep their accesses.
pub(crate) fn instrument_line(
    text: &str,
    line: usize,
    reported: bool,
    module: &Module<'_>,
    locations: &mut Locations,
) -> Result<Option<String>, Error> {
    if text.contains("@__sm_mark(") {
        return mark_line(text, line, reported, module, locations);
    }
    if !text.contains("@__tsan_") {
        return Ok(Some(text.to_owned()));
    }
    let list = tokens(text, line)?;
    let Some(at) = list
        .iter()
        .position(|t| t.kind == Kind::Global && t.text.starts_with("@__tsan_"))
    else {
        return Ok(Some(text.to_owned()));
    };
    let name = &list[at].text[1..];
    if is_noise(name) {
        return Ok(None);
    }
    let Some(what) = decode(name) else {
        return Ok(Some(text.to_owned()));
    };
    let atomic = what & ATOMIC != 0;
    let keep = if atomic { Some(text.to_owned()) } else { None };
    if !reported {
        return Ok(keep);
    }
    let node = list
        .windows(2)
        .find(|pair| pair[0].text == "!dbg")
        .and_then(|pair| pair[1].text[1..].parse().ok());
    let place = locations.resolve(module, node);
    // `(ptr [attributes] %p` up to the first comma or the closing bracket.
    let mut end = at + 2;
    let mut depth = 0usize;
    while let Some(token) = list.get(end) {
        match token.kind {
            Kind::Punct('(') => depth += 1,
            Kind::Punct(')' | ',') if depth == 0 => break,
            Kind::Punct(')') => depth -= 1,
            _ => {}
        }
        end += 1;
    }
    let (Some(first), Some(last)) = (list.get(at + 2), list.get(end.saturating_sub(1))) else {
        return Ok(keep);
    };
    let pointer = &text[first.start..last.end()];
    let call = format!(
        "  call void @{ACCESS}({pointer}, i32 {}, i32 {place})",
        what.cast_signed()
    );
    Ok(Some(match keep {
        Some(text) => format!("{call}\n{text}"),
        None => call,
    }))
}

/// A line that marks a defect, in a function other than the kernel.
fn mark_line(
    text: &str,
    line: usize,
    reported: bool,
    module: &Module<'_>,
    locations: &mut Locations,
) -> Result<Option<String>, Error> {
    let list = tokens(text, line)?;
    let callee = |t: &Token<'_>| t.kind == Kind::Global && &t.text[1..] == MARK;
    let (Some(at), true) = (list.iter().position(callee), reported) else {
        return Ok(None);
    };
    let (Some(open), Some(close)) = (
        list.get(at + 1).filter(|t| t.is('(')),
        list[at..].iter().find(|t| t.is(')')),
    ) else {
        return Ok(None);
    };
    let node = list
        .windows(2)
        .find(|pair| pair[0].text == "!dbg")
        .and_then(|pair| pair[1].text[1..].parse().ok());
    let place = locations.resolve(module, node);
    let arguments = &text[open.end()..close.start];
    Ok(Some(format!(
        "  call void @{DEFECT}({arguments}, i32 {place})"
    )))
}

/// A definition for an instrumentation function that the module only declares; none for what is not called.
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
