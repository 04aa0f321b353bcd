//! Added tokens, which are matched in a text before it is normalized.

use std::collections::HashMap;
use std::ops::Range;

/// An added token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AddedToken {
    pub(super) text: String,
    pub(super) id: u32,
    /// Whether it is special, as `<|im_end|>`: for the model, not part of the text.
    pub(super) is_special: bool,
    /// Whether it absorbs the white space before it.
    pub(super) strips_left: bool,
    /// Whether it absorbs the white space after it.
    pub(super) strips_right: bool,
    /// Whether it only matches whole words.
    pub(super) is_word: bool,
}

/// All added tokens, for leftmost-longest search.
#[derive(Debug, Default)]
pub(super) struct AddedTokens {
    tokens: Vec<AddedToken>,
    index: HashMap<String, usize>,
    /// For each first byte, the lengths of the tokens that start with it, longest first.
    lengths: HashMap<u8, Vec<usize>>,
}

impl AddedTokens {
    pub(super) fn push(&mut self, token: AddedToken) {
        let Some(&first) = token.text.as_bytes().first() else {
            return;
        };
        let lengths = self.lengths.entry(first).or_default();
        if let Err(at) = lengths.binary_search_by(|len| token.text.len().cmp(len)) {
            lengths.insert(at, token.text.len());
        }
        self.index
            .entry(token.text.clone())
            .or_insert(self.tokens.len());
        self.tokens.push(token);
    }

    pub(super) fn get(&self, text: &str) -> Option<&AddedToken> {
        Some(&self.tokens[*self.index.get(text)?])
    }

    /// The texts of the special tokens.
    pub(super) fn special(&self) -> impl Iterator<Item = &str> {
        let special = self.tokens.iter().filter(|t| t.is_special);
        special.map(|t| t.text.as_str())
    }

    /// Finds the next token in a text from a position on, with its range. Special tokens match only where `is_special`
    /// allows their bytes.
    pub(super) fn find(
        &self,
        text: &str,
        from: usize,
        is_special: impl Fn(Range<usize>) -> bool,
    ) -> Option<(Range<usize>, &AddedToken)> {
        if self.tokens.is_empty() {
            return None;
        }
        for (at, first) in text.bytes().enumerate().skip(from) {
            let Some(lengths) = self.lengths.get(&first) else {
                continue;
            };
            for &len in lengths {
                // `None` inside a character.
                let Some(candidate) = text.get(at..at + len) else {
                    continue;
                };
                let Some(token) = self.get(candidate) else {
                    continue;
                };
                if token.is_special && !is_special(at..at + len)
                    || token.is_word && !is_whole_word(text, at..at + len)
                {
                    continue;
                }
                return Some((token.extend_over_spaces(text, at..at + len, from), token));
            }
        }
        None
    }
}

impl AddedToken {
    /// The range of the token and the white space that it absorbs.
    fn extend_over_spaces(&self, text: &str, mut range: Range<usize>, from: usize) -> Range<usize> {
        if self.strips_left {
            range.start = from + text[from..range.start].trim_end().len();
        }
        if self.strips_right {
            let after = &text[range.end..];
            range.end += after.len() - after.trim_start().len();
        }
        range
    }
}

fn is_whole_word(text: &str, range: Range<usize>) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let before = text[..range.start].chars().next_back();
    let after = text[range.end..].chars().next();
    !before.is_some_and(is_word) && !after.is_some_and(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str, id: u32) -> AddedToken {
        AddedToken {
            text: text.to_owned(),
            id,
            is_special: true,
            strips_left: false,
            strips_right: false,
            is_word: false,
        }
    }

    #[test]
    fn the_leftmost_longest_token_is_found() {
        let mut added = AddedTokens::default();
        added.push(token("<a>", 0));
        added.push(token("<a><b>", 1));
        added.push(token("é", 2));
        added.push(token("", 3));
        let find = |text, from| added.find(text, from, |_| true).map(|(r, t)| (r, t.id));
        assert_eq!(find("x<a><b>", 0), Some((1..7, 1)));
        assert_eq!(find("x<a><c>", 0), Some((1..4, 0)));
        assert_eq!(find("x<a><c>", 2), None);
        assert_eq!(find("è é", 0), Some((3..5, 2)));
        assert!(added.find("<a>", 0, |_| false).is_none());
    }

    #[test]
    fn white_space_and_word_boundaries_are_respected() {
        let mut added = AddedTokens::default();
        added.push(AddedToken {
            strips_left: true,
            strips_right: true,
            ..token("<m>", 0)
        });
        added.push(AddedToken {
            is_word: true,
            ..token("now", 1)
        });
        let find = |text| added.find(text, 0, |_| true).map(|(r, t)| (r, t.id));
        assert_eq!(find("a  <m> \nb"), Some((1..8, 0)));
        assert_eq!(find("snow"), None);
        assert_eq!(find("now!"), Some((0..3, 1)));
    }
}
