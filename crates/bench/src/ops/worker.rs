//! Worker processes, ours and the peers', behind one protocol.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bench_protocol::{Case, Output, Reply, Request, WorkerInfo};
use bessemer::simd::Level;

/// Maximum wait for a reply: a peer that hangs fails its case, not the run.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);

/// The name of our contestant with `--exact`.
pub(crate) const EXACT: &str = "Bessemer --exact";

/// How to start a contestant.
#[derive(Debug, Clone)]
pub(crate) struct Contestant {
    /// The name for `--peers`.
    pub(crate) key: &'static str,
    /// The name in reports.
    pub(crate) title: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    /// The command that installs it.
    pub(crate) install: &'static str,
    /// Our contestant at this SIMD level.
    level: Option<Level>,
}

impl Contestant {
    /// The name in reports, with the SIMD level if there is one.
    pub(crate) fn name(&self) -> String {
        match self.level {
            Some(level) => format!("{} {}", self.title, level.name()),
            None => self.title.to_owned(),
        }
    }
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap_or(Path::new("."))
        .to_owned()
}

/// The build directory of `scripts/bench-peers`.
pub(crate) fn peers_folder() -> PathBuf {
    root().join("target/peers")
}

/// This build.
pub(crate) fn ours() -> Result<Contestant> {
    Ok(Contestant {
        key: "bessemer",
        title: "Bessemer",
        program: std::env::current_exe()?,
        arguments: vec!["worker".to_owned()],
        install: "",
        level: None,
    })
}

/// Another build of this program.
pub(crate) fn old_build(program: &Path) -> Result<Contestant> {
    Ok(Contestant {
        key: "old",
        title: "the old build",
        program: std::path::absolute(program)?,
        ..ours()?
    })
}

/// Ours with `--exact`, to compare the default precision with.
fn exact() -> Result<Contestant> {
    Ok(Contestant {
        key: "exact",
        title: EXACT,
        arguments: vec!["worker".to_owned(), "--exact".to_owned()],
        ..ours()?
    })
}

/// Ours limited to a SIMD level.
pub(crate) fn at_level(level: Level) -> Result<Contestant> {
    Ok(Contestant {
        level: Some(level),
        install: "a processor that has it",
        ..ours()?
    })
}

fn in_python(key: &'static str, title: &'static str) -> Contestant {
    let script = root().join("bench/peers/python/worker.py");
    Contestant {
        key,
        title,
        program: peers_folder().join("python/bin/python"),
        arguments: vec![
            "-Wignore".to_owned(),
            script.to_string_lossy().into_owned(),
            key.to_owned(),
        ],
        install: "scripts/bench-peers",
        level: None,
    }
}

fn in_rust(key: &'static str, title: &'static str, name: &str) -> Contestant {
    Contestant {
        key,
        title,
        program: peers_folder().join("rust/release").join(name),
        arguments: Vec::new(),
        install: "scripts/bench-peers, or --build-peers",
        level: None,
    }
}

/// Ours first, then the peers of the ops.
pub(crate) fn of_ops() -> Result<Vec<Contestant>> {
    Ok(vec![
        ours()?,
        in_python("numpy", "NumPy"),
        in_rust("candle", "candle", "candle-worker"),
        in_rust("ndarray", "ndarray", "ndarray-worker"),
        in_python("jax", "JAX"),
        in_python("mlx", "MLX"),
    ])
}

/// Ours first, then the peers of language models.
pub(crate) fn of_models() -> Result<Vec<Contestant>> {
    Ok(vec![
        ours()?,
        exact()?,
        in_python("llama", "llama.cpp"),
        in_rust("candle", "candle", "candle-worker"),
    ])
}

/// Builds the peers that are crates.
pub(crate) fn build_peers() -> Result<()> {
    // From their folder, so that their own cargo configuration applies.
    let status = Command::new("cargo")
        .args(["build", "--release", "--locked", "--target-dir"])
        .arg(peers_folder().join("rust"))
        .current_dir(root().join("bench/peers"))
        .env_remove("CARGO_TARGET_DIR")
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("the peers in bench/peers do not build");
    }
    Ok(())
}

/// A running contestant.
#[derive(Debug)]
pub(crate) struct Worker {
    contestant: Contestant,
    threads: usize,
    process: Child,
    requests: ChildStdin,
    replies: Receiver<String>,
    /// The last lines of its standard error.
    complaints: Arc<Mutex<Vec<String>>>,
    /// Its self-description.
    pub(crate) info: WorkerInfo,
}

/// The reply of a worker to a case.
#[derive(Debug)]
pub(crate) enum Readiness {
    /// It has computed this.
    Ready(Output),
    /// Its library has no such op.
    Unsupported,
    /// It tried and failed.
    Failed(String),
}

