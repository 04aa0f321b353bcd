//! Compiled functions: traced once for each signature of their arguments, then replayed.
//!
//! A trace calls the function with arguments that have no values ([`ops/argument.rs`](crate::ops::argument)), schedules
//! what it returns as an evaluation does, and plans the memory of every value ([`executable`]). The device then prepares
//! the launches ([`dispatch::replay`](crate::dispatch::replay)). A call evaluates its arguments and replays.

mod executable;
mod outputs;
mod report;
mod signature;

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use executable::{
    AllocationOwner, Executable, Obstacle, PlannedInput, PlannedOp, ValueSource,
};
pub use outputs::IntoOutputs;
pub use report::TraceReport;
pub(crate) use signature::BoundArgument;

use self::executable::TracedArgument;
use self::signature::{ArgumentSignature, Signature};
use crate::dispatch::replay::Replay;
use crate::ops::argument::Tracing;
use crate::storage::Storage;
use crate::{Error, Plan, Result, Tensor, env, eval, graph};

/// Maximum traces that a compiled function keeps; beyond, it forgets the one that was not used for the longest time.
const MAX_TRACES: usize = 16;

type TracedFunction<'f> = Box<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'f>;

/// Compiles a function of tensors: it is traced once for each signature of its arguments and replayed from then on.
///
/// A trace calls the function with arguments that have shapes and dtypes, but no values, and keeps the schedule, the
/// prepared launches and the memory of all intermediate values. A call with new values then costs little more than the
/// kernels: nothing is scheduled, validated or allocated, except the memory of the results, which comes from the
/// device's cache. The results have the same bits as without compiling.
///
/// ```
/// use bessemer::{Tensor, compile};
///
/// let step = compile(|t: &[Tensor]| (&t[0] * &t[1] + 1.0).tanh().sum(&[0], false));
/// let w = Tensor::from_slice(&[0.5_f32, -1.0, 2.0], [3]);
/// for i in 0..3 {
///     let x = Tensor::from_slice(&[1.0_f32, 2.0, i as f32], [3]);
///     let y = &step.call(&[&x, &w])?[0];
///     assert_eq!(y.item::<f32>()?, (&x * &w + 1.0).tanh().sum(&[0], false).item::<f32>()?);
/// }
/// assert_eq!(step.traces(), 1);
/// # Ok::<(), bessemer::Error>(())
/// ```
///
/// # The function
///
/// It must depend on nothing but its arguments. What it captures is constant, and what depends on no argument is computed
/// once, when the function is traced; such values stay in memory as long as the trace. So a captured
/// [`random::Key`](crate::random::Key) gives the same numbers in every call, as it does without compiling. Whatever changes
/// from call to call (a learning rate, a position, random numbers) is an argument, if need be a [`Tensor::scalar`].
///
/// While it is traced, it can use the shape, dtype and device of its arguments, but not their values: reading one is an
/// error, even if the function handles the error that the read returns. A panic of the function reaches the caller.
/// Compiled functions that it calls become part of it.
///
/// # Signatures
///
/// A signature consists of the dtype, shape, strides and device of every argument, and of the default device of the
/// thread. Up to 16 traces are kept for each function. Functions with ops on several devices, and functions whose ops have
/// no kernel on their Metal device, are not replayed but evaluated each time; [`Compiled::explain`] says so.
pub fn compile<'f, F, O>(function: F) -> Compiled<'f>
where
    F: Fn(&[Tensor]) -> O + Send + Sync + 'f,
    O: IntoOutputs,
{
    Compiled {
        function: Box::new(move |arguments| function(arguments).into_outputs()),
        traces: Mutex::default(),
        traced: AtomicUsize::new(0),
    }
}

/// A compiled function: see [`compile`](crate::compile()).
///
/// Threads can call it at the same time.
pub struct Compiled<'f> {
    function: TracedFunction<'f>,
    /// Traces, the one that was used last at the end.
    traces: Mutex<Vec<Arc<Trace>>>,
    /// Number of traces made so far.
    traced: AtomicUsize,
}

/// A trace of a function.
struct Trace {
    signature: Signature,
    plan: Plan,
    replay: Result<Replay, Obstacle>,
}

thread_local! {
    /// Whether this thread is tracing a function.
    static IS_TRACING: Cell<bool> = const { Cell::new(false) };
}

/// Sets [`IS_TRACING`] until it is dropped.
struct TracingScope;

impl TracingScope {
    fn enter() -> Self {
        IS_TRACING.set(true);
        Self
    }
}

impl Drop for TracingScope {
    fn drop(&mut self) {
        IS_TRACING.set(false);
    }
}

