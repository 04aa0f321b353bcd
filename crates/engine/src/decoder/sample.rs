//! Choosing tokens on the device.

use bessemer_hal::BufferSlice;

use super::{Decoder, OP};
use crate::Result;
use crate::metal::{Kernel, Launch, Recorder};

/// Chooses tokens on a device, one after the other.
#[derive(Debug)]
pub struct DeviceSampler {
    vocab: usize,
}

/// What there is to choose from, and where the choice goes.
pub(super) struct Choice<'a> {
    /// A number for every token.
    pub(super) logits: &'a BufferSlice,
    /// The token that the next step takes in, a `uint`.
    pub(super) token: &'a BufferSlice,
    /// Where the host reads it, a `uint`.
    pub(super) id: &'a BufferSlice,
}

impl DeviceSampler {
    /// The most likely token, always; the first of several.
    pub fn greedy(decoder: &Decoder) -> Self {
        Self {
            vocab: decoder.vocab(),
        }
    }

    /// The launches that choose a token.
    pub(super) fn launches(&self, decoder: &Decoder, choice: &Choice<'_>) -> Result<Vec<Launch>> {
        let mut recorder = Recorder::new(decoder.metal(), OP);
        let kernel = Kernel::new("decode_greatest", "decode_greatest");
        let launch = recorder.launch(&kernel)?;
        let threads = launch.max_threads().min(1024) / 32 * 32;
        launch
            .read(choice.logits)
            .write(choice.token)
            .write(choice.id)
            .value(&(self.vocab as u32))
            .groups(&mut recorder, 1, threads);
        Ok(recorder.into_launches())
    }

    /// The launches were handed to the device, and the choice is made.
    pub(super) fn accepted(&mut self) {}
}
