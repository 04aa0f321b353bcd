//! Barrier fission on LLVM IR text.
//!
//! A kernel arrives as one function for one thread, with calls that stand for synchronisation. It leaves as *regions*:
//! functions that run a row of lanes from one synchronisation point to the next, as a loop that LLVM can vectorise.
//! No lane needs a stack of its own; values that outlive a synchronisation are kept in columns of a context block,
//! one element a lane.
//!
//! In check mode, `sanitize` instruments the code before it is optimised.
//!
//! The way through: `relax` takes out promises that kernels do not keep, `subnormal` flushes constants, `module` cuts the text, `inline` makes sure
//! that all synchronisation lies in the kernel, `parse` and `instruction` read the kernel, `check` replaces the instrumentation of check mode, `origin` finds what its accesses are made to, `kernel` cuts
//! at the synchronisation points and puts them in program `order`; `live`, `private`, `remat` and `uniform`
//! find out what outlives them and what all lanes agree on, `columns` lays out the context, `steps` finds the loops that
//! check mode counts, `region` and `decide` write the regions and `link` the module.

mod check;
mod columns;
mod decide;
mod inline;
mod instruction;
mod kernel;
mod lex;
mod link;
mod live;
mod module;
mod order;
mod origin;
mod parse;
mod private;
mod region;
mod relax;
mod remat;
mod sanitize;
mod steps;
mod subnormal;
#[cfg(test)]
mod tests;
mod types;
mod uniform;

use super::plan::{KernelPlan, Site};
pub(crate) use sanitize::sanitize;
use std::collections::{BTreeMap, HashMap};
use thiserror::Error;

/// The function that the pass takes apart.
const KERNEL: &str = "sm_kernel";

/// How to compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// Report memory accesses, leave red zones, and do not promise that lanes are independent.
    pub check: bool,
}

/// What the pass produced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The module of regions.
    Done {
        /// LLVM IR text.
        text: String,
        /// What the runtime must know.
        plan: KernelPlan,
    },
    /// Functions that synchronise are not inlined yet: compile this text with the optimiser and come back.
    Inline {
        /// The same module, with those functions marked `alwaysinline`.
        text: String,
    },
}

/// Why a module cannot be taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no kernel in the module.
    #[error("the module does not define `sm_kernel`")]
    NoKernel,
    /// Text that is not understood.
    #[error("line {line} of the LLVM IR: {what}")]
    Syntax {
        /// Line of the text, from 1; 0 where it is not known.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// Text that is understood, but that kernels cannot have.
    #[error("line {line} of the LLVM IR: {what} is not supported in a kernel")]
    Unsupported {
        /// Line of the text, from 1; 0 where it is not known.
        line: usize,
        /// The construct.
        what: String,
    },
    /// The kernel function has the wrong parameters.
    #[error("`sm_kernel` must have 5 parameters, found {found}")]
    Signature {
        /// Parameters found.
        found: usize,
    },
    /// A function that synchronises calls itself or is called through a pointer.
    #[error("`{function}` synchronises and cannot be inlined into the kernel: it calls itself")]
    NotInlined {
        /// Its symbol.
        function: String,
    },
    /// Private arrays that do not fit.
    #[error("{bytes} bytes of private memory a thread are too many")]
    TooMuchPrivateMemory {
        /// Bytes of one array.
        bytes: usize,
    },
}

/// Cuts the kernel of a module at its synchronisation points.
///
/// `text` is LLVM IR as clang 17 to 20 writes it, with a definition of
/// `void sm_kernel(const sm_group*, uint x, uint y, uint z, uint lane)`.
pub fn fission(text: &str, options: &Options) -> Result<Outcome, Error> {
    let original: Vec<&str> = if options.check {
        text.lines().collect()
    } else {
        Vec::new()
    };
    let text = &subnormal::flush(&relax::alignment(text))?;
    let module = module::Module::parse(text)?;
    let definition = module
        .functions
        .iter()
        .find(|f| f.name == KERNEL)
        .ok_or(Error::NoKernel)?;
    let references = inline::References::new(&module)?;
    if let Some(text) = inline::demand(&module, &references, KERNEL, text)? {
        return Ok(Outcome::Inline { text });
    }

    let privates = sanitize::variable_names(&module);
    let mut locations = check::Locations::new();
    let mut function = parse::function(definition, &module.named)?;
    check::instrument(&mut function, &module, &original, &mut locations);
    let origins = origin::of_accesses(&function, locations.list.len());
    let kernel = kernel::Kernel::new(function, options.check)?;
    let live = live::live_in(&kernel);
    let memory = private::PrivateMemory::new(&kernel, &live);
    let recipes = remat::recipes(&kernel, &memory);
    let columns = columns::Columns::new(&kernel, &live, &memory, &recipes, &module.named)?;

    let flow = kernel.flows();
    let uniformity = uniform::Uniformity::new(&kernel, &flow, &order::Order::new(&flow), &live);

    let counted = if options.check {
        steps::counted(&kernel, &module, &mut locations)
    } else {
        BTreeMap::new()
    };
    let group = module.free_group();
    let analysis = region::Analysis {
        kernel: &kernel,
        live: &live,
        memory: &memory,
        recipes: &recipes,
        columns: &columns,
        uniformity: &uniformity,
        site_blocks: &kernel.site_blocks(),
        group,
        parallel: !options.check,
        counted: &counted,
    };
    let mut parts = link::Parts {
        kernel: KERNEL.into(),
        check: options.check,
        ..link::Parts::default()
    };
    let mut plan = KernelPlan {
        regions: u32::try_from(kernel.sites.len() + 1).unwrap_or(u32::MAX),
        context_bytes: columns.bytes,
        arena_bytes: kernel.arena_bytes,
        variables: kernel.variables.clone(),
        privates,
        ..KernelPlan::default()
    };
    let mut node = module.free_metadata();
    for number in 0..=kernel.sites.len() {
        let region = region::write(&analysis, number, &mut node);
        parts.regions.push(region.text);
        parts.metadata.push_str(&region.metadata);
        plan.exits.push(region.exits);
    }
    let mut ops: HashMap<&str, u32> = HashMap::new();
    for (index, site) in kernel.sites.iter().enumerate() {
        let op = match &site.op {
            Some(name) => *ops.entry(name).or_insert_with(|| {
                parts.ops.push(name.clone());
                u32::try_from(parts.ops.len() - 1).unwrap_or(u32::MAX)
            }),
            None => 0,
        };
        plan.sites.push(Site {
            kind: site.kind,
            flags: site.flags,
            op,
            args: columns.operands[index]
                .iter()
                .map(|place| place.column)
                .collect(),
            result: columns.results[index].as_ref().map(|place| place.column),
            location: locations.resolve(&module, site.location),
        });
    }
    let attributes = link::region_attributes(&module, &definition.header, definition.line)?;
    let mut text = link::assemble(&module, &references, &parts, &mut locations)?;
    text.push_str(&format!("attributes #{group} = {{ {attributes} }}\n"));
    plan.locations = locations.list;
    plan.origins = origins;
    Ok(Outcome::Done { text, plan })
}
