//! Tokenizers.
//!
//! | file | contents |
//! |---|---|
//! | `tokenizer/gguf.rs`, `json.rs`, `llama2c.rs` | reading vocabularies |
//! | `tokenizer/added.rs` | added and special tokens, which are matched first |
//! | `tokenizer/normalize.rs`, `split.rs` | normalization and pre-tokenization of the text between them |
//! | `tokenizer/bpe.rs`, `spm.rs`, `unigram.rs`, `wordpiece.rs` | models that encode words as tokens |
//!
//! The `tokenizers` crate is not used: it has no model for the SentencePiece vocabularies of GGUF files,
//! and a vocabulary must not be able to cause a panic.

mod added;
mod bpe;
mod byte;
mod gguf;
mod json;
mod llama2c;
mod merge;
mod normalize;
mod split;
mod spm;
mod unigram;
mod vocabulary;
mod wordpiece;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use self::added::AddedTokens;
use self::normalize::Normalizer;
use self::split::Splitter;
use self::vocabulary::Vocabulary;
use crate::file::{self, Container};
use crate::{Error, Prompt, Result};

/// The tokenizer of a model. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: Arc<TokenizerInner>,
}

#[derive(Debug)]
struct TokenizerInner {
    vocab: Vocabulary,
    added: AddedTokens,
    /// Whether each token is special: for the model, not part of the text.
    is_special: Vec<bool>,
    normalizers: Vec<Normalizer>,
    splitters: Vec<Splitter>,
    model: WordModel,
    /// Tokens that the model expects before and after a text.
    before: Vec<u32>,
    after: Vec<u32>,
    bos: Option<u32>,
    eos: Option<u32>,
    stops: Vec<u32>,
    /// Whether encoding adds a leading space, which decoding removes.
    adds_leading_space: bool,
}

/// Model that encodes words as tokens.
#[derive(Debug)]
enum WordModel {
    Bpe(bpe::Bpe),
    Spm(spm::Spm),
    Unigram(unigram::Unigram),
    WordPiece(wordpiece::WordPiece),
}

/// Options of [`Tokenizer::encode_with`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Adds the tokens that the model expects before and after a text, such as `<s>` or `[CLS]` and `[SEP]`.
    pub add_special: bool,
    /// Parses special tokens that occur in the text. Without it, a user's text cannot impersonate the system's.
    pub parse_special: bool,
}

/// Stop tokens of the supported families.
const STOP_TOKEN_TEXTS: [&str; 8] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<end_of_turn>",
    "</s>",
];

