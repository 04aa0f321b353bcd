//! `tokenizer.json` of Hugging Face's `tokenizers`, and its companion files.

use std::collections::HashMap;

use serde_json::Value as Json;

use super::added::{AddedToken, AddedTokens};
use super::bpe::{Bpe, Units};
use super::gguf::bert_splitters;
use super::merge::UNKNOWN;
use super::normalize::Normalizer;
use super::split::{Behavior, Finder, Splitter, named, pattern};
use super::unigram::Unigram;
use super::vocabulary::{Vocabulary, byte_of, byte_tokens};
use super::wordpiece::WordPiece;
use super::{TokenizerInner, WordModel, bad, byte};
use crate::file::{Metadata, Model, read_json};
use crate::quantize::TOKENIZER_KEY;
use crate::{Error, Result};

/// Representation of tokens, for decoding.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Decoding {
    /// GPT-2's characters for bytes.
    Bytes,
    /// `▁` is a space, `<0x0A>` a byte.
    Pieces,
    /// A space before each token that does not start with `##`.
    Words,
}

pub(super) fn beside(model: &Model) -> Result<TokenizerInner> {
    let Some(path) = model.beside("tokenizer.json") else {
        let reason = "there is no tokenizer.json beside the model";
        return Err(Error::bad_file(model.path(), reason));
    };
    let json = read_json(&path)?.unwrap_or(Json::Null);
    let mut inner = read(&json).map_err(|e| Error::bad_file(&path, e))?;
    let config = model.beside("tokenizer_config.json");
    if let Some(config) = config.map(|p| read_json(&p)).transpose()?.flatten() {
        let token = |name: &str| {
            let text = config[name]
                .as_str()
                .or_else(|| config[name]["content"].as_str());
            text.and_then(|t| inner.added.get(t)).map(|t| t.id)
        };
        let (bos, eos) = (token("bos_token"), token("eos_token"));
        inner.bos = inner.bos.or(bos);
        inner.eos = inner.eos.or(eos);
    }
    Ok(inner)
}

/// The `tokenizer.json` embedded in a GGUF file that has no GGUF vocabulary.
pub(super) fn inside(metadata: &Metadata) -> Result<Option<TokenizerInner>> {
    let Some(text) = metadata.text(TOKENIZER_KEY)? else {
        return Ok(None);
    };
    if metadata.get("tokenizer.ggml.tokens").is_some() {
        return Ok(None);
    }
    let mut inner = parse(text)?;
    let token = |name: &str| {
        let id = metadata.natural(&format!("tokenizer.ggml.{name}_token_id"))?;
        let id = id.and_then(|id| u32::try_from(id).ok());
        Ok::<_, Error>(id.filter(|&id| (id as usize) < inner.vocab.len()))
    };
    let (bos, eos) = (token("bos")?, token("eos")?);
    inner.bos = bos.or(inner.bos);
    inner.eos = eos.or(inner.eos);
    Ok(Some(inner))
}

pub(super) fn parse(text: &str) -> Result<TokenizerInner> {
    read(&serde_json::from_str(text).map_err(bad)?)
}

fn unsupported(what: &str, json: &Json) -> Error {
    let name = json["type"].as_str().unwrap_or("of no type");
    Error::unsupported(
        format_args!("{what} `{name}` of tokenizer.json"),
        "use a GGUF file of the model",
    )
}

/// Flattens a nested sequence of components.
fn flatten<'a>(json: &'a Json, list: &str, out: &mut Vec<&'a Json>) {
    match (json, json[list].as_array()) {
        (Json::Null, _) => {}
        (_, Some(parts)) if json["type"] == "Sequence" => {
            // The JSON parser limits the depth.
            parts.iter().for_each(|part| flatten(part, list, out));
        }
        _ => out.push(json),
    }
}

