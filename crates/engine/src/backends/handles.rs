//! Handles: numbers that stand for memory, and are checked.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Error, Result};

/// A buffer of a [`Backend`](super::Backend), by number.
///
/// The number says which backend the buffer belongs to, which one it is, and how often its place was used
/// before: a handle of another backend or of memory that is gone is an error, never another buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferHandle(u64);

/// A pool of a [`Backend`](super::Backend), by number; checked like a [`BufferHandle`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolHandle(u64);

/// A number that [`Table`] gives out.
pub(super) trait Handle: Copy + fmt::Display {
    /// What errors call it.
    const KIND: &'static str;
    fn from_number(number: u64) -> Self;
    fn number(self) -> u64;
}

macro_rules! handle {
    ($name:ident, $kind:literal) => {
        impl $name {
            /// The number.
            pub const fn id(self) -> u64 {
                self.0
            }
        }

        impl Handle for $name {
            const KIND: &'static str = $kind;

            fn from_number(number: u64) -> Self {
                Self(number)
            }

            fn number(self) -> u64 {
                self.0
            }
        }

        impl From<u64> for $name {
            /// A handle that came from elsewhere; using it is checked like any other.
            fn from(number: u64) -> Self {
                Self(number)
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

handle!(BufferHandle, "buffer");
handle!(PoolHandle, "pool");

static TABLES: AtomicU16 = AtomicU16::new(0);

/// What handles stand for.
///
/// A number is 16 bits of the table, 16 of the generation and 32 of the place, which counts from 1.
pub(super) struct Table<H, T> {
    id: u16,
    slots: Mutex<Slots<T>>,
    handles: PhantomData<fn(H) -> H>,
}

struct Slots<T> {
    all: Vec<Slot<T>>,
    free: Vec<u32>,
}

struct Slot<T> {
    generation: u16,
    value: Option<T>,
}

impl<H: Handle, T: Clone> Table<H, T> {
    pub(super) fn new() -> Self {
        Self {
            id: TABLES.fetch_add(1, Ordering::Relaxed),
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
        let place = match slots.free.pop() {
            Some(place) => place,
            None => {
                let place = u32::try_from(slots.all.len())
                    .ok()
                    .filter(|&p| p < u32::MAX);
                let place = place.ok_or_else(|| Error::Invalid {
                    op,
                    reason: format!("there are too many {}s", H::KIND),
                })?;
                slots.all.push(Slot {
                    generation: 0,
                    value: None,
                });
                place
            }
        };
        let slot = &mut slots.all[place as usize];
        slot.value = Some(value);
        let (table, generation) = (u64::from(self.id), u64::from(slot.generation));
        Ok(H::from_number(
            (table << 48) + (generation << 32) + u64::from(place) + 1,
        ))
    }

    pub(super) fn get(&self, op: &'static str, handle: H) -> Result<T> {
        let slots = self.lock();
        let place = self.place(op, &slots, handle)?;
        Ok(slots.all[place].value.clone().expect("checked"))
    }

    /// Changes what a handle stands for.
    pub(super) fn update(
        &self,
        op: &'static str,
        handle: H,
        change: impl FnOnce(&mut T) -> Result<()>,
    ) -> Result<()> {
        let mut slots = self.lock();
        let place = self.place(op, &slots, handle)?;
        change(slots.all[place].value.as_mut().expect("checked"))
    }

    pub(super) fn remove(&self, op: &'static str, handle: H) -> Result<T> {
        let mut slots = self.lock();
        let place = self.place(op, &slots, handle)?;
        let slot = &mut slots.all[place];
        let value = slot.value.take().expect("checked");
        // A place whose numbers are used up is never used again.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            slots.free.push(place as u32);
        }
        Ok(value)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        let slots = self.lock();
        slots.all.iter().filter(|s| s.value.is_some()).count()
    }

    fn place(&self, op: &'static str, slots: &Slots<T>, handle: H) -> Result<usize> {
        let number = handle.number();
        let fail = |reason: &str| {
            Err(Error::Invalid {
                op,
                reason: format!("{handle} {reason}"),
            })
        };
        let place = (number as u32).wrapping_sub(1) as usize;
        if (number >> 48) as u16 != self.id {
            return fail("belongs to another backend");
        }
        match slots.all.get(place) {
            None => fail("was never given out"),
            Some(slot) if slot.generation == (number >> 32) as u16 && slot.value.is_some() => {
                Ok(place)
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
        let table = Table::<BufferHandle, u32>::new();
        let other = Table::<BufferHandle, u32>::new();
        let a = table.insert("test", 1).unwrap();
        let b = table.insert("test", 2).unwrap();
        assert_eq!(table.get("test", b).unwrap(), 2);
        assert_eq!(table.remove("test", a).unwrap(), 1);
        let c = table.insert("test", 3).unwrap();
        assert_ne!(a, c, "a place used again has another number");
        assert_eq!(table.get("test", c).unwrap(), 3);
        let reason = |h, t: &Table<BufferHandle, u32>| t.get("test", h).unwrap_err().to_string();
        assert!(reason(a, &table).ends_with("was freed"));
        assert!(reason(b, &other).ends_with("belongs to another backend"));
        let unknown = BufferHandle::from(b.id() + 7);
        assert!(reason(unknown, &table).ends_with("was never given out"));
        let none = BufferHandle::from(b.id() >> 32 << 32);
        assert!(table.get("test", none).is_err(), "places count from 1");
    }

    #[test]
    fn a_place_is_left_when_its_generations_are_used_up() {
        let table = Table::<PoolHandle, ()>::new();
        let first = table.insert("test", ()).unwrap();
        let mut last = first;
        table.remove("test", first).unwrap();
        for _ in 0..=u32::from(u16::MAX) {
            last = table.insert("test", ()).unwrap();
            assert_ne!(last, first);
            table.remove("test", last).unwrap();
        }
        assert_ne!(last.id() as u32, first.id() as u32, "another place");
    }
}
