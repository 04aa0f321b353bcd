//! A call of a custom kernel: its arguments, their validation, and the recorded node.
#![expect(
    unsafe_code,
    reason = "declares the unsafe promise a caller makes about a kernel and its arguments"
)]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bessemer_hal::{ConstantValue, FunctionConstants, Size};

use super::definition::{Definition, KernelText, Role};
use super::grid::GridRequest;
use super::launch::KernelResult;
use super::signature::{Signature, SignatureCache};
use super::whole_source::{ArgumentSlots, constant_index};
use super::{BoundTensor, CustomLaunch, CustomOp, CustomOutput};
use crate::device::Placement;
use crate::metal::custom::{CustomSource, batch_time, compile};
use crate::ops::copy::Copy;
use crate::{DType, Error, IntoShape, Layout, Result, Scalar, Shape, Tensor, graph};

/// Alignment in bytes of the start of an input of a whole source, which may be in the `constant` address space.
const CONSTANT_ALIGNMENT_BYTES: usize = 256;

/// Threadgroup memory comes in multiples of this many bytes.
const THREADGROUP_MEMORY_ALIGNMENT_BYTES: usize = 16;

/// A call of a [`MetalKernel`](super::MetalKernel): tensors, values and a grid.
///
/// Nothing is checked before [`KernelCall::run`], which returns the first error.
#[derive(Clone, Debug)]
#[must_use = "nothing is recorded until `run` is called"]
pub struct KernelCall {
    definition: Arc<Definition>,
    signatures: Arc<SignatureCache>,
    pub(super) tensors: Vec<Tensor>,
    scalars: Vec<(String, Scalar)>,
    constants: Vec<(String, Scalar)>,
    threadgroup: Vec<(String, usize)>,
    shapes: Vec<(String, Result<Shape>)>,
    dtypes: Vec<(String, DType)>,
    initial: Vec<(String, Scalar)>,
    grid: GridRequest,
    /// Whether the caller has promised that the kernel is sound, or the device finds out.
    pub(super) is_trusted: bool,
}

/// Times of one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timing {
    /// Time on the device, by its own clock, including copies of in-out arguments.
    pub gpu_time: Duration,
    /// Time from recording the launch until its results could be read.
    pub wall_time: Duration,
}

/// A validated call.
struct PreparedCall {
    launch: Arc<CustomLaunch>,
    placement: Placement,
    inputs: Vec<Tensor>,
    /// For each result, whether it is a `bool`: the kernel's bytes become 0 or 1.
    is_bool: Vec<bool>,
}

impl KernelCall {
    pub(super) fn new(
        definition: Arc<Definition>,
        signatures: Arc<SignatureCache>,
        tensors: &[&Tensor],
    ) -> Self {
        Self {
            definition,
            signatures,
            tensors: tensors.iter().map(|&t| t.clone()).collect(),
            scalars: Vec::new(),
            constants: Vec::new(),
            threadgroup: Vec::new(),
            shapes: Vec::new(),
            dtypes: Vec::new(),
            initial: Vec::new(),
            grid: GridRequest::default(),
            is_trusted: false,
        }
    }

    /// Sets the value of a scalar.
    pub fn scalar(mut self, name: &str, value: impl Into<Scalar>) -> Self {
        self.is_trusted = false;
        self.scalars.push((name.to_owned(), value.into()));
        self
    }

    /// Sets the value of a function constant. Each combination of values is another pipeline.
    pub fn constant(mut self, name: &str, value: impl Into<Scalar>) -> Self {
        self.is_trusted = false;
        self.constants.push((name.to_owned(), value.into()));
        self
    }

    /// Sets the length of threadgroup memory in elements. Its size is rounded up to a multiple of 16 bytes.
    pub fn threadgroup(mut self, name: &str, len: usize) -> Self {
        self.is_trusted = false;
        self.threadgroup.push((name.to_owned(), len));
        self
    }

    /// Sets the shape of an output.
    pub fn shape(mut self, name: &str, shape: impl IntoShape) -> Self {
        self.is_trusted = false;
        let shape = shape.into_shape(self.definition.name);
        self.shapes.push((name.to_owned(), shape));
        self
    }

