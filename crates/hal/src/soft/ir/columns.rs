//! Where the values that outlive a synchronisation are kept: one column of 1,024 lanes each.

use super::Error;
use super::kernel::Kernel;
use super::live::Set;
use super::parse::{Id, Operand};
use super::private::PrivateMemory;
use super::remat::Recipes;
use super::types::{Named, Type};
use crate::soft::plan::{Column, MAX_LANES};
use std::collections::HashMap;

/// Bytes between columns.
const COLUMN_GAP: usize = 192;

/// A column and the type its values have there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) column: Column,
    pub(crate) ty: Type,
}

/// The context block of a kernel.
#[derive(Debug, Clone, Default)]
pub(crate) struct Columns {
    /// Columns of crossing values.
    pub(crate) values: HashMap<Id, Place>,
    /// Operand columns of each site, from site 1.
    pub(crate) operands: Vec<Vec<Place>>,
    /// Result column of each site.
    pub(crate) results: Vec<Option<Place>>,
    /// Offset and stride of private memory, by index.
    pub(crate) private: HashMap<usize, (usize, usize)>,
    /// Values that each site's continuation needs from columns, from site 1.
    pub(crate) crossing: Vec<Vec<Id>>,
    pub(crate) bytes: usize,
}

impl Columns {
    /// Lays out the context.
    pub(crate) fn new(
        kernel: &Kernel,
        live: &[Set],
        memory: &PrivateMemory,
        recipes: &Recipes,
        named: &Named,
    ) -> Result<Self, Error> {
        let mut columns = Self {
            bytes: 4 * MAX_LANES,
            ..Self::default()
        };
        for site in &kernel.sites {
            let crossing: Vec<Id> = live[site.continuation]
                .iter()
                .filter(|&id| {
                    !kernel.arguments.contains(id)
                        && !recipes.contains_key(&id)
                        && memory.alloca(id).is_none()
                })
                .collect();
            columns.crossing.push(crossing);
        }
        for site in &kernel.sites {
            let result = match &site.result {
                Some((id, ty)) => {
                    let place = columns.place(ty, named)?;
                    if columns.crossing.iter().any(|list| list.contains(id)) {
                        columns.values.insert(*id, place.clone());
                    }
                    Some(place)
                }
                None => None,
            };
            columns.results.push(result);
        }
        for index in 0..columns.crossing.len() {
            for id in columns.crossing[index].clone() {
                if !columns.values.contains_key(&id) {
                    let ty = kernel.types.get(&id).ok_or(Error::Syntax {
                        line: 0,
                        what: "a value that is used but not defined".into(),
                    })?;
                    let place = columns.place(ty, named)?;
                    columns.values.insert(id, place);
                }
            }
        }
        for (index, site) in kernel.sites.iter().enumerate() {
            let mut list = Vec::new();
            for (ty, value) in &site.arguments {
                // A value that waits in its own column anyway needs no copy.
                let own = match value {
                    Operand::Local(id) if columns.crossing[index].contains(id) => {
                        columns.values.get(id)
                    }
                    _ => None,
                };
                let shared = own.filter(|place| {
                    place.ty == *ty
                        && site.result.as_ref().is_none_or(|(r, _)| {
                            columns
                                .values
                                .get(r)
                                .is_none_or(|result| result.column != place.column)
                        })
                });
                let place = match shared {
                    Some(place) => place.clone(),
                    None => columns.place(ty, named)?,
                };
                list.push(place);
            }
            columns.operands.push(list);
        }
        for (index, private) in memory.list.iter().enumerate().filter(|(_, p)| p.crosses) {
            let align = private.layout.align.max(16) as usize;
            let stride = (private.layout.size as usize)
                .max(1)
                .next_multiple_of(align);
            let offset = columns.bytes.next_multiple_of(align.max(64));
            columns.private.insert(index, (offset, stride));
            columns.bytes = stride
                .checked_mul(MAX_LANES)
                .and_then(|bytes| bytes.checked_add(offset))
                .filter(|bytes| *bytes < 1 << 32)
                .ok_or(Error::TooMuchPrivateMemory { bytes: stride })?;
        }
        columns.bytes = columns.bytes.next_multiple_of(64);
        Ok(columns)
    }

    fn place(&mut self, ty: &Type, named: &Named) -> Result<Place, Error> {
        let layout = ty.layout(named).ok_or_else(|| Error::Unsupported {
            line: 0,
            what: format!("a value of type {ty} across a barrier"),
        })?;
        // Odd integers (i1 above all) are kept as whole bytes, which vectorises.
        let ty = match ty {
            Type::Int(_) if layout.size <= 8 => Type::Int(layout.size as u32 * 8),
            other => other.clone(),
        };
        let size = layout.size as usize;
        let offset = self.bytes.next_multiple_of(64);
        // Columns that start 4 KiB apart would fall into the same cache sets.
        self.bytes = offset + size * MAX_LANES + COLUMN_GAP;
        Ok(Place {
            column: Column { offset, size },
            ty,
        })
    }
}
