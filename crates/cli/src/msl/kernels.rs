//! `bessemer msl kernels`: what a file offers to the host.

use crate::args::KernelsArgs;
use crate::failure::Outcome;
use crate::terminal::Out;
use anyhow::Result;

/// Runs the command.
pub(crate) fn run(_: &KernelsArgs, _: &mut Out) -> Result<Outcome> {
    Ok(Outcome::Clean)
}