    /// Sets the dtype of an output.
    pub fn dtype(mut self, name: &str, dtype: DType) -> Self {
        self.is_trusted = false;
        self.dtypes.push((name.to_owned(), dtype));
        self
    }

    /// Fills an output with a value before the launch.
    pub fn init(mut self, name: &str, value: impl Into<Scalar>) -> Self {
        self.is_trusted = false;
        self.initial.push((name.to_owned(), value.into()));
        self
    }

    /// Launches this many threads. Threadgroups at the edges are smaller if the sizes do not divide.
    pub fn threads(mut self, size: impl Into<Size>) -> Self {
        self.is_trusted = false;
        self.grid.threads = Some(size.into());
        self
    }

    /// Launches this many threadgroups instead of a number of threads.
    pub fn threadgroups(mut self, size: impl Into<Size>) -> Self {
        self.is_trusted = false;
        self.grid.threadgroups = Some(size.into());
        self
    }

    /// Sets the number of threads of a threadgroup. Without it the kernel's pipeline decides: see
    /// [`bessemer_hal::Pipeline::optimal_thread_group_size`].
    pub fn group(mut self, size: impl Into<Size>) -> Self {
        self.is_trusted = false;
        self.grid.group = Some(size.into());
        self
    }

    /// Allows the call on devices that do not contain kernels: GPUs, and the software device unless it is in isolated mode.
    /// It comes last: a change of the call revokes the promise.
    ///
    /// # Safety
    /// With these arguments and this grid the kernel must stay inside its buffers and its threadgroup memory, be free of
    /// data races, and end. [`KernelCall::check`] tests that for the values of the call.
    pub unsafe fn trust(mut self) -> Self {
        self.is_trusted = true;
        self
    }

    /// Records the call of a kernel with one output or in-out argument, and returns its result.
    ///
    /// # Errors
    /// [`Error::Invalid`] for arguments that do not match the kernel and for a kernel with several results,
    /// [`Error::BadDType`], [`Error::Unsupported`] on the CPU and on devices that do not contain kernels, and
    /// [`Error::Device`] if the kernel does not compile or its grid exceeds a limit. Nothing is recorded then.
    pub fn run(self) -> Result<Tensor> {
        let name = self.definition.name;
        let mut results = self.run_all()?;
        match (results.pop(), results.len()) {
            (Some(result), 0) => Ok(result),
            (_, others) => Err(Error::Invalid {
                op: name,
                reason: format!("the kernel has {} results; use `run_all`", others + 1),
            }),
        }
    }

    /// Records the call, and returns the values of the output and in-out arguments in the order of their declaration.
    ///
    /// # Errors
    /// As [`KernelCall::run`].
    pub fn run_all(self) -> Result<Vec<Tensor>> {
        let prepared = self.prepare()?;
        // An in-out argument that is not used otherwise is updated in place.
        drop(self);
        Ok(prepared.record().1)
    }

    /// Runs the call on its own, waits for it and returns its results and its times.
    ///
    /// # Errors
    /// As [`KernelCall::run`], and errors of the evaluation.
    pub fn run_timed(self) -> Result<(Vec<Tensor>, Timing)> {
        let prepared = self.prepare()?;
        drop(self);
        graph::eval(&prepared.inputs.iter().collect::<Vec<_>>())?;
        prepared.placement.device.synchronize()?;
        let name = prepared.launch.name;
        let start = Instant::now();
        let (nodes, results) = prepared.record();
        graph::eval(&nodes.iter().collect::<Vec<_>>())?;
        let gpu_time = match nodes.first() {
            Some(node) => batch_time(name, node)?,
            None => Duration::ZERO,
        };
        let wall_time = start.elapsed();
        Ok((
            results,
            Timing {
                gpu_time,
                wall_time,
            },
        ))
    }

    /// The text that is compiled: the body with its signature, or the whole source.
    ///
    /// # Errors
    /// Errors of the call's tensors.
    pub fn msl(&self) -> Result<String> {
        let types = self.tensor_types()?;
        Ok(match (self.signature(&types), &self.definition.text) {
            (Some(signature), _) => signature.text.clone(),
            (None, KernelText::Whole(text) | KernelText::Body(text)) => text.clone(),
        })
    }