fn read(json: &Json) -> Result<TokenizerInner> {
    let mut decoders = Vec::new();
    flatten(&json["decoder"], "decoders", &mut decoders);
    let mut pre_tokenizers = Vec::new();
    flatten(&json["pre_tokenizer"], "pretokenizers", &mut pre_tokenizers);
    let is_byte_level = pre_tokenizers
        .iter()
        .chain(&decoders)
        .any(|p| p["type"] == "ByteLevel");
    let model = &json["model"];
    let kind = match model["type"].as_str() {
        Some(kind) => kind,
        // Older files omit it.
        None if model["merges"].is_array() => "BPE",
        None if model["vocab"].is_array() => "Unigram",
        None => "WordPiece",
    };
    let decoding = match kind {
        "WordPiece" => Decoding::Words,
        _ if is_byte_level => Decoding::Bytes,
        _ => Decoding::Pieces,
    };
    let mut normalizers = Vec::new();
    let mut parts = Vec::new();
    flatten(&json["normalizer"], "normalizers", &mut parts);
    for part in parts {
        normalizer(part, &mut normalizers)?;
    }
    let mut splitters = Vec::new();
    for part in &pre_tokenizers {
        pre_tokenizer(part, &mut normalizers, &mut splitters)?;
    }
    let tokens = Tokens::read(json, decoding)?;
    let model = match kind {
        "BPE" => bpe(model, &tokens, is_byte_level)?,
        "Unigram" => unigram(model, &tokens)?,
        "WordPiece" => word_piece(model, &tokens)?,
        _ => return Err(unsupported("model", model)),
    };
    let (before, after) = surrounding(&json["post_processor"], &tokens)?;
    let adds_leading_space = match decoding {
        Decoding::Words => true,
        Decoding::Bytes => false,
        Decoding::Pieces => decoders.iter().any(|d| match d["type"].as_str() {
            Some("Strip") => d["start"] == 1,
            Some("Metaspace") => d["prepend_scheme"] != "never",
            _ => false,
        }),
    };
    let first = before.first().copied();
    let Tokens {
        vocab,
        added,
        is_special,
        ..
    } = tokens;
    Ok(TokenizerInner {
        vocab,
        added,
        is_special,
        normalizers,
        splitters,
        model,
        bos: first,
        eos: after.last().copied(),
        before,
        after,
        stops: Vec::new(),
        adds_leading_space,
    })
}

/// The vocabulary and the added tokens.
struct Tokens {
    vocab: Vocabulary,
    added: AddedTokens,
    is_special: Vec<bool>,
    by_text: HashMap<String, u32>,
}

impl Tokens {
    fn read(json: &Json, decoding: Decoding) -> Result<Self> {
        let vocab = &json["model"]["vocab"];
        let mut by_text = HashMap::new();
        match vocab {
            Json::Object(map) => {
                for (text, id) in map {
                    by_text.insert(text.clone(), number(id)?);
                }
            }
            Json::Array(list) => {
                for (id, entry) in list.iter().enumerate() {
                    let text = entry[0]
                        .as_str()
                        .ok_or_else(|| bad("a token is not a string"))?;
                    by_text
                        .entry(text.to_owned())
                        .or_insert(number(&Json::from(id))?);
                }
            }
            _ => return Err(bad("there is no vocabulary")),
        }
        let mut added = Vec::new();
        for token in json["added_tokens"].as_array().into_iter().flatten() {
            let text = token["content"]
                .as_str()
                .ok_or_else(|| bad("an added token without a text"))?;
            let is = |name: &str| token[name].as_bool().unwrap_or(false);
            added.push(AddedToken {
                text: text.to_owned(),
                id: number(&token["id"])?,
                is_special: is("special"),
                strips_left: is("lstrip"),
                strips_right: is("rstrip"),
                is_word: is("single_word"),
            });
        }
        let ids = by_text.values().copied().chain(added.iter().map(|t| t.id));
        let count = ids.max().map_or(0, |id| id as usize + 1);
        let known = by_text.len() + added.len();
        // Ids may have gaps, within limits.
        if count > 4 * known + 1024 {
            return Err(bad(format_args!("token {} among {known}", count - 1)));
        }
        let mut texts = vec![""; count];
        for (text, &id) in &by_text {
            texts[id as usize] = text;
        }
        for token in &added {
            texts[token.id as usize] = &token.text;
        }
        let mut is_special = vec![false; count];
        let mut is_added = vec![false; count];
        for token in &added {
            is_special[token.id as usize] = token.is_special;
            is_added[token.id as usize] = true;
        }
        let mut out = Vocabulary::default();
        let prefix = json["decoder"]["prefix"].as_str().unwrap_or("##");
        let cleans = json["decoder"]["cleanup"].as_bool().unwrap_or(true);
        for (text, is_added) in texts.iter().zip(is_added) {
            let piece = match (decoding, text.strip_prefix(prefix)) {
                (Decoding::Words, Some(rest)) => rest.as_bytes().to_vec(),
                (Decoding::Words, None) => word(text, cleans).into_bytes(),
                _ if is_added => text.as_bytes().to_vec(),
                (Decoding::Bytes, _) => {
                    byte::decode(text).unwrap_or_else(|| text.as_bytes().to_vec())
                }
                (Decoding::Pieces, _) => match byte_of(text) {
                    Some(byte) => vec![byte],
                    None => text.replace('▁', " ").into_bytes(),
                },
            };
            out.push(&piece);
        }
        // Special tokens never match text.
        for (text, &id) in by_text.iter().filter(|(_, id)| !is_special[**id as usize]) {
            match decoding {
                Decoding::Bytes => {
                    if let Some(bytes) = byte::decode(text) {
                        out.name(&bytes, id);
                    }
                }
                _ => out.name(text.as_bytes(), id),
            }
        }
        let mut all = AddedTokens::default();
        for token in added {
            by_text.entry(token.text.clone()).or_insert(token.id);
            all.push(token);
        }
        Ok(Self {
            vocab: out,
            added: all,
            is_special,
            by_text,
        })
    }

