//! What sequences have seen, and memory to take in more.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use bessemer_hal::{BufferSlice, Submission};

use super::pending::Ticket;
use super::plan::{self, Plan};
use super::{Decoder, Inner, OP, Pending, Spec, invalid};
use crate::kernel::CacheType;
use crate::metal::{Block, Metal};
use crate::{Error, Result};

/// Choices that may be on their way at once: the next waits for the oldest.
const ON_THEIR_WAY: usize = 8;

/// Bytes of what the device knows of a sequence: the token that comes next, and its position.
pub(super) const STATE: usize = 8;

/// Keys and values of some sequences on a device, with room for as many tokens each, and memory that taking in tokens
/// needs. All of it is asked for when it is made.
///
/// The sequences are numbered; each grows, and is cut, by itself. Dropping it waits for steps on their way.
pub struct Sequences {
    owner: Arc<Inner>,
    kind: CacheType,
    positions: usize,
    slots: Vec<Slot>,
    /// Keys of every layer and values of every layer: `[slot][kv_head][position][dim]`.
    caches: Vec<[Block; 2]>,
    scratch: Scratch,
    /// Where choices go, for the host to read, and the last one that did.
    ids: Vec<(Block, Option<Arc<Ticket>>)>,
    next_id: usize,
    flights: VecDeque<Flight>,
    /// The sequence whose last logits are in memory.
    logits_of: Option<usize>,
}

/// One sequence.
struct Slot {
    len: usize,
    /// The token that comes next, if it is known to somebody.
    next: Next,
    /// Whether the device knows the position, and the token unless only it knows it.
    is_placed: bool,
    /// The device's token and position.
    state: Block,
    plan: Option<Arc<Plan>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Unknown,
    Host(u32),
    Device,
}

/// A choice on its way.
struct Flight {
    slot: usize,
    /// What the sequence held before.
    before: usize,
    ticket: Arc<Ticket>,
}

/// Memory that launches of a token leave to each other.
pub(super) struct Scratch {
    block: Block,
    logits: Block,
    /// What tokens are between layers, in two places, and what a part adds where it is normed first.
    pub(super) x: [BufferSlice; 2],
    pub(super) added: BufferSlice,
    pub(super) q: BufferSlice,
    /// Keys that a norm is still to come for.
    pub(super) k: BufferSlice,
    /// Keys and values that are rounded together on their way to the cache, by attention: numbers of a head are computed
    /// by many threadgroups.
    pub(super) fresh: Option<[BufferSlice; 2]>,
    /// What attention gives, and what parts of the keys give.
    pub(super) mixed: BufferSlice,
    pub(super) parts: BufferSlice,
    pub(super) inner: BufferSlice,
}

impl Scratch {
    fn new(metal: &Arc<Metal>, spec: &Spec, kind: CacheType, positions: usize) -> Result<Self> {
        let (q, k) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        let parts = plan::most_splits(spec, positions) * spec.heads * (spec.head_dim + 2);
        let is_fresh = kind == CacheType::Q8_0;
        let fresh = if is_fresh { k } else { 0 };
        let (width, ffn) = (spec.width, spec.ffn);
        let sizes = [width, width, width, q, k, fresh, fresh, q, parts, ffn];
        let mut end = 0;
        let places = sizes.map(|size| {
            let start = end;
            end = (start + 4 * size).next_multiple_of(256);
            start..start + 4 * size
        });
        let block = memory(metal, end)?;
        let [a, b, added, q, k, new_k, new_v, mixed, parts, inner] = places;
        let place = |place| block.slice(place);
        let fresh = is_fresh.then(|| [new_k, new_v].map(place));
        let [a, b, added, q, k, mixed, parts, inner] =
            [a, b, added, q, k, mixed, parts, inner].map(place);
        Ok(Self {
            logits: memory(metal, 4 * spec.vocab)?,
            x: [a, b],
            added,
            q,
            k,
            fresh,
            mixed,
            parts,
            inner,
            block,
        })
    }

    fn bytes(&self) -> usize {
        self.block.len() + self.logits.len()
    }
}

/// Memory that nothing on its way uses.
fn memory(metal: &Arc<Metal>, bytes: usize) -> Result<Block> {
    Block::idle(metal, OP, bytes)
}

