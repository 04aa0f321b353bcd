//! Vocabularies in the metadata of GGUF files.

use std::collections::HashMap;

use super::added::{Added, AddedToken};
use super::bpe::{Bpe, Units};
use super::json::bert_normalizers;
use super::merge::UNKNOWN;
use super::normalize::Normalizer;
use super::split::{Behavior, Finder, Splitter, named};
use super::spm::{self, Spm};
use super::vocabulary::{Vocabulary, byte_of, byte_tokens};
use super::wordpiece::WordPiece;
use super::{Inner, Words, bad, byte};
use crate::file::{Metadata, Strings};
use crate::{Error, Result};

/// What kinds of tokens there are.
mod kind {
    pub(super) const UNKNOWN: i64 = 2;
    pub(super) const CONTROL: i64 = 3;
    pub(super) const USER_DEFINED: i64 = 4;
    pub(super) const UNUSED: i64 = 5;
    pub(super) const BYTE: i64 = 6;
}

fn key(name: &str) -> String {
    format!("tokenizer.ggml.{name}")
}

struct Source<'a> {
    metadata: &'a Metadata,
    tokens: &'a Strings,
    kinds: Vec<i64>,
}

impl Source<'_> {
    fn kind(&self, id: usize) -> i64 {
        self.kinds.get(id).copied().unwrap_or(1)
    }

    fn is_special(&self, id: usize) -> bool {
        matches!(self.kind(id), kind::CONTROL | kind::UNKNOWN)
    }

    /// A token's number, if the file has it and the token exists.
    fn id(&self, name: &str) -> Result<Option<u32>> {
        let key = key(name);
        // Files write 2^32 - 1 for none.
        let id = self
            .metadata
            .natural(&key)?
            .filter(|&id| id != u64::from(u32::MAX));
        match id {
            Some(id) if id >= self.tokens.len() as u64 => Err(Error::metadata(
                key,
                format_args!("there is no token {id} among {}", self.tokens.len()),
            )),
            other => Ok(other.map(|id| id as u32)),
        }
    }

    fn flag(&self, name: &str) -> Result<Option<bool>> {
        self.metadata.flag(&key(name))
    }
}

pub(super) fn read(metadata: &Metadata) -> Result<Inner> {
    let model_key = key("model");
    let model = metadata.required(&model_key, metadata.text(&model_key))?;
    let tokens_key = key("tokens");
    let tokens = metadata.required(&tokens_key, metadata.strings(&tokens_key))?;
    if tokens.is_empty() || tokens.len() >= UNKNOWN as usize {
        return Err(Error::metadata(tokens_key, "is empty or too long"));
    }
    let kinds = metadata.numbers(&key("token_type"))?.unwrap_or_default();
    let source = Source {
        metadata,
        tokens,
        kinds: kinds.into_iter().map(|k| k as i64).collect(),
    };
    match model {
        "gpt2" => bpe(&source),
        "llama" => sentence_piece(&source),
        "bert" => word_piece(&source),
        other => Err(Error::unsupported(
            format_args!("tokenizer `{other}`"),
            "gpt2, llama and bert are",
        )),
    }
}

/// What all kinds have in common.
fn assemble(source: &Source<'_>, vocab: Vocabulary, model: Words) -> Result<Inner> {
    let mut added = Added::default();
    for (id, text) in source.tokens.iter().enumerate() {
        let is_found = source.is_special(id) || source.kind(id) == kind::USER_DEFINED;
        if is_found {
            added.push(AddedToken {
                text: text.to_owned(),
                id: id as u32,
                is_special: source.is_special(id),
                strips_left: false,
                strips_right: false,
                is_word: false,
            });
        }
    }
    let mut stops = Vec::new();
    for name in ["eot_token_id", "eom_token_id"] {
        stops.extend(source.id(name)?);
    }
    Ok(Inner {
        is_special: (0..source.tokens.len())
            .map(|id| source.is_special(id))
            .collect(),
        vocab,
        added,
        normalizers: Vec::new(),
        splitters: Vec::new(),
        model,
        before: Vec::new(),
        after: Vec::new(),
        bos: source.id("bos_token_id")?,
        eos: source.id("eos_token_id")?,
        stops,
        begins_with_blank: false,
    })
}

