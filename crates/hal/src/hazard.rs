//! Barriers derived from byte ranges.
//!
//! Two commands conflict when they touch a common byte and one of them writes it. The tracker keeps the accesses
//! since the last barrier; a command that conflicts with one of them needs a barrier before it, everything else may
//! run concurrently. Tracking is by byte range, not by buffer: two kernels that write different halves of one buffer
//! do not wait for each other.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use crate::access::Access;

/// Accesses since the last barrier.
#[derive(Debug, Default)]
pub(crate) struct Hazards {
    /// By the id of the buffer.
    touched: HashMap<u64, TouchedBuffer, BuildHasherDefault<IdHasher>>,
    /// Number of barriers so far.
    barriers: u64,
}

/// Accesses to a buffer.
#[derive(Debug, Default)]
struct TouchedBuffer {
    /// The number of barriers before them; after another one they no longer count.
    barriers: u64,
    touches: Vec<Touch>,
}

/// Spreads ids, which count upwards, over a table (Fibonacci hashing).
#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u64(&mut self, id: u64) {
        // The table uses the low bits, and the high ones to compare.
        self.0 = (self.0 ^ id)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(32);
    }
}

#[derive(Debug, Clone)]
struct Touch {
    range: Range<usize>,
    writes: bool,
}

impl Hazards {
    /// Records the accesses of one command. Returns true if a barrier must come before it.
    pub(crate) fn record(
        &mut self,
        accesses: impl Iterator<Item = (u64, Range<usize>, Access)> + Clone,
    ) -> bool {
        let accesses = accesses.filter(|(_, range, _)| !range.is_empty());
        let conflict = accesses.clone().any(|(id, range, access)| {
            let known = self.touched.get(&id);
            known
                .filter(|b| b.barriers == self.barriers)
                .is_some_and(|buffer| {
                    buffer.touches.iter().any(|t| {
                        (t.writes || access.writes())
                            && t.range.start < range.end
                            && range.start < t.range.end
                    })
                })
        });
        if conflict {
            self.barriers += 1;
        }
        for (id, range, access) in accesses {
            let buffer = self.touched.entry(id).or_default();
            let touches = &mut buffer.touches;
            if buffer.barriers != self.barriers {
                buffer.barriers = self.barriers;
                touches.clear();
            }
            let writes = access.writes();
            // The same range again, as in a chain of readers, adds nothing.
            if !touches
                .iter()
                .any(|t| t.range == range && (t.writes || !writes))
            {
                touches.push(Touch { range, writes });
            }
        }
        conflict
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::Access::{Read, ReadWrite, Write};
    use super::*;

    struct Case {
        name: &'static str,
        first: &'static [(u64, Range<usize>, Access)],
        second: &'static [(u64, Range<usize>, Access)],
        barrier: bool,
    }

    #[test]
    fn a_barrier_is_needed_exactly_for_a_common_byte_that_is_written() {
        let cases = [
            Case {
                name: "read after write",
                first: &[(1, 0..8, Write)],
                second: &[(1, 4..6, Read)],
                barrier: true,
            },
            Case {
                name: "write after read",
                first: &[(1, 0..8, Read)],
                second: &[(1, 7..9, Write)],
                barrier: true,
            },
            Case {
                name: "write after write",
                first: &[(1, 0..8, Write)],
                second: &[(1, 0..8, ReadWrite)],
                barrier: true,
            },
            Case {
                name: "two readers",
                first: &[(1, 0..8, Read)],
                second: &[(1, 0..8, Read)],
                barrier: false,
            },
            Case {
                name: "neighbouring ranges",
                first: &[(1, 0..8, Write)],
                second: &[(1, 8..16, Write)],
                barrier: false,
            },
            Case {
                name: "other buffers",
                first: &[(1, 0..8, Write)],
                second: &[(2, 0..8, Write)],
                barrier: false,
            },
            Case {
                name: "empty ranges",
                first: &[(1, 4..4, Write)],
                second: &[(1, 0..8, Write)],
                barrier: false,
            },
            Case {
                name: "empty ranges inside of others",
                first: &[(1, 0..8, Write)],
                second: &[(1, 4..4, Write)],
                barrier: false,
            },
        ];
        for case in cases {
            let mut hazards = Hazards::default();
            assert!(!hazards.record(case.first.iter().cloned()), "{}", case.name);
            assert_eq!(
                hazards.record(case.second.iter().cloned()),
                case.barrier,
                "{}",
                case.name
            );
        }
    }

    #[test]
    fn a_barrier_orders_everything_before_it() {
        let mut hazards = Hazards::default();
        hazards.record([(1, 0..8, Write), (2, 0..8, Write)].into_iter());
        assert!(hazards.record([(1, 0..8, Read)].into_iter()));
        assert!(!hazards.record([(2, 0..8, Read)].into_iter()));
    }

    #[test]
    fn bindings_of_one_command_do_not_conflict_with_each_other() {
        let mut hazards = Hazards::default();
        assert!(!hazards.record([(1, 0..8, Read), (1, 0..8, Write)].into_iter()));
    }

    #[test]
    fn redundant_accesses_are_not_kept() {
        let mut hazards = Hazards::default();
        for _ in 0..3 {
            assert!(!hazards.record([(1, 0..8, Read)].into_iter()));
        }
        assert_eq!(hazards.touched[&1].touches.len(), 1, "a chain of readers");
        assert!(hazards.record([(1, 0..8, Write), (1, 0..8, Write)].into_iter()));
        assert_eq!(
            hazards.touched[&1].touches.len(),
            1,
            "the same write, bound twice"
        );
        let mut hazards = Hazards::default();
        hazards.record([(1, 0..8, Read), (1, 0..8, Write), (1, 0..8, Read)].into_iter());
        assert_eq!(
            hazards.touched[&1].touches.len(),
            2,
            "a write adds to a read"
        );
    }

    /// Bytes (by buffer and offset) read and written since the last barrier.
    #[derive(Default)]
    struct Bytes {
        read: HashSet<(u64, usize)>,
        written: HashSet<(u64, usize)>,
    }

    impl Bytes {
        /// The definition itself: a barrier if one of two commands writes a common byte.
        fn record(&mut self, accesses: &[(u64, Range<usize>, Access)]) -> bool {
            let bytes = |wanted: fn(Access) -> bool| {
                let all = accesses
                    .iter()
                    .filter(move |(_, _, access)| wanted(*access));
                all.flat_map(|(id, range, _)| range.clone().map(move |at| (*id, at)))
            };
            let (reads, writes) = (bytes(Access::reads), bytes(Access::writes));
            let conflict = reads.clone().any(|at| self.written.contains(&at))
                || writes
                    .clone()
                    .any(|at| self.written.contains(&at) || self.read.contains(&at));
            if conflict {
                *self = Self::default();
            }
            self.read.extend(reads);
            self.written.extend(writes);
            conflict
        }
    }

    /// Long sequences of commands over few bytes: ranges contain, extend and repeat each other in every order.
    #[test]
    fn random_commands_get_the_barriers_that_a_byte_by_byte_model_gives() {
        let mut state = 1_u64;
        let mut below = |n: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        let (mut barriers, mut commands) = (0, 0);
        for sequence in 0..2000 {
            let (mut hazards, mut model) = (Hazards::default(), Bytes::default());
            for step in 0..12 {
                let accesses: Vec<_> = (0..1 + below(2))
                    .map(|_| {
                        let (start, len) = (below(16), below(9));
                        let access = [Read, Read, Write, ReadWrite][below(4)];
                        (below(2) as u64, start..start + len, access)
                    })
                    .collect();
                let expected = model.record(&accesses);
                assert_eq!(
                    hazards.record(accesses.iter().cloned()),
                    expected,
                    "sequence {sequence}, step {step}: {accesses:?}"
                );
                barriers += usize::from(expected);
                commands += 1;
            }
        }
        assert!(barriers > commands / 10 && barriers < commands * 9 / 10);
    }
}
