//! Sequences: their KV caches, decoding state and scratch memory.

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

/// Maximum sampled tokens in flight: the next waits for the oldest.
const ON_THEIR_WAY: usize = 8;

/// Bytes of a sequence's state on the device: the next token and its position.
pub(super) const STATE: usize = 8;

/// KV caches of some sequences on a device, with the same capacity each, and the scratch memory of decoding. All of it
/// is allocated up front.
///
/// The sequences are numbered; each grows, and is truncated, independently. Dropping waits for steps in flight.
pub struct Sequences {
    owner: Arc<Inner>,
    kind: CacheType,
    positions: usize,
    slots: Vec<Slot>,
    /// Keys and values of every layer: `[slot][kv_head][position][dim]`.
    caches: Vec<[Block; 2]>,
    scratch: Scratch,
    /// Ids of sampled tokens, for the host to read, and the last ticket that used each.
    ids: Vec<(Block, Option<Arc<Ticket>>)>,
    next_id: usize,
    flights: VecDeque<Flight>,
    /// The sequence whose last logits are in memory.
    logits_of: Option<usize>,
}

/// One sequence.
struct Slot {
    len: usize,
    /// The token that comes next.
    next: Next,
    /// Whether the device has the position, and the token unless only the device knows it.
    is_placed: bool,
    /// Token and position on the device.
    state: Block,
    plan: Option<Arc<Plan>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Unknown,
    Host(u32),
    Device,
}

/// A sampled token in flight.
struct Flight {
    slot: usize,
    /// Length of the sequence before it.
    before: usize,
    ticket: Arc<Ticket>,
}

/// Intermediate results of a token.
pub(super) struct Scratch {
    block: Block,
    logits: Block,
    /// Ping-pong buffers of the residual stream, and a block's output while it awaits its post-norm.
    pub(super) x: [BufferSlice; 2],
    pub(super) added: BufferSlice,
    pub(super) q: BufferSlice,
    /// Keys that await their head norm.
    pub(super) k: BufferSlice,
    /// Keys and values in `f32` that attention quantises into the cache: a quantised block needs elements that several
    /// threadgroups compute.
    pub(super) fresh: Option<[BufferSlice; 2]>,
    /// Output of attention, and partial results of its splits.
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

/// Memory that nothing in flight uses.
fn memory(metal: &Arc<Metal>, bytes: usize) -> Result<Block> {
    Block::idle(metal, OP, bytes)
}

impl Sequences {
    /// Allocates `slots` empty sequences of up to `positions` tokens each.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no sequence or no capacity for a token; [`Error::OutOfMemory`].
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

    /// Number of sequences.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Capacity of a sequence, in tokens.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Element type of keys and values.
    pub fn cache_type(&self) -> CacheType {
        self.kind
    }

    /// Bytes of the KV caches, and of the state and scratch memory.
    pub fn bytes(&self) -> [usize; 2] {
        let caches = self.caches.iter().flatten().map(Block::len).sum();
        let rest = self.slots.len() * STATE + 4 * self.ids.len();
        [caches, self.scratch.bytes() + rest]
    }

    /// Length of a sequence in tokens, including steps in flight; 0 if there is no such sequence.
    pub fn len(&self, slot: usize) -> usize {
        let failed = self.flights.iter().filter(|f| f.slot == slot);
        let failed = failed.filter(|f| f.ticket.has_failed()).map(|f| f.before);
        let len = self.slots.get(slot).map_or(0, |s| s.len);
        failed.min().map_or(len, |before| len.min(before))
    }

    /// Whether a sequence is empty.
    pub fn is_empty(&self, slot: usize) -> bool {
        self.len(slot) == 0
    }

    /// Drops all tokens of a sequence from `len` on, and its next token. Waits for its steps in flight.
    ///
    /// # Errors
    /// [`Error::BadIndex`] if there is no such sequence.
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

    /// Sets the token that the next [`Decoder::step`] processes. Waits for steps of the sequence in flight.
    ///
    /// # Errors
    /// [`Error::BadIndex`] if there is no such sequence or no such token.
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

    /// Logits of one token.
    pub(super) fn logits(&self) -> BufferSlice {
        self.scratch.logits.all()
    }

    /// Token and position of a sequence on the device.
    pub(super) fn state(&self, slot: usize) -> BufferSlice {
        self.slots[slot].state.all()
    }

    /// The next token of a sequence on the device.
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

    /// Length of a sequence, or an error if it does not exist.
    pub(super) fn checked_len(&self, slot: usize) -> Result<usize> {
        let found = self.slots.get(slot).map(|s| s.len);
        found.ok_or_else(|| Error::BadIndex {
            op: OP,
            index: i64::try_from(slot).unwrap_or(i64::MAX),
            len: self.slots.len(),
        })
    }

    /// Returns an error if `len` tokens exceed the capacity.
    pub(super) fn expect_room(&self, len: usize) -> Result<()> {
        if len <= self.positions {
            return Ok(());
        }
        Err(invalid(format!(
            "{len} tokens are more than the {} that a sequence has room for",
            self.positions
        )))
    }

    /// Handles sampled tokens that have failed: their sequences return to the length before.
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

    /// Waits for the sampled tokens of a sequence in flight, and handles those that have failed.
    pub(super) fn rest(&mut self, slot: usize) {
        for flight in self.flights.iter().filter(|f| f.slot == slot) {
            // The owner of the ticket gets the error.
            let _ = flight.ticket.resolve();
        }
        self.settle();
    }

    /// The launches of a sequence's decoding step, made once.
    pub(super) fn plan(&mut self, decoder: &Decoder, slot: usize) -> Result<Arc<Plan>> {
        if let Some(plan) = &self.slots[slot].plan {
            return Ok(Arc::clone(plan));
        }
        let plan = Arc::new(Plan::new(decoder, self, slot)?);
        self.slots[slot].plan = Some(Arc::clone(&plan));
        Ok(plan)
    }

    /// Whether any sequence has a plan, so that all kernels are compiled.
    pub(super) fn has_plans(&self) -> bool {
        self.slots.iter().any(|slot| slot.plan.is_some())
    }

    /// The buffer of the next sampled id; waits for the token that used it before.
    pub(super) fn room_for_id(&mut self) -> BufferSlice {
        let (block, last) = &mut self.ids[self.next_id];
        if let Some(ticket) = last.take() {
            // The ticket reports a failure, so the next token need not.
            let _ = ticket.resolve();
            let _ = block.all().buffer().take_failure();
        }
        block.all()
    }

    /// Writes the next token of a sequence, and its position, to the device.
    pub(super) fn place(&mut self, slot: usize, token: u32) -> Result<()> {
        let slot = &mut self.slots[slot];
        let state = [token, slot.len as u32];
        let place = slot.state.all();
        let written = place.buffer().write(place.offset(), &state);
        written.map_err(|e| Error::device(OP, e))?;
        slot.is_placed = true;
        Ok(())
    }

    /// Makes sure that the device has the token that the next step processes.
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

    /// Registers a sampled token in flight, after a decoding step if `decodes` is set.
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

    /// Registers that a sequence has grown by `tokens` tokens, and whether it has logits.
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
        // The memory goes back to the pool.
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
