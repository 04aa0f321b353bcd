//! What a trace compiles to: its ops in order, and a plan of the memory of their values.

use std::collections::HashMap;
use std::sync::Arc;

use crate::custom::CustomOp;
use crate::device::Placement;
use crate::graph::ScheduledWork;
use crate::ops::Op;
use crate::storage::Storage;
use crate::tensor::{Node, Work};
use crate::{DType, Device, Layout, Result, Scalar, Shape, Tensor, dispatch};

/// The ops of a traced function, in order, and the memory of their values.
pub(crate) struct Executable {
    /// The device that computes all ops.
    pub(crate) device: Device,
    /// Bytes of each argument.
    pub(crate) argument_bytes: Vec<usize>,
    pub(crate) ops: Vec<PlannedOp>,
    pub(crate) allocations: Vec<Allocation>,
    /// Sizes in bytes of the memory that replays use again and again.
    pub(crate) scratch_bytes: Vec<usize>,
    pub(crate) outputs: Vec<PlannedOutput>,
}

/// An op of an [`Executable`].
pub(crate) struct PlannedOp {
    pub(crate) op: Op,
    pub(crate) inputs: Vec<PlannedInput>,
    /// Index of the allocation that it writes.
    pub(crate) output: usize,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// The input whose memory the output takes.
    pub(crate) aliases_input: Option<usize>,
}

/// An input of a [`PlannedOp`].
pub(crate) struct PlannedInput {
    pub(crate) source: ValueSource,
    pub(crate) dtype: DType,
    pub(crate) layout: Layout,
    /// Its value, if it is a scalar constant.
    pub(crate) constant: Option<Scalar>,
}

/// Where the value of an input or output comes from.
#[derive(Clone)]
pub(crate) enum ValueSource {
    /// An argument that stays as it is.
    Argument(usize),
    /// An allocation, by its index.
    Allocation(usize),
    /// A tensor that the function captured.
    Captured(Storage),
    /// Nowhere: the op takes a scalar constant as such.
    Immediate,
}

/// Memory of a value, or of several that are computed in place one after the other.
pub(crate) struct Allocation {
    pub(crate) bytes: usize,
    pub(crate) owner: AllocationOwner,
    /// The first op that overwrites a donated argument.
    pub(crate) first_overwrite: Option<usize>,
}

/// The owner of the memory of an [`Allocation`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AllocationOwner {
    /// The executable: an index of [`Executable::scratch_bytes`].
    Scratch(usize),
    /// The caller, who gets a new tensor.
    Output,
    /// The caller, who donated this argument.
    Argument(usize),
}

/// A result of the function.
pub(crate) struct PlannedOutput {
    pub(crate) source: ValueSource,
    pub(crate) placement: Placement,
    pub(crate) dtype: DType,
    /// The shape of the whole value, of which the output is a view.
    pub(crate) value_shape: Shape,
    pub(crate) layout: Layout,
}

/// An argument of a trace.
pub(crate) struct TracedArgument {
    pub(crate) tensor: Tensor,
    /// Whether its memory may be overwritten.
    pub(crate) donated: bool,
}

/// Why a function cannot be replayed.
pub(crate) struct Obstacle(pub(crate) String);

/// A value while its memory is planned.
struct PlannedValue {
    /// The last op that reads it; `None` if none does, `Some(usize::MAX)` for outputs.
    last_use: Option<usize>,
    allocation: usize,
}

/// The source of a value while memory is planned.
#[derive(Clone)]
enum Origin {
    Argument(usize),
    /// A value that an op computes, or a donated argument.
    Value(usize),
    Captured(Storage),
    Immediate,
}

/// An op while memory is planned.
struct OpDraft {
    node: Arc<Node>,
    work: Work,
    origins: Vec<Origin>,
    value: usize,
}

/// Plans the memory of an [`Executable`].
struct Planner {
    /// The device of all ops.
    device: Device,
    origins: HashMap<*const Node, Origin>,
    values: Vec<PlannedValue>,
    drafts: Vec<OpDraft>,
}

