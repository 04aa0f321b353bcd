//! Vocabularies in the metadata of GGUF files.

use std::collections::HashMap;

use super::added::{AddedToken, AddedTokens};
use super::bpe::{Bpe, Units};
use super::json::{BertOptions, bert_normalizers};
use super::merge::UNKNOWN;
use super::normalize::Normalizer;
use super::split::{Behavior, Finder, Splitter, named};
use super::spm::{self, Spm};
use super::vocabulary::{Vocabulary, byte_of, byte_tokens};
use super::wordpiece::WordPiece;
use super::{TokenizerInner, WordModel, bad, byte};
use crate::file::{Metadata, Strings};
use crate::{Error, Result};

/// Token types.
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

struct GgufVocabulary<'a> {
    metadata: &'a Metadata,
    tokens: &'a Strings,
    kinds: Vec<i64>,
}

impl GgufVocabulary<'_> {
    fn kind(&self, id: usize) -> i64 {
        self.kinds.get(id).copied().unwrap_or(1)
    }

    fn is_special(&self, id: usize) -> bool {
        matches!(self.kind(id), kind::CONTROL | kind::UNKNOWN)
    }

    /// The id of a special token, if the file has it; rejects ids out of range.
    fn id(&self, name: &str) -> Result<Option<u32>> {
        let key = key(name);
        // 2^32 - 1 means none.
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

pub(super) fn read(metadata: &Metadata) -> Result<TokenizerInner> {
    let model_key = key("model");
    let model = metadata.required(&model_key, metadata.text(&model_key))?;
    let tokens_key = key("tokens");
    let tokens = metadata.required(&tokens_key, metadata.strings(&tokens_key))?;
    if tokens.is_empty() || tokens.len() >= UNKNOWN as usize {
        return Err(Error::metadata(tokens_key, "is empty or too long"));
    }
    let kinds = metadata.numbers(&key("token_type"))?.unwrap_or_default();
    let gguf = GgufVocabulary {
        metadata,
        tokens,
        kinds: kinds.into_iter().map(|k| k as i64).collect(),
    };
    match model {
        "gpt2" => bpe(&gguf),
        "llama" => sentence_piece(&gguf),
        "bert" => word_piece(&gguf),
        other => Err(Error::unsupported(
            format_args!("tokenizer `{other}`"),
            "gpt2, llama and bert are",
        )),
    }
}

/// Builds the parts that all models share.
fn assemble(
    gguf: &GgufVocabulary<'_>,
    vocab: Vocabulary,
    model: WordModel,
) -> Result<TokenizerInner> {
    let mut added = AddedTokens::default();
    for (id, text) in gguf.tokens.iter().enumerate() {
        let is_added = gguf.is_special(id) || gguf.kind(id) == kind::USER_DEFINED;
        if is_added {
            added.push(AddedToken {
                text: text.to_owned(),
                id: id as u32,
                is_special: gguf.is_special(id),
                strips_left: false,
                strips_right: false,
                is_word: false,
            });
        }
    }
    let mut stops = Vec::new();
    for name in ["eot_token_id", "eom_token_id"] {
        stops.extend(gguf.id(name)?);
    }
    Ok(TokenizerInner {
        is_special: (0..gguf.tokens.len())
            .map(|id| gguf.is_special(id))
            .collect(),
        vocab,
        added,
        normalizers: Vec::new(),
        splitters: Vec::new(),
        model,
        before: Vec::new(),
        after: Vec::new(),
        bos: gguf.id("bos_token_id")?,
        eos: gguf.id("eos_token_id")?,
        stops,
        adds_leading_space: false,
    })
}

/// Sets the tokens before and after texts.
fn surround(
    inner: &mut TokenizerInner,
    gguf: &GgufVocabulary<'_>,
    default_bos: bool,
) -> Result<()> {
    if gguf.flag("add_bos_token")?.unwrap_or(default_bos) {
        inner.before.extend(inner.bos);
    }
    if gguf.flag("add_eos_token")?.unwrap_or(false) {
        inner.after.extend(inner.eos);
    }
    Ok(())
}

/// Properties of a named pre-tokenizer.
struct PreTokenizer {
    splitters: Vec<Splitter>,
    /// Whether a word that is a token is encoded as that token without merging.
    is_word_first: bool,
    /// Whether texts start with a BOS token by default.
    adds_bos: bool,
}

fn pre_tokenizer(name: &str) -> Result<PreTokenizer> {
    let patterns: &[&str] = match name {
        "gpt-2" | "gpt2" | "phi-2" | "olmo" | "mpt" | "jina-es" | "jina-de" | "roberta-bpe" => {
            &[named::GPT2]
        }
        "smollm" | "starcoder" | "refact" | "codeshell" | "command-r" => &[r"\p{N}", named::GPT2],
        "llama-bpe" | "llama3" | "llama-v3" | "smaug-bpe" => &[named::LLAMA3],
        "qwen2" | "deepseek-r1-qwen" | "megrez" => &[named::QWEN2],
        "tekken" => &[named::TEKKEN],
        // llama.cpp's default.
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
    Ok(PreTokenizer {
        splitters: splitters?,
        is_word_first: is_llama3 || name == "tekken",
        adds_bos: is_llama3,
    })
}

fn bpe(gguf: &GgufVocabulary<'_>) -> Result<TokenizerInner> {
    let mut vocab = Vocabulary::default();
    let mut by_text = HashMap::with_capacity(gguf.tokens.len());
    for (id, text) in gguf.tokens.iter().enumerate() {
        let is_normal = !gguf.is_special(id) && gguf.kind(id) != kind::USER_DEFINED;
        match byte::decode(text).filter(|_| is_normal) {
            Some(bytes) => {
                vocab.push(&bytes);
                vocab.name(&bytes, id as u32);
            }
            None => vocab.push(text.as_bytes()),
        }
        by_text.entry(text).or_insert(id as u32);
    }
    let merges_key = key("merges");
    let list = gguf
        .metadata
        .required(&merges_key, gguf.metadata.strings(&merges_key))?;
    let mut merges = HashMap::with_capacity(list.len());
    let mut merged = String::new();
    for (rank, merge) in list.iter().enumerate() {
        let Some((left, right)) = merge.split_once(' ') else {
            let reason = format!("{merge:?} is not two tokens");
            return Err(Error::metadata(merges_key, reason));
        };
        merged.clear();
        merged.push_str(left);
        merged.push_str(right);
        let ids = (
            by_text.get(left),
            by_text.get(right),
            by_text.get(merged.as_str()),
        );
        // Merges of missing tokens are unreachable.
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
    let pre = gguf.metadata.text(&key("pre"))?.unwrap_or("default");
    let PreTokenizer {
        splitters,
        is_word_first,
        adds_bos,
    } = pre_tokenizer(pre)?;
    let model = WordModel::Bpe(Bpe {
        merges,
        units: Units::Bytes(units),
        is_word_first,
        unknown: None,
        fuse_unknown: false,
    });
    let mut inner = assemble(gguf, vocab, model)?;
    inner.splitters = splitters;
    if gguf.flag("add_space_prefix")?.unwrap_or(false) {
        inner.normalizers.push(Normalizer::Prepend(" ".to_owned()));
        inner.adds_leading_space = true;
    }
    surround(&mut inner, gguf, adds_bos)?;
    Ok(inner)
}

fn sentence_piece(gguf: &GgufVocabulary<'_>) -> Result<TokenizerInner> {
    let scores = gguf.metadata.numbers(&key("scores"))?;
    let scores = scores.ok_or_else(|| Error::metadata(key("scores"), "is missing"))?;
    if scores.len() != gguf.tokens.len() {
        let reason = format!("{} scores for {} tokens", scores.len(), gguf.tokens.len());
        return Err(Error::metadata(key("scores"), reason));
    }
    let mut vocab = Vocabulary::default();
    let mut bytes = HashMap::new();
    for (id, text) in gguf.tokens.iter().enumerate() {
        match (gguf.kind(id), byte_of(text)) {
            (kind::BYTE, Some(byte)) => {
                vocab.push(&[byte]);
                bytes.insert(text, id as u32);
            }
            (kind, _) => {
                vocab.push(text.replace('▁', " ").as_bytes());
                // Control and unused tokens never match text.
                if !gguf.is_special(id) && kind != kind::UNUSED {
                    vocab.name(text.as_bytes(), id as u32);
                }
            }
        }
    }
    let model = WordModel::Spm(Spm {
        ranks: scores.into_iter().map(|s| spm::rank(s as f32)).collect(),
        bytes: byte_tokens(|text| bytes.get(text).copied()),
        unknown: gguf.id("unknown_token_id")?,
    });
    let mut inner = assemble(gguf, vocab, model)?;
    if gguf.flag("add_space_prefix")?.unwrap_or(true) {
        inner.normalizers.push(Normalizer::Prepend(" ".to_owned()));
        inner.adds_leading_space = true;
    }
    inner.normalizers.push(Normalizer::ReplaceText {
        from: " ".to_owned(),
        to: "▁".to_owned(),
    });
    surround(&mut inner, gguf, true)?;
    Ok(inner)
}

/// WordPiece: GGUF marks tokens that start a word with `▁`, instead of those that continue one with `##`.
fn word_piece(gguf: &GgufVocabulary<'_>) -> Result<TokenizerInner> {
    let mut vocab = Vocabulary::default();
    for (id, text) in gguf.tokens.iter().enumerate() {
        let (name, piece) = match text.strip_prefix('▁') {
            _ if gguf.is_special(id) => (text.to_owned(), format!(" {text}")),
            Some(word) => (word.to_owned(), format!(" {word}")),
            None => (format!("##{text}"), text.to_owned()),
        };
        vocab.push(piece.as_bytes());
        vocab.name(name.as_bytes(), id as u32);
    }
    let unknown = gguf.id("unknown_token_id")?;
    let unknown = unknown.or_else(|| vocab.id(b"[UNK]"));
    let model = WordModel::WordPiece(WordPiece {
        unknown: unknown.ok_or_else(|| bad("there is no token for unknown words"))?,
        prefix: "##".to_owned(),
        max_word_chars: 100,
    });
    let first = match gguf.id("cls_token_id")? {
        Some(id) => Some(id),
        None => gguf.id("bos_token_id")?,
    };
    let last = match gguf.id("seperator_token_id")? {
        Some(id) => Some(id),
        None => gguf.id("eos_token_id")?,
    };
    let first = first.or_else(|| vocab.id(b"[CLS]"));
    let last = last.or_else(|| vocab.id(b"[SEP]"));
    let mut inner = assemble(gguf, vocab, model)?;
    inner.before.extend(first);
    inner.after.extend(last);
    // Files do not record whether the model is cased; a vocabulary without capitals is uncased.
    let has_capitals = gguf.tokens.iter().enumerate().any(|(id, text)| {
        !gguf.is_special(id)
            && text.chars().any(|c| c.is_ascii_uppercase())
            && !text.starts_with('[')
    });
    inner.normalizers = bert_normalizers(&BertOptions {
        clean_text: true,
        space_chinese: true,
        strip_accents: !has_capitals,
        lowercase: !has_capitals,
    })?;
    inner.splitters = bert_splitters()?;
    inner.adds_leading_space = true;
    Ok(inner)
}

/// BERT's pre-tokenizer: removes white space, isolates punctuation.
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
