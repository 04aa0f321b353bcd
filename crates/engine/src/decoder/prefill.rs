//! Prefill: processing tokens that the host gives.
//!
//! A single token takes the launches of a decoding step. Several are rows of a batch, from any sequences: each row has
//! its sequence and position. The results of a row do not depend on the others: batches of up to 16 rows give the same
//! bits, and so do larger ones. The two regimes have different matmul kernels and differ by rounding.

mod attention;
mod batch;
mod linear;

use bessemer_hal::{BufferSlice, Commands, Submission};

use self::batch::{PrefillBatch, PrefillRow};
use super::plan::{self, HostToken};
use super::{Counts, Decoder, Logits, OP, Run, Sequences, count, invalid};
use crate::metal::{Block, Recorder};
use crate::{Error, Result};

/// Maximum rows of a batch: enough for efficient matmuls, few enough for memory and for a GPU that others use, too.
const MAX_BATCH_ROWS: usize = 512;

/// Batch sizes that kernels are compiled for ahead of time: a short prompt, and a longer one.
const WARM_UP_ROWS: [usize; 2] = [16, 64];

/// Maximum rows whose logits are computed together.
const MAX_LOGIT_ROWS: usize = 64;

/// Maximum work of a command list, in bytes moved or their equivalent: about 0.12 seconds of a small GPU.
const MAX_LIST_WORK_BYTES: u64 = 8_000_000_000;

