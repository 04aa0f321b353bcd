//! `tokenizer.bin` of llama2.c: the longest token's length, then score, length and bytes of each.

use super::added::{Added, AddedToken};
use super::normalize::Normalizer;
use super::spm::{self, Spm};
use super::vocabulary::Vocabulary;
use super::{Inner, Words};
use crate::file::Model;
use crate::{Error, Result};

/// Where the tokens of bytes begin: after those for unknown, begin and end.
const BYTES: u32 = 3;
const UNKNOWN: u32 = 0;
const BOS: u32 = 1;
const EOS: u32 = 2;

pub(super) fn beside(model: &Model) -> Result<Inner> {
    let Some(path) = model.beside("tokenizer.bin") else {
        let reason = "there is no tokenizer.bin beside the model";
        return Err(Error::bad_file(model.path(), reason));
    };
    let bytes = std::fs::read(&path).map_err(|e| Error::io(&path, e))?;
    parse(&bytes).map_err(|reason| Error::bad_file(&path, reason))
}

fn parse(bytes: &[u8]) -> Result<Inner, &'static str> {
    let mut vocab = Vocabulary::default();
    let mut ranks = Vec::new();
    let mut rest = bytes.get(4..).ok_or("too short")?;
    while !rest.is_empty() {
        let (score, after) = rest.split_first_chunk().ok_or("cut off")?;
        let (len, after) = after.split_first_chunk().ok_or("cut off")?;
        let len = usize::try_from(i32::from_le_bytes(*len)).map_err(|_| "a negative length")?;
        let text = after.get(..len).ok_or("cut off")?;
        rest = &after[len..];
        let id = ranks.len() as u32;
        match id {
            UNKNOWN | BOS | EOS => vocab.push(text.trim_ascii()),
            // Written as `<0x0A>` or, in older files, as the character of that number: bytes in any case,
            // and never what a text is made of as long as it can be made of anything else.
            id if id < BYTES + 256 => vocab.push(&[(id - BYTES) as u8]),
            id => {
                vocab.push(text);
                vocab.name(text, id);
            }
        }
        ranks.push(spm::rank(f32::from_le_bytes(*score)));
    }
    if ranks.len() < BYTES as usize + 256 {
        return Err("too few tokens");
    }
    let mut ids = Box::new([0; 256]);
    for (slot, id) in ids.iter_mut().zip(BYTES..) {
        *slot = id;
    }
    let mut added = Added::default();
    for (id, text) in [(UNKNOWN, "<unk>"), (BOS, "<s>"), (EOS, "</s>")] {
        added.push(AddedToken {
            text: text.to_owned(),
            id,
            is_special: true,
            strips_left: false,
            strips_right: false,
            is_word: false,
        });
    }
    Ok(Inner {
        is_special: (0..ranks.len()).map(|id| id < BYTES as usize).collect(),
        vocab,
        added,
        normalizers: vec![Normalizer::Prepend(" ".to_owned())],
        splitters: Vec::new(),
        model: Words::Spm(Spm {
            ranks,
            bytes: Some(ids),
            unknown: Some(UNKNOWN),
        }),
        before: vec![BOS],
        after: Vec::new(),
        bos: Some(BOS),
        eos: Some(EOS),
        stops: Vec::new(),
        begins_with_blank: true,
    })
}