    fn invalid(&self, reason: impl Into<String>) -> Error {
        Error::Invalid {
            op: self.definition.name,
            reason: reason.into(),
        }
    }

    /// The dtype and shape of every tensor argument, outputs included.
    fn tensor_types(&self) -> Result<Vec<(DType, Shape)>> {
        let op = self.definition.name;
        for tensor in &self.tensors {
            tensor.check()?;
        }
        let arguments: Vec<_> = self.definition.given().collect();
        if arguments.len() != self.tensors.len() {
            let names: Vec<_> = arguments.iter().map(|a| a.name.as_str()).collect();
            return Err(self.invalid(format!(
                "{} tensors are given for {} arguments ({})",
                self.tensors.len(),
                names.len(),
                names.join(", ")
            )));
        }
        let outputs = self.definition.outputs().map(|o| o.name.as_str());
        let shapes = self.by_name("output", outputs.clone(), &self.shapes)?;
        let dtypes = self.by_name("output", outputs, &self.dtypes)?;
        let mut outputs = shapes.into_iter().zip(dtypes);
        let mut given = self.tensors.iter();
        let first = self.tensors.first();
        let given_shapes = || self.tensors.iter().map(|t| *t.shape()).collect::<Vec<_>>();
        let mut types = Vec::with_capacity(self.definition.tensors.len());
        for argument in &self.definition.tensors {
            let name = &argument.name;
            let (dtype, shape) = if argument.role == Role::Output {
                let (shape, dtype) = outputs.next().unwrap_or_default();
                let missing = |what: &str| {
                    self.invalid(format!(
                        "output `{name}` has no {what}, and there is no tensor to take it from; give it with `{what}`"
                    ))
                };
                let shape = match (shape, &argument.shape) {
                    (Some(shape), _) => shape.clone()?,
                    (None, Some(rule)) => (rule.0)(&given_shapes())?,
                    (None, None) => *first.ok_or_else(|| missing("shape"))?.shape(),
                };
                let dtype = dtype.copied().or(argument.dtype);
                let dtype = match dtype.or(first.map(Tensor::dtype)) {
                    Some(dtype) => dtype,
                    None => return Err(missing("dtype")),
                };
                (dtype, shape)
            } else {
                let Some(tensor) = given.next() else { break };
                let dtype = tensor.dtype();
                if argument.dtype.is_some_and(|expected| expected != dtype) {
                    return Err(self.invalid(format!(
                        "`{name}` is {dtype}, but the kernel declares {}; convert with `cast`",
                        argument.dtype.unwrap_or(dtype)
                    )));
                }
                (dtype, *tensor.shape())
            };
            if dtype == DType::F64 {
                return Err(Error::BadDType {
                    op,
                    dtype,
                    expected: "Metal has none; use `f32`",
                });
            }
            if argument.is_atomic && !matches!(dtype, DType::U32 | DType::I32 | DType::F32) {
                return Err(Error::BadDType {
                    op,
                    dtype,
                    expected: "atomic elements are u32, i32 or f32",
                });
            }
            types.push((dtype, shape));
        }
        Ok(types)
    }

