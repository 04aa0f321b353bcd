//! Loops whose iterations check mode counts, with their source locations.

use std::collections::{BTreeMap, BTreeSet};

use super::block_order::BlockOrder;
use super::kernel::KernelFunction;
use super::module::Module;
use super::parse::{Fragment, Terminator};
use super::tsan::Locations;

/// The shim function that is called when a lane has no iterations left.
pub(crate) const STEP_FN: &str = "sm_step";

/// Returns the header of every loop, with the loop's location. Empty for a module without [`STEP_FN`].
pub(crate) fn counted_loops(
    kernel: &KernelFunction,
    module: &Module<'_>,
    locations: &mut Locations,
) -> BTreeMap<usize, u32> {
    let mut found = BTreeMap::new();
    if !module.functions.iter().any(|f| f.name == STEP_FN) {
        return found;
    }
    let mut loops = BlockOrder::new(&kernel.cfg()).loops;
    // Innermost loops first: the remaining blocks of an outer loop belong to it alone.
    loops.sort_by_key(|component| component.blocks.iter().count());
    let mut taken = BTreeSet::new();
    for component in &loops {
        let own = component
            .blocks
            .iter()
            .filter(|block| !taken.contains(block));
        let own: Vec<usize> = own.collect();
        let node = own
            .iter()
            .find_map(|&block| loop_start(kernel, module, block))
            .or_else(|| {
                let head = std::iter::once(component.head);
                head.chain(own.iter().copied())
                    .map(|block| &kernel.blocks[block])
                    .find_map(|block| {
                        let mut insts = block.insts.iter();
                        insts.find_map(|inst| inst.location).or(block.location)
                    })
            });
        taken.extend(own);
        found.insert(component.head, locations.resolve(module, node));
    }
    found
}

/// Returns the metadata node of the start location of the loop whose latch is `block`.
fn loop_start(kernel: &KernelFunction, module: &Module<'_>, block: usize) -> Option<u32> {
    let Terminator::Jump { fragments, .. } = &kernel.blocks[block].end else {
        return None;
    };
    let node = fragments.iter().find_map(|fragment| match fragment {
        Fragment::Text(text) => text.split_once("!llvm.loop !").map(|(_, rest)| rest),
        Fragment::Local(_) => None,
    })?;
    let digits = node.split(|c: char| !c.is_ascii_digit()).next()?;
    let list = module.node(digits.parse().ok()?)?;
    let mut nodes = list
        .split(['!', ',', '{', '}', ' '])
        .filter_map(|word| word.parse::<u32>().ok());
    nodes.find(|&node| {
        module
            .node(node)
            .is_some_and(|text| text.contains("!DILocation("))
    })
}
