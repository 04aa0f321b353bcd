//! Where the values that outlive a synchronisation are kept: in columns of 1,024 lanes.
//!
//! Values that never wait at the same site share a column: a region loads what it needs of a lane before it stores
//! anything of that lane.

use super::Error;
use super::kernel::Kernel;
use super::live::Set;
use super::parse::{Id, Operand};
use super::private::PrivateMemory;
use super::remat::Recipes;
use super::types::{Named, Type};
use crate::soft::plan::{Column, MAX_LANES, STEPS_BYTES, STEPS_OFFSET};
use std::collections::{BTreeMap, HashMap, HashSet};

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

/// Something that needs a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Tenant {
    Value(Id),
    /// Site and operand, both from 0.
    Operand(usize, usize),
    Result(usize),
}

/// Everything that needs a column, with its type and the sites (from 0) at which it is in use.
type Tenants = BTreeMap<Tenant, (Type, Vec<usize>)>;

/// A column while it is given away.
struct Shared {
    column: Column,
    /// Sites at which it is in use.
    sites: Set,
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
            bytes: STEPS_OFFSET + if kernel.check { STEPS_BYTES } else { 0 },
            ..Self::default()
        };
        for site in &kernel.sites {
            let stays = |id: &Id| {
                !kernel.arguments.contains(*id)
                    && !recipes.contains_key(id)
                    && memory.alloca(*id).is_none()
            };
            columns
                .crossing
                .push(live[site.continuation].iter().filter(stays).collect());
        }
        let sites = kernel.sites.iter().enumerate();
        let results: HashMap<Id, usize> = sites
            .filter_map(|(index, site)| site.result.as_ref().map(|(id, _)| (*id, index)))
            .collect();
        let tenants = columns.tenants(kernel, &results)?;
        let places = columns.assign(&tenants, kernel.sites.len(), named)?;
        for (index, site) in kernel.sites.iter().enumerate() {
            let crossing: HashSet<Id> = columns.crossing[index].iter().copied().collect();
            let operand = |(number, (ty, value)): (usize, &(Type, Operand))| {
                let own = waits(value, ty, &crossing, kernel).map(|id| tenant(&results, id));
                places[&own.unwrap_or(Tenant::Operand(index, number))].clone()
            };
            columns
                .operands
                .push(site.arguments.iter().enumerate().map(operand).collect());
            columns.results.push(
                site.result
                    .as_ref()
                    .map(|_| places[&Tenant::Result(index)].clone()),
            );
        }
        for id in columns.crossing.iter().flatten() {
            columns
                .values
                .insert(*id, places[&tenant(&results, *id)].clone());
        }
        columns.place_private(memory)?;
        columns.bytes = columns.bytes.next_multiple_of(64);
        Ok(columns)
    }

    /// Finds everything that needs a column.
    fn tenants(&self, kernel: &Kernel, results: &HashMap<Id, usize>) -> Result<Tenants, Error> {
        let mut tenants = Tenants::new();
        for (index, site) in kernel.sites.iter().enumerate() {
            let crossing: HashSet<Id> = self.crossing[index].iter().copied().collect();
            for (number, (ty, value)) in site.arguments.iter().enumerate() {
                if waits(value, ty, &crossing, kernel).is_none() {
                    tenants.insert(Tenant::Operand(index, number), (ty.clone(), vec![index]));
                }
            }
            if let Some((_, ty)) = &site.result {
                let entry = tenants.entry(Tenant::Result(index));
                entry
                    .or_insert_with(|| (ty.clone(), Vec::new()))
                    .1
                    .push(index);
            }
            for &id in &self.crossing[index] {
                let ty = kernel.types.get(&id).ok_or(Error::Syntax {
                    line: 0,
                    what: "a value that is used but not defined".into(),
                })?;
                tenants
                    .entry(tenant(results, id))
                    .or_insert_with(|| (ty.clone(), Vec::new()))
                    .1
                    .push(index);
            }
        }
        Ok(tenants)
    }

    fn assign(
        &mut self,
        tenants: &Tenants,
        sites: usize,
        named: &Named,
    ) -> Result<HashMap<Tenant, Place>, Error> {
        let mut shared: HashMap<usize, Vec<Shared>> = HashMap::new();
        let mut places = HashMap::new();
        for (tenant, (ty, used)) in tenants {
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
            let list = shared.entry(size).or_default();
            let free = list
                .iter()
                .position(|s| used.iter().all(|site| !s.sites.contains(*site)));
            let free = free.unwrap_or_else(|| {
                let offset = self.bytes.next_multiple_of(64);
                // Columns that start 4 KiB apart would fall into the same cache sets.
                self.bytes = offset + size * MAX_LANES + COLUMN_GAP;
                list.push(Shared {
                    column: Column { offset, size },
                    sites: Set::new(sites),
                });
                list.len() - 1
            });
            used.iter().for_each(|site| list[free].sites.insert(*site));
            places.insert(
                *tenant,
                Place {
                    column: list[free].column,
                    ty,
                },
            );
        }
        Ok(places)
    }

    fn place_private(&mut self, memory: &PrivateMemory) -> Result<(), Error> {
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
                .ok_or(Error::TooMuchPrivateMemory { bytes: stride })?;
        }
        Ok(())
    }
}

/// The value that an operand is, if it waits at the site in a column of its own anyway.
fn waits(value: &Operand, ty: &Type, crossing: &HashSet<Id>, kernel: &Kernel) -> Option<Id> {
    match value {
        Operand::Local(id) if crossing.contains(id) && kernel.types.get(id) == Some(ty) => {
            Some(*id)
        }
        _ => None,
    }
}

/// Who keeps `id`: the result of a site stays where the site left it.
fn tenant(results: &HashMap<Id, usize>, id: Id) -> Tenant {
    results
        .get(&id)
        .map_or(Tenant::Value(id), |site| Tenant::Result(*site))
}