    /// Values that are given by name, in the order of the declarations.
    fn by_name<'a, T>(
        &self,
        what: &str,
        declared: impl Iterator<Item = &'a str>,
        given: &'a [(String, T)],
    ) -> Result<Vec<Option<&'a T>>> {
        let declared: Vec<&str> = declared.collect();
        let mut found: Vec<Option<&T>> = vec![None; declared.len()];
        for (name, value) in given {
            let Some(at) = declared.iter().position(|known| known == name) else {
                let names: Vec<_> = declared.iter().map(|name| format!("`{name}`")).collect();
                let has = if names.is_empty() {
                    "none".to_owned()
                } else {
                    names.join(", ")
                };
                return Err(
                    self.invalid(format!("there is no {what} `{name}`: the kernel has {has}"))
                );
            };
            if found[at].replace(value).is_some() {
                return Err(self.invalid(format!("{what} `{name}` is given twice")));
            }
        }
        Ok(found)
    }

    /// As [`KernelCall::by_name`], for values that a call must give.
    fn all_by_name<'a, T>(
        &self,
        what: &str,
        declared: impl Iterator<Item = &'a str> + Clone,
        given: &'a [(String, T)],
    ) -> Result<Vec<&'a T>> {
        let found = self.by_name(what, declared.clone(), given)?;
        let named = found.into_iter().zip(declared);
        named
            .map(|(value, name)| {
                value.ok_or_else(|| self.invalid(format!("{what} `{name}` has no value")))
            })
            .collect()
    }

    /// Rejects a value that a dtype cannot represent.
    fn fit(&self, what: &str, name: &str, value: Scalar, dtype: DType) -> Result<()> {
        if value.kind() > dtype.kind() {
            return Err(self.invalid(format!(
                "{what} `{name}` is {dtype}, but its value is a {}",
                match value.kind() {
                    crate::Kind::Float => "float",
                    _ => "number",
                }
            )));
        }
        value.fit(self.definition.name, dtype)
    }

    /// The values of the scalars, as the kernel reads them.
    fn scalar_bytes(&self) -> Result<Vec<Vec<u8>>> {
        let declared = &self.definition.scalars;
        let names = declared.iter().map(|s| s.name.as_str());
        let values = self.all_by_name("scalar", names, &self.scalars)?;
        declared
            .iter()
            .zip(values)
            .map(|(scalar, &value)| {
                self.fit("scalar", &scalar.name, value, scalar.dtype)?;
                let bytes = value.to_bytes(scalar.dtype);
                Ok(bytes[..scalar.dtype.size()].to_vec())
            })
            .collect()
    }

    /// The values of the function constants.
    fn function_constants(&self) -> Result<FunctionConstants> {
        let declared = &self.definition.constants;
        let names = declared.iter().map(|c| c.name.as_str());
        let values = self.all_by_name("constant", names, &self.constants)?;
        let mut constants = FunctionConstants::new();
        for (constant, &value) in declared.iter().zip(values) {
            let name = &constant.name;
            self.fit("constant", name, value, constant.dtype)?;
            let index = match &self.definition.text {
                KernelText::Body(_) => constant.slot,
                KernelText::Whole(source) => constant_index(source, name).ok_or_else(|| {
                    self.invalid(format!(
                        "the source has no `constant {} {name} [[function_constant(…)]]`",
                        crate::metal::msl_name(constant.dtype)
                    ))
                })?,
            };
            constants.set(index, constant_value(value, constant.dtype));
        }
        Ok(constants)
    }

    /// Bytes of threadgroup memory, in the order of the declarations.
    fn threadgroup_bytes(&self) -> Result<Vec<usize>> {
        let declared = &self.definition.threadgroup;
        let names = declared.iter().map(|m| m.name.as_str());
        let lens = self.all_by_name("threadgroup memory", names, &self.threadgroup)?;
        declared
            .iter()
            .zip(lens)
            .map(|(memory, &len)| {
                let bytes = len.checked_mul(memory.dtype.size()).and_then(|bytes| {
                    bytes.checked_next_multiple_of(THREADGROUP_MEMORY_ALIGNMENT_BYTES)
                });
                match bytes {
                    Some(bytes) if bytes > 0 => Ok(bytes),
                    _ => Err(self.invalid(format!(
                        "threadgroup memory `{}` cannot have {len} elements",
                        memory.name
                    ))),
                }
            })
            .collect()
    }

    /// Validates the call and compiles the kernel.
    fn prepare(&self) -> Result<PreparedCall> {
        let definition = &*self.definition;
        let op = definition.name;
        let types = self.tensor_types()?;
        let initial = self.initial_values(&types)?;
        let scalars = self.scalar_bytes()?;
        let constants = self.function_constants()?;
        let threadgroup_bytes = self.threadgroup_bytes()?;
        self.expect_threads(&types)?;
        let placement = self.placement(&types)?;
        let Some(metal) = placement.device.metal_backend() else {
            return Err(Error::Unsupported {
                op,
                what: "a custom kernel runs on a Metal device; move a tensor there with `to`, or call it in \
                       `Device::scope`"
                    .to_owned(),
                device: placement.device.name().to_owned(),
            });
        };
        let signature = self.signature(&types);
        let source = CustomSource {
            name: op,
            text: match (&signature, &definition.text) {
                (Some(signature), _) => &signature.text,
                (None, KernelText::Whole(text) | KernelText::Body(text)) => text,
            },
            is_trusted: self.is_trusted,
        };
        let pipeline = compile(metal, &source, constants)?;
        let slots = match &signature {
            Some(_) => ArgumentSlots::declared(definition),
            None => ArgumentSlots::reflected(definition, pipeline.arguments())?,
        };
        let threadgroup: Vec<_> = slots
            .threadgroup
            .into_iter()
            .zip(threadgroup_bytes)
            .collect();
        let grid = self.grid.resolve(op, &pipeline, &threadgroup)?;
        let inputs = self.inputs(&types, initial, signature.as_deref())?;
        let mut values: Vec<_> = slots.scalars.into_iter().zip(scalars).collect();
        if let Some(signature) = &signature {
            values.extend(signature.arguments(definition, &inputs.layouts)?);
        }
        let launch = CustomLaunch {
            name: op,
            pipeline,
            tensors: slots.tensors.into_iter().zip(inputs.bound).collect(),
            values,
            threadgroup,
            grid,
            results: inputs.results,
            computed: Mutex::default(),
        };
        Ok(PreparedCall {
            launch: Arc::new(launch),
            placement,
            inputs: inputs.inputs,
            is_bool: inputs.is_bool,
        })
    }

    /// The generated signature of a body.
    fn signature(&self, types: &[(DType, Shape)]) -> Option<Arc<Signature>> {
        let KernelText::Body(body) = &self.definition.text else {
            return None;
        };
        let dtypes: Vec<_> = types.iter().map(|(dtype, _)| *dtype).collect();
        Some(self.signatures.get(&self.definition, body, &dtypes))
    }

    /// Rejects a grid without threads, unless there is nothing to compute.
    fn expect_threads(&self, types: &[(DType, Shape)]) -> Result<()> {
        let (size, _) = self.grid.size(self.definition.name)?;
        let mut tensors = self.definition.tensors.iter().zip(types);
        if size.is_empty() && tensors.any(|(t, (_, s))| t.role != Role::Input && s.count() > 0) {
            return Err(self.invalid(format!(
                "a grid of {size} is empty, and would not compute the results"
            )));
        }
        Ok(())
    }

    /// The inputs of the node, in the layouts that the kernel reads.
    fn inputs(
        &self,
        types: &[(DType, Shape)],
        initial: Vec<Option<Tensor>>,
        signature: Option<&Signature>,
    ) -> Result<CallInputs> {
        let mut call = CallInputs::default();
        let mut given = self.tensors.iter();
        let mut initial = initial.into_iter();
        for (i, (argument, &of_type)) in self.definition.tensors.iter().zip(types).enumerate() {
            if argument.role == Role::Output {
                call.result(of_type, initial.next().flatten());
                continue;
            }
            let Some(tensor) = given.next() else { break };
            match (argument.role, signature) {
                (Role::InOut, _) => call.result(of_type, Some(tensor.clone())),
                (_, Some(signature)) if signature.names_strides[i] => call.input(tensor.clone()),
                (_, Some(_)) => call.input(tensor.contiguous()),
                (_, None) => call.input(aligned(tensor)),
            }
        }
        for input in &call.inputs {
            input.check()?;
        }
        Ok(call)
    }

    /// The initial values of the outputs.
    fn initial_values(&self, types: &[(DType, Shape)]) -> Result<Vec<Option<Tensor>>> {
        let outputs = self.definition.outputs();
        let names = outputs.clone().map(|o| o.name.as_str());
        let initial = self.by_name("output", names, &self.initial)?;
        let tensors = self.definition.tensors.iter().zip(types);
        let types = tensors.filter(|(t, _)| t.role == Role::Output);
        initial
            .into_iter()
            .zip(types)
            .map(|(value, (output, (dtype, shape)))| {
                let Some(&value) = value else { return Ok(None) };
                self.fit("output", &output.name, value, *dtype)?;
                let tensor = Tensor::full(*shape, value, *dtype);
                tensor.check()?;
                Ok(Some(tensor))
            })
            .collect()
    }

    /// The device of the results.
    fn placement(&self, types: &[(DType, Shape)]) -> Result<Placement> {
        let inputs: Vec<&Tensor> = self.tensors.iter().collect();
        let dtype = types.first().map_or(DType::F32, |(dtype, _)| *dtype);
        Placement::of(self.definition.name, &inputs, dtype, None)
    }
}

