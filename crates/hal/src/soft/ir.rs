//! Barrier splitting (work-group function fission) on LLVM IR text.
//!
//! A kernel arrives as a function for one thread, with calls that stand for synchronisation. It is split into
//! *regions*: functions that run a range of lanes from one synchronisation site to the next, as a loop that LLVM can
//! vectorise. Lanes need no stacks; values that live across a site are spilled to columns of a context block, one
//! element per lane.
//!
//! In check mode, `sanitize` instruments the code before it is optimised.
//!
//! The passes in order: `alignment` reduces alignments that kernels do not keep, `subnormal` flushes constants,
//! `module` splits the text, `inline` moves all synchronisation into the kernel, `parse` and `instruction` parse
//! the kernel, `tsan` lowers the instrumentation of check mode, `origin` traces what its accesses refer to,
//! `kernel` splits it at the synchronisation sites and numbers these in program order (`block_order`); `liveness`,
//! `private_memory`, `remat` and `uniformity` analyse what lives across sites and what is uniform, `spill` lays out
//! the context, `loop_counter` finds the loops that check mode counts, `region` and `unswitch` emit the regions,
//! and `link` the module.

mod alignment;
mod block_order;
mod inline;
mod instruction;
mod kernel;
mod lex;
mod link;
mod liveness;
mod loop_counter;
mod module;
mod origin;
mod parse;
mod private_memory;
mod region;
mod remat;
mod sanitize;
mod spill;
mod subnormal;
#[cfg(test)]
mod tests;
mod tsan;
mod types;
mod uniformity;
mod unswitch;

pub(crate) use sanitize::sanitize;

use std::collections::{BTreeMap, HashMap};

use thiserror::Error;

use super::plan::{KernelPlan, Site};

/// Name of the function that the pass splits.
const KERNEL: &str = "sm_kernel";

/// Options of the pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Reports memory accesses, adds red zones, and does not mark lanes as independent.
    pub check: bool,
}

/// Result of the pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The module of regions.
    Done {
        /// LLVM IR text.
        text: String,
        /// The description of the regions for the runtime.
        plan: KernelPlan,
    },
    /// Functions that synchronise are not inlined yet: run the optimiser on this text, then the pass again.
    Inline {
        /// The same module, with those functions marked `alwaysinline`.
        text: String,
    },
}

/// Error from splitting a module.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FissionError {
    /// The module defines no kernel.
    #[error("the module does not define `sm_kernel`")]
    NoKernel,
    /// Text that cannot be parsed.
    #[error("line {line} of the LLVM IR: {what}")]
    Syntax {
        /// Line of the text, from 1; 0 if unknown.
        line: usize,
        /// The problem.
        what: String,
    },
    /// Valid text that is not supported in kernels.
    #[error("line {line} of the LLVM IR: {what} is not supported in a kernel")]
    Unsupported {
        /// Line of the text, from 1; 0 if unknown.
        line: usize,
        /// The construct.
        what: String,
    },
    /// The kernel function has the wrong parameters.
    #[error("`sm_kernel` must have 5 parameters, found {found}")]
    Signature {
        /// Number of parameters.
        found: usize,
    },
    /// A function that synchronises calls itself or is called through a pointer.
    #[error("`{function}` synchronises and cannot be inlined into the kernel: it calls itself")]
    NotInlined {
        /// Its mangled name.
        function: String,
    },
    /// Private arrays that exceed the limit.
    #[error("{bytes} bytes of private memory per thread exceed the limit")]
    PrivateMemoryTooLarge {
        /// Size of one array in bytes.
        bytes: usize,
    },
}

/// Splits the kernel of a module at its synchronisation sites.
///
/// `text` is LLVM IR as clang 17 to 20 writes it, with a definition of
/// `void sm_kernel(const sm_group*, uint x, uint y, uint z, uint lane)`.
pub fn fission(text: &str, options: &Options) -> Result<Outcome, FissionError> {
    let original: Vec<&str> = if options.check {
        text.lines().collect()
    } else {
        Vec::new()
    };
    let text = &subnormal::flush(&alignment::lower(text))?;
    let module = module::Module::parse(text)?;
    let definition = module
        .functions
        .iter()
        .find(|f| f.name == KERNEL)
        .ok_or(FissionError::NoKernel)?;
    let references = inline::References::new(&module)?;
    if let Some(text) = inline::mark_for_inlining(&module, &references, KERNEL, text)? {
        return Ok(Outcome::Inline { text });
    }

    let privates = sanitize::variable_names(&module);
    let mut locations = tsan::Locations::new();
    let mut function = parse::function(definition, &module.named)?;
    tsan::lower_function(&mut function, &module, &original, &mut locations);
    let origins = origin::of_accesses(&function, locations.list.len());
    let kernel = kernel::KernelFunction::new(function, options.check)?;
    let live = liveness::live_in(&kernel);
    let memory = private_memory::PrivateMemory::new(&kernel, &live);
    let remats = remat::rematerializable(&kernel, &memory);
    let columns = spill::SpillLayout::new(&kernel, &live, &memory, &remats, &module.named)?;

    let flow = kernel.cfg();
    let uniformity =
        uniformity::Uniformity::new(&kernel, &flow, &block_order::BlockOrder::new(&flow), &live);

    let counted = if options.check {
        loop_counter::counted_loops(&kernel, &module, &mut locations)
    } else {
        BTreeMap::new()
    };
    let group = module.free_group();
    let analysis = region::KernelAnalysis {
        kernel: &kernel,
        live: &live,
        memory: &memory,
        remats: &remats,
        columns: &columns,
        uniformity: &uniformity,
        site_blocks: &kernel.site_blocks(),
        group,
        parallel: !options.check,
        counted: &counted,
    };
    let mut additions = link::ModuleAdditions {
        kernel: KERNEL.into(),
        check: options.check,
        ..link::ModuleAdditions::default()
    };
    let mut plan = KernelPlan {
        regions: u32::try_from(kernel.sites.len() + 1).unwrap_or(u32::MAX),
        context_bytes: columns.bytes,
        arena_bytes: kernel.arena_bytes,
        variables: kernel.variables.clone(),
        privates,
        ..KernelPlan::default()
    };
    let mut next_node = module.free_metadata();
    for number in 0..=kernel.sites.len() {
        let region = region::write(&analysis, number, &mut next_node);
        additions.regions.push(region.text);
        additions.metadata.push_str(&region.metadata);
        plan.exits.push(region.exits);
    }
    let mut ops: HashMap<&str, u32> = HashMap::new();
    for (index, site) in kernel.sites.iter().enumerate() {
        let op = match &site.op {
            Some(name) => *ops.entry(name).or_insert_with(|| {
                additions.ops.push(name.clone());
                u32::try_from(additions.ops.len() - 1).unwrap_or(u32::MAX)
            }),
            None => 0,
        };
        plan.sites.push(Site {
            kind: site.kind,
            flags: site.flags,
            op,
            args: columns.operands[index]
                .iter()
                .map(|slot| slot.column)
                .collect(),
            result: columns.results[index].as_ref().map(|slot| slot.column),
            location: locations.resolve(&module, site.location),
        });
    }
    let attributes = link::region_attributes(&module, &definition.header, definition.line)?;
    let mut text = link::assemble(&module, &references, &additions, &mut locations)?;
    text.push_str(&format!("attributes #{group} = {{ {attributes} }}\n"));
    plan.locations = locations.list;
    plan.origins = origins;
    Ok(Outcome::Done { text, plan })
}