impl Tokenizer {
    /// Reads the tokenizer of a model: from its metadata (GGUF), or from `tokenizer.json` or `tokenizer.bin`
    /// in the same directory.
    pub fn of(model: &file::Model) -> Result<Self> {
        let mut inner = match model.container() {
            Container::Gguf => match json::inside(model.metadata())? {
                Some(inner) => inner,
                None => gguf::read(model.metadata())?,
            },
            Container::Safetensors => json::beside(model)?,
            Container::Llama2c => llama2c::beside(model)?,
        };
        inner.find_stops();
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Parses a `tokenizer.json`.
    pub fn of_json(text: &str) -> Result<Self> {
        let mut inner = json::parse(text)?;
        inner.find_stops();
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Size of the vocabulary.
    pub fn vocab(&self) -> usize {
        self.inner.vocab.len()
    }

    /// The beginning-of-sequence token.
    pub fn bos(&self) -> Option<u32> {
        self.inner.bos
    }

    /// The end-of-sequence token.
    pub fn eos(&self) -> Option<u32> {
        self.inner.eos
    }

    /// All tokens that end generation: end of text and end of turn.
    pub fn stops(&self) -> &[u32] {
        &self.inner.stops
    }

    /// Returns whether a token is special: for the model, not part of the text.
    pub fn is_special(&self, id: u32) -> bool {
        self.inner
            .is_special
            .get(id as usize)
            .copied()
            .unwrap_or(false)
    }

    /// Looks up an added or special token by its text.
    pub fn special(&self, text: &str) -> Option<u32> {
        Some(self.inner.added.get(text)?.id)
    }

    /// The texts of all special tokens.
    pub fn special_texts(&self) -> impl Iterator<Item = &str> {
        self.inner.added.special()
    }

    /// Encodes a text; with `add_special`, adds the tokens that the model expects around it. Special tokens that
    /// occur in the text are encoded as text: see [`Tokenizer::encode_with`].
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        let options = EncodeOptions {
            add_special,
            parse_special: false,
        };
        self.encode_with(text, options)
    }

    /// Encodes a text.
    pub fn encode_with(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>> {
        let mut out = Vec::with_capacity(text.len() / 3 + 2);
        if options.add_special {
            out.extend(&self.inner.before);
        }
        self.inner
            .encode_special(text, |_| options.parse_special, &mut out)?;
        if options.add_special {
            out.extend(&self.inner.after);
        }
        Ok(out)
    }

    /// Encodes a rendered conversation. Special tokens written by the template are parsed, those in messages are
    /// encoded as text.
    pub fn encode_prompt(&self, prompt: &Prompt) -> Result<Vec<u32>> {
        let mut out = Vec::with_capacity(prompt.text().len() / 3 + 2);
        let is_special = |bytes| prompt.may_be_special(bytes);
        self.inner
            .encode_special(prompt.text(), is_special, &mut out)?;
        Ok(out)
    }

    /// Decodes tokens. Special ones are skipped unless `special`; invalid UTF-8 becomes `�`.
    pub fn decode(&self, ids: &[u32], special: bool) -> String {
        let mut stream = self.stream(special);
        stream.is_first = true;
        let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
        text.push_str(&stream.finish());
        text
    }

    /// A streaming decoder for tokens that continue a text.
    pub fn stream(&self, special: bool) -> Stream {
        Stream {
            tokenizer: self.clone(),
            special,
            pending: Vec::new(),
            is_first: false,
        }
    }
}

impl TokenizerInner {
    /// Encodes a text that may contain added tokens; special ones are parsed only where `is_special` allows it.
    fn encode_special(
        &self,
        text: &str,
        is_special: impl Fn(Range<usize>) -> bool,
        out: &mut Vec<u32>,
    ) -> Result<()> {
        let mut at = 0;
        while at < text.len() {
            let found = self.added.find(text, at, &is_special);
            let end = found.as_ref().map_or(text.len(), |(range, _)| range.start);
            if end > at {
                self.encode(&text[at..end], at == 0, out)?;
            }
            let Some((range, token)) = found else {
                break;
            };
            out.push(token.id);
            at = range.end;
        }
        Ok(())
    }

    /// Encodes a text without added tokens.
    fn encode(&self, text: &str, is_first: bool, out: &mut Vec<u32>) -> Result<()> {
        let mut normal = Cow::Borrowed(text);
        for normalizer in &self.normalizers {
            normal = normalizer.apply(normal, is_first)?;
        }
        let mut words = vec![&*normal];
        for splitter in &self.splitters {
            let mut finer = Vec::with_capacity(words.len());
            for word in words {
                splitter.split(word, &mut finer)?;
            }
            words = finer;
        }
        for word in words.into_iter().filter(|w| !w.is_empty()) {
            match &self.model {
                WordModel::Bpe(model) => model.encode(&self.vocab, word, out),
                WordModel::Spm(model) => model.encode(&self.vocab, word, out),
                WordModel::Unigram(model) => model.encode(&self.vocab, word, out),
                WordModel::WordPiece(model) => model.encode(&self.vocab, word, out),
            }
        }
        Ok(())
    }

    /// Collects the stop tokens: those that the file declares, and known ones of the vocabulary.
    fn find_stops(&mut self) {
        self.stops.extend(self.eos);
        let named = STOP_TOKEN_TEXTS
            .iter()
            .filter_map(|text| self.added.get(text));
        self.stops
            .extend(named.filter(|t| t.is_special).map(|t| t.id));
        self.stops.sort_unstable();
        self.stops.dedup();
    }
}

/// Streaming decoder; returns whole characters only.
#[derive(Clone, Debug)]
pub struct Stream {
    tokenizer: Tokenizer,
    special: bool,
    /// Bytes of an incomplete character.
    pending: Vec<u8>,
    /// Whether the next token is the first of a text.
    is_first: bool,
}

impl Stream {
    /// Adds a token and returns the text it completes; empty while a character is incomplete.
    pub fn push(&mut self, id: u32) -> String {
        let inner = &*self.tokenizer.inner;
        if !self.special && self.tokenizer.is_special(id) {
            return String::new();
        }
        let mut piece = inner.vocab.piece(id).unwrap_or_default();
        if std::mem::take(&mut self.is_first) && inner.adds_leading_space {
            piece = piece.strip_prefix(b" ").unwrap_or(piece);
        }
        self.pending.extend(piece);
        let mut out = String::new();
        let mut rest = &self.pending[..];
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    out.push_str(text);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, bad) = rest.split_at(error.valid_up_to());
                    out.push_str(&String::from_utf8_lossy(valid));
                    rest = bad;
                    // No length: more bytes may complete the character.
                    let Some(len) = error.error_len() else {
                        break;
                    };
                    out.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[len..];
                }
            }
        }
        self.pending = rest.to_vec();
        out
    }

    /// Returns the rest after the last token: `�` for an incomplete character.
    pub fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.pending);
        String::from_utf8_lossy(&rest).into_owned()
    }
}

fn bad(reason: impl ToString) -> Error {
    Error::Invalid {
        what: "tokenizer".to_owned(),
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests;
