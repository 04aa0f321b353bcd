//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use bessemer_hal::env::VARIABLES;
use bessemer_hal::{Family, LanguageVersion, MathMode, Size};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum, ValueHint};

use crate::array::BufferArgs;
use crate::chat::ChatArgs;
use crate::embed::EmbedArgs;
use crate::failure::exit_codes;
use crate::generate::GenerateArgs;
use crate::inspect::InspectArgs;
use crate::models::ModelsArgs;
use crate::msl::baseline::BaselineArgs;
use crate::msl::format::FormatArgs;
use crate::msl::test::TestArgs;
use crate::perplexity::PerplexityArgs;
use crate::program::ProgramCommand;
use crate::pull::PullArgs;
use crate::quantize::QuantizeArgs;
use crate::spec::{ByteCount, BytesSpec, ConstantSpec, Define, Indexed, parse_size};

/// Rust to Metal: language models and kernels on Apple GPUs and, through a software Metal device, on Linux.
#[derive(Debug, Parser)]
#[command(name = "bessemer", version, after_long_help = format!("{TOP_EXAMPLES}\n{}\n\n{}", environment(), exit_codes()), arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Write spans and events to standard error, such as `debug` or `bessemer::graph=trace` [default: $BESSEMER_LOG]
    #[cfg(feature = "tracing")]
    #[arg(long, value_name = "FILTER", global = true)]
    pub(crate) log: Option<String>,
}

const TOP_EXAMPLES: &str = "\
Examples:
  bessemer generate \"What is the capital of Germany?\"   answer with a small model, fetched on first use
  bessemer chat                                    chat with it
  bessemer pull smollm2                            fetch it only
  bessemer inspect smollm2                         show its contents and the memory it needs
  bessemer quantize smollm2 small.gguf --to q4_0   convert its weights to another format
  bessemer devices                                 list the devices of this machine
  bessemer msl kernels softmax.metal               list the kernels of a file and their arguments
  bessemer msl check src/                          compile all kernels, for CI
  bessemer msl test tests/                         run kernel tests
  bessemer msl run add.metal --grid 1024 --buffer 0=a.npy --buffer 1=b.npy --buffer 2=zeros:f32:1024 --print 2
";

/// The environment variables, for the help text.
fn environment() -> String {
    let rows = VARIABLES
        .iter()
        .map(|v| format!("\n  {:<30} {}", v.name, v.meaning));
    let rows: String = rows.collect();
    format!(
        "Environment (docs/environment.md has values and defaults):{rows}\n  {:<30} without colours",
        "NO_COLOR"
    )
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer a prompt with a language model
    Generate(Box<GenerateArgs>),
    /// Chat with a language model
    Chat(Box<ChatArgs>),
    /// Embed texts as vectors
    Embed(EmbedArgs),
    /// Measure the perplexity of a language model on a text
    Perplexity(Box<PerplexityArgs>),
    /// Fetch models by name
    Pull(PullArgs),
    /// List the models that can be fetched by name
    Models(ModelsArgs),
    /// Show the contents of a model file, and the memory the model needs
    Inspect(InspectArgs),
    /// Convert the weights of a model to another format
    Quantize(QuantizeArgs),
    /// List devices with their properties
    Devices(DevicesArgs),
    /// Measure which device is fastest for each op, and save the result
    Tune(TuneArgs),
    /// Inspect, compile, check and run Metal kernels
    #[command(subcommand)]
    Msl(MslCommand),
    /// Run, verify and convert programs: kernels in the engine's instruction set
    #[command(subcommand)]
    Program(ProgramCommand),
    /// Show or clear the files on disk: models, compiled kernels, dispatch tables
    Cache(CacheArgs),
}

