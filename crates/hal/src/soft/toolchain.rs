//! Finds and runs clang.
#![expect(
    unsafe_code,
    reason = "limits the lifetime of compiler processes and kills the process group of one that hangs"
)]

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use crate::env;
use crate::error::{Error, Result};

/// Oldest supported clang: older ones lack options or print other IR.
pub(crate) const MIN_CLANG_MAJOR: u32 = 17;
/// Newest clang that the test suites were run with.
pub(crate) const MAX_CLANG_MAJOR: u32 = 22;
/// Program names that are searched for, newest first.
const CLANG_NAMES: [&str; 7] = [
    "clang++-22",
    "clang++-21",
    "clang++-20",
    "clang++-19",
    "clang++-18",
    "clang++-17",
    "clang++",
];
/// Time limit of one compiler run. The largest kernels of public libraries take seconds; a compiler that takes this
/// long hangs.
pub(crate) const COMPILE_TIME_LIMIT: TimeLimit = TimeLimit {
    cpu: Duration::from_secs(240),
    // Generous, so that a loaded machine does not fail compilations.
    wall: Duration::from_secs(1200),
};
const VERSION_TIME_LIMIT: TimeLimit = TimeLimit {
    wall: Duration::from_secs(20),
    ..COMPILE_TIME_LIMIT
};

/// Time limit of a compiler process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeLimit {
    /// CPU time of each of its processes, in whole seconds.
    pub(crate) cpu: Duration,
    /// Wall-clock time.
    pub(crate) wall: Duration,
}

/// A clang++ that the software device can drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiler {
    /// Path of the program.
    pub path: PathBuf,
    /// First line of `clang++ --version`.
    pub version: String,
    /// Its major version.
    pub major: u32,
}

/// Output of a program that exited by itself, with success or with exit code 1.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) success: bool,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

/// Finds a compiler; the result is cached per `requested` path for the life of the process.
///
/// # Errors
/// `Toolchain`, with what to install. Failures are not cached: the user may install clang meanwhile.
pub(crate) fn find(requested: Option<&Path>) -> Result<Compiler> {
    static KNOWN: LazyLock<Mutex<HashMap<Option<PathBuf>, Compiler>>> =
        LazyLock::new(Mutex::default);
    let key = requested.map(Path::to_owned);
    let lock = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(compiler) = lock().get(&key) {
        return Ok(compiler.clone());
    }
    let compiler = match requested {
        Some(path) => probe(path).map_err(|why| missing(&why)),
        None => search(),
    }?;
    lock().insert(key, compiler.clone());
    Ok(compiler)
}

/// Identifies a compiler without running it: path, size and modification time of the program, or of every program
/// that a search would consider. Empty if there is none.
pub(crate) fn fingerprint(requested: Option<&Path>) -> String {
    let known = |path: &Path| {
        let path = path.canonicalize().ok()?;
        let meta = path.metadata().ok()?;
        let changed = (meta.mtime(), meta.mtime_nsec());
        Some(format!(
            "{}:{}:{}.{};",
            path.display(),
            meta.len(),
            changed.0,
            changed.1
        ))
    };
    let on_path = |name: &Path| {
        if name.components().count() > 1 {
            return known(name);
        }
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).find_map(|dir| known(&dir.join(name)))
    };
    match requested {
        Some(path) => on_path(path).unwrap_or_default(),
        None => CLANG_NAMES
            .iter()
            .filter_map(|n| on_path(Path::new(n)))
            .collect(),
    }
}

fn search() -> Result<Compiler> {
    let mut reasons = Vec::new();
    for name in CLANG_NAMES {
        match probe(Path::new(name)) {
            Ok(compiler) => return Ok(compiler),
            Err(reason) => reasons.push(reason),
        }
    }
    // An unsupported clang is a better explanation than a missing one.
    let reason = reasons
        .iter()
        .find(|reason| !reason.ends_with("is not installed"))
        .cloned()
        .unwrap_or_else(|| format!("none of {} is on the path", CLANG_NAMES.join(", ")));
    Err(missing(&reason))
}

fn missing(reason: &str) -> Error {
    Error::Toolchain {
        message: format!(
            "{reason}; compiling kernels for the software Metal device needs clang {MIN_CLANG_MAJOR} to {MAX_CLANG_MAJOR}: \
             on Debian and Ubuntu `apt-get install clang-19`, elsewhere set {} to a clang++",
            env::CLANG
        ),
    }
}

fn probe(path: &Path) -> Result<Compiler, String> {
    let shown = path.display();
    let output = match spawn(path, [OsStr::new("--version")], VERSION_TIME_LIMIT) {
        Ok(child) => finish(child, Vec::new(), VERSION_TIME_LIMIT.wall),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(format!("`{shown}` is not installed"));
        }
        Err(error) => Err(error),
    };
    let (status, stdout, _) =
        output.map_err(|error| format!("`{shown}` cannot be run: {error}"))?;
    if !status.success() {
        return Err(format!("`{shown} --version` ended with {status}"));
    }
    let text = String::from_utf8_lossy(&stdout);
    let version = text.lines().next().unwrap_or_default().trim().to_owned();
    let major = supported_version(path, &version)?;
    Ok(Compiler {
        path: path.to_owned(),
        version,
        major,
    })
}