impl Compiled<'_> {
    /// Calls the function and evaluates its results.
    ///
    /// # Errors
    /// Errors of the arguments, of the function, and of the evaluation. [`Error::Invalid`] for a function that reads the
    /// value of an argument. The failure of a device is returned when a result is read, as without compiling.
    pub fn call(&self, arguments: &[&Tensor]) -> Result<Vec<Tensor>> {
        self.run(&mut [], arguments)
    }

    /// Calls the function with state and further arguments, in this order, and updates the state: the function returns
    /// the new state first, and then what this method returns.
    ///
    /// The state is donated: if nothing else uses the memory of a state tensor, and the op that computes its new value can
    /// work in place (elementwise ops, [`Tensor::slice_update`], softmax and norms), then it is updated there.
    ///
    /// ```
    /// use bessemer::{DType, Tensor, compile};
    ///
    /// let step = compile(|t: &[Tensor]| {
    ///     let [w, x, rate] = t else { panic!("three arguments") };
    ///     let loss = (w - x).square().mean(&[], false);
    ///     [w - (w - x) * rate, loss]
    /// });
    /// let mut state = [Tensor::zeros([2048], DType::F32).contiguous()];
    /// let x = Tensor::ones([2048], DType::F32).contiguous();
    /// let mut losses = Vec::new();
    /// for i in 0..3 {
    ///     let rate = Tensor::scalar(0.5_f32 / (i + 1) as f32);
    ///     losses.push(step.update(&mut state, &[&x, &rate])?[0].item::<f32>()?);
    /// }
    /// assert_eq!(losses, [1.0, 0.25, 0.140625]);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Compiled::call`], and [`Error::Invalid`] if the function returns fewer tensors than there are in the state. After
    /// an error the state is as it was, except for tensors that had been overwritten already: those carry the error.
    pub fn update(&self, state: &mut [Tensor], arguments: &[&Tensor]) -> Result<Vec<Tensor>> {
        self.run(state, arguments)
    }

    /// Number of traces made so far, including those that were forgotten.
    pub fn traces(&self) -> usize {
        self.traced.load(Ordering::Relaxed)
    }

    /// Describes the traces that are kept, the one that was used last at the end.
    pub fn explain(&self) -> Vec<TraceReport> {
        self.lock().iter().map(|t| TraceReport::of(t)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Trace>>> {
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, state: &mut [Tensor], arguments: &[&Tensor]) -> Result<Vec<Tensor>> {
        env::check()?;
        for argument in state.iter().chain(arguments.iter().copied()) {
            argument.check()?;
        }
        if IS_TRACING.get() {
            let outputs = (self.function)(&cloned(state, arguments))?;
            return replace_state(state, outputs);
        }
        // Scalar constants are passed as they are.
        let pending = state.iter().chain(arguments.iter().copied());
        let pending: Vec<_> = pending.filter(|t| t.node.constant.is_none()).collect();
        graph::eval_unsubmitted(&pending)?;

        let count = state.len() + arguments.len();
        let (mut signatures, mut bound) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for argument in state.iter().chain(arguments.iter().copied()) {
            let (signature, value) = ArgumentSignature::bind(argument)?;
            signatures.push(signature);
            bound.push(value);
        }
        for ((tensor, signature), bound) in state.iter_mut().zip(&mut signatures).zip(&mut bound) {
            if tensor.is_evaluated() {
                // The storage must have one owner.
                bound.storage = None;
                signature.donated = ArgumentSignature::is_donatable(tensor);
                bound.storage = tensor.node.value.get().cloned();
            }
        }
        let trace = self.trace(Signature::new(signatures))?;
        match &trace.replay {
            Ok(replay) => run_replay(replay, &trace.signature, state, arguments, bound),
            Err(_) => {
                drop(bound);
                let outputs = (self.function)(&cloned(state, arguments))?;
                eval(&outputs.iter().collect::<Vec<_>>())?;
                replace_state(state, outputs)
            }
        }
    }

    /// The trace of a signature, which is made if there is none.
    fn trace(&self, signature: Signature) -> Result<Arc<Trace>> {
        let mut traces = self.lock();
        if let Some(at) = traces.iter().rposition(|t| t.signature == signature) {
            let trace = Arc::clone(&traces[at]);
            if at + 1 < traces.len() {
                traces[at..].rotate_left(1);
            }
            return Ok(trace);
        }
        // Not locked meanwhile: the function may call this again. Two threads may trace the same signature then, and both
        // traces are right.
        drop(traces);
        let trace = Arc::new(self.make_trace(signature)?);
        self.traced.fetch_add(1, Ordering::Relaxed);
        let mut traces = self.lock();
        let forgotten = if traces.len() >= MAX_TRACES {
            Some(traces.remove(0))
        } else {
            None
        };
        traces.push(Arc::clone(&trace));
        drop(traces);
        drop(forgotten);
        Ok(trace)
    }

    fn make_trace(&self, signature: Signature) -> Result<Trace> {
        span!(DEBUG, "trace", arguments = signature.arguments.len());
        let tracing = Tracing::default();
        let arguments = signature.arguments(&tracing);
        let outputs = {
            let _scope = TracingScope::enter();
            (self.function)(&arguments)
        };
        tracing.check()?;
        let outputs = outputs?;
        for output in &outputs {
            output.check()?;
        }
        // What depends on no argument is computed once.
        let constants = graph::constants(&outputs.iter().collect::<Vec<_>>());
        eval(&constants.iter().collect::<Vec<_>>())?;
        drop(constants);
        let (scheduled, plan) = graph::schedule(&outputs.iter().collect::<Vec<_>>())?;
        let arguments = arguments.into_iter().zip(&signature.arguments);
        let arguments: Vec<_> = arguments
            .map(|(tensor, signature)| TracedArgument {
                tensor,
                donated: signature.donated,
            })
            .collect();
        let replay = match Executable::new(scheduled, &arguments, &outputs)? {
            Ok(executable) => Replay::new(executable)?,
            Err(obstacle) => Err(obstacle),
        };
        if let Err(obstacle) = &replay {
            event!(DEBUG, "not replayed", reason = obstacle.0.as_str());
        }
        Ok(Trace {
            signature,
            plan,
            replay,
        })
    }
}

impl fmt::Debug for Compiled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Compiled({} traces)", self.traces())
    }
}

