//! Inlining: all synchronisation must be in the kernel function itself.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use super::FissionError;
use super::kernel::is_shim_intrinsic;
use super::lex::{IrTokenKind, bare, tokens};
use super::module::{Module, groups_of};

/// The global names that each function and variable of a module refers to.
#[derive(Debug, Default)]
pub(crate) struct References {
    pub(crate) of: HashMap<String, Vec<String>>,
}

/// Returns the global names in `text`.
pub(crate) fn globals_in(text: &str, line: usize) -> Result<Vec<String>, FissionError> {
    if !text.contains('@') {
        return Ok(Vec::new());
    }
    let list = tokens(text, line)?;
    Ok(list
        .iter()
        .filter(|t| t.kind == IrTokenKind::Global)
        .map(|t| bare(t.text).to_owned())
        .collect())
}

impl References {
    /// Scans all functions and variables of `module`.
    pub(crate) fn new(module: &Module<'_>) -> Result<Self, FissionError> {
        let mut references = Self::default();
        for function in &module.functions {
            let mut names = globals_in(&function.header, function.line)?;
            for (index, text) in function.body.iter().enumerate() {
                names.extend(globals_in(text, function.line + 1 + index)?);
            }
            names.sort_unstable();
            names.dedup();
            references.of.insert(function.name.clone(), names);
        }
        for global in &module.globals {
            references
                .of
                .insert(global.name.clone(), globals_in(&global.text, global.line)?);
        }
        Ok(references)
    }

    /// Returns the names reachable from `roots`, including the roots.
    pub(crate) fn reachable(&self, roots: impl IntoIterator<Item = String>) -> HashSet<String> {
        let mut seen = HashSet::new();
        let mut work: Vec<String> = roots.into_iter().collect();
        while let Some(name) = work.pop() {
            if let Some(next) = self.of.get(&name) {
                work.extend(next.iter().filter(|n| !seen.contains(*n)).cloned());
            }
            seen.insert(name);
        }
        seen
    }

    /// Returns the functions of `module`, other than the kernel, that use functions only the kernel may use.
    fn synchronising(&self, module: &Module<'_>, kernel: &str) -> HashSet<String> {
        let mut synchronising: HashSet<String> = HashSet::new();
        loop {
            let before = synchronising.len();
            for function in module.functions.iter().filter(|f| f.name != kernel) {
                let names = &self.of[&function.name];
                if names.iter().any(|n| {
                    is_shim_intrinsic(n) || (n != &function.name && synchronising.contains(n))
                }) {
                    synchronising.insert(function.name.clone());
                }
            }
            if synchronising.len() == before {
                return synchronising;
            }
        }
    }
}

/// Marks all functions that synchronise as `alwaysinline`; `None` if there is nothing to inline.
pub(crate) fn mark_for_inlining(
    module: &Module<'_>,
    references: &References,
    kernel: &str,
    text: &str,
) -> Result<Option<String>, FissionError> {
    let synchronising = references.synchronising(module, kernel);
    let called: HashSet<&String> = references.of[kernel]
        .iter()
        .filter(|n| synchronising.contains(*n))
        .collect();
    if called.is_empty() {
        return Ok(None);
    }
    let attributes = |header: &str, line: usize| -> Result<String, FissionError> {
        let groups = groups_of(header, line)?;
        Ok(groups
            .iter()
            .filter_map(|g| module.group(*g))
            .collect::<Vec<_>>()
            .join(" "))
    };
    let mut replaced: HashMap<usize, String> = HashMap::new();
    let mut groups = String::new();
    let first = module.free_group();
    let marked = module
        .functions
        .iter()
        .filter(|f| synchronising.contains(&f.name));
    for (function, next) in marked.zip(first..) {
        let own = attributes(&function.header, function.line)?;
        let has_attribute = |word: &str| {
            own.split(' ').any(|w| w == word) || function.header.contains(&format!(" {word} "))
        };
        if has_attribute("alwaysinline") && called.contains(&function.name) {
            return Err(FissionError::NotInlined {
                function: function.name.clone(),
            });
        }
        let kept: Vec<&str> = own
            .split(' ')
            .filter(|w| !matches!(*w, "noinline" | "optnone" | "minsize" | "optsize"))
            .collect();
        let _ = writeln!(
            groups,
            "attributes #{next} = {{ alwaysinline {} }}",
            kept.join(" ")
        );
        let mut header = String::new();
        let mut replaced_group = false;
        for (index, word) in function.header.split(' ').enumerate() {
            let is_group = word.len() > 1
                && word.starts_with('#')
                && word[1..].bytes().all(|c| c.is_ascii_digit());
            if index > 0 {
                header.push(' ');
            }
            match (is_group, replaced_group) {
                (true, false) => {
                    let _ = write!(header, "#{next}");
                    replaced_group = true;
                }
                (true, true) => {}
                _ => header.push_str(word),
            }
        }
        if !replaced_group {
            header = function.header.replacen(") ", &format!(") #{next} "), 1);
        }
        replaced.insert(function.line, header);
    }
    let mut out = String::with_capacity(text.len() + groups.len());
    for (index, line) in text.lines().enumerate() {
        out.push_str(replaced.get(&(index + 1)).map_or(line, String::as_str));
        out.push('\n');
    }
    out.push_str(&groups);
    Ok(Some(out))
}
