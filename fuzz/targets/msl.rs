//! The front end of the Metal Shading Language: text to C++ and reflection, without a compiler.
#![no_main]

// For its limit on memory.
use bessemer_fuzz as _;
use bessemer_hal::LanguageVersion;
use bessemer_hal::msl::translate_as;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match translate_as(text, "a.metal", LanguageVersion::Metal3_2) {
        Ok(translation) => {
            for kernel in &translation.reflection.kernels {
                let is_supported = kernel.unsupported.is_none();
                assert_eq!(translation.glue(&kernel.name).is_some(), is_supported);
            }
            // Lines keep their numbers, or diagnostics would point at others.
            let lines = |text: &str| text.matches('\n').count();
            let start = translation.cpp.find("#pragma clang attribute push");
            let cpp = &translation.cpp[start.expect("the prologue's last pragma")..];
            assert_eq!(lines(cpp), lines(text) + 4);
        }
        Err(errors) => assert!(!errors.is_empty()),
    }
});
