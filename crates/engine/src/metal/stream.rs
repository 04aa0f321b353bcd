//! The command stream of a device: ops record into it, nothing waits until a value is read.
//!
//! Recorded launches are collected in a [`Batch`], which becomes one command list. It is submitted when a value is
//! evaluated or read, or when it has enough work; a few batches may be in flight.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bessemer_hal::{self as hal, Commands, DeviceInfo, Family, PreparedProduct, Submission};

use super::record::Launch;
use super::{band, matmul};
use crate::{Error, Result};

/// Maximum batches in flight; beyond, recording waits for the oldest.
const MAX_BATCHES_IN_FLIGHT: usize = 3;

/// Maximum launches of a batch; beyond, it is submitted whatever they cost.
const MAX_BATCH_LAUNCHES: usize = 2048;

/// Launches that become one command list.
pub(crate) struct Batch {
    state: Mutex<BatchState>,
    /// Its time on the device, once it has run.
    gpu_time: OnceLock<Duration>,
}

enum BatchState {
    /// Being recorded.
    Open(Vec<Arc<Batch>>),
    /// In flight, after those that wrote what it reads.
    InFlight(Submission, Vec<Arc<Batch>>),
    /// Completed, or failed.
    Done(hal::Result<()>),
}

impl Batch {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(BatchState::Open(Vec::new())),
            gpu_time: OnceLock::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers that the batch reads what another wrote: it fails if that fails.
    fn reads(&self, other: &Arc<Self>) {
        if std::ptr::eq(self, &raw const **other)
            || matches!(*other.lock(), BatchState::Done(Ok(())))
        {
            return;
        }
        if let BatchState::Open(parents) = &mut *self.lock()
            && !parents.iter().any(|p| Arc::ptr_eq(p, other))
        {
            parents.push(Arc::clone(other));
        }
    }

    /// Whether it has run without an error.
    pub(crate) fn has_run(&self) -> bool {
        match &*self.lock() {
            BatchState::Open(_) => false,
            BatchState::InFlight(submission, _) => {
                submission.is_done() && submission.wait().is_ok()
            }
            BatchState::Done(outcome) => outcome.is_ok(),
        }
    }

    /// Its time on the device; zero unless it has run and was waited for.
    pub(super) fn gpu_time(&self) -> Duration {
        self.gpu_time.get().copied().unwrap_or_default()
    }

    /// Waits until a submitted batch has run.
    fn wait(&self) -> hal::Result<()> {
        let (submission, parents) = match &mut *self.lock() {
            BatchState::Open(_) => return Ok(()),
            BatchState::InFlight(submission, parents) => {
                (submission.clone(), std::mem::take(parents))
            }
            BatchState::Done(outcome) => return outcome.clone(),
        };
        let own = submission.wait().map(|completed| {
            let _ = self.gpu_time.set(completed.gpu_time());
        });
        // An earlier failure is the cause of all later ones.
        let outcome = parents.iter().try_for_each(|parent| parent.wait()).and(own);
        let mut state = self.lock();
        if let BatchState::Done(outcome) = &*state {
            return outcome.clone();
        }
        *state = BatchState::Done(outcome.clone());
        outcome
    }
}

/// The batch being recorded, and the batches in flight.
struct Recording {
    commands: Option<Commands>,
    batch: Arc<Batch>,
    /// Recorded launches, and the bytes that they move, approximately.
    launches: usize,
    work: u64,
    in_flight: VecDeque<Arc<Batch>>,
}

/// The command stream of a device.
pub(crate) struct Stream {
    device: hal::Device,
    recording: Mutex<Recording>,
    /// Bytes that a batch moves, approximately, when it is submitted.
    batch_work: u64,
    /// Maximum cost of a launch in bytes.
    launch_work: AtomicU64,
}

/// Approximate duration of a batch: long enough to amortise the cost of a command list, short enough that the device
/// begins early.
const BATCH_SECONDS: f64 = 0.02;

/// Bytes that the chip can move in some seconds, or the smallest of the family if the chip is not known.
fn bytes_in(seconds: f64, info: &DeviceInfo) -> u64 {
    let gigabytes_per_second = match (info.chip(), info.family) {
        (Some(chip), _) => chip.gigabytes_per_second,
        (None, Family::Mac2) => 100.0,
        (None, Family::Apple7) => 68.25,
        (None, Family::Apple8 | Family::Apple9) => 100.0,
        (None, _) => 153.0,
    };
    (gigabytes_per_second * 1e9 * seconds).round() as u64
}

impl Stream {
    pub(super) fn new(device: hal::Device) -> Self {
        Self {
            recording: Mutex::new(Recording {
                commands: None,
                batch: Batch::new(),
                launches: 0,
                work: 0,
                in_flight: VecDeque::new(),
            }),
            batch_work: bytes_in(BATCH_SECONDS, device.info()),
            launch_work: AtomicU64::new(bytes_in(band::MAX_SECONDS, device.info())),
            device,
        }
    }

    /// Maximum cost of a launch in bytes: costlier ones are launched in bands.
    pub(super) fn launch_work(&self) -> u64 {
        self.launch_work.load(Ordering::Relaxed)
    }

