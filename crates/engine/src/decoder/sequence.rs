//! Sequences: their KV caches, decoding state and scratch memory.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use bessemer_hal::{BufferSlice, Submission};

use super::pending::Ticket;
use super::plan::{self, DecodePlan};
use super::{Decoder, DecoderInner, OP, Pending, Spec, invalid};
use crate::kernel::CacheType;
use crate::metal::{Block, Metal};
use crate::{Error, Result};

/// Maximum sampled tokens in flight: the next waits for the oldest.
const MAX_TOKENS_IN_FLIGHT: usize = 8;

/// Bytes of a sequence's state on the device: the next token and its position.
pub(super) const STATE_BYTES: usize = 8;

/// KV caches of some sequences on a device, with the same capacity each, and the scratch memory of decoding. All of it
/// is allocated up front.
///
/// The sequences are numbered; each grows, and is truncated, independently. Dropping waits for steps in flight.
pub struct Sequences {
    owner: Arc<DecoderInner>,
    kind: CacheType,
    positions: usize,
    slots: Vec<SequenceSlot>,
    /// Keys and values of every layer: `[slot][kv_head][position][dim]`.
    caches: Vec<[Block; 2]>,
    scratch: Scratch,
    /// Ids of sampled tokens, for the host to read, and the last ticket that used each.
    ids: Vec<(Block, Option<Arc<Ticket>>)>,
    next_id: usize,
    in_flight: VecDeque<InFlight>,
    /// The sequence whose last logits are in memory.
    logits_of: Option<usize>,
}

/// One sequence.
struct SequenceSlot {
    len: usize,
    /// The token that comes next.
    next: NextToken,
    /// Whether the device has the position, and the token unless only the device knows it.
    is_written: bool,
    /// Token and position on the device.
    state: Block,
    plan: Option<Arc<DecodePlan>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NextToken {
    Unknown,
    Host(u32),
    Device,
}

/// A sampled token in flight.
struct InFlight {
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
    pub(super) block_output: BufferSlice,
    pub(super) q: BufferSlice,
    /// Keys that await their head norm.
    pub(super) k: BufferSlice,
    /// Keys and values in `f32` that attention quantises into the cache: a quantised block needs elements that several
    /// threadgroups compute.
    pub(super) staged_kv: Option<[BufferSlice; 2]>,
    /// Output of attention, and partial results of its splits.
    pub(super) attn_output: BufferSlice,
    pub(super) partials: BufferSlice,
    pub(super) ffn_hidden: BufferSlice,
}

impl Scratch {
    fn new(metal: &Arc<Metal>, spec: &Spec, kind: CacheType, positions: usize) -> Result<Self> {
        let (q, k) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        let partials = plan::max_splits(spec, positions) * spec.heads * (spec.head_dim + 2);
        let is_staged = kind == CacheType::Q8_0;
        let staged_kv = if is_staged { k } else { 0 };
        let (width, ffn) = (spec.width, spec.ffn);
        let sizes = [
            width, width, width, q, k, staged_kv, staged_kv, q, partials, ffn,
        ];
        let mut end = 0;
        let ranges = sizes.map(|size| {
            let start = end;
            end = (start + 4 * size).next_multiple_of(256);
            start..start + 4 * size
        });
        let block = allocate(metal, end)?;
        let [
            a,
            b,
            block_output,
            q,
            k,
            new_k,
            new_v,
            attn_output,
            partials,
            ffn_hidden,
        ] = ranges;
        let slice = |range| block.slice(range);
        let staged_kv = is_staged.then(|| [new_k, new_v].map(slice));
        let [a, b, block_output, q, k, attn_output, partials, ffn_hidden] =
            [a, b, block_output, q, k, attn_output, partials, ffn_hidden].map(slice);
        Ok(Self {
            logits: allocate(metal, 4 * spec.vocab)?,
            x: [a, b],
            block_output,
            q,
            k,
            staged_kv,
            attn_output,
            partials,
            ffn_hidden,
            block,
        })
    }

