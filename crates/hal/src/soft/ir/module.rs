//! A module of LLVM IR text, split into its top-level entities.

use super::FissionError;
use super::lex::{Cursor, IrTokenKind, bare, tokens};
use super::types::{Named, Type};

/// A global variable, alias or declaration: one line.
#[derive(Debug, Clone)]
pub(crate) struct Entity {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// A function with a body.
#[derive(Debug, Clone)]
pub(crate) struct Definition<'a> {
    pub(crate) name: String,
    /// The `define` line, up to and including the `{`.
    pub(crate) header: String,
    pub(crate) body: Vec<&'a str>,
    /// Line number of the header.
    pub(crate) line: usize,
}

/// A module of LLVM IR.
#[derive(Debug, Clone, Default)]
pub(crate) struct Module<'a> {
    pub(crate) head: Vec<&'a str>,
    pub(crate) types: Vec<&'a str>,
    pub(crate) named: Named,
    pub(crate) globals: Vec<Entity>,
    pub(crate) declarations: Vec<Entity>,
    pub(crate) functions: Vec<Definition<'a>>,
    /// `attributes #n = { … }`: number and text between the braces.
    pub(crate) attributes: Vec<(u32, String)>,
    /// `!n = …`: number and right-hand side.
    pub(crate) metadata: Vec<(u32, String)>,
    /// `!name = …`, whole lines.
    pub(crate) named_metadata: Vec<&'a str>,
}

/// Returns the first global name in `text`.
fn global_name(text: &str, line: usize) -> Result<String, FissionError> {
    let list = tokens(text, line)?;
    let found = list.iter().find(|t| t.kind == IrTokenKind::Global);
    found
        .map(|t| bare(t.text).to_owned())
        .ok_or_else(|| FissionError::Syntax {
            line,
            what: "expected a global name".into(),
        })
}

impl<'a> Module<'a> {
    /// Splits `text` into entities.
    pub(crate) fn parse(text: &'a str) -> Result<Self, FissionError> {
        let mut module = Self::default();
        let mut lines = text.lines().enumerate();
        while let Some((index, line_text)) = lines.next() {
            let line = index + 1;
            let trimmed = line_text.trim();
            if trimmed.is_empty() || trimmed.starts_with(';') || trimmed.starts_with('$') {
                // Comdats are dropped with the linkage, which this pass replaces.
                continue;
            }
            let syntax = |what: &str| FissionError::Syntax {
                line,
                what: what.into(),
            };
            if trimmed.starts_with("define ") {
                let name = global_name(trimmed, line)?;
                let mut body = Vec::new();
                loop {
                    let Some((_, next)) = lines.next() else {
                        return Err(syntax("function without an end"));
                    };
                    if next == "}" {
                        break;
                    }
                    body.push(next);
                }
                module.functions.push(Definition {
                    name,
                    header: trimmed.to_owned(),
                    body,
                    line,
                });
            } else if trimmed.starts_with("declare ") {
                let name = global_name(trimmed, line)?;
                module.declarations.push(Entity {
                    name,
                    text: trimmed.to_owned(),
                    line,
                });
            } else if trimmed.starts_with('@') {
                let name = global_name(trimmed, line)?;
                module.globals.push(Entity {
                    name,
                    text: trimmed.to_owned(),
                    line,
                });
            } else if trimmed.starts_with('%') {
                module.named_type(trimmed, line)?;
            } else if let Some(rest) = trimmed.strip_prefix("attributes #") {
                let (number, group) = rest.split_once('=').ok_or_else(|| syntax("expected `=`"))?;
                let number = number
                    .trim()
                    .parse()
                    .map_err(|_| syntax("expected a group number"))?;
                let group = group
                    .trim()
                    .trim_start_matches('{')
                    .trim_end_matches('}')
                    .trim();
                module.attributes.push((number, group.to_owned()));
            } else if let Some(rest) = trimmed.strip_prefix('!') {
                match rest
                    .split_once(" = ")
                    .and_then(|(n, v)| Some((n.parse().ok()?, v)))
                {
                    Some((number, value)) => module.metadata.push((number, value.to_owned())),
                    None => module.named_metadata.push(trimmed),
                }
            } else if ["source_filename", "target ", "module asm"]
                .iter()
                .any(|p| trimmed.starts_with(p))
            {
                module.head.push(trimmed);
            } else {
                return Err(syntax(&format!(
                    "unknown entity `{}`",
                    trimmed.chars().take(60).collect::<String>()
                )));
            }
        }
        Ok(module)
    }

    fn named_type(&mut self, text: &'a str, line: usize) -> Result<(), FissionError> {
        let list = tokens(text, line)?;
        let mut cursor = Cursor::new(&list, line);
        let name = cursor
            .next()
            .map(|t| bare(t.text).to_owned())
            .unwrap_or_default();
        cursor.expect('=')?;
        if !cursor.eat_word("type") {
            return Err(cursor.error("expected `type`"));
        }
        if !cursor.eat_word("opaque") {
            let ty = Type::parse(&mut cursor)?;
            self.named.insert(name, ty);
        }
        self.types.push(text);
        Ok(())
    }

    /// Returns the attributes of group `number`.
    pub(crate) fn group(&self, number: u32) -> Option<&str> {
        self.attributes
            .iter()
            .find(|(n, _)| *n == number)
            .map(|(_, text)| text.as_str())
    }

    /// Returns the right-hand side of metadata node `number`.
    pub(crate) fn node(&self, number: u32) -> Option<&str> {
        // clang prints nodes in order; otherwise fall back to a search.
        match self.metadata.get(number as usize) {
            Some((n, text)) if *n == number => Some(text),
            _ => self
                .metadata
                .iter()
                .find(|(n, _)| *n == number)
                .map(|(_, text)| text.as_str()),
        }
    }

    /// Returns the first unused metadata number; all above it are unused as well.
    pub(crate) fn free_metadata(&self) -> u32 {
        self.metadata.iter().map(|(n, _)| n + 1).max().unwrap_or(0)
    }

    /// Returns the first unused attribute group number; all above it are unused as well.
    pub(crate) fn free_group(&self) -> u32 {
        self.attributes
            .iter()
            .map(|(n, _)| n + 1)
            .max()
            .unwrap_or(0)
    }
}

/// Returns the attribute groups that `text` refers to.
pub(crate) fn groups_of(text: &str, line: usize) -> Result<Vec<u32>, FissionError> {
    let list = tokens(text, line)?;
    Ok(list
        .iter()
        .filter(|t| t.kind == IrTokenKind::Hash)
        .filter_map(|t| t.text[1..].parse().ok())
        .collect())
}
