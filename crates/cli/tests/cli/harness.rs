//! Runs the binary, and makes files for it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

use serde_json::Value;
use tempfile::TempDir;

/// A temporary directory in which the binary runs; every test has its own.
pub(crate) struct TestDir {
    dir: TempDir,
}

/// Exit code and output of the binary.
#[derive(Debug)]
pub(crate) struct RunOutput {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Environment variables that tests inherit: the compiler and its optimisation level.
const KEPT_VARIABLES: [&str; 2] = ["BESSEMER_CLANG", "BESSEMER_SOFT_OPTIMIZE"];

/// The binary, with a kernel cache shared by all tests and no other variables of ours from the environment.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bessemer"));
    for (name, _) in std::env::vars() {
        if name.starts_with("BESSEMER_") && !KEPT_VARIABLES.contains(&&*name) {
            command.env_remove(name);
        }
    }
    command.env("BESSEMER_CACHE_DIR", cache());
    command.env_remove("NO_COLOR");
    command.env_remove("CLICOLOR_FORCE");
    command
}

/// A cache per build of the binary: results of an older build may be wrong.
fn cache() -> &'static Path {
    static CACHE: OnceLock<PathBuf> = OnceLock::new();
    CACHE.get_or_init(|| {
        let built = std::fs::metadata(env!("CARGO_BIN_EXE_bessemer")).unwrap();
        let built = built.modified().unwrap().duration_since(UNIX_EPOCH);
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels");
        let cache = root.join(built.unwrap().as_nanos().to_string());
        if !cache.exists() {
            let _ = std::fs::remove_dir_all(&root);
        }
        cache
    })
}

impl TestDir {
    pub(crate) fn new() -> Self {
        Self {
            dir: TempDir::new().unwrap(),
        }
    }

    /// A directory with one file.
    pub(crate) fn with(name: &str, text: &str) -> Self {
        let test_dir = Self::new();
        test_dir.write(name, text.as_bytes());
        test_dir
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// The binary in this directory.
    pub(crate) fn command(&self) -> Command {
        let mut command = command();
        command.current_dir(self.dir.path());
        command
    }

    /// Runs a command line; arguments are separated by spaces.
    pub(crate) fn bessemer(&self, line: &str) -> RunOutput {
        RunOutput::from(
            self.command()
                .args(line.split_whitespace())
                .output()
                .unwrap(),
        )
    }
}

impl From<Output> for RunOutput {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("the binary was not killed"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl RunOutput {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Fails unless the exit code is this.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }
}

/// A kernel of `examples/msl`.
pub(crate) fn example(name: &str) -> String {
    example_of("msl", name)
}

/// A program of `examples/program`.
pub(crate) fn program_example(name: &str) -> String {
    example_of("program", name)
}

fn example_of(folder: &str, name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(folder)
        .join(name)
        .display()
        .to_string()
}

/// A `.npy` file of float32, as NumPy writes it.
pub(crate) fn npy(shape: &str, values: &[f32]) -> Vec<u8> {
    let mut header =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}").into_bytes();
    header.resize(117, b' ');
    header.push(b'\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend(118_u16.to_le_bytes());
    file.extend(header);
    file.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    file
}

/// Header text and float32 values of a `.npy` file of version 1.
pub(crate) fn read_npy(file: &[u8]) -> (String, Vec<f32>) {
    assert_eq!(&file[..8], b"\x93NUMPY\x01\x00");
    let length = usize::from(u16::from_le_bytes([file[8], file[9]]));
    let header = String::from_utf8(file[10..10 + length].to_vec()).unwrap();
    let values = file[10 + length..].chunks_exact(4);
    let values = values.map(|v| f32::from_le_bytes(v.try_into().unwrap()));
    (header.trim_end().to_owned(), values.collect())
}

/// A GGUF file of a model with one layer, width 64, 2 heads and 4 tokens, in f32.
pub(crate) fn small_gguf(architecture: &str) -> Vec<u8> {
    let string = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let numbers = [
        ("block_count", 1_u32),
        ("context_length", 128),
        ("embedding_length", 64),
        ("feed_forward_length", 64),
        ("attention.head_count", 2),
    ];
    let square: &[u64] = &[64, 64];
    let tensors: [(&str, &[u64]); 11] = [
        ("token_embd", &[4, 64]),
        ("output_norm", &[64]),
        ("blk.0.attn_norm", &[64]),
        ("blk.0.attn_q", square),
        ("blk.0.attn_k", square),
        ("blk.0.attn_v", square),
        ("blk.0.attn_output", square),
        ("blk.0.ffn_norm", &[64]),
        ("blk.0.ffn_gate", square),
        ("blk.0.ffn_up", square),
        ("blk.0.ffn_down", square),
    ];
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    file.extend((tensors.len() as u64).to_le_bytes());
    file.extend((numbers.len() as u64 + 2).to_le_bytes());
    file.extend(string("general.architecture"));
    file.extend(8_u32.to_le_bytes());
    file.extend(string(architecture));
    file.extend(string(&format!(
        "{architecture}.attention.layer_norm_rms_epsilon"
    )));
    file.extend(6_u32.to_le_bytes());
    file.extend(1e-5_f32.to_le_bytes());
    for (key, value) in numbers {
        file.extend(string(&format!("{architecture}.{key}")));
        file.extend(4_u32.to_le_bytes());
        file.extend(value.to_le_bytes());
    }
    let mut data = Vec::new();
    for (name, shape) in tensors {
        file.extend(string(&format!("{name}.weight")));
        file.extend((shape.len() as u32).to_le_bytes());
        shape
            .iter()
            .rev()
            .for_each(|axis| file.extend(axis.to_le_bytes()));
        file.extend(0_u32.to_le_bytes());
        file.extend((data.len() as u64).to_le_bytes());
        let count: u64 = shape.iter().product();
        // All lengths are multiples of 32 bytes.
        data.extend((0..count).flat_map(|i| ((i as f32) * 0.37).sin().to_le_bytes()));
    }
    file.resize(file.len().next_multiple_of(32), 0);
    file.extend(data);
    file
}
