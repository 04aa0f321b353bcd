//! Elementwise ops on Metal, one or several in one pass.
//!
//! The functions are in `msl/` (`unary.metal`, `binary.metal`, …); the kernels around them are generated here, in two
//! forms that share all but the middle:
//!
//! - A [`Program`] is several steps in one kernel. Its source has those steps, independent of the layouts, so it is
//!   compiled once.
//! - A single op is a case of a [`Table`]: one kernel for all functions of a kind on elements of one type, of which a
//!   function constant selects one. A Metal compiler drops all other cases when it makes the pipeline. On the software
//!   device a function constant costs nothing, but a compilation takes 0.3 to 0.5 s of a processor (measured with an
//!   empty cache): some 650 pairs of ops and types would take four minutes, the 63 tables take half a minute (the 12 of
//!   conversions 6.6 s with all their tests, the two of functions of `f32` 2.2 s). The price on a GPU: the first `a +
//!   b` compiles all functions of two elements; every other one of the type then needs only another pipeline.
//!
//! Each step rounds to its own type (`f16` and `bf16` are computed in float), so programs have the bits of their steps.
//! Layouts and vector loads are arguments and function constants. Scalars are arguments too: another learning rate is
//! not another kernel.

mod text;

pub(super) use text::{ENTRY, Program, Table};

use bytemuck::Zeroable;

use self::text::InputLocation;
use super::elementwise::Elementwise;
use super::input::{Input, Output};
use super::kernel::Kernel;
use super::record::{LaunchBuilder, Recorder};
use super::view::ViewStrides;
use crate::Result;
use crate::ops::fused::{Action, Fused};
use crate::ops::ternary::Ternary;
use crate::ops::unary::Unary;

/// Maximum buffers that a program reads: with the result, the axes, the strides and the scalars they stay below the 31
/// that a kernel may have.
pub(crate) const MAX_INPUTS: usize = 24;

/// Records a single elementwise op.
pub(crate) fn record_one(
    action: Action,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let from = match action {
        Action::Ternary(Ternary::Select) => inputs[1].dtype,
        _ => inputs[0].dtype,
    };
    let (table, case) = Table::case(action, output.dtype);
    let mut scalars = [0; 4];
    if let Action::Unary(f) = action {
        scalars[text::PARAMETER] = parameter(f);
    }
    let mut spans = Vec::with_capacity(inputs.len());
    for (i, input) in inputs.iter().enumerate() {
        match input.constant {
            Some(value) => scalars[i] = u64::from_ne_bytes(value.to_bytes(input.dtype)),
            None => spans.push((input, input.span(output))),
        }
    }
    let origins: Vec<_> = spans.iter().map(|(i, s)| (*i, s.offset)).collect();
    let elementwise = Elementwise::new(&output.shape, &origins);

    // The strides of each input; those of scalars are not read.
    let mut all_views = [ViewStrides::zeroed(); 3];
    let mut kernel = Kernel::table(table, from)
        .flag("VECTOR_OUTPUT", elementwise.is_vector_store())
        .constant("CASE", case);
    let mut views = elementwise.views.iter();
    for (i, input) in inputs.iter().enumerate() {
        let is_scalar = input.constant.is_some();
        let mut vector = false;
        if !is_scalar && let Some(&view) = views.next() {
            all_views[i] = view;
            vector = elementwise.is_vector(&view);
        }
        let reads = !is_scalar && output.aliases_input != Some(i);
        kernel = kernel
            .flag(text::VECTOR[i], vector)
            .flag(text::SCALAR[i], is_scalar)
            .flag(text::READS[i], reads);
    }
    let mut launch = recorder.launch(&kernel)?;
    launch = bind_output(launch, output);
    launch = launch
        .value(&elementwise.extent)
        .values(&all_views[..])
        .values(&scalars[..]);
    let mut spans = spans.into_iter();
    for (i, input) in inputs.iter().enumerate() {
        let span = match input.constant {
            Some(_) => None,
            None => spans.next(),
        };
        launch = match span {
            Some((_, span)) if output.aliases_input != Some(i) => launch.read(span),
            _ => launch.skip(),
        };
    }
    elementwise.launch(launch, recorder);
    Ok(())
}

/// Records several elementwise ops in one pass.
pub(crate) fn record(
    op: &Fused,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let mut sources = Vec::with_capacity(inputs.len());
    let mut scalars = Vec::new();
    let mut spans = Vec::with_capacity(inputs.len());
    for (i, input) in inputs.iter().enumerate() {
        let source = match input.constant {
            Some(value) => {
                scalars.push(u64::from_ne_bytes(value.to_bytes(input.dtype)));
                InputLocation::Scalar
            }
            None => {
                spans.push((input, input.span(output)));
                if output.aliases_input == Some(i) {
                    InputLocation::Output
                } else {
                    InputLocation::Buffer
                }
            }
        };
        sources.push((input.dtype, source));
    }
    let mut op_steps = op.steps.to_vec();
    for step in &mut op_steps {
        if let Action::Unary(f) = step.action
            && f.parameter().is_some()
        {
            scalars.push(parameter(f));
            step.action = Action::Unary(f.bare());
        }
    }
    let origins: Vec<_> = spans.iter().map(|(i, s)| (*i, s.offset)).collect();
    let elementwise = Elementwise::new(&output.shape, &origins);
    let program = Program {
        inputs: sources,
        steps: op_steps,
    };
    let mut kernel = Kernel::program(program).flag("VECTOR_OUTPUT", elementwise.is_vector_store());
    for (i, view) in elementwise.views.iter().enumerate() {
        kernel = kernel.flag(text::VECTOR[i], elementwise.is_vector(view));
    }
    let mut launch = recorder.launch(&kernel)?;
    launch = bind_output(launch, output).value(&elementwise.extent);
    if !elementwise.views.is_empty() {
        launch = launch.values(&elementwise.views);
    }
    if !scalars.is_empty() {
        launch = launch.values(&scalars);
    }
    for (input, span) in spans {
        if input.block.is_some() {
            launch = launch.read(span);
        }
    }
    elementwise.launch(launch, recorder);
    Ok(())
}

fn bind_output(launch: LaunchBuilder, output: &Output) -> LaunchBuilder {
    match output.aliases_input {
        Some(_) => launch.update(&output.slice),
        None => launch.write(&output.slice),
    }
}

/// The bits of a function's parameter, as one of the scalars that kernels get; 0 if it has none.
fn parameter(f: Unary) -> u64 {
    u64::from((f.parameter().unwrap_or(0.0) as f32).to_bits())
}
