//! Spill layout: values that live across a synchronisation site are spilled to columns of 1,024 lanes.
//!
//! Values that are never live across the same site share a column: a region reloads what it needs of a lane before
//! it stores anything of that lane.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::FissionError;
use super::kernel::KernelFunction;
use super::liveness::BitSet;
use super::parse::{Id, Operand};
use super::private_memory::PrivateMemory;
use super::remat::Remats;
use super::types::{Named, Type};
use crate::soft::plan::{Column, MAX_LANES, STEPS_BYTES, STEPS_OFFSET};

/// Padding between columns in bytes.
const COLUMN_PADDING_BYTES: usize = 192;

/// A column, and the type of its values in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpillSlot {
    pub(crate) column: Column,
    pub(crate) ty: Type,
}

/// Layout of a kernel's context block.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpillLayout {
    /// Slots of the values that live across sites.
    pub(crate) values: HashMap<Id, SpillSlot>,
    /// Operand columns of each site, from site 1.
    pub(crate) operands: Vec<Vec<SpillSlot>>,
    /// Result column of each site.
    pub(crate) results: Vec<Option<SpillSlot>>,
    /// Offset and stride of private memory, by index.
    pub(crate) private: HashMap<usize, (usize, usize)>,
    /// Values that each site's continuation reloads from columns, from site 1.
    pub(crate) crossing: Vec<Vec<Id>>,
    pub(crate) bytes: usize,
}

/// A value that needs a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Spilled {
    Value(Id),
    /// Site and operand, both from 0.
    Operand(usize, usize),
    Result(usize),
}

/// The values that need a column, with their types and the sites (from 0) across which they are live.
type SpilledValues = BTreeMap<Spilled, (Type, Vec<usize>)>;

/// A column during allocation.
struct ColumnAllocation {
    column: Column,
    /// Sites at which it is in use.
    sites: BitSet,
}

impl SpillLayout {
    /// Lays out the context.
    pub(crate) fn new(
        kernel: &KernelFunction,
        live: &[BitSet],
        memory: &PrivateMemory,
        remats: &Remats,
        named: &Named,
    ) -> Result<Self, FissionError> {
        let mut columns = Self {
            bytes: STEPS_OFFSET + if kernel.check { STEPS_BYTES } else { 0 },
            ..Self::default()
        };
        for site in &kernel.sites {
            let needs_column = |id: &Id| {
                !kernel.arguments.contains(*id)
                    && !remats.contains_key(id)
                    && memory.alloca(*id).is_none()
            };
            columns.crossing.push(
                live[site.continuation]
                    .iter()
                    .filter(needs_column)
                    .collect(),
            );
        }
        let sites = kernel.sites.iter().enumerate();
        let results: HashMap<Id, usize> = sites
            .filter_map(|(index, site)| site.result.as_ref().map(|(id, _)| (*id, index)))
            .collect();
        let spilled_values = columns.spilled_values(kernel, &results)?;
        let slots = columns.assign(&spilled_values, kernel.sites.len(), named)?;
        for (index, site) in kernel.sites.iter().enumerate() {
            let crossing: HashSet<Id> = columns.crossing[index].iter().copied().collect();
            let mut operands = Vec::with_capacity(site.arguments.len());
            for (number, (ty, value)) in site.arguments.iter().enumerate() {
                let own =
                    already_spilled(value, ty, &crossing, kernel).map(|id| owner(&results, id));
                operands.push(slots[&own.unwrap_or(Spilled::Operand(index, number))].clone());
            }
            columns.operands.push(operands);
            columns.results.push(
                site.result
                    .as_ref()
                    .map(|_| slots[&Spilled::Result(index)].clone()),
            );
        }
        for id in columns.crossing.iter().flatten() {
            columns
                .values
                .insert(*id, slots[&owner(&results, *id)].clone());
        }
        columns.lay_out_private(memory)?;
        columns.bytes = columns.bytes.next_multiple_of(64);
        Ok(columns)
    }

