//! Byte-pair encoding.

use std::collections::HashMap;

use super::merge::{Symbols, UNKNOWN};
use super::vocabulary::Vocabulary;

/// BPE over bytes (GPT-2 and its successors) or over characters.
#[derive(Debug)]
pub(super) struct Bpe {
    /// For a pair of tokens, the rank of its merge and the merged token.
    pub(super) merges: HashMap<(u32, u32), (u32, u32)>,
    pub(super) units: Units,
    /// Whether a word that is a token is encoded as that token without merging.
    pub(super) is_word_first: bool,
    pub(super) unknown: Option<u32>,
    /// Whether consecutive unknown characters become one unknown token.
    pub(super) fuse_unknown: bool,
}

/// Initial symbols.
#[derive(Debug)]
pub(super) enum Units {
    /// Bytes, with the token of each.
    Bytes(Box<[u32; 256]>),
    /// Characters, with byte fallback for those that are not tokens.
    Chars { bytes: Option<Box<[u32; 256]>> },
}

impl Bpe {
    /// Appends the tokens of a word.
    pub(super) fn encode(&self, vocab: &Vocabulary, word: &str, out: &mut Vec<u32>) {
        if self.is_word_first
            && let Some(id) = vocab.id(word.as_bytes())
        {
            out.push(id);
            return;
        }
        let mut symbols = Symbols::default();
        match &self.units {
            Units::Bytes(ids) => {
                for (at, &byte) in word.as_bytes().iter().enumerate() {
                    let id = ids[usize::from(byte)];
                    // A byte without a token is skipped, and its neighbours may be merged.
                    if id != UNKNOWN || self.unknown.is_some() {
                        symbols.push(at, 1, id);
                    }
                }
            }
            Units::Chars { bytes } => {
                for (at, char) in word.char_indices() {
                    let len = char.len_utf8();
                    let text = &word.as_bytes()[at..at + len];
                    match (vocab.id(text), bytes) {
                        (Some(id), _) => symbols.push(at, len, id),
                        (None, Some(ids)) => text.iter().enumerate().for_each(|(i, &byte)| {
                            symbols.push(at + i, 1, ids[usize::from(byte)]);
                        }),
                        (None, None) if self.unknown.is_some() => symbols.push(at, len, UNKNOWN),
                        (None, None) => {}
                    }
                }
            }
        }
        symbols.merge(|a, b| self.merges.get(&(a.id, b.id)).copied());
        let mut was_unknown = false;
        for symbol in symbols.iter() {
            let is_unknown = symbol.id == UNKNOWN;
            match (is_unknown, self.unknown) {
                (false, _) => out.push(symbol.id),
                (true, Some(id)) if !(was_unknown && self.fuse_unknown) => out.push(id),
                _ => {}
            }
            was_unknown = is_unknown;
        }
    }
}
