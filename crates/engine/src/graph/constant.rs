//! The part of a traced function that does not depend on its arguments.

use std::collections::HashMap;
use std::sync::Arc;

use crate::Tensor;
use crate::ops::Op;
use crate::tensor::Node;

/// The pending tensors that these depend on, but that depend on no argument of a trace themselves; of a chain of them,
/// only the last one.
pub(crate) fn constants(roots: &[&Tensor]) -> Vec<Tensor> {
    // Whether each node depends on an argument. Without recursion: graphs can be deep.
    let mut depends: HashMap<*const Node, bool> = HashMap::new();
    let mut constants: Vec<Tensor> = Vec::new();
    let mut open: Vec<(Arc<Node>, bool)> = Vec::new();
    open.extend(roots.iter().map(|root| (Arc::clone(&root.node), false)));
    while let Some((node, are_inputs_known)) = open.pop() {
        let key = Arc::as_ptr(&node);
        if depends.contains_key(&key) {
            continue;
        }
        let Some(work) = node.work().clone() else {
            depends.insert(key, false);
            continue;
        };
        let inputs = || work.inputs.iter().filter(|t| !work.has(t));
        if are_inputs_known {
            let of = |t: &Tensor| depends.get(&Arc::as_ptr(&t.node)).copied().unwrap_or(false);
            let is_dependent = inputs().any(of) || matches!(work.op, Op::Argument(_));
            if is_dependent {
                constants.extend(
                    inputs()
                        .filter(|t| !of(t))
                        .map(|t| Tensor::of_node(&t.node)),
                );
            }
            depends.insert(key, is_dependent);
        } else {
            let inputs: Vec<_> = inputs().map(|t| (Arc::clone(&t.node), false)).collect();
            open.push((node, true));
            open.extend(inputs);
        }
    }
    let is_constant = |root: &&&Tensor| depends.get(&Arc::as_ptr(&root.node)) == Some(&false);
    let roots = roots.iter().filter(is_constant);
    constants.extend(roots.map(|root| Tensor::of_node(&root.node)));
    constants
}
