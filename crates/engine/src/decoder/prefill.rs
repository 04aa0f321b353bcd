//! Taking in many tokens.

use bessemer_hal::Submission;

use super::plan::Taken;
use super::{Decoder, Logits, OP, Run, Sequences};
use crate::{Error, Result};

/// Takes in tokens, which the caller has checked, one after the other, and waits for all. Lengths are the caller's to
/// change.
pub(super) fn forward(
    decoder: &Decoder,
    sequences: &mut Sequences,
    runs: &[Run<'_>],
    to: &mut Vec<f32>,
) -> Result<()> {
    let mut sent = Vec::new();
    let outcome = submit(decoder, sequences, runs, to, &mut sent);
    // Whatever happens, nothing is on its way when this returns.
    let mut ran = Ok(());
    for submission in sent {
        ran = ran.and(submission.wait().map(|_| ()));
    }
    ran.map_err(|e| Error::device(OP, e)).and(outcome)
}

fn submit(
    decoder: &Decoder,
    sequences: &mut Sequences,
    runs: &[Run<'_>],
    to: &mut Vec<f32>,
    sent: &mut Vec<Submission>,
) -> Result<()> {
    let device = &decoder.metal().device;
    let failed = |e| Error::device(OP, e);
    for run in runs {
        let plan = sequences.plan(decoder, run.slot)?;
        let first = sequences.checked_len(run.slot)?;
        for (i, &token) in run.tokens.iter().enumerate() {
            let wanted = match run.logits {
                Logits::None => false,
                Logits::Last => i + 1 == run.tokens.len(),
                Logits::All => true,
            };
            let taken = Taken {
                token,
                position: (first + i) as u32,
            };
            let embed = plan.embed_given(decoder, sequences, run.slot, taken)?;
            let mut commands = device.commands();
            embed.record(&mut commands).map_err(failed)?;
            for launch in plan.after_embedding(wanted) {
                launch.record(&mut commands).map_err(failed)?;
            }
            let submission = commands.commit().map_err(failed)?;
            sent.push(submission.clone());
            if wanted {
                submission.wait().map_err(failed)?;
                let at = to.len();
                to.resize(at + decoder.vocab(), 0.0);
                let logits = sequences.logits();
                let mut read = || logits.buffer().read(logits.offset(), &mut to[at..]);
                // A buffer tells once that an earlier writer of its has failed; this one has not.
                read().or_else(|_| read()).map_err(failed)?;
            }
        }
    }
    Ok(())
}
