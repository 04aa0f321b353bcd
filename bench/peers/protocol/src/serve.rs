//! The main loop of a worker in Rust.

use std::io::{BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crate::case::{Case, Output, Reply, Request, WorkerInfo};

/// Computes something once and drops the result.
pub type Work = Box<dyn FnMut() -> Result<(), String>>;

/// A case that is ready to run.
pub struct Prepared {
    /// Computes the result once and drops it.
    pub work: Work,
    /// The result of the first call.
    pub output: Output,
    /// Shorter work that wakes the library's threads, if the work itself is long.
    pub wake: Option<Work>,
}

/// A library under measurement.
pub trait Engine {
    /// The library's name, version and threads.
    fn info(&self) -> WorkerInfo;

    /// Prepares the data of a case and computes it once. `Ok(None)` if the library has no such op.
    fn prepare(&mut self, case: &Case) -> Result<Option<Prepared>, String>;
}

/// Answers requests until the input ends.
pub fn serve(
    engine: &mut impl Engine,
    requests: impl BufRead,
    mut replies: impl Write,
) -> std::io::Result<()> {
    let mut prepared = None;
    for line in requests.lines() {
        let reply = match serde_json::from_str(&line?) {
            // A library that panics fails this case, not the run.
            Ok(request) => {
                catch_unwind(AssertUnwindSafe(|| answer(engine, &mut prepared, request)))
                    .unwrap_or_else(|_| Reply::Error("panicked".to_owned()))
            }
            Err(e) => Reply::Error(format!("not a request: {e}")),
        };
        writeln!(replies, "{}", serde_json::to_string(&reply)?)?;
        replies.flush()?;
    }
    Ok(())
}

fn answer(engine: &mut impl Engine, prepared: &mut Option<Prepared>, request: Request) -> Reply {
    match request {
        Request::Info => Reply::Info(engine.info()),
        Request::Prepare(case) => {
            *prepared = None;
            match engine.prepare(&case) {
                Ok(Some(ready)) => {
                    let output = ready.output.clone();
                    *prepared = Some(ready);
                    Reply::Ready(output)
                }
                Ok(None) => Reply::Unsupported(format!("no {}", case.op.name())),
                Err(e) => Reply::Error(e),
            }
        }
        Request::Run(times) => match prepared {
            Some(ready) => {
                // The threads of a library sleep between its turns; in a real program they would be awake.
                let woken = match &mut ready.wake {
                    Some(wake) => wake(),
                    None => (ready.work)(),
                };
                if let Err(e) = woken {
                    return Reply::Error(e);
                }
                let start = Instant::now();
                for _ in 0..times {
                    if let Err(e) = (ready.work)() {
                        return Reply::Error(e);
                    }
                }
                Reply::Nanoseconds(start.elapsed().as_nanos() as u64)
            }
            None => Reply::Error("nothing is prepared".to_owned()),
        },
        Request::Drop => {
            *prepared = None;
            Reply::Dropped
        }
    }
}