impl Sequences {
    /// Memory for as many sequences of up to so many tokens, all empty.
    ///
    /// # Errors
    /// [`Error::Invalid`], where there is no sequence or no room for a token; [`Error::OutOfMemory`].
    pub fn new(decoder: &Decoder, kind: CacheType, slots: usize, positions: usize) -> Result<Self> {
        let (metal, spec) = (decoder.metal(), decoder.spec());
        if slots == 0 || positions == 0 || u32::try_from(positions).is_err() {
            return Err(invalid(format!(
                "{slots} sequences of {positions} tokens cannot be kept"
            )));
        }
        let cache = spec
            .cache_row(kind)
            .checked_mul(positions)
            .and_then(|b| b.checked_mul(slots));
        let cache = cache.ok_or_else(|| Error::SizeOverflow {
            op: OP,
            dims: vec![slots, spec.kv_heads, positions, spec.head_dim],
        })?;
        let slot = |_| {
            Ok(Slot {
                len: 0,
                next: Next::Unknown,
                is_placed: false,
                state: memory(metal, STATE)?,
                plan: None,
            })
        };
        let caches = |_| Ok([memory(metal, cache)?, memory(metal, cache)?]);
        let ids = |_| Ok((memory(metal, 4)?, None));
        Ok(Self {
            owner: Arc::clone(&decoder.0),
            kind,
            positions,
            slots: (0..slots).map(slot).collect::<Result<_>>()?,
            caches: (0..spec.layers.len()).map(caches).collect::<Result<_>>()?,
            scratch: Scratch::new(metal, spec, kind, positions)?,
            ids: (0..ON_THEIR_WAY).map(ids).collect::<Result<_>>()?,
            next_id: 0,
            flights: VecDeque::new(),
            logits_of: None,
        })
    }

    /// How many sequences there are.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// How many tokens a sequence can hold.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// What keys and values are kept as.
    pub fn cache_type(&self) -> CacheType {
        self.kind
    }

    /// Bytes of keys and values, and of all that taking in tokens needs.
    pub fn bytes(&self) -> [usize; 2] {
        let caches = self.caches.iter().flatten().map(Block::len).sum();
        let rest = self.slots.len() * STATE + 4 * self.ids.len();
        [caches, self.scratch.bytes() + rest]
    }

    /// How many tokens a sequence holds, those of steps on their way included; 0 where there is no such sequence.
    pub fn len(&self, slot: usize) -> usize {
        let failed = self.flights.iter().filter(|f| f.slot == slot);
        let failed = failed.filter(|f| f.ticket.has_failed()).map(|f| f.before);
        let len = self.slots.get(slot).map_or(0, |s| s.len);
        failed.min().map_or(len, |before| len.min(before))
    }

    /// Whether a sequence holds none.
    pub fn is_empty(&self, slot: usize) -> bool {
        self.len(slot) == 0
    }

    /// Forgets all tokens of a sequence from `len` on, and the token that was to come next. Waits for its steps on their way.
    ///
    /// # Errors
    /// [`Error::BadIndex`], where there is no such sequence.
    pub fn truncate(&mut self, slot: usize, len: usize) -> Result<()> {
        self.rest(slot);
        let before = self.checked_len(slot)?;
        let slot = &mut self.slots[slot];
        slot.len = len.min(before);
        slot.next = Next::Unknown;
        slot.is_placed = false;
        self.logits_of = None;
        Ok(())
    }

    /// Sets the token that the next [`Decoder::step`] takes in. Waits for steps of the sequence on their way.
    ///
    /// # Errors
    /// [`Error::BadIndex`], where there is no such sequence or no such token.
    pub fn set_next(&mut self, slot: usize, token: u32) -> Result<()> {
        self.rest(slot);
        self.checked_len(slot)?;
        if token as usize >= self.owner.spec.vocab {
            return Err(Error::BadIndex {
                op: OP,
                index: i64::from(token),
                len: self.owner.spec.vocab,
            });
        }
        let slot = &mut self.slots[slot];
        slot.next = Next::Host(token);
        slot.is_placed = false;
        Ok(())
    }

    pub(super) fn owner(&self) -> &Arc<Inner> {
        &self.owner
    }

    pub(super) fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Logits, a row of the vocabulary's length.
    pub(super) fn logits(&self) -> BufferSlice {
        self.scratch.logits.all()
    }

    /// What the device knows of a sequence.
    pub(super) fn state(&self, slot: usize) -> BufferSlice {
        self.slots[slot].state.all()
    }

    /// The token that comes next.
    pub(super) fn token(&self, slot: usize) -> BufferSlice {
        self.slots[slot].state.slice(0..4)
    }

    /// Keys and values of a sequence in a layer: `[kv_head][position][dim]`.
    pub(super) fn cache(&self, layer: usize, slot: usize) -> [BufferSlice; 2] {
        let size = self.caches[layer][0].len() / self.slots.len();
        let place = slot * size..(slot + 1) * size;
        [0, 1].map(|i| self.caches[layer][i].slice(place.clone()))
    }

    /// Keys and values of all sequences in a layer: `[slot][kv_head][position][dim]`.
    pub(super) fn caches(&self, layer: usize) -> [BufferSlice; 2] {
        [0, 1].map(|i| self.caches[layer][i].all())
    }

    /// How many tokens a sequence holds.
    pub(super) fn checked_len(&self, slot: usize) -> Result<usize> {
        let found = self.slots.get(slot).map(|s| s.len);
        found.ok_or_else(|| Error::BadIndex {
            op: OP,
            index: i64::try_from(slot).unwrap_or(i64::MAX),
            len: self.slots.len(),
        })
    }

