//! The Metal standard library in C++, embedded in the binary.
//!
//! `HEADERS` is the library, precompiled once and then part of every kernel image. `STUBS` are the headers
//! with Apple's names that the preprocessor sees: macros only. `FLAGS` are the compiler options that both rely on; the file
//! documents its sections.

macro_rules! header {
    ($path:literal) => {
        ($path, include_str!(concat!("shim/include/", $path)))
    };
}
macro_rules! stub {
    ($path:literal) => {
        ($path, include_str!(concat!("shim/stub/", $path)))
    };
}

/// The library, as `(path, text)`; `shim.h` includes the rest.
pub const HEADERS: &[(&str, &str)] = &[
    header!("shim.h"),
    header!("sm/abi.h"),
    header!("sm/apple_internal.h"),
    header!("sm/array.h"),
    header!("sm/as_type.h"),
    header!("sm/atomic.h"),
    header!("sm/barrier.h"),
    header!("sm/collective.h"),
    header!("sm/common.h"),
    header!("sm/component.h"),
    header!("sm/elementary.h"),
    header!("sm/fuzz.h"),
    header!("sm/geometric.h"),
    header!("sm/glue.h"),
    header!("sm/integer.h"),
    header!("sm/lift.h"),
    header!("sm/limits.h"),
    header!("sm/logging.h"),
    header!("sm/math.h"),
    header!("sm/math_set.h"),
    header!("sm/matrix.h"),
    header!("sm/names.h"),
    header!("sm/overload.h"),
    header!("sm/pack.h"),
    header!("sm/packed.h"),
    header!("sm/polynomial.h"),
    header!("sm/quadgroup.h"),
    header!("sm/reduce.h"),
    header!("sm/relational.h"),
    header!("sm/runtime.h"),
    header!("sm/sampler.h"),
    header!("sm/scalar.h"),
    header!("sm/simd_names.h"),
    header!("sm/simdgroup.h"),
    header!("sm/simdgroup_matrix.h"),
    header!("sm/traits.h"),
    header!("sm/uniform.h"),
    header!("sm/vector.h"),
    header!("sm/vector_ops.h"),
];

/// Macro-only headers under Apple's names, as `(path, text)`.
pub const STUBS: &[(&str, &str)] = &[
    stub!("MetalPerformancePrimitives/MetalPerformancePrimitives.h"),
    stub!("TargetConditionals.h"),
    stub!("metal_array"),
    stub!("metal_assert"),
    stub!("metal_atomic"),
    stub!("metal_cmath"),
    stub!("metal_command_buffer"),
    stub!("metal_common"),
    stub!("metal_compute"),
    stub!("metal_config"),
    stub!("metal_constants"),
    stub!("metal_cooperative_tensor"),
    stub!("metal_curves"),
    stub!("metal_extended_vector"),
    stub!("metal_geometric"),
    stub!("metal_graphics"),
    stub!("metal_imageblocks"),
    stub!("metal_indirect_command_buffer"),
    stub!("metal_initializer_list"),
    stub!("metal_integer"),
    stub!("metal_interpolate"),
    stub!("metal_limits"),
    stub!("metal_logging"),
    stub!("metal_math"),
    stub!("metal_matrix"),
    stub!("metal_mesh"),
    stub!("metal_numeric"),
    stub!("metal_pack"),
    stub!("metal_packed_vec"),
    stub!("metal_packing"),
    stub!("metal_pull_mode_interpolant"),
    stub!("metal_quadgroup"),
    stub!("metal_raytracing"),
    stub!("metal_relational"),
    stub!("metal_simdgroup"),
    stub!("metal_simdgroup_matrix"),
    stub!("metal_stdlib"),
    stub!("metal_tensor"),
    stub!("metal_tessellation"),
    stub!("metal_texture"),
    stub!("metal_type_traits"),
    stub!("metal_types"),
    stub!("metal_uniform"),
    stub!("metal_utility"),
    stub!("metal_vector"),
    stub!("metal_visible_function_table"),
    stub!("simd/base.h"),
    stub!("simd/common.h"),
    stub!("simd/conversion.h"),
    stub!("simd/extern.h"),
    stub!("simd/geometry.h"),
    stub!("simd/logic.h"),
    stub!("simd/math.h"),
    stub!("simd/matrix.h"),
    stub!("simd/matrix_types.h"),
    stub!("simd/packed.h"),
    stub!("simd/simd.h"),
    stub!("simd/types.h"),
    stub!("simd/vector.h"),
    stub!("simd/vector_types.h"),
    stub!("sm_constants.h"),
    stub!("sm_limits.h"),
    stub!("sm_macros.h"),
];

/// Compiler options, one per line, in sections.
pub const FLAGS: &str = include_str!("shim/flags.txt");

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Options of one section of [`FLAGS`].
    fn section(name: &str) -> Vec<&'static str> {
        FLAGS
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .skip_while(|line| *line != format!("[{name}]"))
            .skip(1)
            .take_while(|line| !line.starts_with('['))
            .collect()
    }

    fn clang() -> &'static str {
        ["clang++-19", "clang++-18", "clang++-17", "clang++"]
            .into_iter()
            .find(|name| Command::new(name).arg("--version").output().is_ok())
            .expect("clang is installed: the software device needs it")
    }

    #[test]
    fn the_library_compiles_in_every_mode() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for (path, text) in HEADERS {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, text).expect("a header");
        }
        for mode in ["fast", "check", "fuzz"] {
            let output = Command::new(clang())
                .args(section("common"))
                .args(section("quiet"))
                .args(section(mode))
                .args(["-x", "c++-header", "-fsyntax-only"])
                .arg(directory.path().join("shim.h"))
                .output()
                .expect("clang runs");
            let messages = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{mode}: {messages}");
        }
    }

    #[test]
    fn every_section_of_the_flags_is_non_empty() {
        for name in [
            "preprocess",
            "quiet",
            "lint",
            "common",
            "fast",
            "check",
            "fuzz",
            "safe-math",
            "backend",
            "backend-check",
            "quick",
            "link",
        ] {
            assert!(!section(name).is_empty(), "{name}");
        }
    }
}