/// Returns the major version, if it is supported.
fn supported_version(path: &Path, version: &str) -> Result<u32, String> {
    let shown = path.display();
    match major_version(version) {
        None => Err(format!(
            "`{shown}` is not clang: its version is `{version}`"
        )),
        Some(major) if (MIN_CLANG_MAJOR..=MAX_CLANG_MAJOR).contains(&major) => Ok(major),
        Some(major) => Err(format!("`{shown}` is clang {major}")),
    }
}

/// Parses the number after `clang version`.
fn major_version(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once("clang version ")?;
    rest.split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

impl Compiler {
    /// Runs the compiler with `input` on its standard input.
    ///
    /// # Errors
    /// `Toolchain` if it has disappeared, was killed, crashed or timed out. Exit code 1, which is how clang reports
    /// an invalid program, is an [`Output`].
    pub(crate) fn run<A: AsRef<OsStr>>(&self, arguments: &[A], input: Vec<u8>) -> Result<Output> {
        self.run_within(arguments, input, COMPILE_TIME_LIMIT)
    }

    /// Runs the compiler with a time limit.
    pub(crate) fn run_within<A: AsRef<OsStr>>(
        &self,
        arguments: &[A],
        input: Vec<u8>,
        limit: TimeLimit,
    ) -> Result<Output> {
        let start = Instant::now();
        let shown = self.path.display();
        let failed = |message: String| Error::Toolchain { message };
        let arguments: Vec<OsString> = arguments.iter().map(|a| a.as_ref().to_owned()).collect();
        let child = spawn(&self.path, &arguments, limit).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => missing(&format!("`{shown}` no longer exists")),
            _ => failed(format!("`{shown}` cannot be run: {error}")),
        })?;
        let (status, stdout, stderr) = finish(child, input, limit.wall)
            .map_err(|error| failed(format!("`{shown}` failed: {error}")))?;
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        // The kernel kills a process that exceeds its limit; for a subprocess, clang's driver reports it.
        let killed = status.signal() == Some(libc::SIGKILL) || stderr.contains("command: Killed");
        if killed && start.elapsed() >= limit.cpu {
            return Err(failed(format!(
                "`{shown}` was stopped after {} s of CPU time",
                limit.cpu.as_secs()
            )));
        }
        if let Some(signal) = status.signal() {
            return Err(failed(format!(
                "`{shown}` was killed by signal {signal}{}{}",
                if signal == libc::SIGKILL {
                    ", perhaps because memory ran out"
                } else {
                    ""
                },
                tail(&stderr)
            )));
        }
        // clang's driver survives its own crashes and those of its subprocesses, and reports them.
        let crashed = ["PLEASE submit a bug report", "unable to execute command"]
            .iter()
            .any(|text| stderr.contains(text));
        if crashed || status.code().is_some_and(|code| code > 1) {
            return Err(failed(format!(
                "`{shown}` crashed, {status}{}",
                tail(&stderr)
            )));
        }
        Ok(Output {
            success: status.success(),
            stdout,
            stderr,
        })
    }
}

/// Returns the last lines of a program's stderr, for an error message.
pub(crate) fn tail(stderr: &str) -> String {
    let lines: Vec<_> = stderr.lines().filter(|l| !l.trim().is_empty()).collect();
    match lines.len() {
        0 => String::new(),
        n => format!(
            "; its last output:\n{}",
            lines[n.saturating_sub(6)..].join("\n")
        ),
    }
}

fn spawn<A: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = A>,
    limit: TimeLimit,
) -> io::Result<Child> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("LC_ALL", "C")
        .env_remove("CPATH")
        .env_remove("CPLUS_INCLUDE_PATH")
        .env_remove("C_INCLUDE_PATH")
        // Nothing may be found relative to the host program's working directory.
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    // SAFETY: `limit_lifetime` only makes system calls, as required between fork and exec.
    unsafe { command.pre_exec(move || limit_lifetime(limit.cpu.as_secs())) };
    command.spawn()
}

/// Runs in the child between fork and exec. The compiler dies with the thread that waits for it; its subprocesses,
/// which do not get that signal, die at the latest at the CPU time limit.
fn limit_lifetime(seconds: u64) -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: seconds,
        rlim_max: seconds,
    };
    // SAFETY: plain system calls with valid arguments. A failure changes nothing that the compiler needs.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::setrlimit(libc::RLIMIT_CPU, &raw const limit);
    }
    Ok(())
}

