//! `tokenizer.bin` of llama2.c: the maximum token length, then score, length and bytes of each token.

use super::added::{AddedToken, AddedTokens};
use super::normalize::Normalizer;
use super::spm::{self, Spm};
use super::vocabulary::Vocabulary;
use super::{TokenizerInner, WordModel};
use crate::file::Model;
use crate::{Error, Result};

const UNKNOWN_ID: u32 = 0;
const BOS_ID: u32 = 1;
const EOS_ID: u32 = 2;
/// First byte token.
const FIRST_BYTE_ID: u32 = 3;

pub(super) fn beside(model: &Model) -> Result<TokenizerInner> {
    let Some(path) = model.beside("tokenizer.bin") else {
        let reason = "there is no tokenizer.bin beside the model";
        return Err(Error::bad_file(model.path(), reason));
    };
    let bytes = std::fs::read(&path).map_err(|e| Error::io(&path, e))?;
    parse(&bytes).map_err(|reason| Error::bad_file(&path, reason))
}

fn parse(bytes: &[u8]) -> Result<TokenizerInner, &'static str> {
    let mut vocab = Vocabulary::default();
    let mut ranks = Vec::new();
    let mut rest = bytes.get(4..).ok_or("too short")?;
    while !rest.is_empty() {
        let (score, after) = rest.split_first_chunk().ok_or("truncated")?;
        let (len, after) = after.split_first_chunk().ok_or("truncated")?;
        let len = usize::try_from(i32::from_le_bytes(*len)).map_err(|_| "a negative length")?;
        let text = after.get(..len).ok_or("truncated")?;
        rest = &after[len..];
        let id = ranks.len() as u32;
        match id {
            UNKNOWN_ID | BOS_ID | EOS_ID => vocab.push(text.trim_ascii()),
            // Written as `<0x0A>` or, in older files, as the character with that code. They are bytes in any case,
            // and only used as a fallback.
            id if id < FIRST_BYTE_ID + 256 => vocab.push(&[(id - FIRST_BYTE_ID) as u8]),
            id => {
                vocab.push(text);
                vocab.name(text, id);
            }
        }
        ranks.push(spm::rank(f32::from_le_bytes(*score)));
    }
    if ranks.len() < FIRST_BYTE_ID as usize + 256 {
        return Err("too few tokens");
    }
    let mut ids = Box::new([0; 256]);
    for (slot, id) in ids.iter_mut().zip(FIRST_BYTE_ID..) {
        *slot = id;
    }
    let mut added = AddedTokens::default();
    for (id, text) in [(UNKNOWN_ID, "<unk>"), (BOS_ID, "<s>"), (EOS_ID, "</s>")] {
        added.push(AddedToken {
            text: text.to_owned(),
            id,
            is_special: true,
            strips_left: false,
            strips_right: false,
            is_word: false,
        });
    }
    Ok(TokenizerInner {
        is_special: (0..ranks.len())
            .map(|id| id < FIRST_BYTE_ID as usize)
            .collect(),
        vocab,
        added,
        normalizers: vec![Normalizer::Prepend(" ".to_owned())],
        splitters: Vec::new(),
        model: WordModel::Spm(Spm {
            ranks,
            bytes: Some(ids),
            unknown: Some(UNKNOWN_ID),
        }),
        before: vec![BOS_ID],
        after: Vec::new(),
        bos: Some(BOS_ID),
        eos: Some(EOS_ID),
        stops: Vec::new(),
        adds_leading_space: true,
    })
}
