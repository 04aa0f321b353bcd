//! Compiling the user's MSL.
#![expect(
    unsafe_code,
    reason = "asserts that kernels behave, on behalf of the user who asked to run them"
)]

use bessemer_hal::{Device, Error, Library};

use crate::args::CompileArgs;
use crate::failure::Usage;
use crate::msl::source::Source;

/// Compiles a source.
pub(crate) fn compile(
    device: &Device,
    source: &Source,
    args: &CompileArgs,
) -> Result<Library, Error> {
    let options = source.options(args);
    match device.library_contained(&source.text, &options) {
        Err(Error::Unsupported { .. }) => {
            // SAFETY: it is impossible to guarantee that a user's kernel behaves; the user names the file and the
            // kernel and may choose `--mode isolated` (the default) or `--mode check`. This process has
            // only the buffers of one launch, so a wild kernel can only damage its own result.
            unsafe { device.library(&source.text, &options) }
        }
        result => result,
    }
}

/// Returns the requested kernel, or the only one of the library.
pub(crate) fn choose_kernel(library: &Library, requested: Option<&str>) -> anyhow::Result<String> {
    if let Some(name) = requested {
        // Fails with a suggestion if it does not exist.
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