impl Worker {
    /// Starts a contestant; the error is the reason why it is absent.
    pub(crate) fn start(contestant: &Contestant, threads: usize) -> Result<Self> {
        if !contestant.program.exists() {
            bail!("not installed");
        }
        if contestant.level.is_some_and(|l| !l.is_available()) {
            bail!("this processor lacks it");
        }
        let mut process = command(contestant, threads)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (sender, replies) = channel();
        let output = process.stdout.take().context("no standard output")?;
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let complaints = Arc::new(Mutex::new(Vec::new()));
        let errors = process.stderr.take().context("no standard error")?;
        let heard = Arc::clone(&complaints);
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                let mut heard = heard
                    .lock()
                    .expect("no thread panics while it holds the lock");
                heard.push(line);
                if heard.len() > 20 {
                    heard.remove(0);
                }
            }
        });
        let requests = process.stdin.take().context("no standard input")?;
        let mut worker = Self {
            contestant: contestant.clone(),
            threads,
            process,
            requests,
            replies,
            complaints,
            info: WorkerInfo {
                name: contestant.title.to_owned(),
                version: String::new(),
                threads,
            },
        };
        match worker.ask(&Request::Info)? {
            Reply::Info(info) => worker.info = info,
            other => bail!("answers {other:?} when asked who it is"),
        }
        if contestant.level.is_some() {
            worker.info.name = contestant.name();
        }
        Ok(worker)
    }

    /// Returns `true` for our contestant at a requested SIMD level.
    pub(crate) fn is_level(&self) -> bool {
        self.contestant.level.is_some()
    }

    /// Prepares a case and computes it once.
    pub(crate) fn prepare(&mut self, case: &Case) -> Readiness {
        match self.ask(&Request::Prepare(Box::new(case.clone()))) {
            Ok(Reply::Ready(output)) => Readiness::Ready(output),
            Ok(Reply::Unsupported(_)) => Readiness::Unsupported,
            Ok(Reply::Error(why)) => Readiness::Failed(why.chars().take(200).collect()),
            Ok(other) => Readiness::Failed(format!("answers {other:?}")),
            Err(e) => self.revive(&e),
        }
    }

    /// Mean seconds per call over `calls`.
    pub(crate) fn run(&mut self, calls: u64) -> Result<f64> {
        match self.ask(&Request::Run(calls))? {
            Reply::Nanoseconds(t) => Ok(t as f64 * 1e-9 / calls.max(1) as f64),
            Reply::Error(why) => bail!(why),
            other => bail!("answers {other:?}"),
        }
    }

    /// Returns `true` if none of its threads is running, or if the system does not tell.
    pub(crate) fn is_quiet(&self) -> bool {
        let tasks = format!("/proc/{}/task", self.process.id());
        let Ok(tasks) = std::fs::read_dir(tasks) else {
            return true;
        };
        tasks.flatten().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // The state follows the name, which is in parentheses and may contain any characters.
            let state = stat.rsplit_once(") ").map_or("S", |(_, rest)| rest);
            !state.starts_with('R')
        })
    }

    /// Frees the memory of the case.
    pub(crate) fn forget(&mut self) -> Result<()> {
        self.ask(&Request::Drop).map(drop)
    }

    /// Restarts a worker that died or hangs, for the remaining cases.
    fn revive(&mut self, why: &anyhow::Error) -> Readiness {
        let why = format!("{why:#}");
        match Self::start(&self.contestant, self.threads) {
            Ok(next) => {
                drop(std::mem::replace(self, next));
                Readiness::Failed(why)
            }
            Err(e) => Readiness::Failed(format!("{why}; it does not start again: {e:#}")),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Reply> {
        let sent = serde_json::to_string(request)?;
        let written = writeln!(self.requests, "{sent}").and_then(|()| self.requests.flush());
        if written.is_err() {
            bail!(self.last_words());
        }
        match self.replies.recv_timeout(REPLY_TIMEOUT) {
            Ok(line) => Ok(serde_json::from_str(&line)?),
            Err(RecvTimeoutError::Timeout) => {
                bail!("no answer within {} s", REPLY_TIMEOUT.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => bail!(self.last_words()),
        }
    }

    fn last_words(&mut self) -> String {
        let status = self.process.wait().map_or(String::new(), |s| s.to_string());
        let heard = self
            .complaints
            .lock()
            .expect("no thread panics while it holds the lock");
        match heard.last() {
            Some(line) => format!("ended ({status}): {line}"),
            None => format!("ended ({status})"),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It is idle and has no state to save.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The command with the thread-count variables of all libraries.
fn command(contestant: &Contestant, threads: usize) -> Command {
    let cores = std::thread::available_parallelism().map_or(threads, usize::from);
    // With fewer threads than cores, affinity limits libraries that read no variable.
    let mut command = if threads < cores && cfg!(target_os = "linux") {
        let mut bound = Command::new("taskset");
        bound.args(["--cpu-list", &format!("0-{}", threads - 1)]);
        bound.arg(&contestant.program);
        bound
    } else {
        Command::new(&contestant.program)
    };
    command.args(&contestant.arguments);
    if let Some(level) = contestant.level {
        command.env("BESSEMER_SIMD", level.name());
    }
    for name in [
        "BENCH_THREADS",
        "BESSEMER_THREADS",
        "OPENBLAS_NUM_THREADS",
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "RAYON_NUM_THREADS",
        "MATMUL_NUM_THREADS",
        "NPROC",
        "PJRT_NPROC",
    ] {
        command.env(name, threads.to_string());
    }
    command
}
