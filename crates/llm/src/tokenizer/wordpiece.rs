//! WordPiece: greedy longest match from the left.

use super::vocabulary::Vocabulary;

/// WordPiece model.
#[derive(Debug)]
pub(super) struct WordPiece {
    pub(super) unknown: u32,
    /// Prefix of tokens inside a word: `##`.
    pub(super) prefix: String,
    /// Maximum characters of a word; longer ones are unknown.
    pub(super) max_word_chars: usize,
}

impl WordPiece {
    /// Appends the tokens of a word.
    pub(super) fn encode(&self, vocab: &Vocabulary, word: &str, out: &mut Vec<u32>) {
        let begin = out.len();
        if word.chars().count() > self.max_word_chars {
            out.push(self.unknown);
            return;
        }
        let mut at = 0;
        while at < word.len() {
            let id = |end: usize| match at {
                0 => vocab.id(&word.as_bytes()[..end]),
                _ => vocab.id(format!("{}{}", self.prefix, &word[at..end]).as_bytes()),
            };
            let ends = word[at..]
                .char_indices()
                .map(|(i, c)| at + i + c.len_utf8());
            let ends: Vec<usize> = ends.collect();
            let found = ends.into_iter().rev().find_map(|end| Some((end, id(end)?)));
            let Some((end, id)) = found else {
                out.truncate(begin);
                out.push(self.unknown);
                return;
            };
            out.push(id);
            at = end;
        }
    }
}
