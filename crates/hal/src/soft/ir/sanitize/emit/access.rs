//! Reads, writes and copies through pointers with an origin.

use super::{SHADOW, Writer};
use crate::soft::ir::check::MARK;
use crate::soft::ir::parse::{Inst, Operand};
use crate::soft::ir::sanitize::analysis::{argument, bulk_size, is_filler, stored_size};
use crate::soft::ir::sanitize::helper::{SIZES, UNINITIALISED};
use crate::soft::ir::sanitize::origin::Origin;

/// Bytes of the largest structure that is looked at as a whole when it is passed by value.
const MAX_WHOLE_BYTES: u64 = 64;

impl Writer<'_> {
    pub(super) fn load(&mut self, inst: &Inst, pointer: &Operand, place: &str) {
        if let (Operand::Local(slot), Some(id)) = (pointer, inst.result)
            && self.facts.tracked_slots.contains(slot)
        {
            let origin = self.load_origin(&Self::slot_name(*slot));
            self.origins.insert(id, origin);
            return;
        }
        let Some(origin) = self.origin(pointer) else {
            return;
        };
        let Some(size) = inst.ty.layout(self.named).map(|layout| layout.size) else {
            return;
        };
        self.inside(&origin, &size.to_string(), Some(size), place);
        if !inst.ty.is_scalar() || !origin.has_shadow() || !SIZES.contains(&size) {
            return;
        }
        let Some(id) = inst.result else {
            return;
        };
        if self.facts.copies.contains(&id) {
            self.copied.insert(id, origin);
            return;
        }
        // Bits next to a bit-field are read to be written again.
        let bits = self.subject.function.names[id].starts_with("%bf.load");
        if bits || self.returned.contains(&id) {
            return;
        }
        if self.passed.contains(&id) {
            let object = match pointer {
                Operand::Local(pointer) => self.objects.get(pointer).copied(),
                Operand::Constant(_) => None,
            };
            if let Some(object) = object
                && self.whole.insert((object, inst.location))
            {
                let whole = self.origins.get(&object).cloned();
                let size = self.facts.variables.get(&object).map(|v| v.size);
                if let (Some(origin), Some(size)) = (whole, size) {
                    self.check_whole(&origin, size, place);
                }
            }
            return;
        }
        self.before.push(format!(
            "call void @sm.read{size}({}){place}",
            origin.arguments()
        ));
    }

    /// Marks a structure that is copied though nothing of it was written: `size` bytes of a variable of this function.
    fn check_whole(&mut self, origin: &Origin, size: u64, place: &str) {
        // Types without members have a byte that nothing writes.
        if !(2..=MAX_WHOLE_BYTES).contains(&size) || !origin.shadow.starts_with(SHADOW) {
            return;
        }
        let chunk = [8, 4, 2, 1]
            .into_iter()
            .find(|chunk| size.is_multiple_of(*chunk))
            .unwrap_or(1);
        let bits = chunk * 8;
        let start = self.fresh();
        self.before.push(format!(
            "{start} = getelementptr i8, ptr {}, i64 {}",
            origin.shadow, origin.offset
        ));
        let mut all = "-1".to_owned();
        for at in (0..size).step_by(chunk as usize) {
            let [address, part, sum] = [(); 3].map(|()| self.fresh());
            self.before.extend([
                format!("{address} = getelementptr i8, ptr {start}, i64 {at}"),
                format!("{part} = load i{bits}, ptr {address}, align 1{}", self.skip),
                format!("{sum} = and i{bits} {all}, {part}"),
            ]);
            all = sum;
        }
        let bad = self.fresh();
        self.before.extend([
            format!("{bad} = icmp eq i{bits} {all}, -1"),
            format!(
                "call void @{MARK}(i1 {bad}, i32 {UNINITIALISED}, i64 {}, i64 {size}, i64 {}){place}",
                origin.offset, origin.info
            ),
        ]);
    }

    /// Marks an access to `size` bytes outside the variable; `known` is the size where it is a constant.
    fn inside(&mut self, origin: &Origin, size: &str, known: Option<u64>, place: &str) {
        if known.is_some_and(|size| origin.is_inside(size)) {
            return;
        }
        self.before.push(format!(
            "call void @sm.inside(i64 {}, i64 {size}, i64 {}){place}",
            origin.offset, origin.info
        ));
    }

    pub(super) fn store(&mut self, value: &Operand, pointer: &Operand, raw: &str, place: &str) {
        if let Operand::Local(slot) = pointer
            && self.facts.slots.contains(slot)
        {
            if self.facts.tracked_slots.contains(slot) {
                let origin = self.origin_or_unknown(value);
                let lines = self.store_origin(&origin, &Self::slot_name(*slot));
                self.before.extend(lines);
            }
            return;
        }
        if let Some(origin) = self.origin(value) {
            self.escape(&origin);
        }
        let Some(origin) = self.origin(pointer).filter(|_| !is_filler(raw)) else {
            return;
        };
        let Some(size) = stored_size(raw.trim_start(), self.named) else {
            self.escape(&origin);
            return;
        };
        self.inside(&origin, &size.to_string(), Some(size), place);
        if !origin.has_shadow() {
            return;
        }
        let Origin { shadow, offset, .. } = &origin;
        let source = match value {
            Operand::Local(id) => self.copied.get(id),
            Operand::Constant(_) => None,
        };
        self.before.push(if let Some(from) = source {
            format!(
                "call void @sm.copy(ptr {shadow}, i64 {offset}, ptr {}, i64 {}, i64 {size})",
                from.shadow, from.offset
            )
        } else if SIZES.contains(&size) {
            format!("call void @sm.write{size}(ptr {shadow}, i64 {offset})")
        } else {
            format!("call void @sm.write(ptr {shadow}, i64 {offset}, i64 {size})")
        });
    }

    pub(super) fn bulk(&mut self, inst: &Inst, name: &str, place: &str) {
        let known = bulk_size(inst);
        let size = match argument(inst, 2) {
            Some(Operand::Constant(text)) => text.clone(),
            Some(Operand::Local(id)) => self.subject.function.names[*id].clone(),
            None => return,
        };
        let to = argument(inst, 0).and_then(|operand| self.origin(operand));
        let from = argument(inst, 1).and_then(|operand| self.origin(operand));
        for origin in [&to, &from].into_iter().flatten() {
            self.inside(origin, &size, known, place);
        }
        if let (None, Some(from), Some(size)) = (&to, &from, known) {
            self.check_whole(from, size, place);
        }
        let Some(to) = to.filter(Origin::has_shadow) else {
            return;
        };
        let from = from
            .filter(|_| !name.starts_with("llvm.memset."))
            .unwrap_or_else(Origin::unknown);
        self.before.push(format!(
            "call void @sm.copy(ptr {}, i64 {}, ptr {}, i64 {}, i64 {size})",
            to.shadow, to.offset, from.shadow, from.offset
        ));
    }
}
