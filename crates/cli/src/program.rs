//! `bessemer program`: kernels in the engine's instruction set, as text or binary files.

mod convert;
mod file;
mod launch;
mod run;
mod verify;

use std::path::PathBuf;

use anyhow::Result;
use bessemer_hal::Size;
use clap::{Args, Subcommand, ValueEnum, ValueHint};

use self::file::Rejection;
use crate::array::BufferArgs;
use crate::failure::{Outcome, exit_codes};
use crate::msl::format::{self, Format};
use crate::spec::{ByteCount, RegisterSpec, parse_size};
use crate::terminal::{self, Out};

#[derive(Debug, Subcommand)]
pub(crate) enum ProgramCommand {
    /// Run a program on given data
    Run(Box<ProgramRunArgs>),
    /// Check a program, and print which executors accept it
    Verify(ProgramVerifyArgs),
    /// Write the Metal kernel that a program is compiled to
    Msl(ProgramMslArgs),
    /// Write a program in the binary format
    Asm(AsmArgs),
    /// Write a program in the text format
    Disasm(DisasmArgs),
}

#[derive(Debug, Args)]
#[command(after_long_help = format!("{RUN_EXAMPLES}\n\n{}", exit_codes()))]
pub(crate) struct ProgramRunArgs {
    /// The program, as text or binary; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,

    /// Launch this many blocks
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = parse_size, help_heading = "Launch")]
    grid: Size,
    #[command(flatten)]
    launch: BlockArgs,
    /// Choose the device
    #[arg(long, value_enum, default_value_t = ProgramDevice::Cpu, help_heading = "Device")]
    device: ProgramDevice,
    /// Run on the reference interpreter, which reports the faults of all lanes
    #[arg(long, conflicts_with = "device", help_heading = "Device")]
    interpreter: bool,
    #[command(flatten)]
    buffers: BufferArgs,
    /// Write JSON
    #[arg(long, help_heading = "Results")]
    json: bool,
}

const RUN_EXAMPLES: &str = "\
Examples:
  bessemer program run vector_add.isa --grid 4 --block 256 --register r1=1 --register r2=2 \\
      --register r3=3 --register r4=1000 --buffer 1=iota:f32:1000 --buffer 2=ones:f32:1000 \\
      --buffer 3=zeros:f32:1000 --print 3
  bessemer program run block_sum.bsmp --grid 1 --block 64 --shared 256 -r r1=1 -r r2=2 \\
      --buffer 1=in.npy --buffer 2=zeros:f32:1 --out 2=sum.npy --device soft --json

The index of a buffer is its handle: `--buffer 3=…` is [b3] in the program, or [r1] after `--register r1=3`.";

/// What a launch has besides the grid.
#[derive(Debug, Args)]
struct BlockArgs {
    /// Set the lanes of a block
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = parse_size, default_value = "256",
          help_heading = "Launch")]
    block: Size,
    /// Set the shared memory of a block in bytes
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "0",
        help_heading = "Launch"
    )]
    shared: ByteCount,
    /// Set a register before the first instruction: r4=1000
    #[arg(
        short,
        long = "register",
        value_name = "REGISTER=VALUE",
        help_heading = "Arguments"
    )]
    registers: Vec<RegisterSpec>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProgramDevice {
    /// The CPU
    Cpu,
    /// The system's Metal GPU
    Metal,
    /// The software Metal device
    Soft,
}

#[derive(Debug, Args)]
#[command(after_long_help = format!("{VERIFY_EXAMPLES}\n\n{}", exit_codes()))]
pub(crate) struct ProgramVerifyArgs {
    /// The program, as text or binary; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    #[command(flatten)]
    launch: BlockArgs,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

const VERIFY_EXAMPLES: &str = "\
Examples:
  bessemer program verify vector_add.isa -r r1=1 -r r2=2 -r r3=3 -r r4=1000
  bessemer program verify block_sum.isa -r r1=1 -r r2=2 --block 64 --shared 256 --json | jq '.executors[]'

Executors: the interpreter, the CPU, and Metal, which also needs no GPU for this. Only registers that are set with
--register count as written.";

#[derive(Debug, Args)]
#[command(after_long_help = format!("{MSL_EXAMPLES}\n\n{}", exit_codes()))]
pub(crate) struct ProgramMslArgs {
    /// The program, as text or binary; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    #[command(flatten)]
    launch: BlockArgs,
    /// Name the kernel [default: after the file]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Write only what was generated, without the headers that it includes; also of programs that need several kernels
    #[arg(long, conflicts_with = "name")]
    brief: bool,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,
}

const MSL_EXAMPLES: &str = "\
Examples:
  bessemer program msl vector_add.isa -r r1=1 -r r2=2 -r r3=3 -r r4=1000
  bessemer program msl block_sum.bsmp -r r1=1 -r r2=2 --block 64 --shared 256 -o block_sum.metal

The kernel is for launches with this block and shared memory that set these registers. The text compiles on its own,
and begins with what its arguments are. No Metal device is needed.";

#[derive(Debug, Args)]
#[command(after_long_help = format!("{ASM_EXAMPLES}\n\n{}", exit_codes()))]
pub(crate) struct AsmArgs {
    /// The program, usually as text; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Write to this file
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: PathBuf,
}

const ASM_EXAMPLES: &str = "\
Examples:
  bessemer program asm vector_add.isa -o vector_add.bsmp";

#[derive(Debug, Args)]
#[command(after_long_help = format!("{DISASM_EXAMPLES}\n\n{}", exit_codes()))]
pub(crate) struct DisasmArgs {
    /// The program, usually as binary; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,
}

const DISASM_EXAMPLES: &str = "\
Examples:
  bessemer program disasm vector_add.bsmp
  bessemer program disasm vector_add.bsmp -o vector_add.isa";

/// Runs a command.
pub(crate) fn run(command: &ProgramCommand, out: &mut Out) -> Result<Outcome> {
    let (is_json, result) = match command {
        ProgramCommand::Run(args) => (args.json, run::run(args, out)),
        ProgramCommand::Verify(args) => (args.json, verify::run(args, out)),
        ProgramCommand::Msl(args) => (false, convert::compile(args, out)),
        ProgramCommand::Asm(args) => (false, convert::assemble(args, out)),
        ProgramCommand::Disasm(args) => (false, convert::disassemble(args, out)),
    };
    let error = match result {
        Err(error) if !terminal::is_broken_pipe(&error) => error,
        result => return result,
    };
    match error.downcast::<Rejection>() {
        Ok(rejection) => rejection.write(out, is_json),
        Err(error) => {
            let format = if is_json { Format::Json } else { Format::Text };
            format::write_failure(out, format, &error)
        }
    }
}
