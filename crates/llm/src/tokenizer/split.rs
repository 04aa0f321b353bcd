//! Pre-tokenizers: splitting a text into words, across which no tokens are merged.

use std::ops::Range;

use fancy_regex::Regex;

use crate::{Error, Result};

/// Backtracking limit of a search: patterns are from files, and some would take exponential time.
const MAX_BACKTRACK_STEPS: usize = 1_000_000;

/// Compiles a pattern from a file.
pub(super) fn pattern(text: &str) -> Result<Regex> {
    let built = fancy_regex::RegexBuilder::new(text)
        .backtrack_limit(MAX_BACKTRACK_STEPS)
        .build();
    built.map_err(|e| Error::unsupported(format_args!("the tokenizer's pattern `{text}`"), e))
}

/// Treatment of the matches of a splitter, as in `tokenizers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behavior {
    /// Matches are removed.
    Removed,
    /// Every match is a word.
    Isolated,
    /// Matches end the word before.
    MergedWithPrevious,
    /// Matches start the word after.
    MergedWithNext,
    /// Consecutive matches are one word.
    Contiguous,
}

/// Splits words into smaller ones.
#[derive(Debug)]
pub(super) struct Splitter {
    pub(super) finder: Finder,
    pub(super) behavior: Behavior,
    /// Whether the text between the matches is treated as matches.
    pub(super) is_inverted: bool,
}

/// Search pattern.
#[derive(Debug)]
pub(super) enum Finder {
    Pattern(Regex),
    Text(String),
    Chars(fn(char) -> bool),
}

impl Splitter {
    /// A splitter that makes a word of every match and of the text between matches.
    pub(super) fn isolating(text: &str) -> Result<Self> {
        Ok(Self {
            finder: Finder::Pattern(pattern(text)?),
            behavior: Behavior::Isolated,
            is_inverted: false,
        })
    }

    /// Splits a word.
    pub(super) fn split<'a>(&self, text: &'a str, out: &mut Vec<&'a str>) -> Result<()> {
        let mut parts = Vec::new();
        let mut at = 0;
        self.finder.each(text, |range| {
            if range.start > at {
                parts.push((at..range.start, self.is_inverted));
            }
            at = range.end;
            parts.push((range, !self.is_inverted));
        })?;
        if at < text.len() {
            parts.push((at..text.len(), self.is_inverted));
        }
        let mut words: Vec<Range<usize>> = Vec::with_capacity(parts.len());
        // Whether the last word may be extended.
        let mut is_open = false;
        for (part, is_match) in parts {
            let extends_last = match self.behavior {
                Behavior::Removed if is_match => continue,
                Behavior::Removed | Behavior::Isolated => false,
                Behavior::Contiguous => is_open && is_match,
                Behavior::MergedWithPrevious => is_open && is_match,
                Behavior::MergedWithNext => is_open && !is_match,
            };
            match words.last_mut() {
                Some(last) if extends_last => last.end = part.end,
                _ => words.push(part),
            }
            is_open = match self.behavior {
                Behavior::MergedWithPrevious => !is_match,
                Behavior::MergedWithNext | Behavior::Contiguous => is_match,
                _ => false,
            };
        }
        out.extend(
            words
                .into_iter()
                .filter(|w| !w.is_empty())
                .map(|w| &text[w]),
        );
        Ok(())
    }
}

impl Finder {
    /// Calls `found` with every match, from left to right.
    fn each(&self, text: &str, mut found: impl FnMut(Range<usize>)) -> Result<()> {
        match self {
            Self::Pattern(regex) => {
                for found_at in regex.find_iter(text) {
                    let range = found_at.map_err(too_long)?.range();
                    if !range.is_empty() {
                        found(range);
                    }
                }
            }
            Self::Text(needle) if needle.is_empty() => {}
            Self::Text(needle) => text
                .match_indices(needle.as_str())
                .for_each(|(at, part)| found(at..at + part.len())),
            Self::Chars(is_match) => text
                .char_indices()
                .filter(|&(_, c)| is_match(c))
                .for_each(|(at, c)| found(at..at + c.len_utf8())),
        }
        Ok(())
    }
}

fn too_long(error: fancy_regex::Error) -> Error {
    Error::unsupported("searching this text with the tokenizer's pattern", error)
}

/// Replaces all matches in a text.
pub(super) fn replace(regex: &Regex, text: &str, with: &str) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for found in regex.find_iter(text) {
        let range = found.map_err(too_long)?.range();
        out.push_str(&text[at..range.start]);
        out.push_str(with);
        at = range.end;
    }
    out.push_str(&text[at..]);
    Ok(out)
}

/// Patterns that files refer to by name.
pub(super) mod named {
    /// GPT-2's pattern.
    pub(in crate::tokenizer) const GPT2: &str =
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
    /// Llama 3's: groups of up to three digits.
    pub(in crate::tokenizer) const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    /// Qwen's: single digits.
    pub(in crate::tokenizer) const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    /// Mistral's, since Nemo: words also end before a capital after lower-case letters.
    pub(in crate::tokenizer) const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    /// BERT's punctuation: Unicode's, and ASCII characters that are neither letters nor digits.
    pub(in crate::tokenizer) const BERT_PUNCTUATION: &str =
        r"[\p{P}\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e]";
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(finder: Finder, behavior: Behavior, is_inverted: bool, text: &str) -> Vec<String> {
        let splitter = Splitter {
            finder,
            behavior,
            is_inverted,
        };
        let mut out = Vec::new();
        splitter.split(text, &mut out).unwrap();
        out.into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn behaviors_match_the_tokenizers_package() {
        // The example of that package's documentation.
        let text = "the-final--countdown";
        let dash = |behavior| split(Finder::Text("-".to_owned()), behavior, false, text);
        assert_eq!(dash(Behavior::Removed), ["the", "final", "countdown"]);
        assert_eq!(
            dash(Behavior::Isolated),
            ["the", "-", "final", "-", "-", "countdown"]
        );
        assert_eq!(
            dash(Behavior::MergedWithPrevious),
            ["the-", "final-", "-", "countdown"]
        );
        assert_eq!(
            dash(Behavior::MergedWithNext),
            ["the", "-final", "-", "-countdown"]
        );
        assert_eq!(
            dash(Behavior::Contiguous),
            ["the", "-", "final", "--", "countdown"]
        );
    }

    #[test]
    fn named_patterns_split_words() {
        let words = |pattern| {
            let splitter = Splitter::isolating(pattern).unwrap();
            let mut out = Vec::new();
            splitter
                .split("I'LL  pay 12345 €\n\n ok ", &mut out)
                .unwrap();
            out.into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            words(named::GPT2),
            [
                "I", "'", "LL", " ", " pay", " 12345", " €", "\n\n", " ok", " "
            ]
        );
        assert_eq!(
            words(named::LLAMA3),
            [
                "I", "'LL", " ", " pay", " ", "123", "45", " €\n\n", " ok", " "
            ]
        );
        assert_eq!(words(named::QWEN2)[4..10], [" ", "1", "2", "3", "4", "5"]);
    }

    #[test]
    fn exponential_patterns_are_aborted() {
        let splitter = Splitter::isolating("(a|b|ab)*(?>c)").unwrap();
        let text = "ab".repeat(64);
        assert!(splitter.split(&text, &mut Vec::new()).is_err());
        assert!(Splitter::isolating("(").is_err());
    }
}