    fn id(&self, text: &str) -> Option<u32> {
        self.by_text.get(text).copied()
    }
}

/// Returns a word with a leading space, unless it is punctuation that needs none.
fn word(text: &str, cleans: bool) -> String {
    let joined = format!(" {text}");
    if !cleans {
        return joined;
    }
    let pairs = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    pairs
        .iter()
        .fold(joined, |text, (from, to)| text.replace(from, to))
}

fn number(json: &Json) -> Result<u32> {
    let id = json.as_u64().and_then(|id| u32::try_from(id).ok());
    id.filter(|&id| id != UNKNOWN)
        .ok_or_else(|| bad("a token's id is invalid"))
}

fn bpe(model: &Json, tokens: &Tokens, is_byte_level: bool) -> Result<WordModel> {
    for name in ["continuing_subword_prefix", "end_of_word_suffix"] {
        if model[name].as_str().is_some_and(|t| !t.is_empty()) {
            return Err(Error::unsupported(
                format_args!("`{name}` of tokenizer.json"),
                "use a GGUF file",
            ));
        }
    }
    let mut merges = HashMap::new();
    let list = model["merges"]
        .as_array()
        .ok_or_else(|| bad("there are no merges"))?;
    for (rank, merge) in list.iter().enumerate() {
        let pair = match merge {
            Json::String(text) => text.split_once(' '),
            _ => merge[0].as_str().zip(merge[1].as_str()),
        };
        let Some((left, right)) = pair else {
            return Err(bad("a merge is not two tokens"));
        };
        let joined = format!("{left}{right}");
        let ids = (tokens.id(left), tokens.id(right), tokens.id(&joined));
        let (Some(left), Some(right), Some(both)) = ids else {
            return Err(bad(format_args!(
                "a merge makes `{joined}`, which is not a token"
            )));
        };
        // Of duplicates, the last one counts.
        merges.insert((left, right), (rank as u32, both));
    }
    let is = |name: &str| model[name].as_bool().unwrap_or(false);
    let units = if is_byte_level {
        let mut ids = Box::new([UNKNOWN; 256]);
        for (slot, char) in ids.iter_mut().zip(byte::chars()) {
            *slot = tokens.id(char.encode_utf8(&mut [0; 4])).unwrap_or(UNKNOWN);
        }
        Units::Bytes(ids)
    } else {
        Units::Chars {
            bytes: if is("byte_fallback") {
                byte_tokens(|text| tokens.id(text))
            } else {
                None
            },
        }
    };
    Ok(WordModel::Bpe(Bpe {
        merges,
        units,
        is_word_first: is("ignore_merges"),
        unknown: model["unk_token"].as_str().and_then(|t| tokens.id(t)),
        fuse_unknown: is("fuse_unk"),
    }))
}

fn unigram(model: &Json, tokens: &Tokens) -> Result<WordModel> {
    let list = model["vocab"]
        .as_array()
        .ok_or_else(|| bad("there is no vocabulary"))?;
    let score = |entry: &Json| entry[1].as_f64().filter(|s| s.is_finite());
    let scores: Option<Vec<f64>> = list.iter().map(score).collect();
    let scores = scores.ok_or_else(|| bad("a token without a score"))?;
    let min_score = scores.iter().copied().fold(0.0, f64::min);
    Ok(WordModel::Unigram(Unigram {
        scores,
        unknown: model["unk_id"]
            .as_u64()
            .and_then(|id| u32::try_from(id).ok()),
        // SentencePiece's penalty below the worst score.
        unknown_score: min_score - 10.0,
        bytes: match model["byte_fallback"].as_bool() {
            Some(true) => byte_tokens(|text| tokens.id(text)),
            _ => None,
        },
    }))
}

