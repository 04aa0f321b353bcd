//! Tokens that are found in a text before anything else is done to it.

use std::collections::HashMap;
use std::ops::Range;

/// A token that stands for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AddedToken {
    pub(super) text: String,
    pub(super) id: u32,
    /// Whether it is there for the model and not for readers: `<|im_end|>`.
    pub(super) is_special: bool,
    /// Whether it takes in the white space before it.
    pub(super) strips_left: bool,
    /// Whether it takes in the white space after it.
    pub(super) strips_right: bool,
    /// Whether it must not be a part of a word.
    pub(super) is_word: bool,
}

/// All of them, to be looked for at once: the leftmost, and of those the longest.
#[derive(Debug, Default)]
pub(super) struct Added {
    tokens: Vec<AddedToken>,
    index: HashMap<String, usize>,
    /// For each first byte the lengths of the tokens that begin with it, the longest first.
    lengths: HashMap<u8, Vec<usize>>,
}

impl Added {
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

    /// The texts of the special ones.
    pub(super) fn special(&self) -> impl Iterator<Item = &str> {
        let special = self.tokens.iter().filter(|t| t.is_special);
        special.map(|t| t.text.as_str())
    }

    /// The next one in a text from a place on, and where it is. Special ones are found only where `is_special`
    /// says that their bytes may be one.
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
                // Neither may end inside a character.
                let Some(part) = text.get(at..at + len) else {
                    continue;
                };
                let Some(token) = self.get(part) else {
                    continue;
                };
                if token.is_special && !is_special(at..at + len)
                    || token.is_word && !stands_alone(text, at..at + len)
                {
                    continue;
                }
                return Some((token.reach(text, at..at + len, from), token));
            }
        }
        None
    }
}

impl AddedToken {
    /// The token and the white space that it takes in.
    fn reach(&self, text: &str, mut range: Range<usize>, from: usize) -> Range<usize> {
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

fn stands_alone(text: &str, range: Range<usize>) -> bool {
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
    fn the_leftmost_is_found_and_of_those_the_longest() {
        let mut added = Added::default();
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
    fn white_space_and_words_around_count_where_they_should() {
        let mut added = Added::default();
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