/// Writes stdin, reads stdout and stderr and waits concurrently, so that no full pipe can block either side.
fn finish(
    mut child: Child,
    input: Vec<u8>,
    limit: Duration,
) -> io::Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
    let deadline = Instant::now() + limit;
    let group = child.id();
    if let Some(mut stdin) = child.stdin.take() {
        if input.is_empty() {
            drop(stdin);
        } else {
            // A compiler that stops reading early reports why on stderr.
            std::thread::spawn(move || stdin.write_all(&input));
        }
    }
    let (sender, receiver) = mpsc::channel();
    let errors = sender.clone();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    std::thread::spawn(move || sender.send((true, drain(stdout))));
    std::thread::spawn(move || errors.send((false, drain(stderr))));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let Ok((is_out, bytes)) = receiver.recv_timeout(remaining) else {
            kill_group(group);
            let _ = child.wait();
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("not finished after {} s", limit.as_secs()),
            ));
        };
        *(if is_out { &mut out } else { &mut err }) = bytes?;
    }
    // Both pipes are closed: the process has ended or is about to.
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            kill_group(group);
        }
        std::thread::sleep(Duration::from_micros(200));
    };
    Ok((status, out, err))
}

fn drain(pipe: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn kill_group(leader: u32) {
    if let Ok(group) = libc::pid_t::try_from(leader) {
        // SAFETY: the child was started as the leader of its own process group and has not been reaped, so the id
        // is still its own.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn script(text: &str) -> (tempfile::TempDir, Compiler) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clang++");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let compiler = Compiler {
            path,
            version: "clang version 19".into(),
            major: 19,
        };
        (dir, compiler)
    }

    fn message(result: Result<Output>) -> String {
        match result {
            Err(Error::Toolchain { message }) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_compiler_that_is_too_old_or_too_new_is_rejected() {
        let probe = |version: &str| supported_version(Path::new("c++"), version);
        assert_eq!(probe("clang version 17.0.6"), Ok(17));
        assert_eq!(probe("Ubuntu clang version 22.1.0"), Ok(22));
        assert_eq!(
            probe("clang version 16.0.6").unwrap_err(),
            "`c++` is clang 16"
        );
        assert_eq!(
            probe("clang version 23.1.0").unwrap_err(),
            "`c++` is clang 23"
        );
        let other = "`c++` is not clang: its version is `gcc 14`";
        assert_eq!(probe("gcc 14").unwrap_err(), other);
    }

    #[test]
    fn the_version_is_read_from_every_vendors_banner() {
        for (line, major) in [
            ("Debian clang version 19.1.7 (3~deb12u1)", Some(19)),
            ("clang version 17.0.6", Some(17)),
            ("Apple clang version 16.0.0 (clang-1600.0.26.3)", Some(16)),
            ("g++ (Debian 12.2.0) 12.2.0", None),
        ] {
            assert_eq!(major_version(line), major, "{line}");
        }
    }

    #[test]
    fn a_killed_compiler_is_an_error_that_names_the_signal() {
        let (_dir, compiler) = script("kill -9 $$");
        let text = message(compiler.run(&["-c"], Vec::new()));
        assert!(text.contains("killed by signal 9"), "{text}");
    }

    #[test]
    fn a_hanging_compiler_is_stopped_with_its_children() {
        let (_dir, compiler) = script("sleep 100 & sleep 100");
        let start = Instant::now();
        let limit = TimeLimit {
            wall: Duration::from_millis(200),
            ..COMPILE_TIME_LIMIT
        };
        let text = message(compiler.run_within(&["-c"], Vec::new(), limit));
        assert!(text.contains("not finished"), "{text}");
        assert!(start.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_compiler_that_exceeds_its_cpu_time_is_stopped() {
        let limit = TimeLimit {
            cpu: Duration::from_secs(1),
            ..COMPILE_TIME_LIMIT
        };
        let (_dir, compiler) = script("while :; do :; done");
        let text = message(compiler.run_within(&["-c"], Vec::new(), limit));
        assert!(text.contains("after 1 s of CPU time"), "{text}");
        // Waiting does not count.
        let (_dir, compiler) = script("sleep 1.5");
        assert!(
            compiler
                .run_within(&["-c"], Vec::new(), limit)
                .unwrap()
                .success
        );
    }

    #[test]
    fn a_compiler_dies_with_the_thread_that_started_it() {
        let (_dir, compiler) = script("exec sleep 100");
        let path = compiler.path.clone();
        let starter = std::thread::spawn(move || spawn(&path, ["-c"], COMPILE_TIME_LIMIT).unwrap());
        let mut child = starter.join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn the_error_about_a_missing_compiler_names_what_to_install() {
        let error = find(Some(Path::new("/nowhere/clang++"))).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("`/nowhere/clang++` is not installed"),
            "{text}"
        );
        assert!(text.contains("apt-get install clang-19"), "{text}");
    }

    #[test]
    fn input_larger_than_the_pipe_buffer_is_passed_whole() {
        let (_dir, compiler) = script("cat");
        let input = vec![b'x'; 1 << 20];
        let output = compiler.run(&[] as &[&str], input.clone()).unwrap();
        assert!(output.success);
        assert_eq!(output.stdout, input);
    }
}