fn word_piece(model: &Json, tokens: &Tokens) -> Result<WordModel> {
    let unknown = model["unk_token"].as_str().unwrap_or("[UNK]");
    let max_word_chars = model["max_input_chars_per_word"].as_u64().unwrap_or(100);
    Ok(WordModel::WordPiece(WordPiece {
        unknown: tokens
            .id(unknown)
            .ok_or_else(|| bad("there is no token for unknown words"))?,
        prefix: model["continuing_subword_prefix"]
            .as_str()
            .unwrap_or("##")
            .to_owned(),
        max_word_chars: max_word_chars.min(1000) as usize,
    }))
}

/// Options of BERT's normalizer.
pub(super) struct BertOptions {
    pub(super) clean_text: bool,
    /// Add spaces around Chinese characters.
    pub(super) space_chinese: bool,
    pub(super) strip_accents: bool,
    pub(super) lowercase: bool,
}

/// BERT's normalizer.
pub(super) fn bert_normalizers(options: &BertOptions) -> Result<Vec<Normalizer>> {
    let mut out = Vec::new();
    if options.clean_text {
        // Control and format characters, except white space, which becomes a space.
        out.push(Normalizer::Clean(pattern(
            r"[\u{0}\u{FFFD}[\p{Cc}\p{Cf}\p{Co}--[\t\n\r]]]",
        )?));
    }
    if options.space_chinese {
        out.push(Normalizer::SpaceChinese);
    }
    if options.strip_accents {
        out.push(Normalizer::Nfd);
        out.push(Normalizer::StripMarks(pattern(r"\p{Mn}")?));
    }
    if options.lowercase {
        out.push(Normalizer::Lowercase);
    }
    Ok(out)
}

fn normalizer(json: &Json, out: &mut Vec<Normalizer>) -> Result<()> {
    let is = |name: &str, default: bool| json[name].as_bool().unwrap_or(default);
    let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
    out.push(match json["type"].as_str() {
        Some("NFC") => Normalizer::Nfc,
        Some("NFD") => Normalizer::Nfd,
        Some("NFKC") => Normalizer::Nfkc,
        Some("NFKD") => Normalizer::Nfkd,
        Some("Lowercase") => Normalizer::Lowercase,
        Some("Prepend") => Normalizer::Prepend(text("prepend")),
        Some("Strip") => Normalizer::Strip {
            left: is("strip_left", true),
            right: is("strip_right", true),
        },
        Some("StripAccents") => Normalizer::StripMarks(pattern(r"\p{Mn}")?),
        Some("Replace") => match (
            json["pattern"]["String"].as_str(),
            json["pattern"]["Regex"].as_str(),
        ) {
            (Some(from), _) => Normalizer::ReplaceText {
                from: from.to_owned(),
                to: text("content"),
            },
            (None, Some(from)) => Normalizer::ReplaceMatches {
                from: pattern(from)?,
                to: text("content"),
            },
            _ => return Err(unsupported("normalizer", json)),
        },
        Some("BertNormalizer") => {
            let lowercase = is("lowercase", true);
            out.extend(bert_normalizers(&BertOptions {
                clean_text: is("clean_text", true),
                space_chinese: is("handle_chinese_chars", true),
                strip_accents: is("strip_accents", lowercase),
                lowercase,
            })?);
            return Ok(());
        }
        _ => return Err(unsupported("normalizer", json)),
    });
    Ok(())
}

fn behavior(json: &Json) -> Result<Behavior> {
    Ok(match json["behavior"].as_str() {
        Some("Removed") => Behavior::Removed,
        Some("Isolated") => Behavior::Isolated,
        Some("MergedWithPrevious") => Behavior::MergedWithPrevious,
        Some("MergedWithNext") => Behavior::MergedWithNext,
        Some("Contiguous") => Behavior::Contiguous,
        _ => return Err(unsupported("pre-tokenizer", json)),
    })
}