/// Inputs and results of a call in the form of a graph node.
#[derive(Default)]
struct CallInputs {
    inputs: Vec<Tensor>,
    results: Vec<KernelResult>,
    is_bool: Vec<bool>,
    /// The tensor arguments in the order of their declaration.
    bound: Vec<BoundTensor>,
    layouts: Vec<Layout>,
}

impl CallInputs {
    fn input(&mut self, tensor: Tensor) {
        self.bound.push(BoundTensor::Input(self.inputs.len()));
        self.layouts.push(*tensor.layout());
        self.inputs.push(tensor);
    }

    fn result(&mut self, (dtype, shape): (DType, Shape), initial: Option<Tensor>) {
        // Any byte may be in the memory of a result, but only two of them are a `bool`.
        let is_bool = dtype == DType::Bool;
        let dtype = if is_bool { DType::U8 } else { dtype };
        let updates = initial.map(|tensor| {
            self.inputs.push(tensor.cast(dtype));
            self.inputs.len() - 1
        });
        self.bound.push(BoundTensor::Result(self.results.len()));
        self.layouts.push(Layout::contiguous(shape));
        self.is_bool.push(is_bool);
        self.results.push(KernelResult {
            dtype,
            shape,
            updates,
        });
    }
}

impl PreparedCall {
    /// Records the launch: the nodes of the results, and the results.
    fn record(self) -> (Vec<Tensor>, Vec<Tensor>) {
        let Self {
            launch,
            placement,
            inputs,
            is_bool,
        } = self;
        let record = |op: crate::ops::Op, dtype, shape, inputs| {
            Tensor::recorded(op, placement.clone(), (dtype, shape), inputs)
        };
        let nodes: Vec<Tensor> = match &launch.results[..] {
            [result] => vec![record(
                CustomOp::Metal(Arc::clone(&launch)).into(),
                result.dtype,
                result.shape,
                inputs,
            )],
            results => {
                let op = CustomOp::Metal(Arc::clone(&launch)).into();
                let all = record(op, DType::U8, Shape::EMPTY, inputs);
                let result = |(index, result): (usize, &KernelResult)| {
                    let launch = Arc::clone(&launch);
                    let op = CustomOutput { launch, index }.into();
                    record(op, result.dtype, result.shape, vec![all.clone()])
                };
                results.iter().enumerate().map(result).collect()
            }
        };
        let results = nodes.iter().zip(is_bool).map(|(node, is_bool)| {
            if is_bool {
                node.cast(DType::Bool)
            } else {
                node.clone()
            }
        });
        let results = results.collect();
        (nodes, results)
    }
}