    /// Sets that to what the device can do in a time.
    pub(crate) fn set_max_launch_time(&self, time: Duration) {
        let bytes = bytes_in(time.as_secs_f64(), self.device.info());
        self.launch_work.store(bytes, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Recording> {
        self.recording
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the launches of an op, and the products that follow them, which read what the input batches wrote. Returns
    /// the batch they are in. After an error some of them may have been added.
    pub(super) fn add<'a>(
        &self,
        launches: Vec<Launch>,
        products: &[PreparedProduct],
        inputs: impl Iterator<Item = &'a Arc<Batch>>,
    ) -> (Arc<Batch>, hal::Result<()>) {
        let mut recording = self.lock();
        let recording = &mut *recording;
        let batch = Arc::clone(&recording.batch);
        for input in inputs {
            batch.reads(input);
        }
        let mut outcome = launches.into_iter().try_for_each(|launch| {
            recording.work += launch.work();
            recording.launches += 1;
            launch.record(self.commands(recording))
        });
        for prepared in products {
            let product = prepared.product();
            recording.work += matmul::cost(product.sums(), product.depth());
            recording.launches += 1;
            let commands = self.commands(recording);
            outcome = outcome.and_then(|()| commands.multiply_prepared(prepared));
        }
        if self.is_full(recording) {
            self.commit(recording);
        }
        (batch, outcome)
    }

    /// Adds prepared launches with their work, which read what the input batches wrote, without those of other threads in
    /// between. Returns the batch that the last of them are in, which fails if one of the others does. After an error some
    /// of them may have been added.
    pub(super) fn replay<'a>(
        &self,
        launches: &[(Cow<'_, hal::Launch>, u64)],
        inputs: impl Iterator<Item = &'a Arc<Batch>>,
    ) -> (Arc<Batch>, hal::Result<()>) {
        let mut recording = self.lock();
        let recording = &mut *recording;
        for input in inputs {
            recording.batch.reads(input);
        }
        let mut outcome = Ok(());
        for (launch, work) in launches {
            if self.is_full(recording) {
                let submitted = Arc::clone(&recording.batch);
                self.commit(recording);
                recording.batch.reads(&submitted);
            }
            recording.work += work;
            recording.launches += 1;
            outcome = outcome.and_then(|()| self.commands(recording).record(launch));
        }
        let batch = Arc::clone(&recording.batch);
        if self.is_full(recording) {
            self.commit(recording);
        }
        (batch, outcome)
    }

    /// The commands being recorded.
    fn commands<'r>(&self, recording: &'r mut Recording) -> &'r mut Commands {
        recording.commands.get_or_insert_with(|| {
            let mut commands = self.device.commands();
            commands.set_label("tensors");
            commands
        })
    }

    /// Whether the batch being recorded has enough work to be submitted.
    fn is_full(&self, recording: &Recording) -> bool {
        recording.work >= self.batch_work || recording.launches >= MAX_BATCH_LAUNCHES
    }

    /// Submits what is recorded.
    pub(crate) fn flush(&self) {
        self.commit(&mut self.lock());
    }

    fn commit(&self, recording: &mut Recording) {
        let Some(commands) = recording.commands.take() else {
            return;
        };
        (recording.launches, recording.work) = (0, 0);
        let batch = std::mem::replace(&mut recording.batch, Batch::new());
        while recording.in_flight.len() >= MAX_BATCHES_IN_FLIGHT
            && let Some(oldest) = recording.in_flight.pop_front()
        {
            // Reading its results returns its failure.
            let _ = oldest.wait();
        }
        let parents = match &mut *batch.lock() {
            BatchState::Open(parents) => std::mem::take(parents),
            _ => Vec::new(),
        };
        let state = match commands.commit() {
            Ok(submission) => BatchState::InFlight(submission, parents),
            Err(error) => BatchState::Done(Err(error)),
        };
        let is_in_flight = matches!(state, BatchState::InFlight(..));
        *batch.lock() = state;
        if is_in_flight {
            recording.in_flight.push_back(batch);
        }
    }

    /// Waits until a batch has run, submitting it first if necessary.
    pub(crate) fn wait(&self, batch: &Batch) -> hal::Result<()> {
        if matches!(*batch.lock(), BatchState::Open(_)) {
            self.flush();
        }
        batch.wait()
    }

    /// Waits until all that was recorded has run; returns the first failure.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let in_flight = {
            let mut recording = self.lock();
            self.commit(&mut recording);
            std::mem::take(&mut recording.in_flight)
        };
        let mut outcome = Ok(());
        for batch in in_flight {
            outcome = outcome.and(batch.wait());
        }
        outcome.map_err(|e| Error::device("synchronize", e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_20_ms_of_the_chip_or_of_the_family() {
        let info = |name: &str, family: Family| DeviceInfo {
            name: name.to_owned(),
            ..hal::noop::device(family).info().clone()
        };
        let cases = [
            ("Apple M1", Family::Apple7, 1_365_000_000),
            ("Apple M1 Max", Family::Apple7, 8_000_000_000),
            ("Apple M4 Max", Family::Apple9, 8_200_000_000),
            ("Apple A14 GPU", Family::Apple7, 1_365_000_000),
            ("Apple M9", Family::Apple9, 2_000_000_000),
            ("Apple M9", Family::Apple10, 3_060_000_000),
            ("AMD Radeon Pro 5500M", Family::Mac2, 2_000_000_000),
        ];
        for (name, family, bytes) in cases {
            assert_eq!(
                bytes_in(BATCH_SECONDS, &info(name, family)),
                bytes,
                "{name}"
            );
        }
    }
}
