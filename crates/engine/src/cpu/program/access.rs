//! Loads and stores of groups of lanes. Consecutive elements are copied as slices, others lane by lane.

use super::group::{Column, GroupLaunch, GroupMemory, LaneGroup};
use super::lowering::{Argument, HandleSource, MemoryAccess, MemorySpace, OffsetSource};
use super::mask::is_arithmetic;
use super::memory::{MemoryBytes, invalid_handle, out_of_bounds};
use crate::program::FaultKind;

/// Lanes that fault, and why.
type LaneFaults = Vec<(usize, FaultKind)>;

/// An access of a group, with its memory if that is the same for all lanes.
struct GroupAccess<'a, 'm> {
    access: &'a MemoryAccess,
    memory: GroupMemory<'m>,
    /// The handle of all lanes.
    handle: Option<u64>,
    bytes: Option<MemoryBytes<'m>>,
}

impl LaneGroup {
    /// Runs a load or store.
    pub(super) fn access(
        &mut self,
        launch: &GroupLaunch<'_>,
        memory: GroupMemory<'_>,
        index: usize,
        access: &MemoryAccess,
    ) {
        let handle = match access.handle {
            _ if access.space == MemorySpace::Shared => None,
            HandleSource::Constant(handle) => Some(handle),
            HandleSource::Initial(register) => Some(launch.initial(register)),
            HandleSource::Column(column) => {
                let handles = &self.columns[usize::from(column)].all::<u64>()[self.mask.range()];
                (self.mask.is_dense() && is_arithmetic(handles, 0)).then(|| handles[0])
            }
        };
        let bytes = match access.space {
            MemorySpace::Shared => Some(memory.shared),
            space => handle.and_then(|h| memory.table.get(space, h)),
        };
        // A view lends what the program writes; if it does not, the buffer is none that can be written.
        let bytes = bytes.filter(|b| b.is_writable() || !access.is_store);
        let group_access = GroupAccess {
            access,
            memory,
            handle,
            bytes,
        };
        let faults = match (access.is_store, access.dtype.size()) {
            (false, 1) => self.load::<1>(&group_access),
            (false, 2) => self.load::<2>(&group_access),
            (false, 4) => self.load::<4>(&group_access),
            (false, _) => self.load::<8>(&group_access),
            (true, 1) => self.store::<1>(&group_access),
            (true, 2) => self.store::<2>(&group_access),
            (true, 4) => self.store::<4>(&group_access),
            (true, _) => self.store::<8>(&group_access),
        };
        for (lane, kind) in faults {
            self.fault(lane, index, kind);
        }
    }

    fn load<const N: usize>(&mut self, access: &GroupAccess<'_, '_>) -> LaneFaults {
        let mut out = self.take_scratch(N as u8);
        let mut faults = Vec::new();
        let range = self.mask.range();
        let results = &mut out.all_mut::<u8>().as_chunks_mut::<N>().0[range.clone()];
        match self.uniform::<N>(access) {
            Some((bytes, position, true)) => bytes.load(position, results.as_flattened_mut()),
            Some((bytes, position, false)) => {
                let mut element = [0; N];
                bytes.load(position, &mut element);
                results.fill(element);
            }
            None => {
                for (lane, result) in range.zip(results) {
                    if self.mask.contains(lane) {
                        match self.locate::<N>(access, lane) {
                            Ok((bytes, position)) => bytes.load(position, result),
                            Err(kind) => faults.push((lane, kind)),
                        }
                    }
                }
            }
        }
        let to = Argument {
            column: access.access.column,
            size: N as u8,
        };
        // Lanes that fault have no use for the result.
        self.keep(out, to, false);
        faults
    }

    fn store<const N: usize>(&mut self, access: &GroupAccess<'_, '_>) -> LaneFaults {
        let range = self.mask.range();
        let column = &self.columns[usize::from(access.access.column)];
        let elements = &column.all::<u8>().as_chunks::<N>().0[range.clone()];
        if let Some((bytes, position, true)) = self.uniform::<N>(access) {
            bytes.store(position, elements.as_flattened());
            return Vec::new();
        }
        let mut faults = Vec::new();
        for (lane, element) in range.zip(elements) {
            if self.mask.contains(lane) {
                match self.locate::<N>(access, lane) {
                    Ok((bytes, position)) => bytes.store(position, element),
                    Err(kind) => faults.push((lane, kind)),
                }
            }
        }
        faults
    }

    /// The memory and the first position of all lanes, if these access one element, or (`true`) consecutive elements; `None`
    /// if they do not, or if any lane may fault.
    fn uniform<'m, const N: usize>(
        &self,
        access: &GroupAccess<'_, 'm>,
    ) -> Option<(MemoryBytes<'m>, usize, bool)> {
        let bytes = access.bytes?;
        let range = self.mask.range();
        let (first, is_consecutive) = match access.access.offset {
            OffsetSource::Constant(offset) => (offset, false),
            OffsetSource::Column(column) => {
                let offsets = &self.columns[usize::from(column)].all::<u64>()[range.clone()];
                let first = *offsets.first()?;
                if !self.mask.is_dense() {
                    return None;
                } else if is_arithmetic(offsets, N as u64) {
                    (first, true)
                } else if is_arithmetic(offsets, 0) {
                    (first, false)
                } else {
                    return None;
                }
            }
        };
        if !first.is_multiple_of(N as u64) {
            return None;
        }
        let len = if is_consecutive { range.len() * N } else { N };
        Some((bytes, bytes.position(first, len)?, is_consecutive))
    }

    /// The memory and the position of a lane.
    fn locate<'m, const N: usize>(
        &self,
        access: &GroupAccess<'_, 'm>,
        lane: usize,
    ) -> Result<(MemoryBytes<'m>, usize), FaultKind> {
        let word = |column: u16| {
            let column: &Column = &self.columns[usize::from(column)];
            column.all::<u64>()[lane]
        };
        let &MemoryAccess {
            space,
            dtype,
            handle,
            offset,
            ..
        } = access.access;
        let offset = match offset {
            OffsetSource::Constant(offset) => offset,
            OffsetSource::Column(column) => word(column),
        };
        if !offset.is_multiple_of(N as u64) {
            return Err(FaultKind::InvalidMemoryAddress { offset, dtype });
        }
        let bytes = match (access.bytes, access.handle, handle) {
            (Some(bytes), ..) => bytes,
            (None, None, HandleSource::Column(column)) => {
                let handle = word(column);
                access
                    .memory
                    .table
                    .get(space, handle)
                    .filter(|b| b.is_writable() || !access.access.is_store)
                    .ok_or_else(|| invalid_handle(space, handle))?
            }
            (None, handle, _) => return Err(invalid_handle(space, handle.unwrap_or_default())),
        };
        match bytes.position(offset, N) {
            Some(position) => Ok((bytes, position)),
            None => Err(out_of_bounds(space, offset, N, bytes.len())),
        }
    }
}