#[derive(Debug, Args)]
#[command(after_long_help = DEVICES_EXAMPLES)]
pub(crate) struct DevicesArgs {
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const DEVICES_EXAMPLES: &str = "\
Examples:
  bessemer devices
  bessemer devices --json | jq -r '.devices[].name'
  BESSEMER_SOFT_FAMILY=apple9 bessemer devices";

#[derive(Debug, Args)]
#[command(after_long_help = TUNE_EXAMPLES)]
pub(crate) struct TuneArgs {
    /// Show the current choices, without measuring
    #[arg(long)]
    pub(crate) show: bool,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const TUNE_EXAMPLES: &str = "\
Examples:
  bessemer tune                        measure, and use the result from now on
  bessemer tune --show                 show the current choices
  BESSEMER_DEVICE=cpu my-program       use one device for everything, ignoring the measurements

The result is a table in the cache directory. Programs that use Bessemer's tensors read it for elementwise ops,
matrix multiplications and reductions of tensors without an explicit device; language models do not. If the CPU is
the only device, there is nothing to choose.";

#[derive(Debug, Subcommand)]
pub(crate) enum MslCommand {
    /// Show the kernels of a file: arguments, types, indices, function constants
    Kernels(KernelsArgs),
    /// Compile every kernel of the files and report errors by file and line
    Check(CheckArgs),
    /// Run one kernel on given data, optionally with every access checked
    Run(Box<RunArgs>),
    /// Run kernel tests: buffers, dispatches and expected values in TOML files
    Test(TestArgs),
}

/// Compile options.
#[derive(Debug, Clone, Args)]
pub(crate) struct CompileArgs {
    /// Add a directory to search for included files
    #[arg(short = 'I', long = "include", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) include: Vec<PathBuf>,
    /// Include this file before the source; clang's `-include FILE` is accepted too
    #[arg(long = "include-file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) include_files: Vec<PathBuf>,
    /// Define a macro; `NAME(PARAMETERS)=VALUE` defines a function-like one
    #[arg(short = 'D', long = "define", value_name = "NAME[=VALUE]")]
    pub(crate) define: Vec<Define>,
    /// Choose the language version: metal3.0, metal3.1 or metal3.2 [default: $BESSEMER_SOFT_LANGUAGE, or metal3.1]
    ///
    /// `-std=VERSION` is accepted too.
    #[arg(long = "std", value_name = "VERSION")]
    pub(crate) language: Option<LanguageVersion>,
    /// Enable a warning of `msl check` (-Wall), disable it (-Wno-unused-variable) or make it an error (-Werror)
    #[arg(short = 'W', value_name = "WARNING")]
    pub(crate) warnings: Vec<String>,
    /// Choose how freely floating-point arithmetic may be reordered
    #[arg(long, value_enum, default_value_t = Math::Safe)]
    pub(crate) math: Math,
    /// Enforce the limits of a GPU family: apple7 to apple10 or mac2
    #[arg(long, value_name = "FAMILY")]
    pub(crate) family: Option<Family>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Math {
    /// Nothing is reordered; NaN and infinities are honoured
    Safe,
    /// Reordering is allowed; NaN and infinities are honoured
    Relaxed,
    /// All fast-maths assumptions
    Fast,
}

impl From<Math> for MathMode {
    fn from(math: Math) -> Self {
        match math {
            Math::Safe => Self::Safe,
            Math::Relaxed => Self::Relaxed,
            Math::Fast => Self::Fast,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_long_help = format!("{KERNELS_EXAMPLES}\n\n{}", exit_codes()))]
pub(crate) struct KernelsArgs {
    /// The MSL file; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) compile: CompileArgs,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const KERNELS_EXAMPLES: &str = "\
Examples:
  bessemer msl kernels softmax.metal
  bessemer msl kernels gemm.metal -I include -D TILE=32
  bessemer msl kernels gemm.metal --json | jq -r '.kernels[].name'";

#[derive(Debug, Args)]
#[command(after_long_help = format!("{CHECK_EXAMPLES}\n\n{}", exit_codes()))]
pub(crate) struct CheckArgs {
    /// MSL files, or directories of `.metal` files; `-` is standard input
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) files: Vec<PathBuf>,
    /// Compile only this kernel; may be repeated
    #[arg(short, long = "kernel", value_name = "NAME")]
    pub(crate) kernels: Vec<String>,
    #[command(flatten)]
    pub(crate) compile: CompileArgs,
    /// Generate code for every kernel, as a launch would; also finds exceeded limits
    #[arg(long)]
    pub(crate) full: bool,
    /// Check many instantiations in one compilation, without generating code: much faster for hundreds of them
    ///
    /// Without --full and --quick, up to 32 kernels in total are compiled in full.
    #[arg(long, conflicts_with = "full")]
    pub(crate) quick: bool,
    /// Run N compilations at the same time [default: one for each core, at least 2]
    #[arg(short, long, value_name = "N", value_parser = count)]
    pub(crate) jobs: Option<usize>,
    /// Print the number of accepted and rejected files and kernels, with the reasons, instead of every message
    #[arg(long)]
    pub(crate) summary: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

const CHECK_EXAMPLES: &str = "\
Examples:
  bessemer msl check kernels/
  bessemer msl check -std=metal3.0 -Wall -Werror kernels/
  bessemer msl check gemm.metal --kernel gemm_f16 --math fast
  bessemer msl check gemm.metal --json | jq '.diagnostics[] | .file, .line'
  bessemer msl check kernels/ --format github      annotations in the log of a workflow
  bessemer msl check kernels/ --format sarif       for code scanning
  bessemer msl check kernels/ --summary --quick    counts and reasons only";

#[derive(Debug, Args)]
#[command(after_long_help = format!("{RUN_EXAMPLES}\n\n{}", exit_codes()), group = ArgGroup::new("extent").required(true))]
pub(crate) struct RunArgs {
    /// The MSL file; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The kernel; not needed if the file has only one
    #[arg(short, long, value_name = "NAME")]
    pub(crate) kernel: Option<String>,
    #[command(flatten)]
    pub(crate) compile: CompileArgs,

