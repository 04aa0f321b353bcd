//! Rejects features of later language versions.
//!
//! The versions are those of Apple's specification. Only features that it documents are listed, and only uses that
//! cannot refer to the user's own declarations are rejected: in doubt, a program is accepted.

use std::collections::HashSet;

use super::diagnostic::{Diagnostic, DiagnosticKind};
use super::lexer::TokenKind;
use super::program::Program;
use super::token_stream::TokenStream;
use crate::language::LanguageVersion::{self, Metal3_1, Metal3_2};

/// Library names that are newer than Metal 3.0.
const LIBRARY_NAMES: [(&str, LanguageVersion); 12] = [
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

/// Reports everything in the program that needs a later language version.
pub(crate) fn check(
    source: &TokenStream<'_>,
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

/// The message about a feature that the language version does not have.
pub(crate) fn needs(feature: &str, since: LanguageVersion, language: LanguageVersion) -> String {
    let verb = if feature.ends_with('s') {
        "need"
    } else {
        "needs"
    };
    format!("{feature} {verb} {since} or newer (compiling as {language})")
}

/// The feature that a token refers to, and the version that introduced it.
fn feature<'a>(
    source: &TokenStream<'a>,
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
    // `coherent(device) device T*`; a call of a user's function of that name has other arguments.
    if is_qualifier && matches!(source.text_at(i + 2), "device" | "system") {
        return Some((text, Metal3_2));
    }
    let elsewhere = match source.before(i) {
        "." | "->" => true,
        // In one of the user's namespaces.
        "::" => i >= 2 && source.is_identifier(i - 2) && source.text_at(i - 2) != "metal",
        _ => false,
    };
    // Without a call it may be a variable of the user's.
    let is_function = matches!(text, "nextafter" | "atomic_thread_fence");
    if elsewhere || is_function && source.text_at(i + 1) != "(" {
        return None;
    }
    let (_, since) = LIBRARY_NAMES.iter().find(|(name, _)| *name == text)?;
    Some((text, *since))
}

/// Names that the program itself declares: classes, functions, variables and aliases.
fn declared_names<'a>(source: &TokenStream<'a>, program: &Program) -> HashSet<&'a str> {
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
            // Class names are known already, so the typedef may also end inside one.
            ";" if in_typedef => {
                names.insert(source.before(i));
                in_typedef = false;
            }
            _ => {}
        }
    }
    names
}
