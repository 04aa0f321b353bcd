//! Loops whose iterations check mode counts, and where they are in the source.

use super::check::Locations;
use super::kernel::Kernel;
use super::module::Module;
use super::order::Order;
use super::parse::{Piece, Terminator};
use std::collections::{BTreeMap, BTreeSet};

/// The shim's function that is called when a lane has no steps left.
pub(crate) const STEP: &str = "sm_step";

/// The head of every loop, with the loop's location. None in a module without [`STEP`].
pub(crate) fn counted(
    kernel: &Kernel,
    module: &Module<'_>,
    locations: &mut Locations,
) -> BTreeMap<usize, u32> {
    let mut found = BTreeMap::new();
    if !module.functions.iter().any(|f| f.name == STEP) {
        return found;
    }
    let mut loops = Order::new(&kernel.flows()).loops;
    // Inner loops first: what is left in an outer one is its own.
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
            .find_map(|&block| start_of_loop(kernel, module, block))
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

/// The node of the location where the loop begins that ends with `block`.
fn start_of_loop(kernel: &Kernel, module: &Module<'_>, block: usize) -> Option<u32> {
    let Terminator::Jump { pieces, .. } = &kernel.blocks[block].end else {
        return None;
    };
    let node = pieces.iter().find_map(|piece| match piece {
        Piece::Text(text) => text.split_once("!llvm.loop !").map(|(_, rest)| rest),
        Piece::Local(_) => None,
    })?;
    let digits = node.split(|c: char| !c.is_ascii_digit()).next()?;
    let list = module.node(digits.parse().ok()?)?;
    let mut nodes = list
        .split(['!', ',', '{', '}', ' '])
        .filter_map(|part| part.parse::<u32>().ok());
    nodes.find(|&node| {
        module
            .node(node)
            .is_some_and(|text| text.contains("!DILocation("))
    })
}