    /// Launch this many threads; need not be a multiple of the threadgroup
    #[arg(long, group = "extent", value_name = "X[,Y[,Z]]", value_parser = parse_size,
          help_heading = "Launch")]
    pub(crate) grid: Option<Size>,
    /// Launch this many threadgroups instead
    #[arg(long, group = "extent", value_name = "X[,Y[,Z]]", value_parser = parse_size,
          requires = "threadgroup", help_heading = "Launch")]
    pub(crate) threadgroups: Option<Size>,
    /// Set the threads in a threadgroup [default: chosen for the kernel]
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = parse_size, help_heading = "Launch")]
    pub(crate) threadgroup: Option<Size>,
    /// Repeat the launch N times on the same input and report the fastest
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count,
          hide_default_value = true, help_heading = "Launch")]
    pub(crate) repeat: usize,

    #[command(flatten)]
    pub(crate) buffers: BufferArgs,
    /// Bind a buffer at this byte offset
    #[arg(
        long = "offset",
        value_name = "INDEX=BYTES",
        help_heading = "Arguments"
    )]
    pub(crate) offsets: Vec<Indexed<ByteCount>>,
    /// Pass values with the launch: INDEX=TYPE:VALUE[,VALUE…]
    ///
    /// 2=u32:64, 2=f32:1,2,3,4 or a structure: 2=u32:64,f32:0.5
    #[arg(
        long = "bytes",
        value_name = "INDEX=TYPE:VALUE",
        help_heading = "Arguments",
        verbatim_doc_comment
    )]
    pub(crate) bytes: Vec<Indexed<BytesSpec>>,
    /// Set the length of a threadgroup argument in bytes
    #[arg(
        long = "threadgroup-memory",
        value_name = "INDEX=BYTES",
        help_heading = "Arguments"
    )]
    pub(crate) threadgroup_memory: Vec<Indexed<ByteCount>>,
    /// Set a function constant by index or name
    #[arg(
        long = "const",
        value_name = "INDEX=TYPE:VALUE",
        help_heading = "Arguments"
    )]
    pub(crate) constants: Vec<ConstantSpec>,

    /// Choose how the software device runs the kernel [default: $BESSEMER_SOFT_MODE, or isolated]
    #[arg(long, value_enum, help_heading = "Device")]
    pub(crate) mode: Option<ModeArg>,
    /// Set the seed of fuzz mode
    #[arg(long, value_name = "N", help_heading = "Device")]
    pub(crate) seed: Option<u64>,
    /// Set the time limit in milliseconds
    #[arg(long, value_name = "N", help_heading = "Device")]
    pub(crate) timeout_ms: Option<u64>,
    /// Set the number of worker threads
    #[arg(long, value_name = "N", value_parser = count, help_heading = "Device")]
    pub(crate) threads: Option<usize>,

    #[command(flatten, next_help_heading = "Results")]
    pub(crate) baseline: BaselineArgs,
    #[command(flatten, next_help_heading = "Results")]
    pub(crate) format: FormatArgs,
}

const RUN_EXAMPLES: &str = "\
Examples:
  bessemer msl run add.metal --grid 1024 --buffer 0=a.npy --buffer 1=b.npy \\
      --buffer 2=zeros:f32:1024 --out 2=sum.npy
  bessemer msl run softmax.metal --kernel softmax --threadgroups 4 --threadgroup 64 \\
      --buffer 0=random:f32:4x256 --buffer 1=zeros:f32:4x256 --bytes 2=u32:256 \\
      --threadgroup-memory 0=128 --mode check --json
  bessemer msl run scale.metal --kernel scale_half --grid 8 --buffer 0=iota:f16:8 \\
      --buffer 1=zeros:f16:8 --bytes 3=f32:2 --const 0=bool:false --print 1