    /// An error where a sequence cannot hold so many tokens.
    pub(super) fn expect_room(&self, len: usize) -> Result<()> {
        if len <= self.positions {
            return Ok(());
        }
        Err(invalid(format!(
            "{len} tokens are more than the {} that a sequence has room for",
            self.positions
        )))
    }

    /// Takes note of choices that have failed: their sequences hold what they held.
    pub(super) fn settle(&mut self) {
        while let Some(flight) = self.flights.front()
            && flight.ticket.is_done()
        {
            if flight.ticket.has_failed() {
                let slot = &mut self.slots[flight.slot];
                slot.len = slot.len.min(flight.before);
                slot.next = Next::Unknown;
                slot.is_placed = false;
                self.logits_of = None;
            }
            self.flights.pop_front();
        }
    }

    /// Waits for choices of a sequence that are on their way, and takes note of those that have failed.
    pub(super) fn rest(&mut self, slot: usize) {
        for flight in self.flights.iter().filter(|f| f.slot == slot) {
            // Whoever has the choice hears of a failure.
            let _ = flight.ticket.resolve();
        }
        self.settle();
    }

    /// The launches of a token of a sequence, made once.
    pub(super) fn plan(&mut self, decoder: &Decoder, slot: usize) -> Result<Arc<Plan>> {
        if let Some(plan) = &self.slots[slot].plan {
            return Ok(Arc::clone(plan));
        }
        let plan = Arc::new(Plan::new(decoder, self, slot)?);
        self.slots[slot].plan = Some(Arc::clone(&plan));
        Ok(plan)
    }

    /// Whether launches of a sequence are known, so that all kernels are there.
    pub(super) fn has_plans(&self) -> bool {
        self.slots.iter().any(|slot| slot.plan.is_some())
    }

    /// Where the next choice goes; the one that went there before is known then.
    pub(super) fn room_for_id(&mut self) -> BufferSlice {
        let (block, last) = &mut self.ids[self.next_id];
        if let Some(ticket) = last.take() {
            // The ticket reports a failure, so the next token need not.
            let _ = ticket.resolve();
            let _ = block.all().buffer().take_failure();
        }
        block.all()
    }

    /// Tells the device the position of the next token of a sequence, and the token.
    pub(super) fn place(&mut self, slot: usize, token: u32) -> Result<()> {
        let slot = &mut self.slots[slot];
        let state = [token, slot.len as u32];
        let place = slot.state.all();
        let written = place.buffer().write(place.offset(), &state);
        written.map_err(|e| Error::device(OP, e))?;
        slot.is_placed = true;
        Ok(())
    }

    /// Makes sure that the device knows what the next step takes in.
    pub(super) fn place_next(&mut self, slot: usize) -> Result<()> {
        let Slot {
            next, is_placed, ..
        } = self.slots[slot];
        match next {
            Next::Unknown => Err(invalid(format!(
                "no token of sequence {slot} was chosen to go on with; use `choose` or `set_next`"
            ))),
            Next::Host(token) if !is_placed => self.place(slot, token),
            _ => Ok(()),
        }
    }

    /// Notes that a choice is on its way, after a token if `takes` is set.
    pub(super) fn launched(
        &mut self,
        slot: usize,
        submission: Submission,
        id: BufferSlice,
        takes: bool,
    ) -> Pending {
        let parent = self.flights.iter().rfind(|f| f.slot == slot);
        let parent = parent.map(|f| Arc::clone(&f.ticket));
        let ticket = Ticket::new(submission, id, parent);
        self.ids[self.next_id].1 = Some(Arc::clone(&ticket));
        self.next_id = (self.next_id + 1) % self.ids.len();
        let before = self.slots[slot].len;
        self.slots[slot].len += usize::from(takes);
        self.slots[slot].next = Next::Device;
        if takes {
            self.logits_of = None;
        }
        self.flights.push_back(Flight {
            slot,
            before,
            ticket: Arc::clone(&ticket),
        });
        Pending(ticket)
    }

    /// Notes that a sequence has so many more tokens, and perhaps logits.
    pub(super) fn took(&mut self, slot: usize, tokens: usize, has_logits: bool) {
        let state = &mut self.slots[slot];
        state.len += tokens;
        state.next = Next::Unknown;
        state.is_placed = false;
        self.logits_of = has_logits.then_some(slot);
    }

    pub(super) fn has_logits(&self, slot: usize) -> bool {
        self.logits_of == Some(slot)
    }
}

impl Drop for Sequences {
    fn drop(&mut self) {
        // The memory goes to others.
        for flight in &self.flights {
            let _ = flight.ticket.resolve();
        }
    }
}

impl fmt::Debug for Sequences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Sequences({} of up to {} tokens)",
            self.slots.len(),
            self.positions
        )
    }
}