impl Executable {
    /// Plans the memory of a schedule.
    pub(crate) fn new(
        scheduled: Vec<ScheduledWork>,
        arguments: &[TracedArgument],
        outputs: &[Tensor],
    ) -> Result<Result<Self, Obstacle>> {
        let computed = |s: &&ScheduledWork| !matches!(s.work.op, Op::Alias(_) | Op::Argument(_));
        // Without ops, any device will do.
        let first = scheduled.iter().find(computed);
        let device = first.map_or_else(Device::cpu, |s| s.node.placement.device.clone());
        let mut planner = Planner::new(device);
        // The allocations of donated arguments come first.
        let mut allocations = Vec::new();
        for (i, argument) in arguments.iter().enumerate() {
            let node = &argument.tensor.node;
            let origin = if argument.donated && node.placement.device == planner.device {
                allocations.push(Allocation {
                    bytes: node.shape.count() * node.dtype.size(),
                    owner: AllocationOwner::Argument(i),
                    first_overwrite: None,
                });
                planner.add_value(allocations.len() - 1)
            } else {
                Origin::Argument(i)
            };
            planner.origins.insert(Arc::as_ptr(node), origin);
        }
        for ScheduledWork { node, work } in scheduled {
            if let Some(obstacle) = planner.add(node, work)? {
                return Ok(Err(obstacle));
            }
        }
        let mut sources = Vec::with_capacity(outputs.len());
        for output in outputs {
            let origin = planner.origin(output, false)?;
            if let Origin::Value(value) = origin {
                planner.values[value].last_use = Some(usize::MAX);
            }
            sources.push(origin);
        }
        let mut executable = planner.finish(allocations, outputs, &sources);
        let bytes = |a: &TracedArgument| a.tensor.node.shape.count() * a.tensor.dtype().size();
        executable.argument_bytes = arguments.iter().map(bytes).collect();
        Ok(Ok(executable))
    }
}

impl Planner {
    fn new(device: Device) -> Self {
        Self {
            device,
            origins: HashMap::new(),
            values: Vec::new(),
            drafts: Vec::new(),
        }
    }

    fn add_value(&mut self, allocation: usize) -> Origin {
        self.values.push(PlannedValue {
            last_use: None,
            allocation,
        });
        Origin::Value(self.values.len() - 1)
    }

    /// The origin of a tensor; `is_immediate` if a scalar constant needs no memory.
    fn origin(&self, tensor: &Tensor, is_immediate: bool) -> Result<Origin> {
        if let Some(origin) = self.origins.get(&Arc::as_ptr(&tensor.node)) {
            return Ok(origin.clone());
        }
        if is_immediate && tensor.node.constant.is_some() {
            return Ok(Origin::Immediate);
        }
        // A tensor that the function captured; another thread may have rewritten what it is computed from since the
        // schedule was made.
        tensor.eval()?;
        let storage = tensor.node.value.get().expect("evaluated");
        Ok(Origin::Captured(storage.clone()))
    }

    /// Adds a node of the schedule, which comes after its inputs.
    fn add(&mut self, node: Arc<Node>, work: Work) -> Result<Option<Obstacle>> {
        if let Op::Argument(argument) = &work.op {
            // The function may have kept an argument of an earlier trace.
            return if self.origins.contains_key(&Arc::as_ptr(&node)) {
                Ok(None)
            } else {
                Err(argument.read())
            };
        }
        let is_replayed = match &work.op {
            Op::Custom(CustomOp::Metal(launch)) => launch.results.len() == 1,
            Op::Custom(CustomOp::Program(_)) | Op::CustomOutput(_) => false,
            _ => true,
        };
        if !is_replayed {
            let name = work.op.name();
            let reason = "is a program, or a custom kernel with several results";
            return Ok(Some(Obstacle(format!("`{name}` {reason}"))));
        }
        let is_immediate = work.op.is_pointwise();
        let origins = work.inputs.iter().map(|t| self.origin(t, is_immediate));
        let origins: Vec<_> = origins.collect::<Result<_>>()?;
        if let (Op::Alias(_), [origin]) = (&work.op, &origins[..]) {
            self.origins.insert(Arc::as_ptr(&node), origin.clone());
            return Ok(None);
        }
        let device = &node.placement.device;
        if *device != self.device {
            return Ok(Some(Obstacle(format!(
                "`{}` runs on {device}, other ops on {}",
                work.op.name(),
                self.device
            ))));
        }
        let at = self.drafts.len();
        for origin in &origins {
            if let Origin::Value(value) = origin {
                self.values[*value].last_use = Some(at);
            }
        }
        let origin = self.add_value(usize::MAX);
        let value = self.values.len() - 1;
        self.origins.insert(Arc::as_ptr(&node), origin);
        self.drafts.push(OpDraft {
            node,
            work,
            origins,
            value,
        });
        Ok(None)
    }

    /// The input of an op whose memory the output takes.
    fn donated_input(&self, at: usize) -> Option<usize> {
        let OpDraft {
            node,
            work,
            origins,
            ..
        } = &self.drafts[at];
        if !dispatch::pays_to_donate(&work.op, node) {
            return None;
        }
        (0..origins.len()).find(|&i| {
            let Origin::Value(value) = origins[i] else {
                return false;
            };
            let is_same = |o: &&Origin| matches!(o, Origin::Value(other) if *other == value);
            self.values[value].last_use == Some(at)
                && origins.iter().filter(is_same).count() == 1
                && dispatch::may_donate(&work.op, node, i, &work.inputs[i])
        })
    }

