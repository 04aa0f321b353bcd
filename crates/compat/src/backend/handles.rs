//! Checked integer handles with generations.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bessemer::{Error, Result};

/// Handle of a buffer of a [`Backend`](super::Backend).
///
/// It encodes the backend, the slot and the slot's generation: a handle of another backend or of freed memory is an
/// error, never another buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferHandle(u64);

/// Handle of a pool of a [`Backend`](super::Backend); checked like a [`BufferHandle`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolHandle(u64);

/// A handle of a [`HandleTable`].
pub(super) trait Handle: Copy + fmt::Display {
    /// The noun that error messages use.
    const KIND: &'static str;
    fn from_id(id: u64) -> Self;
    fn to_id(self) -> u64;
}

macro_rules! handle {
    ($name:ident, $kind:literal) => {
        impl $name {
            /// The handle as an integer.
            pub const fn id(self) -> u64 {
                self.0
            }
        }

        impl Handle for $name {
            const KIND: &'static str = $kind;

            fn from_id(id: u64) -> Self {
                Self(id)
            }

            fn to_id(self) -> u64 {
                self.0
            }
        }

        impl From<u64> for $name {
            /// A handle from an integer; it is checked when it is used.
            fn from(id: u64) -> Self {
                Self(id)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} {:#x}", $kind, self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }
    };
}

impl BufferHandle {
    /// The boundary pool of a backend, which programs address by class, page and byte. It is zeroed at first use.
    pub const BOUNDARY: Self = Self(0);
}

handle!(BufferHandle, "buffer");
handle!(PoolHandle, "pool");

static TABLE_COUNT: AtomicU16 = AtomicU16::new(0);

/// The values behind handles.
///
/// A handle is 16 bits of table id, 16 bits of generation and 32 bits of slot index, which counts from 1.
pub(super) struct HandleTable<H, T> {
    id: u16,
    slots: Mutex<Slots<T>>,
    handles: PhantomData<fn(H) -> H>,
}

const fn handle_id(table: u16, generation: u16, slot_index: u32) -> u64 {
    ((table as u64) << 48) + ((generation as u64) << 32) + slot_index as u64 + 1
}

struct Slots<T> {
    all: Vec<Slot<T>>,
    free: Vec<u32>,
}

struct Slot<T> {
    generation: u16,
    value: Option<T>,
}

impl<H: Handle, T: Clone> HandleTable<H, T> {
    pub(super) fn new() -> Self {
        Self {
            id: TABLE_COUNT.fetch_add(1, Ordering::Relaxed),
            slots: Mutex::new(Slots {
                all: Vec::new(),
                free: Vec::new(),
            }),
            handles: PhantomData,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slots<T>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert(&self, op: &'static str, value: T) -> Result<H> {
        let mut slots = self.lock();
        let slot_index = match slots.free.pop() {
            Some(slot_index) => slot_index,
            None => {
                let slot_index = u32::try_from(slots.all.len())
                    .ok()
                    .filter(|&p| p < u32::MAX);
                let slot_index = slot_index.ok_or_else(|| Error::Invalid {
                    op,
                    reason: format!("too many {}s", H::KIND),
                })?;
                slots.all.push(Slot {
                    generation: 0,
                    value: None,
                });
                slot_index
            }
        };
        let slot = &mut slots.all[slot_index as usize];
        slot.value = Some(value);
        Ok(H::from_id(handle_id(self.id, slot.generation, slot_index)))
    }

    pub(super) fn get(&self, op: &'static str, handle: H) -> Result<T> {
        let slots = self.lock();
        let slot_index = self.slot_index(op, &slots, handle)?;
        Ok(slots.all[slot_index].value.clone().expect("checked"))
    }

    /// Updates the value of a handle.
    pub(super) fn update<R>(
        &self,
        op: &'static str,
        handle: H,
        change: impl FnOnce(&mut T) -> Result<R>,
    ) -> Result<R> {
        let mut slots = self.lock();
        let slot_index = self.slot_index(op, &slots, handle)?;
        change(slots.all[slot_index].value.as_mut().expect("checked"))
    }

    /// Uses all values, in place, with their handles.
    pub(super) fn with_all<R>(&self, body: impl FnOnce(Vec<(u64, &mut T)>) -> R) -> R {
        let mut slots = self.lock();
        let slots = (0..).zip(&mut slots.all);
        let all = slots.filter_map(|(slot_index, slot)| {
            let handle = handle_id(self.id, slot.generation, slot_index);
            slot.value.as_mut().map(|value| (handle, value))
        });
        body(all.collect())
    }

    /// All values with their handles.
    pub(super) fn all(&self) -> Vec<(u64, T)> {
        self.with_all(|all| all.into_iter().map(|(h, v)| (h, v.clone())).collect())
    }

    pub(super) fn remove(&self, op: &'static str, handle: H) -> Result<T> {
        let mut slots = self.lock();
        let slot_index = self.slot_index(op, &slots, handle)?;
        let slot = &mut slots.all[slot_index];
        let value = slot.value.take().expect("checked");
        // A slot whose generations are used up is retired.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            slots.free.push(slot_index as u32);
        }
        Ok(value)
    }

    /// Number of live handles.
    pub(super) fn len(&self) -> usize {
        let slots = self.lock();
        slots.all.iter().filter(|s| s.value.is_some()).count()
    }

    fn slot_index(&self, op: &'static str, slots: &Slots<T>, handle: H) -> Result<usize> {
        let id = handle.to_id();
        let fail = |reason: &str| {
            Err(Error::Invalid {
                op,
                reason: format!("{handle} {reason}"),
            })
        };
        let slot_index = (id as u32).wrapping_sub(1) as usize;
        if (id >> 48) as u16 != self.id {
            return fail("belongs to another backend");
        }
        match slots.all.get(slot_index) {
            None => fail("was never given out"),
            Some(slot) if slot.generation == (id >> 32) as u16 && slot.value.is_some() => {
                Ok(slot_index)
            }
            Some(_) => fail("was freed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_freed_and_foreign_handles_are_errors() {
        let table = HandleTable::<BufferHandle, u32>::new();
        let other = HandleTable::<BufferHandle, u32>::new();
        let a = table.insert("test", 1).unwrap();
        let b = table.insert("test", 2).unwrap();
        assert_eq!(table.get("test", b).unwrap(), 2);
        assert_eq!(table.remove("test", a).unwrap(), 1);
        let c = table.insert("test", 3).unwrap();
        assert_ne!(a, c, "a reused slot has another handle");
        assert_eq!(table.get("test", c).unwrap(), 3);
        let reason =
            |h, t: &HandleTable<BufferHandle, u32>| t.get("test", h).unwrap_err().to_string();
        assert!(reason(a, &table).ends_with("was freed"));
        assert!(reason(b, &other).ends_with("belongs to another backend"));
        let unknown = BufferHandle::from(b.id() + 7);
        assert!(reason(unknown, &table).ends_with("was never given out"));
        let none = BufferHandle::from(b.id() >> 32 << 32);
        assert!(table.get("test", none).is_err(), "slots count from 1");
    }

    #[test]
    fn a_slot_is_retired_when_its_generations_are_used_up() {
        let table = HandleTable::<PoolHandle, ()>::new();
        let first = table.insert("test", ()).unwrap();
        let mut last = first;
        table.remove("test", first).unwrap();
        for _ in 0..=u32::from(u16::MAX) {
            last = table.insert("test", ()).unwrap();
            assert_ne!(last, first);
            table.remove("test", last).unwrap();
        }
        assert_ne!(last.id() as u32, first.id() as u32, "another slot");
    }
}
