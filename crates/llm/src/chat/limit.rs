//! Bounds on filters and methods that make as much as a template says. Steps are counted by the engine, memory is not:
//! `'' | indent(18446744073709551615)` is one step, and a panic.

use minijinja::value::{Kwargs, Rest, Value, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State};

/// Largest width or count that a filter accepts.
const MAX_COUNT: u64 = 10_000;

/// Puts the bounded filters and Python's methods in place.
pub(super) fn install(environment: &mut Environment<'_>) {
    environment.add_filter(UNBOUNDED_INDENT, minijinja::filters::indent);
    environment.add_filter(UNBOUNDED_BATCH, minijinja::filters::batch);
    environment.add_filter(UNBOUNDED_SLICE, minijinja::filters::slice);
    environment.add_filter(UNBOUNDED_FORMAT, minijinja::filters::format);
    environment.add_filter("indent", |state: &mut State<'_, '_>, args| {
        bounded(state, UNBOUNDED_INDENT, args)
    });
    environment.add_filter("batch", |state: &mut State<'_, '_>, args| {
        bounded(state, UNBOUNDED_BATCH, args)
    });
    environment.add_filter("slice", |state: &mut State<'_, '_>, args| {
        bounded(state, UNBOUNDED_SLICE, args)
    });
    environment.add_filter("format", |state: &mut State<'_, '_>, args| {
        bounded(state, UNBOUNDED_FORMAT, args)
    });
    environment.set_unknown_method_callback(|state, value, method, args| {
        if method == "format" {
            check_format(value)?;
        }
        minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
    });
}

// No template can name these: they are not identifiers.
const UNBOUNDED_INDENT: &str = "unbounded indent";
const UNBOUNDED_BATCH: &str = "unbounded batch";
const UNBOUNDED_SLICE: &str = "unbounded slice";
const UNBOUNDED_FORMAT: &str = "unbounded format";

/// Applies a filter whose numbers are small.
fn bounded(
    state: &mut State<'_, '_>,
    filter: &str,
    args: Rest<ValueOrKwargs>,
) -> Result<Value, Error> {
    let args = args.into_values();
    if let (UNBOUNDED_FORMAT, Some(text)) = (filter, args.first()) {
        check_format(text)?;
    } else {
        for arg in args.iter().skip(1) {
            check_count(arg)?;
            if let Ok(named) = Kwargs::try_from(arg.clone()) {
                for name in named.args() {
                    check_count(&named.peek::<Value>(name)?)?;
                }
            }
        }
    }
    state.apply_filter(filter, &args)
}

fn check_count(value: &Value) -> Result<(), Error> {
    match value.as_usize() {
        Some(count) if count as u64 > MAX_COUNT => Err(too_large(count)),
        _ => Ok(()),
    }
}

/// Widths and precisions are written in the text itself.
fn check_format(text: &Value) -> Result<(), Error> {
    let text = text.as_str().unwrap_or_default();
    for digits in text.split(|c: char| !c.is_ascii_digit()) {
        let digits = digits.trim_start_matches('0');
        let is_small = digits.is_empty() || digits.parse::<u64>().is_ok_and(|n| n <= MAX_COUNT);
        if !is_small {
            return Err(too_large(digits));
        }
    }
    Ok(())
}

fn too_large(number: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("{number} is more than the {MAX_COUNT} that a template may ask for"),
    )
}
