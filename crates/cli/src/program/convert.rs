//! `bessemer program asm`, `disasm` and `msl`: one format into another.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use bessemer::Device;
use bessemer_hal::Size;

use super::file::ProgramFile;
use super::{AsmArgs, DisasmArgs, ProgramMslArgs};
use crate::failure::{Outcome, Usage};
use crate::terminal::Out;

/// Writes the binary format.
pub(super) fn assemble(args: &AsmArgs, _: &mut Out) -> Result<Outcome> {
    let file = ProgramFile::read(&args.file)?;
    let bytes = file.program.to_bytes().map_err(|e| file.rejection(&e))?;
    write_file(&args.file, &args.out, &bytes)?;
    Ok(Outcome::Clean)
}

/// Writes the text format.
pub(super) fn disassemble(args: &DisasmArgs, out: &mut Out) -> Result<Outcome> {
    let file = ProgramFile::read(&args.file)?;
    let text = file.program.to_string();
    write_text(&args.file, args.out.as_deref(), &text, out)?;
    Ok(Outcome::Clean)
}

/// Writes the MSL of a launch.
pub(super) fn compile(args: &ProgramMslArgs, out: &mut Out) -> Result<Outcome> {
    let file = ProgramFile::read(&args.file)?;
    let params = args.launch.params(Size::x(1))?;
    let compiled = file.program.compile(&Device::cpu());
    let text = compiled.and_then(|compiled| {
        if args.brief {
            return compiled.msl(&params);
        }
        let name = args.name.clone().unwrap_or_else(|| kernel_name(&args.file));
        compiled.msl_library(&name, &params)
    });
    let text = text.map_err(|e| file.rejection(&e))?;
    write_text(&args.file, args.out.as_deref(), &text, out)?;
    Ok(Outcome::Clean)
}

/// The name of a kernel after a file.
fn kernel_name(path: &Path) -> String {
    let stem = path.file_stem().map(|s| s.to_string_lossy());
    let mut name: String = stem
        .unwrap_or_default()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.insert_str(0, "program_");
    }
    name
}

/// Writes a text to a file, or to standard output.
fn write_text(input: &Path, path: Option<&Path>, text: &str, out: &mut Out) -> Result<()> {
    match path {
        Some(path) => write_file(input, path, text.as_bytes()),
        None => {
            out.write_all(text.as_bytes())?;
            out.flush()?;
            Ok(())
        }
    }
}

/// Writes a file, unless that would overwrite the input.
fn write_file(input: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
    let is_same = match (input.canonicalize(), path.canonicalize()) {
        (Ok(input), Ok(path)) => input == path,
        _ => false,
    };
    if is_same {
        return Err(Usage::error(format!(
            "{} is the input; choose another file",
            path.display()
        )));
    }
    std::fs::write(path, bytes)
        .with_context(|| Usage::context(format!("cannot write {}", path.display())))
}
