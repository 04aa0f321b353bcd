//! Message text that passes through a template and stays text.
//!
//! A template may trim, split, search, join and quote a message's text, so the text cannot be one opaque value.
//! Instead, the character that every special token needs (the `<` of `<|im_start|>`) is replaced, in messages
//! only, by a private-use stand-in. It survives whatever the template does, and shows afterwards which characters
//! are a message's: no special token may contain one. Stand-ins are one character for one character, so lengths
//! and slices stay the same, and they are chosen among characters that occur nowhere in the conversation.
//!
//! What a template looks for in messages, such as `</think>`, is left alone: see [`Mask::literals`].

use std::ops::Range;

use super::Prompt;

/// Supplementary private-use area A, where stand-ins come from.
const STAND_INS: Range<u32> = 0xF_0000..0xF_FFFE;

/// The characters of messages that are replaced while a template runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Mask {
    /// Characters of which every special token has one.
    keys: Vec<char>,
    /// Texts of the template that begin with a key and are no part of a special token. A template that looks for
    /// one of them in a message must find it.
    literals: Vec<String>,
    /// Stand-ins that the template itself contains.
    taken: Vec<char>,
}

/// The character of a special token that is replaced: punctuation where it has some, because templates compare
/// words.
fn key(token: &str) -> Option<usize> {
    let is_mark = |c: char| !c.is_alphanumeric() && !c.is_whitespace();
    token
        .find(is_mark)
        .or_else(|| token.find(|c: char| !c.is_whitespace()))
}

impl Mask {
    pub(super) fn new<'a>(template: &str, special: impl Iterator<Item = &'a str>) -> Self {
        // From the key on.
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
        let taken = template.chars().filter(|c| is_stand_in(*c)).collect();
        Self {
            keys,
            literals,
            taken,
        }
    }

    /// Stand-ins that occur in none of these texts.
    pub(super) fn stand_ins<'a>(&self, texts: impl Iterator<Item = &'a str>) -> StandIns<'_> {
        let mut taken = self.taken.clone();
        taken.extend(texts.flat_map(str::chars).filter(|c| is_stand_in(*c)));
        let free = STAND_INS.filter_map(char::from_u32);
        let free = free.filter(|c| !taken.contains(c));
        StandIns {
            mask: self,
            pairs: self.keys.iter().copied().zip(free).collect(),
        }
    }
}

fn is_stand_in(char: char) -> bool {
    STAND_INS.contains(&u32::from(char))
}

/// Keys and what stands for each of them during one rendering.
#[derive(Debug)]
pub(super) struct StandIns<'a> {
    mask: &'a Mask,
    pairs: Vec<(char, char)>,
}

impl StandIns<'_> {
    /// A message's text as the template sees it.
    pub(super) fn hide(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for (at, char) in text.char_indices() {
            let stand_in = self.pairs.iter().find(|(key, _)| *key == char);
            let is_literal = |l: &String| text[at..].starts_with(l.as_str());
            match stand_in {
                Some(&(_, stand_in)) if !self.mask.literals.iter().any(is_literal) => {
                    out.push(stand_in);
                }
                _ => out.push(char),
            }
        }
        out
    }

    /// The text as it was, and where there were stand-ins.
    pub(super) fn reveal(&self, rendered: &str) -> Prompt {
        let mut prompt = Prompt {
            text: String::with_capacity(rendered.len()),
            literal: Vec::new(),
        };
        for char in rendered.chars() {
            match self.pairs.iter().find(|(_, stand_in)| *stand_in == char) {
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
    fn a_special_token_is_known_by_its_first_mark() {
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
    fn stand_ins_are_those_that_nobody_has_written() {
        let [a, b, c, d] = ['\u{f0000}', '\u{f0001}', '\u{f0002}', '\u{f0003}'];
        let mask = Mask::new(&format!("x{a}<s>"), ["<s>", "[/s]"].into_iter());
        assert_eq!(
            (&mask.keys[..], &mask.taken[..]),
            (&['<', '['][..], &[a][..])
        );
        let text = format!("{c}<s>[");
        let stand_ins = mask.stand_ins([&*text, "\u{ffffe}é"].into_iter());
        assert_eq!(stand_ins.pairs, [('<', b), ('[', d)]);
        let hidden = stand_ins.hide(&text);
        assert_eq!(hidden, format!("{c}{b}s>{d}"));
        // What comes from the template stays a special token.
        let prompt = stand_ins.reveal(&format!("<s>{hidden}"));
        assert_eq!(prompt.text, format!("<s>{text}"));
        assert_eq!(prompt.literal, [7..8, 10..11]);
    }

    #[test]
    fn what_a_template_looks_for_in_messages_is_left_alone() {
        let template = "{{ m.split('</think>')[0] }}<s>{{ '<' }}";
        let mask = Mask::new(template, ["<s>"].into_iter());
        assert_eq!(mask.literals, ["</think>"]);
        let stand_ins = mask.stand_ins(["a"].into_iter());
        let hidden = stand_ins.hide("<</think><s>");
        assert_eq!(hidden, "\u{f0000}</think>\u{f0000}s>");
    }
}
