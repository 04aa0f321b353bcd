//! Compiling the user's MSL.
#![expect(
    unsafe_code,
    reason = "the promise that kernels behave is made here, for the user who asked to run them"
)]

use crate::args::CompileArgs;
use crate::failure::Usage;
use crate::msl::source::Source;
use bessemer_hal::{Device, Error, Library};

/// Compiles a source.
pub(crate) fn compile(
    device: &Device,
    source: &Source,
    args: &CompileArgs,
) -> Result<Library, Error> {
    let options = source.options(args);
    match device.library_contained(&source.text, &options) {
        Err(Error::Unsupported { .. }) => {
            // SAFETY: nobody can promise that a user's kernel behaves; the user names the file and the
            // kernel and may choose `--mode isolated` (the default) or `--mode check`. This process holds
            // nothing but the buffers of the one launch, so what a wild kernel can damage is its own result.
            unsafe { device.library(&source.text, &options) }
        }
        result => result,
    }
}

/// The kernel asked for, or the only one there is.
pub(crate) fn choose_kernel(library: &Library, wanted: Option<&str>) -> anyhow::Result<String> {
    if let Some(name) = wanted {
        // Finds out whether it exists, with a suggestion if not.
        library
            .function(name)
            .map_err(|error| Usage::error(error.to_string()))?;
        return Ok(name.to_owned());
    }
    let mut names = library.function_names();
    match names.len() {
        0 => Err(Usage::error(format!("{} has no kernel", library.label()))),
        1 => Ok(names.remove(0)),
        count => {
            let more = if count > 8 { ", …" } else { "" };
            names.truncate(8);
            Err(Usage::error(format!(
                "{} has {count} kernels; choose one with --kernel: {}{more}",
                library.label(),
                names.join(", ")
            )))
        }
    }
}
