//! Vocabularies: token ids to bytes and back.

use std::collections::HashMap;

/// The tokens of a model.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    /// Ids by the encoded form of tokens: bytes for byte-level models.
    index: HashMap<Box<[u8]>, u32>,
    /// Decoded bytes of all tokens, concatenated.
    pieces: Vec<u8>,
    ends: Vec<usize>,
    /// Bytes of the longest token.
    longest: usize,
}

impl Vocabulary {
    /// Appends a token that decodes to these bytes.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.pieces.extend(piece);
        self.ends.push(self.pieces.len());
    }

    /// Maps these bytes to a token, unless they are mapped already.
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

    /// The decoded bytes of a token.
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

/// The tokens of all bytes, written as `<0x0A>`, if all exist.
pub(super) fn byte_tokens(id: impl Fn(&str) -> Option<u32>) -> Option<Box<[u32; 256]>> {
    let mut ids = Box::new([0; 256]);
    for (byte, slot) in ids.iter_mut().enumerate() {
        *slot = id(&format!("<0x{byte:02X}>"))?;
    }
    Some(ids)
}

/// Parses a byte token such as `<0x0A>`.
pub(super) fn byte_of(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    match digits.len() {
        2 => u8::from_str_radix(digits, 16).ok(),
        _ => None,
    }
}
