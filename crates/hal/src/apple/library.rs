//! Libraries compiled by Metal from source.
#![expect(unsafe_code, reason = "hands macros to Metal's compiler")]

use std::sync::Arc;

use objc2::available;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::{NSObject, ProtocolObject};
use objc2_foundation::{NSDictionary, NSString};
use objc2_metal::{
    MTLCompileOptions, MTLDevice, MTLFunction, MTLFunctionType, MTLLanguageVersion, MTLLibrary,
    MTLMathFloatingPointFunctions, MTLMathMode,
};

use super::cache::{Directory, LibraryKey};
use super::diagnostics::diagnostics;
use super::pipeline::Pipeline;
use crate::driver;
use crate::error::{Error, Result};
use crate::library::{CompileOptions, FunctionConstants, MathMode};

/// A library.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) device: Retained<ProtocolObject<dyn MTLDevice>>,
    pub(super) raw: Retained<ProtocolObject<dyn MTLLibrary>>,
    pub(super) label: String,
    pub(super) archives: Option<Directory>,
    pub(super) key: LibraryKey,
    /// Whether its kernels may log.
    pub(super) logs: bool,
    kernels: Vec<String>,
}

impl Library {
    pub(super) fn compile(
        device: &Retained<ProtocolObject<dyn MTLDevice>>,
        source: &str,
        options: &CompileOptions,
        archives: Option<Directory>,
        system: &str,
    ) -> Result<Self> {
        let logs = source.contains("os_log") && available!(macos = 15.0, ios = 18.0, ..);
        let raw = device
            .newLibraryWithSource_options_error(
                &NSString::from_str(source),
                Some(&translate(options, logs)),
            )
            .map_err(|error| Error::Compile {
                library: options.label.clone(),
                diagnostics: diagnostics(
                    &error.localizedDescription().to_string(),
                    &options.label,
                    source,
                ),
            })?;
        if !options.label.is_empty() {
            raw.setLabel(Some(&NSString::from_str(&options.label)));
        }
        Ok(Self {
            device: device.clone(),
            kernels: kernels(&raw),
            raw,
            label: options.label.clone(),
            archives,
            key: LibraryKey::new(source, options, &device.name().to_string(), system),
            logs,
        })
    }
}

fn translate(options: &CompileOptions, logs: bool) -> Retained<MTLCompileOptions> {
    let metal = MTLCompileOptions::new();
    metal.setLanguageVersion(language());
    if available!(macos = 15.0, ios = 18.0, ..) {
        let (mode, functions) = match options.math_mode {
            MathMode::Safe => (MTLMathMode::Safe, MTLMathFloatingPointFunctions::Precise),
            MathMode::Relaxed => (MTLMathMode::Relaxed, MTLMathFloatingPointFunctions::Precise),
            MathMode::Fast => (MTLMathMode::Fast, MTLMathFloatingPointFunctions::Fast),
        };
        metal.setMathMode(mode);
        metal.setMathFloatingPointFunctions(functions);
        metal.setEnableLogging(logs);
    } else {
        // Older systems have two modes; relaxed mode becomes safe mode.
        #[expect(deprecated, reason = "the only switch before macOS 15 and iOS 18")]
        metal.setFastMathEnabled(options.math_mode == MathMode::Fast);
    }
    let names: Vec<_> = options
        .defines
        .iter()
        .map(|(name, _)| NSString::from_str(name))
        .collect();
    let names: Vec<&NSString> = names.iter().map(|name| &**name).collect();
    let values: Vec<Retained<NSObject>> = options
        .defines
        .iter()
        .map(|(_, value)| NSString::from_str(value).into_super())
        .collect();
    let macros = NSDictionary::from_retained_objects(&names, &values);
    // SAFETY: every value is a string, which is one of the two classes Metal takes here.
    unsafe { metal.setPreprocessorMacros(Some(&macros)) };
    metal
}

/// The newest language version of the system, up to the one whose compute features the front supports. Without
/// this it would depend on the system version the program was linked for.
fn language() -> MTLLanguageVersion {
    if available!(macos = 15.0, ios = 18.0, ..) {
        MTLLanguageVersion::Version3_2
    } else {
        MTLLanguageVersion::Version3_1
    }
}

/// Names of the functions that are kernels.
fn kernels(raw: &ProtocolObject<dyn MTLLibrary>) -> Vec<String> {
    let is_kernel = |name: &Retained<NSString>| {
        raw.newFunctionWithName(name)
            .is_some_and(|function| function.functionType() == MTLFunctionType::Kernel)
    };
    raw.functionNames()
        .iter()
        .filter(is_kernel)
        .map(|name| name.to_string())
        .collect()
}

impl driver::Library for Library {
    fn function_names(&self) -> Vec<String> {
        self.kernels.clone()
    }

    fn pipeline(
        &self,
        name: &str,
        constants: &FunctionConstants,
    ) -> Result<Arc<dyn driver::Pipeline>> {
        autoreleasepool(|_| Ok(Arc::new(Pipeline::build(self, name, constants)?) as _))
    }
}
