//! `argsort` on the CPU: a radix sort of pairs of key and index.

use super::axis_split::AxisSplit;
use super::radix::{self, Key64Index, KeyIndex};
use super::sort::for_each_row;
use super::sort_key::SortKey;
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::Rule;
use crate::ops::arg_sort::ArgSort;
use crate::{Error, Result, try_vec};

/// Checks that the indices of an axis fit in 32 bits.
pub(super) fn expect_u32_len(op: &'static str, len: usize) -> Result<()> {
    match u32::try_from(len) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::Invalid {
            op,
            reason: format!("an axis of {len} elements is longer than {}", u32::MAX),
        }),
    }
}

/// Writes the indices that sort along the axis.
pub(crate) fn run(op: &ArgSort, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let split = AxisSplit::new(inputs[0].layout.shape(), op.axis);
    expect_u32_len(op.name(), split.len)?;
    let data = Dense::new(op.name(), inputs[0])?;
    with_type!(inputs[0].dtype, T => {
        for_each_row::<T, i64>(op.name(), data.all(), split, split.len, output.all(), order)
    })
}

fn order<T: SortKey>(row: &[T], out: &mut [i64]) -> Result<()> {
    let keys = row.iter().map(|x| x.key().into()).enumerate();
    if size_of::<T>() == 8 {
        let mut items = try_vec::empty("argsort", row.len())?;
        items.extend(keys.map(|(i, key): (usize, u64)| Key64Index(key, i as u32)));
        let mut spare = try_vec::filled("argsort", items.len(), Key64Index(0, 0))?;
        for (to, item) in out
            .iter_mut()
            .zip(&*radix::sort("argsort", &mut items, &mut spare)?)
        {
            *to = i64::from(item.1);
        }
        return Ok(());
    }
    let mut items = try_vec::empty("argsort", row.len())?;
    items.extend(keys.map(|(i, key): (usize, u64)| KeyIndex(key << 32 | i as u64)));
    let mut spare = try_vec::filled("argsort", items.len(), KeyIndex(0))?;
    for (to, item) in out
        .iter_mut()
        .zip(&*radix::sort("argsort", &mut items, &mut spare)?)
    {
        *to = i64::from(item.0 as u32);
    }
    Ok(())
}
