//! Fuzzing with damaged files: the result is an error or readable tensors, never a panic.

use super::{all_types, array_of, fixture, npy_of, npz_of, safetensors_of};
use crate::{Result, Tensor, npz, safetensors};

/// Number of mutations of each file.
const MUTATIONS_PER_FILE: usize = 4000;

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// An offset to damage: headers and the end, where archives have their directory, more often than data.
    fn offset(&mut self, len: usize) -> usize {
        match self.below(3) {
            0 => self.below(len),
            1 => self.below(len.min(200)),
            _ => len - 1 - self.below(len.min(200)),
        }
    }

    fn damage(&mut self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let at = self.offset(bytes.len());
        let extreme = [0, 1, 0x7f, 0x80, 0xff][self.below(5)];
        match self.below(9) {
            0 => bytes[at] ^= 1 << self.below(8),
            1 => bytes[at] = self.next() as u8,
            2 => bytes[at] = b"0123456789(){}[]',:- "[self.below(21)],
            3 => bytes.truncate(at),
            4 => bytes.insert(at, self.next() as u8),
            5 => {
                let end = (at + 1 + self.below(16)).min(bytes.len());
                bytes.drain(at..end);
            }
            6 => {
                let end = (at + [2, 4, 8][self.below(3)]).min(bytes.len());
                bytes[at..end].fill(extreme);
            }
            7 => {
                let end = (at + 1 + self.below(32)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                let to = self.offset(bytes.len());
                bytes.splice(to..to, piece);
            }
            _ => {
                // Replaces a digit: sizes and offsets in text.
                let digits: Vec<_> = (0..bytes.len())
                    .filter(|&i| bytes[i].is_ascii_digit())
                    .collect();
                if !digits.is_empty() {
                    bytes[digits[self.below(digits.len())]] = b'0' + self.below(10) as u8;
                }
            }
        }
    }
}

/// Damages each file many times; `load` must return, and what it returns must be readable.
fn fuzz(files: &[Vec<u8>], load: impl Fn(&[u8]) -> Result<Vec<Tensor>>) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut loaded = 0;
    for file in files {
        load(file).unwrap();
        for _ in 0..MUTATIONS_PER_FILE {
            let mut bytes = file.clone();
            for _ in 0..=random.below(3) {
                random.damage(&mut bytes);
            }
            let Ok(tensors) = load(&bytes) else {
                continue;
            };
            loaded += 1;
            for tensor in tensors {
                assert!(tensor.eval().is_ok());
                assert!(!tensor.to_string().is_empty());
            }
        }
    }
    // Damage to names and values goes undetected. Some files must load: otherwise all were rejected early.
    assert!(loaded > 0);
}

fn written(save: impl FnOnce(&std::path::Path)) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    save(&path);
    std::fs::read(path).unwrap()
}

#[test]
fn damaged_npy_files_never_panic() {
    let files = [
        fixture::MATRIX_I32,
        fixture::FORTRAN_BIG_ENDIAN,
        fixture::VERSION_2,
        fixture::VERSION_3,
    ];
    fuzz(&files.map(<[u8]>::to_vec), |bytes| {
        if let Ok(array) = array_of(bytes) {
            assert!(array.data.len() <= bytes.len());
        }
        Ok(vec![npy_of(bytes)?])
    });
}

#[test]
fn damaged_npz_files_never_panic() {
    let mut files = vec![fixture::STORED.to_vec(), fixture::DEFLATED.to_vec()];
    files.push(written(|path| npz::save(path, &all_types()).unwrap()));
    fuzz(&files, |bytes| {
        Ok(npz_of(bytes)?.into_iter().map(|(_, t)| t).collect())
    });
}

#[test]
fn damaged_safetensors_never_panic() {
    let mut files = vec![fixture::SAFETENSORS.to_vec()];
    files.push(written(|path| {
        safetensors::save(path, &all_types()).unwrap()
    }));
    fuzz(&files, |bytes| {
        let file = safetensors_of(bytes)?;
        Ok(file.tensors.into_iter().map(|(_, t)| t).collect())
    });
}
