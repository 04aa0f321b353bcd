//! `argsort` on the CPU: keys with indices, sorted by the keys.

use super::axis_split::AxisSplit;
use super::radix::{self, Long, Short};
use super::sort::rows;
use super::sort_key::Key;
use super::try_vec;
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::Rule;
use crate::ops::arg_sort::ArgSort;
use crate::{Error, Result};

/// Indices are kept in 32 bits.
pub(super) fn expect_short(op: &'static str, len: usize) -> Result<()> {
    match u32::try_from(len) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::Invalid {
            op,
            reason: format!("an axis of {len} elements is longer than {}", u32::MAX),
        }),
    }
}

/// Writes the order along the axis.
pub(crate) fn run(op: &ArgSort, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let around = AxisSplit::new(inputs[0].layout.shape(), op.axis);
    expect_short(op.name(), around.len)?;
    let data = Dense::new(op.name(), inputs[0])?;
    with_type!(inputs[0].dtype, T => {
        rows::<T, i64>(op.name(), data.all(), around, around.len, output.all(), order)
    })
}

fn order<T: Key>(row: &[T], out: &mut [i64]) -> Result<()> {
    let keys = row.iter().map(|x| x.key().into()).enumerate();
    if size_of::<T>() == 8 {
        let mut items = try_vec::empty("argsort", row.len())?;
        items.extend(keys.map(|(i, key): (usize, u64)| Long(key, i as u32)));
        let mut spare = try_vec::filled("argsort", items.len(), Long(0, 0))?;
        for (to, item) in out
            .iter_mut()
            .zip(&*radix::sort("argsort", &mut items, &mut spare)?)
        {
            *to = i64::from(item.1);
        }
        return Ok(());
    }
    let mut items = try_vec::empty("argsort", row.len())?;
    items.extend(keys.map(|(i, key): (usize, u64)| Short(key << 32 | i as u64)));
    let mut spare = try_vec::filled("argsort", items.len(), Short(0))?;
    for (to, item) in out
        .iter_mut()
        .zip(&*radix::sort("argsort", &mut items, &mut spare)?)
    {
        *to = i64::from(item.0 as u32);
    }
    Ok(())
}