fn pre_tokenizer(
    json: &Json,
    normalizers: &mut Vec<Normalizer>,
    splitters: &mut Vec<Splitter>,
) -> Result<()> {
    let is = |name: &str, default: bool| json[name].as_bool().unwrap_or(default);
    let chars = |is_match: fn(char) -> bool, behavior| Splitter {
        finder: Finder::Chars(is_match),
        behavior,
        is_inverted: false,
    };
    // Normalizers must come before splitters: after them they would apply to every word.
    let check_order = |splitters: &[Splitter]| {
        if splitters.is_empty() {
            Ok(())
        } else {
            Err(unsupported("order of pre-tokenizers with", json))
        }
    };
    match json["type"].as_str() {
        Some("ByteLevel") => {
            if is("add_prefix_space", true) {
                check_order(splitters)?;
                normalizers.push(Normalizer::LeadingSpace);
            }
            if is("use_regex", true) {
                splitters.push(Splitter::isolating(named::GPT2)?);
            }
        }
        Some("Split") => {
            let json_pattern = &json["pattern"];
            let finder = match (
                json_pattern["String"].as_str(),
                json_pattern["Regex"].as_str(),
            ) {
                (Some(text), _) => Finder::Text(text.to_owned()),
                (None, Some(text)) => Finder::Pattern(pattern(text)?),
                _ => return Err(unsupported("pre-tokenizer", json)),
            };
            splitters.push(Splitter {
                finder,
                behavior: behavior(json)?,
                is_inverted: is("invert", false),
            });
        }
        Some("Digits") => {
            let behavior = if is("individual_digits", false) {
                Behavior::Isolated
            } else {
                Behavior::Contiguous
            };
            splitters.push(chars(char::is_numeric, behavior));
        }
        Some("Whitespace") => splitters.push(Splitter {
            finder: Finder::Pattern(pattern(r"\w+|[^\w\s]+")?),
            behavior: Behavior::Removed,
            is_inverted: true,
        }),
        Some("WhitespaceSplit") => splitters.push(chars(char::is_whitespace, Behavior::Removed)),
        Some("Punctuation") => splitters.push(Splitter {
            finder: Finder::Pattern(pattern(named::BERT_PUNCTUATION)?),
            behavior: behavior(json).unwrap_or(Behavior::Isolated),
            is_inverted: false,
        }),
        Some("BertPreTokenizer") => splitters.extend(bert_splitters()?),
        Some("Metaspace") => {
            check_order(splitters)?;
            let mark = json["replacement"].as_str().unwrap_or("▁").to_owned();
            normalizers.push(Normalizer::ReplaceText {
                from: " ".to_owned(),
                to: mark.clone(),
            });
            let scheme = match json["prepend_scheme"].as_str() {
                Some(scheme) => scheme,
                None if is("add_prefix_space", true) => "always",
                None => "never",
            };
            if scheme != "never" {
                normalizers.push(Normalizer::Begin {
                    text: mark.clone(),
                    only_first: scheme == "first",
                });
            }
            if is("split", true) {
                splitters.push(Splitter {
                    finder: Finder::Text(mark),
                    behavior: Behavior::MergedWithNext,
                    is_inverted: false,
                });
            }
        }
        _ => return Err(unsupported("pre-tokenizer", json)),
    }
    Ok(())
}

/// Tokens before and after a text.
fn surrounding(json: &Json, tokens: &Tokens) -> Result<(Vec<u32>, Vec<u32>)> {
    let mut parts = Vec::new();
    flatten(json, "processors", &mut parts);
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for part in parts {
        match part["type"].as_str() {
            Some("ByteLevel") => {}
            Some("TemplateProcessing") => {
                let mut is_after = false;
                for item in part["single"].as_array().into_iter().flatten() {
                    let Some(name) = item["SpecialToken"]["id"].as_str() else {
                        is_after = true;
                        continue;
                    };
                    let ids = part["special_tokens"][name]["ids"].as_array();
                    let ids: Result<Vec<u32>> = ids.into_iter().flatten().map(number).collect();
                    if is_after {
                        after.extend(ids?)
                    } else {
                        before.extend(ids?)
                    }
                }
            }
            Some("BertProcessing" | "RobertaProcessing") => {
                before.push(number(&part["cls"][1])?);
                after.push(number(&part["sep"][1])?);
            }
            _ => return Err(unsupported("post-processor", part)),
        }
    }
    let exists = |id: &u32| (*id as usize) < tokens.vocab.len();
    if before.iter().chain(&after).all(exists) {
        Ok((before, after))
    } else {
        Err(bad("a token around texts does not exist"))
    }
}
