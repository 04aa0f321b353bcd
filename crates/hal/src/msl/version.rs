//! What a later version of the language brought, refused in an earlier one.
//!
//! The versions are those of Apple's specification. Only what it states is here, and only uses that cannot mean something
//! of the user's: in doubt a program is accepted.

use std::collections::HashSet;

use super::diagnostic::{Diagnostic, DiagnosticKind};
use super::lexer::TokenKind;
use super::program::Program;
use super::source::Source;
use crate::language::LanguageVersion::{self, Metal3_1, Metal3_2};

/// Names of the library that are newer than Metal 3.0.
const NAMES: [(&str, LanguageVersion); 12] = [
    ("bfloat", Metal3_1),
    ("bfloat2", Metal3_1),
    ("bfloat3", Metal3_1),
    ("bfloat4", Metal3_1),
    ("packed_bfloat2", Metal3_1),
    ("packed_bfloat3", Metal3_1),
    ("packed_bfloat4", Metal3_1),
    ("simdgroup_bfloat8x8", Metal3_1),
    ("nextafter", Metal3_1),
    ("os_log", Metal3_2),
    ("os_log_default", Metal3_2),
    ("atomic_thread_fence", Metal3_2),
];

/// Everything in the program that needs a later version of the language.
pub(crate) fn check(
    source: &Source<'_>,
    program: &Program,
    language: LanguageVersion,
) -> Vec<Diagnostic> {
    let declared = declared_names(source, program);
    let mut diagnostics = Vec::new();
    for i in 0..source.len() {
        if source.tokens[i].system {
            continue;
        }
        if let Some((feature, since)) = feature(source, i, &declared)
            && language < since
        {
            let message = needs(&format!("'{feature}'"), since, language);
            diagnostics.push(source.error_at(i, DiagnosticKind::Refused, message));
        }
    }
    diagnostics
}

/// The message about a feature that the language does not have yet.
pub(crate) fn needs(feature: &str, since: LanguageVersion, language: LanguageVersion) -> String {
    let verb = if feature.ends_with('s') {
        "need"
    } else {
        "needs"
    };
    format!("{feature} {verb} {since} or newer (compiling as {language})")
}

/// The feature that a token stands for, and the version that brought it.
fn feature<'a>(
    source: &Source<'a>,
    i: usize,
    declared: &HashSet<&str>,
) -> Option<(&'a str, LanguageVersion)> {
    let text = source.text_at(i);
    if source.kind_at(i) == TokenKind::Number {
        let is_decimal = !text.starts_with("0x") && !text.starts_with("0X");
        let is_bfloat = text.ends_with("bf") || text.ends_with("BF");
        return (is_decimal && is_bfloat).then_some((text, Metal3_1));
    }
    if !source.is_identifier(i) || declared.contains(text) {
        return None;
    }
    let is_qualifier = text == "coherent" && source.text_at(i + 1) == "(";
    // `coherent(device) device T*`; a call of a function of that name has other arguments.
    if is_qualifier && matches!(source.text_at(i + 2), "device" | "system") {
        return Some((text, Metal3_2));
    }
    let elsewhere = match source.before(i) {
        "." | "->" => true,
        // In a namespace of the user's.
        "::" => i >= 2 && source.is_identifier(i - 2) && source.text_at(i - 2) != "metal",
        _ => false,
    };
    // A function that is not called may be a variable of the user's.
    let is_function = matches!(text, "nextafter" | "atomic_thread_fence");
    if elsewhere || is_function && source.text_at(i + 1) != "(" {
        return None;
    }
    let (_, since) = NAMES.iter().find(|(name, _)| *name == text)?;
    Some((text, *since))
}

/// Names that the program declares itself: classes, functions, variables and aliases.
fn declared_names<'a>(source: &Source<'a>, program: &Program) -> HashSet<&'a str> {
    let is_system = |i: usize| source.tokens[i].system;
    let classes = program.classes.iter().filter_map(|class| class.name);
    let variables = program.variables.iter();
    let variables = variables.flat_map(|variable| variable.declarators.iter().map(|d| d.name));
    let mut names: HashSet<&str> = classes
        .chain(variables)
        .filter(|&name| !is_system(name))
        .map(|name| source.text_at(name))
        .collect();
    let functions = program.functions.iter();
    names.extend(
        functions
            .filter(|function| !is_system(function.first))
            .map(|function| function.base_name(source)),
    );
    let mut in_typedef = false;
    for i in 0..source.len() {
        match source.text_at(i) {
            "using" if source.text_at(i + 2) == "=" => {
                names.insert(source.text_at(i + 1));
            }
            "typedef" => in_typedef = !is_system(i),
            // Names of classes are known already, so that the end may be one inside of them.
            ";" if in_typedef => {
                names.insert(source.before(i));
                in_typedef = false;
            }
            _ => {}
        }
    }
    names
}
