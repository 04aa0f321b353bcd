//! Calls with several constraints between arguments, which they usually satisfy, so that the code after the shape
//! checks is tested too.

use bessemer::{AttentionOptions, ConvOptions, PoolOptions, Tensor};

use super::Args;

/// A tensor, one of its axes, if it has one, and the length of that axis.
fn axis_of(a: &mut Args<'_>) -> (Tensor, isize, usize) {
    let (x, axis) = (a.tensor(), a.axis());
    let position = if axis < 0 {
        axis.checked_add(x.rank() as isize)
    } else {
        Some(axis)
    };
    let len = position.and_then(|p| x.shape().get(usize::try_from(p).ok()?).copied());
    (x, axis, len.unwrap_or(1))
}

/// The shape of a tensor with another length along an axis.
fn with_length(x: &Tensor, axis: isize, len: usize) -> Vec<usize> {
    let mut shape = x.shape().to_vec();
    let rank = shape.len() as isize;
    let position = if axis < 0 {
        axis.saturating_add(rank)
    } else {
        axis
    };
    if let Some(n) = usize::try_from(position)
        .ok()
        .and_then(|p| shape.get_mut(p))
    {
        *n = len;
    }
    shape
}

pub(super) fn index_along(
    f: impl Fn(&Tensor, isize, &Tensor) -> Tensor,
    a: &mut Args<'_>,
) -> Vec<Tensor> {
    let (x, axis, len) = axis_of(a);
    let count = a.small_usize().min(20);
    let indices = a.indices(&with_length(&x, axis, count), len);
    vec![f(&x, axis, &indices)]
}

pub(super) fn take_at(
    f: impl Fn(&Tensor, isize, &Tensor) -> Tensor,
    a: &mut Args<'_>,
) -> Vec<Tensor> {
    let (x, axis, len) = axis_of(a);
    let shape: Vec<_> = (0..a.small_usize() % 3)
        .map(|_| a.small_usize().min(20))
        .collect();
    let indices = a.indices(&shape, len);
    vec![f(&x, axis, &indices)]
}

pub(super) fn scatter(
    f: impl Fn(&Tensor, isize, &Tensor, &Tensor) -> Tensor,
    a: &mut Args<'_>,
) -> Vec<Tensor> {
    let (x, axis, len) = axis_of(a);
    let count = a.small_usize().min(20);
    let shape = with_length(&x, axis, count);
    let indices = a.indices(&shape, len);
    let source = if a.near(1) == 1 {
        a.new_tensor(&shape)
    } else {
        a.tensor()
    };
    vec![f(&x, axis, &indices, &source)]
}

pub(super) fn slice_update(a: &mut Args<'_>) -> Vec<Tensor> {
    let x = a.tensor();
    let lengths = x.shape().to_vec();
    let block: Vec<_> = lengths.iter().map(|&n| a.near(n).min(n)).collect();
    let starts: Vec<_> = lengths
        .iter()
        .zip(&block)
        .map(|(n, b)| a.near(n - b))
        .collect();
    let source = if a.near(1) == 1 {
        a.new_tensor(&block)
    } else {
        a.tensor()
    };
    vec![x.slice_update(&source, &starts)]
}

/// A weight for these channels, options, and possibly a bias.
fn kernel<const N: usize>(
    a: &mut Args<'_>,
    channels: usize,
) -> (Tensor, Option<Tensor>, ConvOptions<N>) {
    let groups = a.small_usize();
    let inner = a.near(channels / groups.max(1)).min(20);
    let outputs = a.near(groups.saturating_mul(2)).min(20);
    let mut shape = vec![outputs, inner];
    shape.extend((0..N).map(|_| a.small_usize().min(5)));
    let weight = a.new_tensor(&shape);
    let bias = a.boolean().then(|| a.new_tensor(&[outputs]));
    let options = ConvOptions {
        stride: std::array::from_fn(|_| a.small_usize()),
        padding: std::array::from_fn(|_| a.small_usize()),
        dilation: std::array::from_fn(|_| a.small_usize()),
        groups,
    };
    (weight, bias, options)
}

pub(super) fn conv1d(a: &mut Args<'_>) -> Vec<Tensor> {
    let x = a.of_rank(3, 3);
    let channels = x.shape().get(1).copied().unwrap_or(1);
    let (weight, bias, options) = kernel::<1>(a, channels);
    vec![x.conv1d(&weight, bias.as_ref(), &options)]
}

pub(super) fn conv2d(a: &mut Args<'_>) -> Vec<Tensor> {
    let x = a.of_rank(4, 4);
    let channels = x.shape().get(1).copied().unwrap_or(1);
    let (weight, bias, options) = kernel::<2>(a, channels);
    vec![x.conv2d(&weight, bias.as_ref(), &options)]
}

pub(super) fn pool(
    f: impl Fn(&Tensor, &PoolOptions<1>, &PoolOptions<2>) -> Tensor,
    a: &mut Args<'_>,
) -> Vec<Tensor> {
    let two = PoolOptions {
        kernel: [a.small_usize(), a.small_usize()],
        stride: [a.small_usize(), a.small_usize()],
        padding: [a.small_usize() / 2, a.small_usize() / 2],
        count_padding: a.boolean(),
    };
    let one = PoolOptions {
        kernel: [two.kernel[0]],
        stride: [two.stride[0]],
        padding: [two.padding[0]],
        count_padding: two.count_padding,
    };
    vec![f(&a.of_rank(2, 8), &one, &two)]
}

/// Attention with shapes that usually match, and any options.
pub(super) fn shaped_attention(a: &mut Args<'_>) -> Vec<Tensor> {
    let (batch, kv_heads) = (a.small_usize().min(3), a.small_usize().min(4));
    let heads = a.near(kv_heads * 2).min(8);
    let (queries, keys) = (a.small_usize().min(40), a.small_usize().min(70));
    let (dim, value_dim) = (a.near(8).min(64), a.near(5).min(64));
    let q = a.new_tensor(&[batch, heads, queries, dim]);
    let k = a.new_tensor(&[batch, kv_heads, keys, dim]);
    let v = a.new_tensor(&[batch, kv_heads, keys, value_dim]);
    let one = a.near(1).min(3);
    let mask = a
        .boolean()
        .then(|| a.new_tensor(&[one, heads, queries, keys]));
    let mask = match (mask, a.boolean()) {
        (Some(mask), true) => Some(mask.gt(0)),
        (mask, _) => mask,
    };
    let options = AttentionOptions {
        scale: a.boolean().then(|| a.float()),
        causal: a.boolean(),
        mask: mask.as_ref(),
        window: a.boolean().then(|| a.small_usize()),
        soft_cap: a.boolean().then(|| a.float()),
    };
    vec![q.attention(&k, &v, &options)]
}
