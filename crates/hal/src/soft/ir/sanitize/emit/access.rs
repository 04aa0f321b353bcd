//! Loads, stores and copies through pointers with provenance.

use super::{FunctionWriter, SHADOW_PREFIX};
use crate::soft::ir::parse::{Inst, Operand};
use crate::soft::ir::sanitize::analysis::{argument, bulk_size, is_auto_init, stored_size};
use crate::soft::ir::sanitize::helper::{SCALAR_ACCESS_BYTES, UNINITIALISED};
use crate::soft::ir::sanitize::provenance::Provenance;
use crate::soft::ir::tsan::DEFECT_MARKER;

/// Size of the largest structure that is checked as a whole when it is passed by value.
const MAX_BY_VALUE_BYTES: u64 = 64;

impl FunctionWriter<'_> {
    pub(super) fn load(&mut self, inst: &Inst, pointer: &Operand, location: &str) {
        if let (Operand::Local(slot), Some(id)) = (pointer, inst.result)
            && self.facts.tracked_slots.contains(slot)
        {
            let provenance = self.load_provenance(&Self::slot_name(*slot));
            self.provenances.insert(id, provenance);
            return;
        }
        let Some(provenance) = self.provenance(pointer) else {
            return;
        };
        let Some(size) = inst.ty.layout(self.named).map(|layout| layout.size) else {
            return;
        };
        self.check_bounds(&provenance, &size.to_string(), Some(size), location);
        if !inst.ty.is_scalar() || !provenance.has_shadow() || !SCALAR_ACCESS_BYTES.contains(&size)
        {
            return;
        }
        let Some(id) = inst.result else {
            return;
        };
        if self.facts.copies.contains(&id) {
            self.copied.insert(id, provenance);
            return;
        }
        // A bit-field access reads the neighbouring bits only to write them back.
        let is_bit_field = self.parsed.function.names[id].starts_with("%bf.load");
        if is_bit_field || self.returned.contains(&id) {
            return;
        }
        if self.passed.contains(&id) {
            let object = match pointer {
                Operand::Local(pointer) => self.objects.get(pointer).copied(),
                Operand::Constant(_) => None,
            };
            if let Some(object) = object
                && self.checked_whole.insert((object, inst.location))
            {
                let whole = self.provenances.get(&object).cloned();
                let size = self.facts.variables.get(&object).map(|v| v.size);
                if let (Some(provenance), Some(size)) = (whole, size) {
                    self.check_any_written(&provenance, size, location);
                }
            }
            return;
        }
        self.before.push(format!(
            "call void @sm.read{size}({}){location}",
            provenance.arguments()
        ));
    }

    /// Marks the copy of a structure of which no byte was written as a defect: `size` bytes of a variable of this
    /// function.
    fn check_any_written(&mut self, provenance: &Provenance, size: u64, location: &str) {
        // Empty types have one byte that is never written.
        if !(2..=MAX_BY_VALUE_BYTES).contains(&size)
            || !provenance.shadow.starts_with(SHADOW_PREFIX)
        {
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
            provenance.shadow, provenance.offset
        ));
        let mut all = "-1".to_owned();
        for at in (0..size).step_by(chunk as usize) {
            let [address, chunk_bits, sum] = [(); 3].map(|()| self.fresh());
            self.before.extend([
                format!("{address} = getelementptr i8, ptr {start}, i64 {at}"),
                format!(
                    "{chunk_bits} = load i{bits}, ptr {address}, align 1{}",
                    self.nosanitize
                ),
                format!("{sum} = and i{bits} {all}, {chunk_bits}"),
            ]);
            all = sum;
        }
        let bad = self.fresh();
        self.before.extend([
            format!("{bad} = icmp eq i{bits} {all}, -1"),
            format!(
                "call void @{DEFECT_MARKER}(i1 {bad}, i32 {UNINITIALISED}, i64 {}, i64 {size}, i64 {}){location}",
                provenance.offset, provenance.info
            ),
        ]);
    }

    /// Checks the bounds of an access of `size` bytes; `known` is the size if it is constant.
    fn check_bounds(
        &mut self,
        provenance: &Provenance,
        size: &str,
        known: Option<u64>,
        location: &str,
    ) {
        if known.is_some_and(|size| provenance.is_inside(size)) {
            return;
        }
        self.before.push(format!(
            "call void @sm.inside(i64 {}, i64 {size}, i64 {}){location}",
            provenance.offset, provenance.info
        ));
    }

    pub(super) fn store(&mut self, value: &Operand, pointer: &Operand, raw: &str, location: &str) {
        if let Operand::Local(slot) = pointer
            && self.facts.slots.contains(slot)
        {
            if self.facts.tracked_slots.contains(slot) {
                let provenance = self.provenance_or_unknown(value);
                let lines = self.store_provenance(&provenance, &Self::slot_name(*slot));
                self.before.extend(lines);
            }
            return;
        }
        if let Some(provenance) = self.provenance(value) {
            self.escape(&provenance);
        }
        let Some(provenance) = self.provenance(pointer).filter(|_| !is_auto_init(raw)) else {
            return;
        };
        let Some(size) = stored_size(raw.trim_start(), self.named) else {
            self.escape(&provenance);
            return;
        };
        self.check_bounds(&provenance, &size.to_string(), Some(size), location);
        if !provenance.has_shadow() {
            return;
        }
        let Provenance { shadow, offset, .. } = &provenance;
        let source = match value {
            Operand::Local(id) => self.copied.get(id),
            Operand::Constant(_) => None,
        };
        self.before.push(if let Some(from) = source {
            format!(
                "call void @sm.copy(ptr {shadow}, i64 {offset}, ptr {}, i64 {}, i64 {size})",
                from.shadow, from.offset
            )
        } else if SCALAR_ACCESS_BYTES.contains(&size) {
            format!("call void @sm.write{size}(ptr {shadow}, i64 {offset})")
        } else {
            format!("call void @sm.write(ptr {shadow}, i64 {offset}, i64 {size})")
        });
    }

    pub(super) fn bulk(&mut self, inst: &Inst, name: &str, location: &str) {
        let known = bulk_size(inst);
        let size = match argument(inst, 2) {
            Some(Operand::Constant(text)) => text.clone(),
            Some(Operand::Local(id)) => self.parsed.function.names[*id].clone(),
            None => return,
        };
        let to = argument(inst, 0).and_then(|operand| self.provenance(operand));
        let from = argument(inst, 1).and_then(|operand| self.provenance(operand));
        for provenance in [&to, &from].into_iter().flatten() {
            self.check_bounds(provenance, &size, known, location);
        }
        if let (None, Some(from), Some(size)) = (&to, &from, known) {
            self.check_any_written(from, size, location);
        }
        let Some(to) = to.filter(Provenance::has_shadow) else {
            return;
        };
        let from = from
            .filter(|_| !name.starts_with("llvm.memset."))
            .unwrap_or_else(Provenance::unknown);
        self.before.push(format!(
            "call void @sm.copy(ptr {}, i64 {}, ptr {}, i64 {}, i64 {size})",
            to.shadow, to.offset, from.shadow, from.offset
        ));
    }
}