/// Adds what the file wants before and after texts.
fn surround(inner: &mut Inner, source: &Source<'_>, usual_bos: bool) -> Result<()> {
    if source.flag("add_bos_token")?.unwrap_or(usual_bos) {
        inner.before.extend(inner.bos);
    }
    if source.flag("add_eos_token")?.unwrap_or(false) {
        inner.after.extend(inner.eos);
    }
    Ok(())
}

/// How words are found, whether a word that is a token is that token, and whether texts begin with a token.
fn pre_tokenizer(name: &str) -> Result<(Vec<Splitter>, bool, bool)> {
    let patterns: &[&str] = match name {
        "gpt-2" | "gpt2" | "phi-2" | "olmo" | "mpt" | "jina-es" | "jina-de" | "roberta-bpe" => {
            &[named::GPT2]
        }
        "smollm" | "starcoder" | "refact" | "codeshell" | "command-r" => &[r"\p{N}", named::GPT2],
        "llama-bpe" | "llama3" | "llama-v3" | "smaug-bpe" => &[named::LLAMA3],
        "qwen2" | "deepseek-r1-qwen" | "megrez" => &[named::QWEN2],
        "tekken" => &[named::TEKKEN],
        // What llama.cpp does where a file says nothing.
        "default" => &[
            r"[\p{P}\$\+<=>\^~\|]+",
            r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
            r"\p{N}+",
            "[0-9][0-9][0-9]",
        ],
        other => {
            return Err(Error::unsupported(
                format_args!("pre-tokenizer `{other}`"),
                "default, gpt-2, smollm, llama-bpe, qwen2 and tekken are",
            ));
        }
    };
    let splitters: Result<_> = patterns.iter().map(|p| Splitter::isolating(p)).collect();
    let is_llama3 = patterns == [named::LLAMA3];
    Ok((splitters?, is_llama3 || name == "tekken", is_llama3))
}

fn bpe(source: &Source<'_>) -> Result<Inner> {
    let mut vocab = Vocabulary::default();
    let mut by_text = HashMap::with_capacity(source.tokens.len());
    for (id, text) in source.tokens.iter().enumerate() {
        let is_plain = !source.is_special(id) && source.kind(id) != kind::USER_DEFINED;
        match byte::decode(text).filter(|_| is_plain) {
            Some(bytes) => {
                vocab.push(&bytes);
                vocab.name(&bytes, id as u32);
            }
            None => vocab.push(text.as_bytes()),
        }
        by_text.entry(text).or_insert(id as u32);
    }
    let merges_key = key("merges");
    let list = source
        .metadata
        .required(&merges_key, source.metadata.strings(&merges_key))?;
    let mut merges = HashMap::with_capacity(list.len());
    let mut joined = String::new();
    for (rank, merge) in list.iter().enumerate() {
        let Some((left, right)) = merge.split_once(' ') else {
            let reason = format!("{merge:?} is not two tokens");
            return Err(Error::metadata(merges_key, reason));
        };
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        let ids = (
            by_text.get(left),
            by_text.get(right),
            by_text.get(joined.as_str()),
        );
        // Merges of tokens that the vocabulary lacks can never happen.
        if let (Some(&left), Some(&right), Some(&both)) = ids {
            merges.entry((left, right)).or_insert((rank as u32, both));
        }
    }
    let mut units = Box::new([UNKNOWN; 256]);
    for (slot, char) in units.iter_mut().zip(byte::chars()) {
        if let Some(&id) = by_text.get(char.encode_utf8(&mut [0; 4]) as &str) {
            *slot = id;
        }
    }
    let pre = source.metadata.text(&key("pre"))?.unwrap_or("default");
    let (splitters, is_word_first, adds_bos) = pre_tokenizer(pre)?;
    let model = Words::Bpe(Bpe {
        merges,
        units: Units::Bytes(units),
        is_word_first,
        unknown: None,
        fuse_unknown: false,
    });
    let mut inner = assemble(source, vocab, model)?;
    inner.splitters = splitters;
    if source.flag("add_space_prefix")?.unwrap_or(false) {
        inner.normalizers.push(Normalizer::Prepend(" ".to_owned()));
        inner.begins_with_blank = true;
    }
    surround(&mut inner, source, adds_bos)?;
    Ok(inner)
}

