"""JAX on the CPU, with every function jit-compiled."""

import os

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import jax.scipy.special
import jaxlib
import numpy as np

import shared_ops

jax.config.update("jax_enable_x64", True)

TYPES = {
    "f16": jnp.float16,
    "bf16": jnp.bfloat16,
    "f32": jnp.float32,
    "f64": jnp.float64,
    "i32": jnp.int32,
    "i64": jnp.int64,
    "u8": jnp.uint8,
    "bool": jnp.bool_,
}


class Library:
    name = "JAX"

    def version(self):
        return f"{jax.__version__} (jaxlib {jaxlib.__version__}, CPU)"

    def prepare(self, case):
        function = own(case).get(case.op) or shared_ops.parametric(jnp, case).get(case.op) or shared_ops.ops(jnp).get(case.op)
        if case.op in ("rope", "rope_interleaved"):
            function = rope(case)
        if function is None:
            return None
        arrays = [jnp.asarray(a).astype(TYPES[d]) for a, d in zip(case.arrays, case.dtypes)]
        # The shape of a masked selection depends on the data, which jit does not support.
        compiled = function if case.op == "masked_select" else jax.jit(function)
        first = jax.block_until_ready(compiled(*arrays))
        if isinstance(first, (list, tuple)):
            first = first[0]
        if case.op == "argsort":
            first = shared_ops.pointed_at(case.op, case.arrays, first)
        return (lambda: jax.block_until_ready(compiled(*arrays))), np.asarray(first).astype(np.float64)


def own(case):
    axis, eps, nn = case.axis(), case.number("eps"), jax.nn
    return {
        "rsqrt": jax.lax.rsqrt,
        "cbrt": jnp.cbrt,
        "exp2": jnp.exp2,
        "trunc": jnp.trunc,
        "hypot": jnp.hypot,
        "logical_xor": jnp.logical_xor,
        "erf": jax.lax.erf,
        "sigmoid": nn.sigmoid,
        "logit": jax.scipy.special.logit,
        "log_sigmoid": nn.log_sigmoid,
        "softplus": nn.softplus,
        "relu": nn.relu,
        "leaky_relu": nn.leaky_relu,
        "elu": nn.elu,
        "silu": nn.silu,
        "gelu": lambda x: nn.gelu(x, approximate=False),
        "gelu_tanh": lambda x: nn.gelu(x, approximate=True),
        "hardswish": nn.hard_swish,
        "mish": nn.mish,
        "cast": lambda x: x.astype(TYPES[case.to]),
        "logsumexp": lambda x: nn.logsumexp(x, axis=axis),
        "cummax": lambda x: jax.lax.cummax(x, axis=x.ndim - 1),
        "topk": lambda x: jax.lax.top_k(x, case.whole("k"))[0],
        "softmax": lambda x: nn.softmax(x, axis=-1),
        "log_softmax": lambda x: nn.log_softmax(x, axis=-1),
        "rms_norm": lambda x, w: x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps) * w,
        "layer_norm": lambda x, w, b: nn.standardize(x, axis=-1, epsilon=eps) * w + b,
        "group_norm": lambda x, w, b: group_norm(x, w, b, case.whole("groups"), eps),
        "batch_norm": lambda x, m, v, w, b: batch_norm(x, m, v, w, b, eps),
        "attention": lambda q, k, v: attention(q, k, v, case.whole("causal")),
        "swiglu": lambda gate, up: nn.silu(gate) * up,
        "geglu": lambda gate, up: nn.gelu(gate, approximate=True) * up,
        "cross_entropy": lambda x, t: -jnp.take_along_axis(nn.log_softmax(x, axis=-1), t[:, None], axis=-1).mean(),
        "max_pool2d": lambda x: pool(x, case.whole("size"), -jnp.inf, jax.lax.max),
        "avg_pool2d": lambda x: pool(x, case.whole("size"), 0.0, jax.lax.add) / case.whole("size") ** 2,
        "conv1d": lambda x, w: conv(x, w, case, 1),
        "conv2d": lambda x, w: conv(x, w, case, 2),
        "upsample_nearest": lambda x: x.repeat(2, axis=-2).repeat(2, axis=-1),
        "gather": lambda x, i: jnp.take_along_axis(x, i, axis=-1),
        "scatter": lambda x, i, s: x.at[jnp.arange(len(x))[:, None], i].set(s),
        "scatter_add": lambda x, i, s: x.at[jnp.arange(len(x))[:, None], i].add(s),
        "masked_select": lambda x, m: x[m],
        "slice_update": lambda x, s: x.at[:, 16 : 16 + s.shape[1]].set(s),
        "split": lambda x: jnp.split(x, 4, axis=-1)[::-1],
        "flip": lambda x: jnp.flip(x, axis=-1),
        "transpose_copy": lambda x: x.T,
        "strided_copy": lambda x: x[:, ::2],
        "copy": jnp.copy,
    }


def group_norm(x, w, b, groups, eps):
    g = jax.nn.standardize(x.reshape(x.shape[0], groups, -1), axis=-1, epsilon=eps)
    return g.reshape(x.shape) * w[:, None, None] + b[:, None, None]


def batch_norm(x, m, v, w, b, eps):
    scale = w * jax.lax.rsqrt(v + eps)
    return x * scale[:, None, None] + (b - m * scale)[:, None, None]


def attention(q, k, v, causal):
    turn = lambda x: x.transpose(0, 2, 1, 3)
    out = jax.nn.dot_product_attention(turn(q), turn(k), turn(v), is_causal=bool(causal) and q.shape[2] > 1)
    return turn(out)


def rope(case):
    cos, sin = map(jnp.asarray, shared_ops.rope_tables(case))
    half = cos.shape[-1]

    def halves(x):
        a, b = x[..., :half], x[..., half:]
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def neighbours(x):
        a, b = x[..., ::2], x[..., 1::2]
        return jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(x.shape)

    return halves if case.op == "rope" else neighbours


def pool(x, size, start, combine):
    window = (1, 1, size, size)
    return jax.lax.reduce_window(x, np.float32(start), combine, window, window, "VALID")


def conv(x, w, case, rank):
    return jax.lax.conv_general_dilated(
        x,
        w,
        window_strides=(case.whole("stride"),) * rank,
        padding=[(case.whole("padding"),) * 2] * rank,
        feature_group_count=max(1, case.whole("groups")),
    )
