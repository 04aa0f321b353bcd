//! Normalizers.

use std::borrow::Cow;

use fancy_regex::Regex;
use unicode_normalization::UnicodeNormalization as _;

use super::split::replace;
use crate::Result;

/// A normalization step.
#[derive(Debug)]
pub(super) enum Normalizer {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Lowercase,
    /// Prepends to a text that is not empty.
    Prepend(String),
    /// Prepends to a text that does not start with it; with `only_first`, only at the start of the whole text.
    Begin {
        text: String,
        only_first: bool,
    },
    /// Prepends a space to a text that does not start with one.
    LeadingSpace,
    ReplaceText {
        from: String,
        to: String,
    },
    ReplaceMatches {
        from: Regex,
        to: String,
    },
    Strip {
        left: bool,
        right: bool,
    },
    /// Removes nonspacing marks, such as accents after NFD.
    StripMarks(Regex),
    /// BERT's: removes invisible characters, and replaces white space by spaces.
    Clean(Regex),
    /// Adds spaces around each Chinese character.
    SpaceChinese,
}

impl Normalizer {
    pub(super) fn apply<'a>(&self, text: Cow<'a, str>, is_first: bool) -> Result<Cow<'a, str>> {
        Ok(match self {
            Self::Nfc => text.nfc().collect::<String>().into(),
            Self::Nfd => text.nfd().collect::<String>().into(),
            Self::Nfkc => text.nfkc().collect::<String>().into(),
            Self::Nfkd => text.nfkd().collect::<String>().into(),
            // Character by character: final Σ is not treated specially.
            Self::Lowercase => text.chars().flat_map(char::to_lowercase).collect(),
            Self::Prepend(_) if text.is_empty() => text,
            Self::Prepend(prefix) => format!("{prefix}{text}").into(),
            Self::Begin {
                only_first: true, ..
            } if !is_first => text,
            Self::Begin { text: begin, .. } if text.starts_with(begin) || text.is_empty() => text,
            Self::Begin { text: begin, .. } => format!("{begin}{text}").into(),
            Self::LeadingSpace if text.starts_with(' ') || text.is_empty() => text,
            Self::LeadingSpace => format!(" {text}").into(),
            Self::ReplaceText { from, to } => {
                if text.contains(from.as_str()) {
                    text.replace(from, to).into()
                } else {
                    text
                }
            }
            Self::ReplaceMatches { from, to } => replace(from, &text, to)?.into(),
            Self::Strip { left, right } => {
                let mut kept = &*text;
                if *left {
                    kept = kept.trim_start();
                }
                if *right {
                    kept = kept.trim_end();
                }
                kept.to_owned().into()
            }
            Self::StripMarks(marks) => replace(marks, &text, "")?.into(),
            Self::Clean(invisible) => {
                let space = |c: char| if c.is_whitespace() { ' ' } else { c };
                replace(invisible, &text, "")?.chars().map(space).collect()
            }
            Self::SpaceChinese => {
                let mut out = String::with_capacity(text.len());
                for char in text.chars() {
                    if is_chinese(char) {
                        out.extend([' ', char, ' '])
                    } else {
                        out.push(char)
                    }
                }
                out.into()
            }
        })
    }
}

/// Returns whether BERT treats a character as Chinese.
fn is_chinese(char: char) -> bool {
    matches!(char,
        '\u{4E00}'..='\u{9FFF}'
        | '\u{3400}'..='\u{4DBF}'
        | '\u{20000}'..='\u{2A6DF}'
        | '\u{2A700}'..='\u{2B73F}'
        | '\u{2B740}'..='\u{2B81F}'
        | '\u{2B920}'..='\u{2CEAF}'
        | '\u{F900}'..='\u{FAFF}'
        | '\u{2F800}'..='\u{2FA1F}')
}