    fn source(&self, origin: &Origin) -> ValueSource {
        match origin {
            Origin::Argument(i) => ValueSource::Argument(*i),
            Origin::Value(value) => ValueSource::Allocation(self.values[*value].allocation),
            Origin::Captured(storage) => ValueSource::Captured(storage.clone()),
            Origin::Immediate => ValueSource::Immediate,
        }
    }

    /// Chooses the allocation of every value, and returns the input that each op overwrites.
    fn assign_allocations(&mut self, allocations: &mut Vec<Allocation>) -> Vec<Option<usize>> {
        let mut aliased = Vec::with_capacity(self.drafts.len());
        for at in 0..self.drafts.len() {
            let aliases_input = self.donated_input(at);
            let draft = &self.drafts[at];
            let allocation = match aliases_input.map(|i| &draft.origins[i]) {
                Some(Origin::Value(donated)) => {
                    let allocation = self.values[*donated].allocation;
                    allocations[allocation].first_overwrite.get_or_insert(at);
                    allocation
                }
                _ => {
                    allocations.push(Allocation {
                        bytes: draft.node.shape.count() * draft.node.dtype.size(),
                        owner: AllocationOwner::Scratch(usize::MAX),
                        first_overwrite: None,
                    });
                    allocations.len() - 1
                }
            };
            let value = &mut self.values[draft.value];
            value.allocation = allocation;
            // A value that becomes an output in place has the memory of the output from the start.
            if value.last_use == Some(usize::MAX)
                && let owner @ AllocationOwner::Scratch(_) = &mut allocations[allocation].owner
            {
                *owner = AllocationOwner::Output;
            }
            aliased.push(aliases_input);
        }
        aliased
    }

    fn finish(
        mut self,
        mut allocations: Vec<Allocation>,
        outputs: &[Tensor],
        sources: &[Origin],
    ) -> Executable {
        let aliased = self.assign_allocations(&mut allocations);
        let mut scratch = ScratchPlan::default();
        let mut ops = Vec::with_capacity(self.drafts.len());
        for (at, (draft, &aliases_input)) in self.drafts.iter().zip(&aliased).enumerate() {
            let output = self.values[draft.value].allocation;
            if aliases_input.is_none() {
                let Allocation { bytes, owner, .. } = &mut allocations[output];
                if let AllocationOwner::Scratch(slot) = owner {
                    *slot = scratch.take(*bytes);
                }
            }
            let inputs = draft.work.inputs.iter().zip(&draft.origins);
            let inputs = inputs.map(|(tensor, origin)| PlannedInput {
                source: self.source(origin),
                dtype: tensor.dtype(),
                layout: *tensor.layout(),
                constant: tensor.node.constant,
            });
            ops.push(PlannedOp {
                op: draft.work.op.clone(),
                inputs: inputs.collect(),
                output,
                dtype: draft.node.dtype,
                shape: draft.node.shape,
                aliases_input,
            });
            for (i, origin) in draft.origins.iter().enumerate() {
                if let Origin::Value(read) = origin
                    && self.values[*read].last_use == Some(at)
                    && aliases_input != Some(i)
                    && let AllocationOwner::Scratch(slot) =
                        allocations[self.values[*read].allocation].owner
                {
                    scratch.give_back(slot);
                }
            }
        }
        let outputs = outputs.iter().zip(sources);
        let outputs = outputs.map(|(tensor, origin)| PlannedOutput {
            source: self.source(origin),
            placement: tensor.node.placement.clone(),
            dtype: tensor.dtype(),
            value_shape: tensor.node.shape,
            layout: *tensor.layout(),
        });
        Executable {
            outputs: outputs.collect(),
            argument_bytes: Vec::new(),
            device: self.device,
            ops,
            allocations,
            scratch_bytes: scratch.bytes,
        }
    }
}

/// Assigns scratch memory: what a value releases is reused by the next one of about its size.
#[derive(Default)]
struct ScratchPlan {
    /// Sizes of all blocks.
    bytes: Vec<usize>,
    /// Blocks that no value occupies; the last one was released last.
    free: Vec<usize>,
}

impl ScratchPlan {
    fn take(&mut self, bytes: usize) -> usize {
        let fits = |&&slot: &&usize| {
            let size = self.bytes[slot];
            size >= bytes && size / 2 <= bytes
        };
        let found = self.free.iter().rev().find(fits).copied();
        if let Some(slot) = found {
            self.free.retain(|&s| s != slot);
            return slot;
        }
        self.bytes.push(bytes);
        self.bytes.len() - 1
    }

    fn give_back(&mut self, slot: usize) {
        if !self.free.contains(&slot) {
            self.free.push(slot);
        }
    }
}