    fn bytes(&self) -> usize {
        self.block.len() + self.logits.len()
    }
}

/// Memory that nothing in flight uses.
fn allocate(metal: &Arc<Metal>, bytes: usize) -> Result<Block> {
    Block::idle(metal, OP, bytes)
}

impl Sequences {
    /// Allocates `slots` empty sequences of up to `positions` tokens each.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no sequence or no capacity for a token; [`Error::OutOfMemory`].
    pub fn new(decoder: &Decoder, kind: CacheType, slots: usize, positions: usize) -> Result<Self> {
        let (metal, spec) = (decoder.metal(), decoder.spec());
        if [slots, positions]
            .iter()
            .any(|&n| n == 0 || u32::try_from(n).is_err())
        {
            return Err(invalid(format!(
                "unsupported capacity: {slots} sequences of {positions} tokens"
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
            Ok(SequenceSlot {
                len: 0,
                next: NextToken::Unknown,
                is_written: false,
                state: allocate(metal, STATE_BYTES)?,
                plan: None,
            })
        };
        let caches = |_| Ok([allocate(metal, cache)?, allocate(metal, cache)?]);
        let ids = |_| Ok((allocate(metal, 4)?, None));
        Ok(Self {
            owner: Arc::clone(&decoder.0),
            kind,
            positions,
            // Before the slots: too many of them exceed the memory limit here, and are not allocated one by one.
            caches: (0..spec.layers.len()).map(caches).collect::<Result<_>>()?,
            slots: (0..slots).map(slot).collect::<Result<_>>()?,
            scratch: Scratch::new(metal, spec, kind, positions)?,
            ids: (0..MAX_TOKENS_IN_FLIGHT).map(ids).collect::<Result<_>>()?,
            next_id: 0,
            in_flight: VecDeque::new(),
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
        let rest = self.slots.len() * STATE_BYTES + 4 * self.ids.len();
        [caches, self.scratch.bytes() + rest]
    }

    /// Length of a sequence in tokens, including steps in flight; 0 if there is no such sequence.
    pub fn len(&self, slot: usize) -> usize {
        let failed = self.in_flight.iter().filter(|f| f.slot == slot);
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
        self.wait_for(slot);
        let before = self.checked_len(slot)?;
        let slot = &mut self.slots[slot];
        slot.len = len.min(before);
        slot.next = NextToken::Unknown;
        slot.is_written = false;
        self.logits_of = None;
        Ok(())
    }

    /// Sets the token that the next [`Decoder::step`] processes. Waits for steps of the sequence in flight.
    ///
    /// # Errors
    /// [`Error::BadIndex`] if there is no such sequence or no such token.
    pub fn set_next(&mut self, slot: usize, token: u32) -> Result<()> {
        self.wait_for(slot);
        self.checked_len(slot)?;
        if token as usize >= self.owner.spec.vocab {
            return Err(Error::BadIndex {
                op: OP,
                index: i64::from(token),
                len: self.owner.spec.vocab,
            });
        }
        let slot = &mut self.slots[slot];
        slot.next = NextToken::Host(token);
        slot.is_written = false;
        Ok(())
    }

    pub(super) fn owner(&self) -> &Arc<DecoderInner> {
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
        let range = slot * size..(slot + 1) * size;
        [0, 1].map(|i| self.caches[layer][i].slice(range.clone()))
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
    pub(super) fn check_capacity(&self, len: usize) -> Result<()> {
        if len <= self.positions {
            return Ok(());
        }
        Err(invalid(format!(
            "{len} tokens exceed the capacity of a sequence, which is {}",
            self.positions
        )))
    }

    /// Handles sampled tokens that have failed: their sequences return to the length before.
    pub(super) fn drop_failed(&mut self) {
        while let Some(flight) = self.in_flight.front()
            && flight.ticket.is_done()
        {
            if flight.ticket.has_failed() {
                let slot = &mut self.slots[flight.slot];
                slot.len = slot.len.min(flight.before);
                slot.next = NextToken::Unknown;
                slot.is_written = false;
                self.logits_of = None;
            }
            self.in_flight.pop_front();
        }
    }

    /// Waits for the sampled tokens of a sequence in flight, and handles those that have failed.
    pub(super) fn wait_for(&mut self, slot: usize) {
        for flight in self.in_flight.iter().filter(|f| f.slot == slot) {
            // The owner of the ticket gets the error.
            let _ = flight.ticket.resolve();
        }
        self.drop_failed();
    }

    /// The launches of a sequence's decoding step, made once.
    pub(super) fn plan(&mut self, decoder: &Decoder, slot: usize) -> Result<Arc<DecodePlan>> {
        if let Some(plan) = &self.slots[slot].plan {
            return Ok(Arc::clone(plan));
        }
        let plan = Arc::new(DecodePlan::new(decoder, self, slot)?);
        self.slots[slot].plan = Some(Arc::clone(&plan));
        Ok(plan)
    }

    /// Whether any sequence has a plan, so that all kernels are compiled.
    pub(super) fn has_plan(&self) -> bool {
        self.slots.iter().any(|slot| slot.plan.is_some())
    }

    /// The buffer of the next sampled id; waits for the token that used it before.
    pub(super) fn next_id_buffer(&mut self) -> BufferSlice {
        let (block, last) = &mut self.ids[self.next_id];
        if let Some(ticket) = last.take() {
            // The ticket reports a failure, so the next token need not.
            let _ = ticket.resolve();
            let _ = block.all().buffer().take_failure();
        }
        block.all()
    }

    /// Writes the next token of a sequence, and its position, to the device.
    pub(super) fn write_state(&mut self, slot: usize, token: u32) -> Result<()> {
        let slot = &mut self.slots[slot];
        let state = [token, slot.len as u32];
        let target = slot.state.all();
        let written = target.buffer().write(target.offset(), &state);
        written.map_err(|e| Error::device(OP, e))?;
        slot.is_written = true;
        Ok(())
    }

    /// Makes sure that the device has the token that the next step processes.
    pub(super) fn write_next(&mut self, slot: usize) -> Result<()> {
        let SequenceSlot {
            next, is_written, ..
        } = self.slots[slot];
        match next {
            NextToken::Unknown => Err(invalid(format!(
                "sequence {slot} has no next token; use `choose` or `set_next`"
            ))),
            NextToken::Host(token) if !is_written => self.write_state(slot, token),
            _ => Ok(()),
        }
    }

    /// Registers a sampled token in flight, after a decoding step if `decodes` is set.
    pub(super) fn register(
        &mut self,
        slot: usize,
        submission: Submission,
        id: BufferSlice,
        decodes: bool,
    ) -> Pending {
        let parent = self.in_flight.iter().rfind(|f| f.slot == slot);
        let parent = parent.map(|f| Arc::clone(&f.ticket));
        let ticket = Ticket::new(submission, id, parent);
        self.ids[self.next_id].1 = Some(Arc::clone(&ticket));
        self.next_id = (self.next_id + 1) % self.ids.len();
        let before = self.slots[slot].len;
        self.slots[slot].len += usize::from(decodes);
        self.slots[slot].next = NextToken::Device;
        if decodes {
            self.logits_of = None;
        }
        self.in_flight.push_back(InFlight {
            slot,
            before,
            ticket: Arc::clone(&ticket),
        });
        Pending(ticket)
    }

    /// Registers that a sequence has grown by `tokens` tokens, and whether it has logits.
    pub(super) fn extend(&mut self, slot: usize, tokens: usize, has_logits: bool) {
        let state = &mut self.slots[slot];
        state.len += tokens;
        state.next = NextToken::Unknown;
        state.is_written = false;
        self.logits_of = has_logits.then_some(slot);
    }

    pub(super) fn has_logits(&self, slot: usize) -> bool {
        self.logits_of == Some(slot)
    }
}

impl Drop for Sequences {
    fn drop(&mut self) {
        // The memory goes back to the pool.
        for flight in &self.in_flight {
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