    /// Collects the values that need a column.
    fn spilled_values(
        &self,
        kernel: &KernelFunction,
        results: &HashMap<Id, usize>,
    ) -> Result<SpilledValues, FissionError> {
        let mut spilled_values = SpilledValues::new();
        for (index, site) in kernel.sites.iter().enumerate() {
            let crossing: HashSet<Id> = self.crossing[index].iter().copied().collect();
            for (number, (ty, value)) in site.arguments.iter().enumerate() {
                if already_spilled(value, ty, &crossing, kernel).is_none() {
                    spilled_values
                        .insert(Spilled::Operand(index, number), (ty.clone(), vec![index]));
                }
            }
            if let Some((_, ty)) = &site.result {
                let entry = spilled_values.entry(Spilled::Result(index));
                entry
                    .or_insert_with(|| (ty.clone(), Vec::new()))
                    .1
                    .push(index);
            }
            for &id in &self.crossing[index] {
                let ty = kernel.types.get(&id).ok_or(FissionError::Syntax {
                    line: 0,
                    what: "a value that is used but not defined".into(),
                })?;
                spilled_values
                    .entry(owner(results, id))
                    .or_insert_with(|| (ty.clone(), Vec::new()))
                    .1
                    .push(index);
            }
        }
        Ok(spilled_values)
    }

    fn assign(
        &mut self,
        spilled_values: &SpilledValues,
        sites: usize,
        named: &Named,
    ) -> Result<HashMap<Spilled, SpillSlot>, FissionError> {
        let mut shared: HashMap<usize, Vec<ColumnAllocation>> = HashMap::new();
        let mut slots = HashMap::new();
        for (owner, (ty, used)) in spilled_values {
            let layout = ty.layout(named).ok_or_else(|| FissionError::Unsupported {
                line: 0,
                what: format!("a value of type {ty} across a barrier"),
            })?;
            // Odd-sized integers (above all i1) are widened to whole bytes, which vectorises.
            let ty = match ty {
                Type::Int(_) if layout.size <= 8 => Type::Int(layout.size as u32 * 8),
                other => other.clone(),
            };
            let size = layout.size as usize;
            let list = shared.entry(size).or_default();
            let free = list
                .iter()
                .position(|s| used.iter().all(|site| !s.sites.contains(*site)));
            let free = free.unwrap_or_else(|| {
                let offset = self.bytes.next_multiple_of(64);
                // Columns a multiple of 4 KiB apart would map to the same cache sets.
                self.bytes = offset + size * MAX_LANES + COLUMN_PADDING_BYTES;
                list.push(ColumnAllocation {
                    column: Column { offset, size },
                    sites: BitSet::new(sites),
                });
                list.len() - 1
            });
            used.iter().for_each(|site| list[free].sites.insert(*site));
            slots.insert(
                *owner,
                SpillSlot {
                    column: list[free].column,
                    ty,
                },
            );
        }
        Ok(slots)
    }

    fn lay_out_private(&mut self, memory: &PrivateMemory) -> Result<(), FissionError> {
        for (index, private) in memory.list.iter().enumerate().filter(|(_, p)| p.crosses) {
            let align = private.layout.align.max(16) as usize;
            let stride = (private.layout.size as usize)
                .max(1)
                .next_multiple_of(align);
            let offset = self.bytes.next_multiple_of(align.max(64));
            self.private.insert(index, (offset, stride));
            self.bytes = stride
                .checked_mul(MAX_LANES)
                .and_then(|bytes| bytes.checked_add(offset))
                .filter(|bytes| *bytes < 1 << 32)
                .ok_or(FissionError::PrivateMemoryTooLarge { bytes: stride })?;
        }
        Ok(())
    }
}

/// Returns the value of an operand that is spilled across the site anyway, and so needs no operand column.
fn already_spilled(
    value: &Operand,
    ty: &Type,
    crossing: &HashSet<Id>,
    kernel: &KernelFunction,
) -> Option<Id> {
    match value {
        Operand::Local(id) if crossing.contains(id) && kernel.types.get(id) == Some(ty) => {
            Some(*id)
        }
        _ => None,
    }
}

/// Returns the column owner of `id`: a site's result stays in its result column.
fn owner(results: &HashMap<Id, usize>, id: Id) -> Spilled {
    results
        .get(&id)
        .map_or(Spilled::Value(id), |site| Spilled::Result(*site))
}
