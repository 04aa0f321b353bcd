//! Text to tokens and back.
//!
//! | where | what |
//! |---|---|
//! | `tokenizer/gguf.rs`, `json.rs`, `llama2c.rs` | vocabularies as files have them |
//! | `tokenizer/added.rs` | special tokens, found first |
//! | `tokenizer/normalize.rs`, `split.rs` | what happens to the text between them |
//! | `tokenizer/bpe.rs`, `spm.rs`, `unigram.rs`, `wordpiece.rs` | words to tokens |
//!
//! Own code rather than the `tokenizers` crate: GGUF files hold vocabularies of SentencePiece that it has
//! no model for, and a file's vocabulary must not be able to panic.

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

use crate::file::{self, Container};
use crate::{Error, Prompt, Result};
use added::Added;
use normalize::Normalizer;
use split::Splitter;
use vocabulary::Vocabulary;

/// Text to tokens and back, as a model's file says. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    vocab: Vocabulary,
    added: Added,
    /// For each token whether it is there for the model and not for readers.
    is_special: Vec<bool>,
    normalizers: Vec<Normalizer>,
    splitters: Vec<Splitter>,
    model: Words,
    /// What the model wants before and after a text.
    before: Vec<u32>,
    after: Vec<u32>,
    bos: Option<u32>,
    eos: Option<u32>,
    stops: Vec<u32>,
    /// Whether texts get a blank in front, which decoding takes away.
    begins_with_blank: bool,
}

/// How words become tokens.
#[derive(Debug)]
enum Words {
    Bpe(bpe::Bpe),
    Spm(spm::Spm),
    Unigram(unigram::Unigram),
    WordPiece(wordpiece::WordPiece),
}

/// What [`Tokenizer::encode_with`] does beyond cutting a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Adds what the model wants before and after a text, such as `<s>` or `[CLS]` and `[SEP]`.
    pub add_special: bool,
    /// Takes special tokens that are written in the text for what they are. Without it, a user's text
    /// cannot pretend to be the system's.
    pub parse_special: bool,
}

/// Names of tokens that end an answer, in the vocabularies of the families that are supported.
const STOPS: [&str; 8] = [
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
    /// The tokenizer of a model: from its metadata (GGUF), or from `tokenizer.json` or `tokenizer.bin`
    /// beside it.
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

    /// The tokenizer of a `tokenizer.json`.
    pub fn of_json(text: &str) -> Result<Self> {
        let mut inner = json::parse(text)?;
        inner.find_stops();
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// How many tokens there are.
    pub fn vocab(&self) -> usize {
        self.inner.vocab.len()
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.inner.bos
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.inner.eos
    }

    /// All tokens after which there is nothing more to say: the end of the text and the end of a turn.
    pub fn stops(&self) -> &[u32] {
        &self.inner.stops
    }

    /// Whether a token is there for the model and not for readers.
    pub fn is_special(&self, id: u32) -> bool {
        self.inner
            .is_special
            .get(id as usize)
            .copied()
            .unwrap_or(false)
    }

    /// The special or added token that is written so.
    pub fn special(&self, text: &str) -> Option<u32> {
        Some(self.inner.added.get(text)?.id)
    }

    /// The texts of all special tokens.
    pub fn special_texts(&self) -> impl Iterator<Item = &str> {
        self.inner.added.special()
    }

    /// The tokens of a text; with `add_special`, also those that the model wants around a text. Special tokens that
    /// are written in the text are text: see [`Tokenizer::encode_with`].
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        let options = EncodeOptions {
            add_special,
            parse_special: false,
        };
        self.encode_with(text, options)
    }

    /// The tokens of a text.
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

    /// The tokens of a rendered conversation. Special tokens that the template wrote are parsed, those that are
    /// written in messages are text.
    pub fn encode_prompt(&self, prompt: &Prompt) -> Result<Vec<u32>> {
        let mut out = Vec::with_capacity(prompt.text().len() / 3 + 2);
        let is_special = |bytes| prompt.may_be_special(bytes);
        self.inner
            .encode_special(prompt.text(), is_special, &mut out)?;
        Ok(out)
    }

    /// The text of tokens. Special ones are left out unless `special`; what is no UTF-8 becomes `�`.
    pub fn decode(&self, ids: &[u32], special: bool) -> String {
        let mut stream = self.stream(special);
        stream.is_first = true;
        let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
        text.push_str(&stream.finish());
        text
    }

    /// A decoder for tokens that come one by one and go on with a text.
    pub fn stream(&self, special: bool) -> Stream {
        Stream {
            tokenizer: self.clone(),
            special,
            pending: Vec::new(),
            is_first: false,
        }
    }
}

impl Inner {
    /// The tokens of a text with added ones in it; special ones only where `is_special` allows them.
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

    /// The tokens of a text without added ones in it.
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
                Words::Bpe(model) => model.encode(&self.vocab, word, out),
                Words::Spm(model) => model.encode(&self.vocab, word, out),
                Words::Unigram(model) => model.encode(&self.vocab, word, out),
                Words::WordPiece(model) => model.encode(&self.vocab, word, out),
            }
        }
        Ok(())
    }

    /// Adds the ends of turns that the vocabulary has to the ends of texts that the file names.
    fn find_stops(&mut self) {
        self.stops.extend(self.eos);
        let named = STOPS.iter().filter_map(|text| self.added.get(text));
        self.stops
            .extend(named.filter(|t| t.is_special).map(|t| t.id));
        self.stops.sort_unstable();
        self.stops.dedup();
    }
}

/// Decodes tokens one by one; what it gives is always whole characters.
#[derive(Clone, Debug)]
pub struct Stream {
    tokenizer: Tokenizer,
    special: bool,
    /// The beginning of a character.
    pending: Vec<u8>,
    /// Whether the next token begins a text.
    is_first: bool,
}

impl Stream {
    /// The text that is complete with this token; empty while a character lacks some of its bytes.
    pub fn push(&mut self, id: u32) -> String {
        let inner = &*self.tokenizer.inner;
        if !self.special && self.tokenizer.is_special(id) {
            return String::new();
        }
        let mut piece = inner.vocab.piece(id).unwrap_or_default();
        if std::mem::take(&mut self.is_first) && inner.begins_with_blank {
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
                    // No length: more bytes may make it a character.
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

    /// What is left when no more tokens come: `�` for a character that lacks some of its bytes.
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
