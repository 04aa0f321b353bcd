//! Program files, and messages about their instructions.

use std::fmt;
use std::io::{Read as _, Write};
use std::path::Path;

use anyhow::{Context as _, Result};
use bessemer::program::{Program, ProgramError, TextLocation};
use serde_json::{Value, json};

use crate::excerpt::{Message, Sources};
use crate::failure::{Outcome, Usage};
use crate::msl::format::write_json;
use crate::terminal::{self, Out, style};

/// A program and the file it was read from.
#[derive(Debug)]
pub(super) struct ProgramFile {
    pub(super) program: Program,
    text: ProgramText,
}

/// The text of a program; of a binary file, only the name.
#[derive(Debug, Clone)]
struct ProgramText {
    name: String,
    text: String,
    locations: Vec<TextLocation>,
}

/// A message about a program, at an instruction if it has an index.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    pub(super) instruction: Option<usize>,
    pub(super) message: String,
    /// Where it is in the text.
    location: Option<TextLocation>,
}

/// A program that is not valid, or that an executor refuses.
#[derive(Debug)]
pub(super) struct Rejection {
    text: ProgramText,
    problem: Problem,
}

impl ProgramFile {
    /// Reads a file, or standard input for `-`.
    ///
    /// # Errors
    /// A [`Rejection`] for a text that is not a program; a usage error for a file that is missing or damaged.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let (name, bytes) = if path == Path::new("-") {
            let mut bytes = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut bytes);
            read.context("cannot read standard input")?;
            ("<stdin>".to_owned(), bytes)
        } else {
            let cannot = || Usage::context(format!("cannot read {}", path.display()));
            let bytes = std::fs::read(path).with_context(cannot)?;
            (path.display().to_string(), bytes)
        };
        let mut text = ProgramText {
            name,
            text: String::new(),
            locations: Vec::new(),
        };
        if Program::is_binary(&bytes) {
            let damaged = |error| Usage::error(format!("{}: {error}", text.name));
            let program = Program::from_bytes(&bytes).map_err(damaged)?;
            return Ok(Self { program, text });
        }
        text.text = String::from_utf8(bytes)
            .map_err(|_| Usage::error(format!("{} is neither a program nor text", text.name)))?;
        match Program::parse_located(&text.text) {
            Ok((program, locations)) => {
                text.locations = locations;
                Ok(Self { program, text })
            }
            Err(error) => {
                let problem = text.problem(&error);
                Err(anyhow::Error::new(Rejection { text, problem }))
            }
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.text.name
    }

    /// The error as a message about this file.
    pub(super) fn problem(&self, error: &ProgramError) -> Problem {
        let mut problem = self.text.problem(error);
        // The text of a binary file is not at hand, but its instructions are.
        if problem.location.is_none()
            && let Some(instruction) = problem
                .instruction
                .and_then(|i| self.program.instructions.get(i))
        {
            problem.message = format!("{} (`{instruction}`)", problem.message);
        }
        problem
    }

    /// An error that ends the command.
    pub(super) fn rejection(&self, error: &ProgramError) -> anyhow::Error {
        if let ProgramError::InvalidLaunch(_) = error {
            return Usage::error(error.to_string());
        }
        anyhow::Error::new(Rejection {
            text: self.text.clone(),
            problem: self.problem(error),
        })
    }

    /// Writes `file:line:column: kind: message` with an excerpt.
    pub(super) fn write(&self, out: &mut impl Write, kind: &str, problem: &Problem) -> Result<()> {
        self.text.write(out, kind, problem)
    }
}

impl ProgramText {
    fn problem(&self, error: &ProgramError) -> Problem {
        if let ProgramError::Parse {
            line,
            column,
            reason,
        } = error
        {
            return Problem {
                instruction: None,
                message: reason.clone(),
                location: Some(TextLocation {
                    line: *line,
                    column: *column,
                }),
            };
        }
        let instruction = error.instruction();
        let location = instruction.and_then(|i| self.locations.get(i).copied());
        let text = error.to_string();
        // A location says it better than an index.
        let message = match (instruction, location) {
            (Some(index), Some(_)) => text
                .strip_prefix(&format!("instruction {index}: "))
                .unwrap_or(&text),
            _ => &text,
        };
        Problem {
            instruction,
            message: message.to_owned(),
            location,
        }
    }

    fn write(&self, out: &mut impl Write, kind: &str, problem: &Problem) -> Result<()> {
        let mut sources = Sources::default();
        sources.insert(&self.name, &self.text);
        let (line, column) = self.excerpt_position(problem);
        let message = Message {
            file: &self.name,
            line,
            column,
            kind,
            style: style::ERROR,
            text: &problem.message,
        };
        sources.write(out, message)?;
        Ok(())
    }

    /// Line, and column in bytes.
    fn excerpt_position(&self, problem: &Problem) -> (u32, u32) {
        let Some(location) = problem.location else {
            return (0, 0);
        };
        let line = self.text.lines().nth(location.line.saturating_sub(1));
        let before = line
            .unwrap_or_default()
            .chars()
            .take(location.column.saturating_sub(1));
        let column = 1 + before.map(char::len_utf8).sum::<usize>();
        let narrow = |n: usize| u32::try_from(n).unwrap_or(0);
        (narrow(location.line), narrow(column))
    }
}

impl Problem {
    pub(super) fn to_json(&self) -> Value {
        json!({
            "instruction": self.instruction,
            "line": self.location.map(|l| l.line),
            "column": self.location.map(|l| l.column),
            "message": self.message,
        })
    }
}

impl Rejection {
    /// Writes the message; the exit code is that of a kernel that does not compile.
    pub(super) fn write(&self, out: &mut Out, is_json: bool) -> Result<Outcome> {
        let outcome = Outcome::NotCompiled;
        if is_json {
            let value = json!({ "file": self.text.name, "error": self.problem.to_json() });
            write_json(out, value, outcome)?;
        } else {
            self.text
                .write(&mut terminal::stderr(), "error", &self.problem)?;
        }
        Ok(outcome)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.text.name, self.problem.message)
    }
}

impl std::error::Error for Rejection {}
