//! Masks the special tokens in message text while a template runs.
//!
//! A template may trim, split, search, join and quote a message's text, so the text cannot be one opaque value.
//! Instead, one character of every special token (the `<` of `<|im_start|>`) is replaced, in messages only, by a
//! private-use placeholder. It survives whatever the template does and marks the characters of messages afterwards:
//! no special token may contain one. Each placeholder replaces one character, so lengths and slices stay the same,
//! and it occurs nowhere else in the conversation.
//!
//! Text that a template searches for in messages, such as `</think>`, is not masked: see [`Mask::literals`].

use std::ops::Range;

use super::Prompt;

/// Supplementary private-use area A, the source of placeholders.
const PLACEHOLDERS: Range<u32> = 0xF_0000..0xF_FFFE;

/// The characters that are masked in messages while a template runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Mask {
    /// Characters of which every special token has at least one.
    keys: Vec<char>,
    /// Strings of the template that begin with a key and are not part of a special token. A template that searches
    /// for one of them in a message must find it.
    literals: Vec<String>,
    /// Placeholders that the template itself contains.
    reserved: Vec<char>,
}

/// Position of the character of a special token that is masked: punctuation if it has any, because templates compare
/// words.
fn key(token: &str) -> Option<usize> {
    let is_mark = |c: char| !c.is_alphanumeric() && !c.is_whitespace();
    token
        .find(is_mark)
        .or_else(|| token.find(|c: char| !c.is_whitespace()))
}

impl Mask {
    pub(super) fn new<'a>(template: &str, special: impl Iterator<Item = &'a str>) -> Self {
        // Each from its key on.
        let tokens: Vec<&str> = special.filter_map(|t| t.get(key(t)?..)).collect();
        let mut keys: Vec<char> = tokens.iter().filter_map(|t| t.chars().next()).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut literals = Vec::new();
        for (at, _) in template.match_indices(&keys[..]) {
            let rest = &template[at..];
            let end = rest.find(['\'', '"', '\\', '\n']).unwrap_or(rest.len());
            let text = &rest[..end];
            let is_special = |t: &&str| t.starts_with(text) || text.starts_with(t);
            if text.chars().nth(1).is_some() && !tokens.iter().any(is_special) {
                literals.push(text.to_owned());
            }
        }
        literals.sort_unstable();
        literals.dedup();
        let reserved = template.chars().filter(|c| is_placeholder(*c)).collect();
        Self {
            keys,
            literals,
            reserved,
        }
    }

    /// Assigns placeholders that occur in none of these texts.
    pub(super) fn placeholders<'a>(
        &self,
        texts: impl Iterator<Item = &'a str>,
    ) -> Placeholders<'_> {
        let mut reserved = self.reserved.clone();
        reserved.extend(texts.flat_map(str::chars).filter(|c| is_placeholder(*c)));
        let free = PLACEHOLDERS.filter_map(char::from_u32);
        let free = free.filter(|c| !reserved.contains(c));
        Placeholders {
            mask: self,
            pairs: self.keys.iter().copied().zip(free).collect(),
        }
    }
}

fn is_placeholder(char: char) -> bool {
    PLACEHOLDERS.contains(&u32::from(char))
}

/// The keys and their placeholders during one rendering.
#[derive(Debug)]
pub(super) struct Placeholders<'a> {
    mask: &'a Mask,
    pairs: Vec<(char, char)>,
}

impl Placeholders<'_> {
    /// Masks a message's text.
    pub(super) fn mask_text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for (at, char) in text.char_indices() {
            let placeholder = self.pairs.iter().find(|(key, _)| *key == char);
            let is_literal = |l: &String| text[at..].starts_with(l.as_str());
            match placeholder {
                Some(&(_, placeholder)) if !self.mask.literals.iter().any(is_literal) => {
                    out.push(placeholder);
                }
                _ => out.push(char),
            }
        }
        out
    }

    /// Restores the text and records the positions of placeholders.
    pub(super) fn unmask(&self, rendered: &str) -> Prompt {
        let mut prompt = Prompt {
            text: String::with_capacity(rendered.len()),
            literal: Vec::new(),
        };
        for char in rendered.chars() {
            match self
                .pairs
                .iter()
                .find(|(_, placeholder)| *placeholder == char)
            {
                Some((key, _)) => {
                    let start = prompt.text.len();
                    prompt.text.push(*key);
                    prompt.literal.push(start..prompt.text.len());
                }
                None => prompt.text.push(char),
            }
        }
        prompt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_the_first_punctuation_character() {
        let cases = [
            ("<s>", Some(0)),
            ("end_of_turn", Some(3)),
            (" \n<s>", Some(2)),
            ("a b", Some(0)),
            ("  word", Some(2)),
            (" \n", None),
            ("", None),
        ];
        for (token, expected) in cases {
            assert_eq!(key(token), expected, "{token:?}");
        }
    }

    #[test]
    fn placeholders_occur_nowhere_else() {
        let [a, b, c, d] = ['\u{f0000}', '\u{f0001}', '\u{f0002}', '\u{f0003}'];
        let mask = Mask::new(&format!("x{a}<s>"), ["<s>", "[/s]"].into_iter());
        assert_eq!(
            (&mask.keys[..], &mask.reserved[..]),
            (&['<', '['][..], &[a][..])
        );
        let text = format!("{c}<s>[");
        let placeholders = mask.placeholders([&*text, "\u{ffffe}é"].into_iter());
        assert_eq!(placeholders.pairs, [('<', b), ('[', d)]);
        let hidden = placeholders.mask_text(&text);
        assert_eq!(hidden, format!("{c}{b}s>{d}"));
        // Special tokens written by the template stay special.
        let prompt = placeholders.unmask(&format!("<s>{hidden}"));
        assert_eq!(prompt.text, format!("<s>{text}"));
        assert_eq!(prompt.literal, [7..8, 10..11]);
    }

    #[test]
    fn text_that_a_template_searches_for_is_not_masked() {
        let template = "{{ m.split('</think>')[0] }}<s>{{ '<' }}";
        let mask = Mask::new(template, ["<s>"].into_iter());
        assert_eq!(mask.literals, ["</think>"]);
        let placeholders = mask.placeholders(["a"].into_iter());
        let hidden = placeholders.mask_text("<</think><s>");
        assert_eq!(hidden, "\u{f0000}</think>\u{f0000}s>");
    }
}
