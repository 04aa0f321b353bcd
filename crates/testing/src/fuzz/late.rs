//! Calls whose arguments must fit each other in more than one way: mostly they do, so that what lies behind
//! the checks of shapes is called too.

use bessemer::{AttentionOptions, ConvOptions, PoolOptions, Tensor};

use super::Args;

/// A tensor, one of its axes and the length of that, if it has one.
fn axis_of(a: &mut Args<'_>) -> (Tensor, isize, usize) {
    let (x, axis) = (a.tensor(), a.axis());
    let place = if axis < 0 {
        axis.checked_add(x.rank() as isize)
    } else {
        Some(axis)
    };
    let len = place.and_then(|p| x.shape().get(usize::try_from(p).ok()?).copied());
    (x, axis, len.unwrap_or(1))
}

/// The shape of a tensor with another length along an axis.
fn with_length(x: &Tensor, axis: isize, len: usize) -> Vec<usize> {
    let mut shape = x.shape().to_vec();
    let rank = shape.len() as isize;
    let place = if axis < 0 {
        axis.saturating_add(rank)
    } else {
        axis
    };
    if let Some(n) = usize::try_from(place).ok().and_then(|p| shape.get_mut(p)) {
        *n = len;
    }
    shape
}

pub(super) fn index_along(
    f: impl Fn(&Tensor, isize, &Tensor) -> Tensor,
    a: &mut Args<'_>,
) -> Vec<Tensor> {
    let (x, axis, len) = axis_of(a);
    let count = a.few().min(20);
    let indices = a.indices(&with_length(&x, axis, count), len);
    vec![f(&x, axis, &indices)]
}

pub(super) fn take_at(
    f: impl Fn(&Tensor, isize, &Tensor) -> Tensor,
    a: &mut Args<'_>,
) -> Vec<Tensor> {
    let (x, axis, len) = axis_of(a);
    let shape: Vec<_> = (0..a.few() % 3).map(|_| a.few().min(20)).collect();
    let indices = a.indices(&shape, len);
    vec![f(&x, axis, &indices)]
}

pub(super) fn scatter(
    f: impl Fn(&Tensor, isize, &Tensor, &Tensor) -> Tensor,
    a: &mut Args<'_>,
) -> Vec<Tensor> {
    let (x, axis, len) = axis_of(a);
    let count = a.few().min(20);
    let shape = with_length(&x, axis, count);
    let indices = a.indices(&shape, len);
    let source = if a.around(1) == 1 {
        a.made(&shape)
    } else {
        a.tensor()
    };
    vec![f(&x, axis, &indices, &source)]
}

pub(super) fn slice_update(a: &mut Args<'_>) -> Vec<Tensor> {
    let x = a.tensor();
    let lengths = x.shape().to_vec();
    let block: Vec<_> = lengths.iter().map(|&n| a.around(n).min(n)).collect();
    let starts: Vec<_> = lengths
        .iter()
        .zip(&block)
        .map(|(n, b)| a.around(n - b))
        .collect();
    let source = if a.around(1) == 1 {
        a.made(&block)
    } else {
        a.tensor()
    };
    vec![x.slice_update(&source, &starts)]
}

/// A weight for these channels, how the window moves, and perhaps a bias.
fn kernel<const N: usize>(
    a: &mut Args<'_>,
    channels: usize,
) -> (Tensor, Option<Tensor>, ConvOptions<N>) {
    let groups = a.few();
    let inner = a.around(channels / groups.max(1)).min(20);
    let outputs = a.around(groups.saturating_mul(2)).min(20);
    let mut shape = vec![outputs, inner];
    shape.extend((0..N).map(|_| a.few().min(5)));
    let weight = a.made(&shape);
    let bias = a.truth().then(|| a.made(&[outputs]));
    let options = ConvOptions {
        stride: std::array::from_fn(|_| a.few()),
        padding: std::array::from_fn(|_| a.few()),
        dilation: std::array::from_fn(|_| a.few()),
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
        kernel: [a.few(), a.few()],
        stride: [a.few(), a.few()],
        padding: [a.few() / 2, a.few() / 2],
        count_padding: a.truth(),
    };
    let one = PoolOptions {
        kernel: [two.kernel[0]],
        stride: [two.stride[0]],
        padding: [two.padding[0]],
        count_padding: two.count_padding,
    };
    vec![f(&a.of_rank(2, 8), &one, &two)]
}

/// Attention whose shapes mostly fit, with any options.
pub(super) fn shaped_attention(a: &mut Args<'_>) -> Vec<Tensor> {
    let (batch, kv_heads) = (a.few().min(3), a.few().min(4));
    let heads = a.around(kv_heads * 2).min(8);
    let (queries, keys) = (a.few().min(40), a.few().min(70));
    let (dim, value_dim) = (a.around(8).min(64), a.around(5).min(64));
    let q = a.made(&[batch, heads, queries, dim]);
    let k = a.made(&[batch, kv_heads, keys, dim]);
    let v = a.made(&[batch, kv_heads, keys, value_dim]);
    let one = a.around(1).min(3);
    let mask = a.truth().then(|| a.made(&[one, heads, queries, keys]));
    let mask = match (mask, a.truth()) {
        (Some(mask), true) => Some(mask.gt(0)),
        (mask, _) => mask,
    };
    let options = AttentionOptions {
        scale: a.truth().then(|| a.float()),
        causal: a.truth(),
        mask: mask.as_ref(),
        window: a.truth().then(|| a.few()),
        soft_cap: a.truth().then(|| a.float()),
    };
    vec![q.attention(&k, &v, &options)]
}
