//! SentencePiece BPE: merges the neighbours whose token has the best score first.

use super::merge::{Symbols, UNKNOWN};
use super::vocabulary::Vocabulary;

/// Vocabulary with scores.
#[derive(Debug)]
pub(super) struct Spm {
    /// The rank of each token; lower ones are merged first.
    pub(super) ranks: Vec<u32>,
    /// Byte fallback: the token of each byte.
    pub(super) bytes: Option<Box<[u32; 256]>>,
    pub(super) unknown: Option<u32>,
}

/// Converts a score to a rank; better scores have lower ranks.
pub(super) fn rank(score: f32) -> u32 {
    let bits = score.to_bits();
    // Order-preserving integer of a float, then inverted.
    let ascending = if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    };
    !ascending
}

impl Spm {
    /// Appends the tokens of a text.
    pub(super) fn encode(&self, vocab: &Vocabulary, text: &str, out: &mut Vec<u32>) {
        let token = |start: usize, len: usize| vocab.id(&text.as_bytes()[start..start + len]);
        let mut symbols = Symbols::default();
        for (at, char) in text.char_indices() {
            let len = char.len_utf8();
            symbols.push(at, len, token(at, len).unwrap_or(UNKNOWN));
        }
        symbols.merge(|a, b| {
            let id = token(a.start, a.len + b.len)?;
            Some((*self.ranks.get(id as usize)?, id))
        });
        for symbol in symbols.iter() {
            match (symbol.id, &self.bytes) {
                (UNKNOWN, Some(ids)) => {
                    let bytes = &text.as_bytes()[symbol.start..symbol.start + symbol.len];
                    out.extend(bytes.iter().map(|&b| ids[usize::from(b)]));
                }
                (UNKNOWN, None) => out.extend(self.unknown),
                (id, _) => out.push(id),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_scores_have_lower_ranks() {
        let scores = [f32::INFINITY, 1.0, 0.5, 0.0, -0.5, -1e9, f32::NEG_INFINITY];
        assert!(scores.windows(2).all(|w| rank(w[0]) < rank(w[1])));
    }
}