fn sentence_piece(source: &Source<'_>) -> Result<Inner> {
    let scores = source.metadata.numbers(&key("scores"))?;
    let scores = scores.ok_or_else(|| Error::metadata(key("scores"), "is missing"))?;
    if scores.len() != source.tokens.len() {
        let reason = format!("{} scores for {} tokens", scores.len(), source.tokens.len());
        return Err(Error::metadata(key("scores"), reason));
    }
    let mut vocab = Vocabulary::default();
    let mut bytes = HashMap::new();
    for (id, text) in source.tokens.iter().enumerate() {
        match (source.kind(id), byte_of(text)) {
            (kind::BYTE, Some(byte)) => {
                vocab.push(&[byte]);
                bytes.insert(text, id as u32);
            }
            (kind, _) => {
                vocab.push(text.replace('▁', " ").as_bytes());
                // Control tokens are never made of text; unused ones would be, if their text was met.
                if !source.is_special(id) && kind != kind::UNUSED {
                    vocab.name(text.as_bytes(), id as u32);
                }
            }
        }
    }
    let model = Words::Spm(Spm {
        ranks: scores.into_iter().map(|s| spm::rank(s as f32)).collect(),
        bytes: byte_tokens(|text| bytes.get(text).copied()),
        unknown: source.id("unknown_token_id")?,
    });
    let mut inner = assemble(source, vocab, model)?;
    if source.flag("add_space_prefix")?.unwrap_or(true) {
        inner.normalizers.push(Normalizer::Prepend(" ".to_owned()));
        inner.begins_with_blank = true;
    }
    inner.normalizers.push(Normalizer::ReplaceText {
        from: " ".to_owned(),
        to: "▁".to_owned(),
    });
    surround(&mut inner, source, true)?;
    Ok(inner)
}

/// WordPiece: GGUF marks tokens that begin a word, with `▁`, instead of those that go on with one.
fn word_piece(source: &Source<'_>) -> Result<Inner> {
    let mut vocab = Vocabulary::default();
    for (id, text) in source.tokens.iter().enumerate() {
        let (name, piece) = match text.strip_prefix('▁') {
            _ if source.is_special(id) => (text.to_owned(), format!(" {text}")),
            Some(word) => (word.to_owned(), format!(" {word}")),
            None => (format!("##{text}"), text.to_owned()),
        };
        vocab.push(piece.as_bytes());
        vocab.name(name.as_bytes(), id as u32);
    }
    let unknown = source.id("unknown_token_id")?;
    let unknown = unknown.or_else(|| vocab.id(b"[UNK]"));
    let model = Words::WordPiece(WordPiece {
        unknown: unknown.ok_or_else(|| bad("there is no token for unknown words"))?,
        prefix: "##".to_owned(),
        longest_word: 100,
    });
    let first = match source.id("cls_token_id")? {
        Some(id) => Some(id),
        None => source.id("bos_token_id")?,
    };
    let last = match source.id("seperator_token_id")? {
        Some(id) => Some(id),
        None => source.id("eos_token_id")?,
    };
    let first = first.or_else(|| vocab.id(b"[CLS]"));
    let last = last.or_else(|| vocab.id(b"[SEP]"));
    let mut inner = assemble(source, vocab, model)?;
    inner.before.extend(first);
    inner.after.extend(last);
    // Files do not say whether case counts; a vocabulary without capitals says it.
    let has_capitals = source.tokens.iter().enumerate().any(|(id, text)| {
        !source.is_special(id)
            && text.chars().any(|c| c.is_ascii_uppercase())
            && !text.starts_with('[')
    });
    inner.normalizers = bert_normalizers(true, true, !has_capitals, !has_capitals)?;
    inner.splitters = bert_splitters()?;
    inner.begins_with_blank = true;
    Ok(inner)
}

/// White space is left out, punctuation stands alone.
pub(super) fn bert_splitters() -> Result<Vec<Splitter>> {
    Ok(vec![
        Splitter {
            finder: Finder::Chars(char::is_whitespace),
            behavior: Behavior::Removed,
            is_inverted: false,
        },
        Splitter::isolating(named::BERT_PUNCTUATION)?,
    ])
}
