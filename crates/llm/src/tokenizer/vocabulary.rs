//! Tokens by number and numbers by token.

use std::collections::HashMap;

/// The tokens of a model.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    /// What the model has of each token in texts to be encoded: bytes for byte-level models.
    index: HashMap<Box<[u8]>, u32>,
    /// What each token adds to a text, all in one piece of memory.
    pieces: Vec<u8>,
    ends: Vec<usize>,
    /// Bytes of the longest token.
    longest: usize,
}

impl Vocabulary {
    /// Appends a token that adds these bytes to a text.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.pieces.extend(piece);
        self.ends.push(self.pieces.len());
    }

    /// Makes texts that are these bytes become this token, unless another one has them.
    pub(super) fn name(&mut self, text: &[u8], id: u32) {
        if text.is_empty() {
            return;
        }
        self.longest = self.longest.max(text.len());
        self.index.entry(text.into()).or_insert(id);
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn id(&self, text: &[u8]) -> Option<u32> {
        self.index.get(text).copied()
    }

    /// What a token adds to a text.
    pub(super) fn piece(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        let end = *self.ends.get(id)?;
        let start = id.checked_sub(1).map_or(0, |i| self.ends[i]);
        Some(&self.pieces[start..end])
    }

    pub(super) fn longest(&self) -> usize {
        self.longest
    }
}

/// The tokens of all bytes, written `<0x0A>`, if there is one for each.
pub(super) fn byte_tokens(id: impl Fn(&str) -> Option<u32>) -> Option<Box<[u32; 256]>> {
    let mut ids = Box::new([0; 256]);
    for (byte, slot) in ids.iter_mut().enumerate() {
        *slot = id(&format!("<0x{byte:02X}>"))?;
    }
    Some(ids)
}

/// The byte that a token written `<0x0A>` stands for.
pub(super) fn byte_of(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    match digits.len() {
        2 => u8::from_str_radix(digits, 16).ok(),
        _ => None,
    }
}
