//! Damaged files: thousands of random changes to small files of every container. Opening them
//! returns a model or a typed error, and never allocates more memory than the file size justifies.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod memory;
mod read;
mod sample;
mod size;

use tempfile::TempDir;

use self::read::{read_model, use_words};
use self::sample::Sample;

/// Numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// An edge-case number.
    fn awkward(&mut self) -> u64 {
        let power = 1_u64.checked_shl(self.below(64) as u32).unwrap_or(0);
        match self.below(6) {
            0 => 0,
            1 => u64::MAX,
            2 => power,
            3 => power.wrapping_sub(1),
            4 => u64::MAX - self.below(64) as u64,
            _ => self.below(300) as u64,
        }
    }

    /// Changes a file in one to three ways.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..1 + self.below(3) {
            if bytes.is_empty() {
                return;
            }
            // Mostly near the start, where the headers are.
            let reach = match self.below(3) {
                0 => bytes.len(),
                _ => bytes.len().min(400),
            };
            let at = self.below(reach);
            match self.below(7) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.next() as u8,
                2 => bytes.truncate(at),
                3 => {
                    let number = self.awkward().to_le_bytes();
                    let len = number.len().min(bytes.len() - at);
                    bytes[at..at + len].copy_from_slice(&number[..len]);
                }
                4 => {
                    let number = (self.awkward() as u32).to_le_bytes();
                    let len = number.len().min(bytes.len() - at);
                    bytes[at..at + len].copy_from_slice(&number[..len]);
                }
                5 => {
                    let len = self.below(24).min(bytes.len() - at);
                    let copy = bytes[at..at + len].to_vec();
                    let to = self.below(bytes.len());
                    bytes.splice(to..to, copy);
                }
                _ => {
                    let len = self.below(24).min(bytes.len() - at);
                    bytes.drain(at..at + len);
                }
            }
        }
    }
}

/// Maximum memory for reading files of this many bytes: strings and tensors have some overhead.
fn max_read_bytes(bytes: usize) -> usize {
    64 * bytes + (256 << 10)
}

/// Additional bytes for patterns and templates.
const MAX_TEMPLATE_BYTES: usize = 16 << 20;

fn survive(sample: &Sample, seed: u64, rounds: usize) {
    let dir = TempDir::new().unwrap();
    sample.write(dir.path());
    let whole = read_model(&sample.open(dir.path())).expect("the undamaged file");
    assert!(use_words(&whole), "the undamaged file");
    let mut random = Random(seed);
    let mut usable = 0;
    for round in 0..rounds {
        let victim = random.below(sample.files.len());
        let mut files = sample.files.clone();
        random.damage(&mut files[victim].1);
        std::fs::write(dir.path().join(files[victim].0), &files[victim].1).unwrap();
        let total = files.iter().map(|(_, bytes)| bytes.len()).sum();
        let (model, peak) = memory::peak(|| read_model(&sample.open(dir.path())));
        assert!(
            peak <= max_read_bytes(total),
            "round {round} of seed {seed}: {peak} bytes for files of {total}"
        );
        if let Some(model) = model {
            let (is_usable, peak) = memory::peak(|| use_words(&model));
            usable += usize::from(is_usable);
            assert!(
                peak <= max_read_bytes(total) + MAX_TEMPLATE_BYTES,
                "round {round} of seed {seed}: {peak} bytes for the words of files of {total}"
            );
        }
        let (name, bytes) = &sample.files[victim];
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    assert!(usable < rounds, "nothing was damaged");
}

#[test]
fn damaged_gguf_files_are_handled() {
    survive(&sample::gguf(), 1, 2000);
}

#[test]
fn damaged_safetensors_files_are_handled() {
    survive(&sample::safetensors(), 2, 2000);
}

#[test]
fn damaged_llama2c_files_are_handled() {
    survive(&sample::llama2c(), 3, 1000);
}