Reports (--mode check): bounds, race, uninitialised, divergent-barrier, early-return, divergent-simd,
threadgroup-memory; in every mode: crash, timeout.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArg {
    /// Run at full speed, in this process
    Fast,
    /// Check every access and report defects
    Check,
    /// Run in random order, within the freedom a GPU has
    Fuzz,
    /// Run at full speed in a separate process: a crash becomes a report
    Isolated,
}

#[derive(Debug, Args)]
#[command(after_long_help = CACHE_EXAMPLES)]
pub(crate) struct CacheArgs {
    /// Action to perform
    #[arg(value_enum, default_value_t = CacheAction::Stats)]
    pub(crate) action: CacheAction,
    /// With clear: remove models
    #[arg(long)]
    pub(crate) models: bool,
    /// With clear: remove compiled kernels (the default)
    #[arg(long)]
    pub(crate) kernels: bool,
    /// With clear: remove all of Bessemer's files
    #[arg(long)]
    pub(crate) all: bool,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const CACHE_EXAMPLES: &str = "\
Examples:
  bessemer cache
  bessemer cache path
  bessemer cache clear             remove compiled kernels; they are recompiled when needed
  bessemer cache clear --models    remove models; they are fetched again when needed
  bessemer cache clear --all";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CacheAction {
    /// Print the directory
    Path,
    /// Print the directory and its contents by kind
    Stats,
    /// Remove compiled kernels, or the files selected by --models, --kernels and --all
    Clear,
}

/// Rewrites clang's single-dash spellings of long options of `bessemer msl` for clap: `-std=VERSION` and
/// `-include FILE`.
pub(crate) fn normalize(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_none_or(|command| command != "msl") {
        return arguments;
    }
    for argument in arguments.iter_mut().take_while(|a| *a != "--") {
        if argument == "-include" {
            *argument = "--include-file".into();
        } else if let Some(version) = argument.to_str().and_then(|a| a.strip_prefix("-std=")) {
            *argument = format!("--std={version}").into();
        }
    }
    arguments
}

/// Parses a positive 32-bit count.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    match text.parse::<u32>() {
        Ok(0) | Err(_) => Err(format!("expected a whole number from 1 to {}", u32::MAX)),
        Ok(number) => Ok(number as usize),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::msl::format::Format;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_documented_run_is_understood() {
        let line = "bessemer msl run k.metal --kernel K --grid 64,1,1 --threadgroup 64 \
                    --buffer 0=in.npy --buffer 1=zeros:f32:1024 --bytes 2=u32:64 \
                    --threadgroup-memory 0=256 --const 0=bool:true --mode check --out 1=out.npy --json";
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Msl(MslCommand::Run(run)) = cli.command else {
            panic!("not a run");
        };
        assert_eq!(run.grid, Some(Size::x(64)));
        assert_eq!(run.buffers.inputs.len(), 2);
        assert_eq!(run.mode, Some(ModeArg::Check));
        assert_eq!(run.format.get(), Format::Json);
    }

    #[test]
    fn options_are_understood_as_clang_spells_them() {
        let line = "bessemer msl check -std=metal3.2 -include a.h -Wall -Werror=unused -W no-vla k.metal -- -include";
        let arguments = line.split(' ').map(OsString::from).collect();
        let cli = Cli::try_parse_from(normalize(arguments)).unwrap();
        let Command::Msl(MslCommand::Check(check)) = cli.command else {
            panic!("not a check");
        };
        assert_eq!(check.compile.language, Some(LanguageVersion::Metal3_2));
        assert_eq!(check.compile.include_files, [PathBuf::from("a.h")]);
        assert_eq!(check.compile.warnings, ["all", "error=unused", "no-vla"]);
        assert_eq!(check.files, ["k.metal", "-include"].map(PathBuf::from));
        let prompt = ["bessemer", "generate", "-include"].map(OsString::from);
        assert_eq!(normalize(prompt.to_vec()), prompt);
    }

    #[test]
    fn a_run_needs_either_threads_or_threadgroups() {
        let parse = |line: &str| Cli::try_parse_from(line.split_whitespace());
        assert!(parse("bessemer msl run k.metal").is_err());
        assert!(
            parse("bessemer msl run k.metal --grid 1 --threadgroups 1 --threadgroup 1").is_err()
        );
        assert!(parse("bessemer msl run k.metal --threadgroups 1").is_err());
        assert!(parse("bessemer msl run k.metal --grid 1").is_ok());
    }
}