/// The tensor if it is contiguous and aligned for the `constant` address space, otherwise a copy.
fn aligned(tensor: &Tensor) -> Tensor {
    let start = tensor.layout().offset() * tensor.dtype().size();
    if tensor.layout().is_contiguous() && !start.is_multiple_of(CONSTANT_ALIGNMENT_BYTES) {
        return Tensor::apply(Copy, &[tensor]);
    }
    tensor.contiguous()
}

/// A value as a function constant of a dtype that function constants can have.
fn constant_value(value: Scalar, dtype: DType) -> ConstantValue {
    let bytes = value.to_bytes(dtype);
    let word = u64::from_le_bytes(bytes);
    match dtype {
        DType::Bool => ConstantValue::Bool(word != 0),
        DType::U8 => ConstantValue::U8(word as u8),
        DType::U16 => ConstantValue::U16(word as u16),
        DType::U32 => ConstantValue::U32(word as u32),
        DType::U64 => ConstantValue::U64(word),
        DType::I8 => ConstantValue::I8(word as i8),
        DType::I16 => ConstantValue::I16(word as i16),
        DType::I32 => ConstantValue::I32(word as i32),
        DType::I64 => ConstantValue::I64(word as i64),
        DType::F16 => ConstantValue::F16(half::f16::from_bits(word as u16)),
        DType::BF16 | DType::F32 | DType::F64 => ConstantValue::F32(value.to_f64() as f32),
    }
}