/// Replays a trace, and replaces the state by its new values.
fn run_replay(
    replay: &Replay,
    signature: &Signature,
    state: &mut [Tensor],
    arguments: &[&Tensor],
    mut bound: Vec<BoundArgument>,
) -> Result<Vec<Tensor>> {
    let outputs = &replay.executable().outputs;
    expect_state(state.len(), outputs.len())?;
    // Where a view of each argument begins in its storage, in elements.
    let starts = bound.iter().zip(&signature.arguments);
    let starts: Vec<_> = starts.map(|(b, s)| b.start / s.dtype.size()).collect();
    // The shape of each argument's storage, and the storage if an output is a view of it.
    let mut returned = Vec::new();
    for output in outputs {
        if let ValueSource::Argument(i) = output.source {
            returned.push((i, bound[i].storage.clone()));
        }
    }
    // Now the replay owns what the state has donated.
    for (tensor, signature) in state.iter_mut().zip(&signature.arguments) {
        if signature.donated
            && let Some(node) = Arc::get_mut(&mut tensor.node)
        {
            node.value.take();
        }
    }
    let outcome = replay.run(&mut bound);
    let held = match outcome {
        Ok(held) => held,
        Err(error) => {
            for ((tensor, signature), bound) in
                state.iter_mut().zip(&signature.arguments).zip(bound)
            {
                if signature.donated {
                    match bound.storage {
                        Some(storage) => {
                            let _ = tensor.node.value.set(storage);
                        }
                        None => *tensor = Tensor::failed(error.clone()),
                    }
                }
            }
            return Err(error);
        }
    };
    let shape_of = |i: usize| match i.checked_sub(state.len()) {
        None => state[i].node.shape,
        Some(i) => arguments[i].node.shape,
    };
    let outputs: Vec<_> = outputs
        .iter()
        .map(|output| {
            let (storage, shape, layout): (Option<Storage>, _, _) = match &output.source {
                ValueSource::Argument(i) => {
                    let found = returned.iter().find(|(argument, _)| argument == i);
                    let layout = output
                        .layout
                        .with_offset(output.layout.offset() + starts[*i]);
                    (found.and_then(|(_, s)| s.clone()), shape_of(*i), layout)
                }
                ValueSource::Allocation(i) => (held[*i].clone(), output.value_shape, output.layout),
                ValueSource::Captured(storage) => {
                    (Some(storage.clone()), output.value_shape, output.layout)
                }
                ValueSource::Immediate => (None, output.value_shape, output.layout),
            };
            let storage = storage.expect("outputs have memory");
            let placement = output.placement.clone();
            Tensor::from_storage_at(placement, output.dtype, shape, storage).with_layout(layout)
        })
        .collect();
    replace_state(state, outputs)
}

/// All arguments in order.
fn cloned(state: &[Tensor], arguments: &[&Tensor]) -> Vec<Tensor> {
    let state = state.iter().cloned();
    state.chain(arguments.iter().map(|&t| t.clone())).collect()
}

fn expect_state(state: usize, outputs: usize) -> Result<()> {
    if outputs >= state {
        return Ok(());
    }
    Err(Error::Invalid {
        op: "update",
        reason: format!(
            "the function returns {outputs} tensors for a state of {state}; it must return the new state first"
        ),
    })
}

/// Replaces the state by the first outputs and returns the others.
fn replace_state(state: &mut [Tensor], mut outputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
    expect_state(state.len(), outputs.len())?;
    let others = outputs.split_off(state.len());
    for (tensor, new) in state.iter_mut().zip(outputs) {
        *tensor = new;
    }
    Ok(others)
}
