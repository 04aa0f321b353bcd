//! No input makes the front end panic or hang.

use std::time::{Duration, Instant};

use bessemer_hal::LanguageVersion;
use bessemer_hal::msl::{Diagnostic, Translation, translate_as};
use proptest::prelude::{ProptestConfig, Strategy, any, prop, proptest};

/// A program that uses everything the front end supports; mutations of it reach deep into every pass. It is also the
/// seed of the fuzz target.
const PROGRAM: &str = include_str!("msl_fuzz/program.metal");

fn translate(text: &str) -> Result<Translation, Vec<Diagnostic>> {
    translate_as(text, "a.metal", LanguageVersion::Metal3_2)
}

fn survives(text: &str) {
    let start = Instant::now();
    match translate(text) {
        Ok(translation) => {
            for kernel in &translation.reflection.kernels {
                let is_supported = kernel.unsupported.is_none();
                assert_eq!(translation.glue(&kernel.name).is_some(), is_supported);
            }
            let lines = |text: &str| text.matches('\n').count();
            // After the pragma, the prologue has two lines; the epilogue has two newlines.
            let start = translation.cpp.find("#pragma clang attribute push");
            let cpp = &translation.cpp[start.expect("the prologue's last pragma")..];
            assert_eq!(lines(cpp), lines(text) + 4);
        }
        Err(errors) => assert!(!errors.is_empty()),
    }
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{} bytes",
        text.len()
    );
}

#[test]
fn the_program_itself_is_accepted() {
    let translation = translate(PROGRAM).expect("a valid program");
    assert_eq!(translation.reflection.kernels.len(), 3);
    survives(PROGRAM);
}

#[test]
fn every_prefix_and_every_suffix_survives() {
    for i in 0..PROGRAM.len() {
        survives(&PROGRAM[..i]);
        survives(&PROGRAM[i..]);
    }
}

#[test]
fn long_repetitions_take_linear_time() {
    for piece in [
        "a<",
        "<",
        ">",
        "a<b>",
        "(",
        "[",
        "[[",
        "{",
        "template<",
        "template<int N>",
        "struct S{",
        "texture2d<",
        "texture2d<int> ",
        "using T = texture2d<int>;",
        "struct T { texture2d<int> t; };",
        "void g(){mpp::x g();}",
        "kernel void k(texture2d<int> t){}",
        "struct S;",
        "v.xy",
        ".xy",
        "a.xy.xy",
        "threadgroup float ",
        "threadgroup float a;",
        "void f(){",
        "void f(",
        "void f();",
        "f(f(",
        "#",
        "# 1 \"a\"\n",
        "\"",
        "'",
        "R\"(",
        "/*",
        "//",
        "\\\n",
        "1.0",
        "1.0e+",
        "namespace a {",
        "namespace a::",
        "a::",
        "operator",
        "operator(",
        ": a(",
        "[[buffer(0)]]",
        "[[a,",
        "enum {a,",
        "enum{a};",
        "constant int x = 1;",
        "x[[function_constant(0)]]",
        "device ",
        "const constant ",
        "int x, ",
        "using x = ",
        "typedef struct { int xy; } a;",
        "union { int xy; };",
        "struct { union {",
        "kernel void k() {}",
        "template void f<",
        "template [[host_name(\"a\")]] void f<a>();",
        "a * b, ",
        "(float*)",
        "++",
        "&x[",
        "return ",
        "-",
        "=",
        ";",
        "}",
        "é",
        "\u{0}",
    ] {
        let mut text = piece.repeat(60_000 / piece.len());
        survives(&text);
        text.insert_str(0, "struct A { void f() { ");
        survives(&text);
        text.push_str(" } };");
        survives(&text);
    }
}

fn word() -> impl Strategy<Value = String> {
    let words: Vec<String> = PROGRAM
        .split_inclusive(|c: char| !c.is_alphanumeric() && c != '_')
        .map(ToOwned::to_owned)
        .collect();
    prop::sample::select(words)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_survive(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        survives(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn random_words_survive(words in prop::collection::vec(word(), 0..400)) {
        survives(&words.concat());
    }

    #[test]
    fn mutated_programs_survive(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..12usize, word()), 1..12)
    ) {
        let mut text = PROGRAM.to_owned();
        for (at, length, insert) in edits {
            let start = at.index(text.len());
            let end = (start + length).min(text.len());
            text.replace_range(start..end, &insert);
        }
        survives(&text);
    }
}
