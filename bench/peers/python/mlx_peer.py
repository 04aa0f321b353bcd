"""MLX on the CPU."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np

import shared_ops

mx.set_default_device(mx.cpu)

TYPES = {
    "f16": mx.float16,
    "bf16": mx.bfloat16,
    "f32": mx.float32,
    "f64": mx.float64,
    "i32": mx.int32,
    "i64": mx.int64,
    "u8": mx.uint8,
    "bool": mx.bool_,
}


class Library:
    name = "MLX"

    def version(self):
        return f"{mx.__version__} (CPU)"

    def prepare(self, case):
        function = own(case).get(case.op) or shared_ops.parametric(mx, case).get(case.op) or shared_ops.ops(mx).get(case.op)
        if function is None:
            return None
        arrays = [mx.array(a).astype(TYPES[d]) for a, d in zip(case.arrays, case.dtypes)]
        mx.eval(arrays)
        if case.op in ("chain", "chain_exp"):
            function = mx.compile(function)
        first = function(*arrays)
        mx.eval(first)
        if isinstance(first, (list, tuple)):
            first = first[0]
        floats = first.dtype in (mx.float16, mx.bfloat16)
        first = np.array(first.astype(mx.float32) if floats else first)
        first = shared_ops.pointed_at(case.op, case.arrays, first)
        return (lambda: mx.eval(function(*arrays))), first


def own(case):
    axis, eps, fast = case.axis(), case.number("eps"), mx.fast
    return {
        "rsqrt": mx.rsqrt,
        "erf": mx.erf,
        "sigmoid": mx.sigmoid,
        "log_sigmoid": nn.log_sigmoid,
        "softplus": nn.softplus,
        "relu": nn.relu,
        "leaky_relu": nn.leaky_relu,
        "elu": nn.elu,
        "silu": nn.silu,
        "gelu": nn.gelu,
        "gelu_tanh": nn.gelu_approx,
        "hardswish": nn.hardswish,
        "mish": nn.mish,
        "cast": lambda x: x.astype(TYPES[case.to]),
        "logsumexp": lambda x: mx.logsumexp(x, axis=axis),
        "cummax": lambda x: mx.cummax(x, axis=-1),
        "topk": lambda x: topk(x, case.whole("k")),
        "softmax": lambda x: mx.softmax(x, axis=-1),
        "log_softmax": lambda x: nn.log_softmax(x, axis=-1),
        "rms_norm": lambda x, w: fast.rms_norm(x, w, eps),
        "layer_norm": lambda x, w, b: fast.layer_norm(x, w, b, eps),
        "rope": lambda x: rope(x, case, False),
        "rope_interleaved": lambda x: rope(x, case, True),
        "attention": lambda q, k, v: attention(q, k, v, case.whole("causal")),
        "swiglu": lambda gate, up: nn.silu(gate) * up,
        "geglu": lambda gate, up: nn.gelu_approx(gate) * up,
        "cross_entropy": lambda x, t: nn.losses.cross_entropy(x, t, reduction="mean"),
        "gemm": lambda a, b, c: mx.addmm(c, a, b, alpha=case.number("alpha"), beta=case.number("beta")),
        "upsample_nearest": lambda x: mx.repeat(mx.repeat(x, 2, axis=-2), 2, axis=-1),
        "gather": lambda x, i: mx.take_along_axis(x, i, axis=-1),
        "scatter": lambda x, i, s: mx.put_along_axis(x, i, s, axis=-1),
        "scatter_add": scatter_add,
        "slice_update": slice_update,
        "split": lambda x: [mx.contiguous(part) for part in mx.split(x, 4, axis=-1)][::-1],
        "flip": lambda x: mx.contiguous(x[:, ::-1]),
        "transpose_copy": lambda x: mx.contiguous(x.T),
        "strided_copy": lambda x: mx.contiguous(x[:, ::2]),
    }


def topk(x, k):
    top = mx.topk(x, k, axis=-1)
    return -mx.sort(-top, axis=-1)


def rope(x, case, traditional):
    return mx.fast.rope(
        x, x.shape[-1], traditional=traditional, base=case.number("base"), scale=1.0, offset=case.whole("offset")
    )


def attention(q, k, v, causal):
    mask = "causal" if causal and q.shape[2] > 1 else None
    return mx.fast.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.5, mask=mask)


def scatter_add(x, index, source):
    rows = mx.arange(x.shape[0])[:, None]
    return x.at[rows, index].add(source)


def slice_update(x, source):
    return mx.slice_update(x, source, mx.array([16]), axes=[1])