/// Processes tokens, which the caller has checked, and waits for all. The caller updates the lengths.
pub(super) fn forward(
    decoder: &Decoder,
    sequences: &mut Sequences,
    runs: &[Run<'_>],
    to: &mut Vec<f32>,
) -> Result<()> {
    let mut submissions = Submissions(Vec::new());
    let rows = rows_of(sequences, runs)?;
    let outcome = match rows[..] {
        [] => return Ok(()),
        [row] if decoder.spec().causal => decode_row(decoder, sequences, row, to, &mut submissions),
        _ => run_batches(decoder, sequences, &rows, to, &mut submissions),
    };
    // Nothing is in flight when this returns, even on an error.
    submissions.wait().and(outcome)
}

/// Cost of a batch of `rows` rows of an empty sequence, with the logits of its last row.
pub(super) fn counts(decoder: &Decoder, sequences: &Sequences, rows: usize) -> Result<Counts> {
    let max_rows = MAX_BATCH_ROWS.min(sequences.positions());
    if rows == 0 || rows > max_rows {
        return Err(invalid(format!(
            "unsupported batch of {rows} rows: must be from 1 to {max_rows}"
        )));
    }
    let batch = PrefillBatch::new(decoder, sequences, &first_rows(rows))?;
    let mut recorder = Recorder::new(decoder.metal(), OP);
    batch.layers(&mut recorder)?;
    batch.head(&mut recorder, 0..1, &sequences.logits())?;
    let launches = recorder.into_launches()?;
    let mut counts = count::count(decoder, launches.iter())?;
    counts.bytes_read += decoder.spec().cache_read(sequences.cache_type(), rows);
    Ok(counts)
}

/// Compiles the kernels of batches. Recording their launches would, too, but one kernel after the other.
pub(super) fn compile(decoder: &Decoder, sequences: &Sequences) -> Result<()> {
    let batches = WARM_UP_ROWS.map(|rows| PrefillBatch::new(decoder, sequences, &first_rows(rows)));
    let [short, long] = batches;
    let (short, long) = (short?, long?);
    let logits = sequences.logits();
    let mut tasks = long.tasks(&logits);
    tasks.extend(short.tasks(&logits));
    plan::compile(decoder, &tasks)
}

/// The first rows of the first sequence.
fn first_rows(count: usize) -> Vec<PrefillRow> {
    let row = |i| PrefillRow {
        slot: 0,
        position: i as u32,
        token: 0,
        wants_logits: i + 1 == count,
        len: count as u32,
    };
    (0..count).map(row).collect()
}

/// Submissions in flight.
struct Submissions(Vec<Submission>);

impl Submissions {
    fn commit(&mut self, commands: Commands) -> Result<()> {
        let submission = commands.commit().map_err(failed)?;
        self.0.push(submission);
        Ok(())
    }

    /// Waits for all of them; the first failure is returned.
    fn wait(&mut self) -> Result<()> {
        let mut ran = Ok(());
        for submission in self.0.drain(..) {
            ran = ran.and(submission.wait().map(|_| ()));
        }
        ran.map_err(failed)
    }
}

fn failed(error: bessemer_hal::Error) -> Error {
    Error::device(OP, error)
}

fn rows_of(sequences: &Sequences, runs: &[Run<'_>]) -> Result<Vec<PrefillRow>> {
    let mut rows = Vec::new();
    for run in runs {
        let (first, count) = (sequences.checked_len(run.slot)?, run.tokens.len());
        let row = |(i, &token): (usize, &u32)| PrefillRow {
            slot: run.slot as u32,
            position: (first + i) as u32,
            token,
            wants_logits: match run.logits {
                Logits::None => false,
                Logits::Last => i + 1 == count,
                Logits::All => true,
            },
            len: (first + count) as u32,
        };
        rows.extend(run.tokens.iter().enumerate().map(row));
    }
    Ok(rows)
}

/// Processes one token by the launches of a decoding step.
fn decode_row(
    decoder: &Decoder,
    sequences: &mut Sequences,
    row: PrefillRow,
    to: &mut Vec<f32>,
    submissions: &mut Submissions,
) -> Result<()> {
    let slot = row.slot as usize;
    let plan = sequences.plan(decoder, slot)?;
    let host_token = HostToken {
        token: row.token,
        position: row.position,
    };
    let embed = plan.embed_given(decoder, sequences, slot, host_token)?;
    let mut commands = decoder.metal().commands("decode");
    let launches = [&embed]
        .into_iter()
        .chain(plan.after_embedding(row.wants_logits));
    for launch in launches {
        launch.record(&mut commands).map_err(failed)?;
    }
    submissions.commit(commands)?;
    if row.wants_logits {
        submissions.wait()?;
        read(&sequences.logits(), to)?;
    }
    Ok(())
}

/// Processes rows, batch by batch.
fn run_batches(
    decoder: &Decoder,
    sequences: &Sequences,
    rows: &[PrefillRow],
    to: &mut Vec<f32>,
    submissions: &mut Submissions,
) -> Result<()> {
    // Without a causal mask every row attends to all others: they are one batch.
    let batch_rows = if decoder.spec().causal {
        MAX_BATCH_ROWS
    } else {
        rows.len()
    };
    for rows in rows.chunks(batch_rows) {
        let batch = PrefillBatch::new(decoder, sequences, rows)?;
        let outcome = run_batch(decoder, sequences, &batch, to, submissions);
        // The memory of the batch is freed.
        submissions.wait().and(outcome)?;
    }
    Ok(())
}

/// Processes a batch and copies the requested logits to the host, `MAX_LOGIT_ROWS` rows at a time. Those of the last
/// row stay in the sampler's input.
fn run_batch(
    decoder: &Decoder,
    sequences: &Sequences,
    batch: &PrefillBatch<'_>,
    to: &mut Vec<f32>,
    submissions: &mut Submissions,
) -> Result<()> {
    let mut recorder = Recorder::new(decoder.metal(), OP);
    batch.layers(&mut recorder)?;
    let (logit_rows, row) = (batch.logit_rows(), 4 * decoder.vocab());
    if logit_rows == 0 {
        return submit(decoder, recorder, None, submissions);
    }
    let last = sequences.logits();
    for start in (0..logit_rows).step_by(MAX_LOGIT_ROWS) {
        let range = start..logit_rows.min(start + MAX_LOGIT_ROWS);
        let count = range.len();
        let block = match count {
            1 => None,
            _ => Some(Block::idle(decoder.metal(), OP, count * row)?),
        };
        let logits = block.as_ref().map_or_else(|| last.clone(), Block::all);
        batch.head(&mut recorder, range, &logits)?;
        let copied = block.as_ref().map(|block| {
            let from = block.slice((count - 1) * row..count * row);
            (from, last.clone())
        });
        let outcome = submit(decoder, recorder, copied, submissions);
        submissions.wait().and(outcome)?;
        read(&logits, to)?;
        recorder = Recorder::new(decoder.metal(), OP);
    }
    Ok(())
}

/// Submits launches, and then a copy, as several command lists, so that none occupies a GPU too long.
fn submit(
    decoder: &Decoder,
    recorder: Recorder<'_>,
    copied: Option<(BufferSlice, BufferSlice)>,
    submissions: &mut Submissions,
) -> Result<()> {
    let commands_of = || decoder.metal().commands("prefill");
    let mut commands = commands_of();
    let mut work = 0;
    for launch in recorder.into_launches()? {
        if work > MAX_LIST_WORK_BYTES {
            submissions.commit(std::mem::replace(&mut commands, commands_of()))?;
            work = 0;
        }
        launch.record(&mut commands).map_err(failed)?;
        work += launch.work();
    }
    if let Some((from, to)) = copied {
        commands.copy(from, to).map_err(failed)?;
    }
    submissions.commit(commands)
}

/// Appends the contents of a buffer, after the submissions that wrote it have succeeded.
fn read(from: &BufferSlice, to: &mut Vec<f32>) -> Result<()> {
    let at = to.len();
    to.resize(at + from.length() / 4, 0.0);
    // The failure of an earlier call was reported to its caller; this call has written the logits again.
    let _ = from.buffer().take_failure();
    let read = from.buffer().read(from.offset(), &mut to[at..]);
    read.map_err(failed)
}
