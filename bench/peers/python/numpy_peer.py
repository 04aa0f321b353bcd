"""NumPy, in idiomatic code."""

import numpy as np

import shared_ops

SQRT_2_OVER_PI = float(np.sqrt(2 / np.pi))


class Library:
    name = "NumPy"

    def version(self):
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{np.__version__} ({blas['name']} {blas['version']})"

    def prepare(self, case):
        np.seterr(all="ignore")
        if "bf16" in case.dtypes or case.to == "bf16":
            return None
        function = self.function(case)
        if function is None:
            return None
        arrays = case.arrays
        output = shared_ops.pointed_at(case.op, arrays, function(*arrays))
        return (lambda: function(*arrays)), output

    def function(self, case):
        if case.op in ("rope", "rope_interleaved"):
            return rope(case)
        return own(case).get(case.op) or shared_ops.parametric(np, case).get(case.op) or shared_ops.ops(np).get(case.op)


def own(case):
    axis, eps = case.axis(), case.number("eps")
    return {
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "cbrt": np.cbrt,
        "exp2": np.exp2,
        "trunc": np.trunc,
        "hypot": np.hypot,
        "logical_xor": np.logical_xor,
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "log_sigmoid": lambda x: -np.logaddexp(0, -x),
        "softplus": lambda x: np.logaddexp(0, x),
        "relu": lambda x: np.maximum(x, 0),
        "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
        "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
        "silu": silu,
        "gelu_tanh": gelu_tanh,
        "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
        "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
        "cast": lambda x: x.astype(TYPES[case.to]),
        "logsumexp": lambda x: logsumexp(x, axis),
        "cummax": lambda x: np.maximum.accumulate(x, axis=-1 if axis is None else axis),
        "topk": lambda x: topk(x, case.whole("k")),
        "softmax": softmax,
        "log_softmax": log_softmax,
        "rms_norm": lambda x, w: x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * w,
        "layer_norm": lambda x, w, b: layer_norm(x, w, b, eps),
        "group_norm": lambda x, w, b: group_norm(x, w, b, case.whole("groups"), eps),
        "batch_norm": lambda x, m, v, w, b: batch_norm(x, m, v, w, b, eps),
        "attention": lambda q, k, v: attention(q, k, v, case.whole("causal")),
        "swiglu": lambda gate, up: silu(gate) * up,
        "geglu": lambda gate, up: gelu_tanh(gate) * up,
        "cross_entropy": lambda x, t: -log_softmax(x)[np.arange(len(t)), t].mean(),
        "max_pool2d": lambda x: windows(x, case.whole("size")).max(axis=(3, 5)),
        "avg_pool2d": lambda x: windows(x, case.whole("size")).mean(axis=(3, 5)),
        "conv1d": lambda x, w: conv1d(x, w, case),
        "conv2d": lambda x, w: conv2d(x, w, case),
        "upsample_nearest": lambda x: x.repeat(2, axis=-2).repeat(2, axis=-1),
        "gather": lambda x, i: np.take_along_axis(x, i, axis=-1),
        "scatter": scatter,
        "scatter_add": scatter_add,
        "masked_select": lambda x, m: x[m],
        "slice_update": slice_update,
        "split": lambda x: [part.copy() for part in np.split(x, 4, axis=-1)][-1],
        "flip": lambda x: np.flip(x, axis=-1).copy(),
        "transpose_copy": lambda x: np.ascontiguousarray(x.T),
        "strided_copy": lambda x: np.ascontiguousarray(x[:, ::2]),
        "copy": np.copy,
    }


TYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "bool": np.bool_}


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)))


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def log_softmax(x):
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def logsumexp(x, axis):
    top = x.max(axis=axis, keepdims=True)
    total = np.log(np.exp(x - top).sum(axis=axis, keepdims=True)) + top
    return np.squeeze(total, axis=axis)


def topk(x, k):
    split = x.shape[-1] - k
    return -np.sort(-np.partition(x, split, axis=-1)[..., split:], axis=-1)


def layer_norm(x, w, b, eps):
    mean = x.mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axis=-1, keepdims=True) + eps) * w + b


def group_norm(x, w, b, groups, eps):
    g = x.reshape(x.shape[0], groups, -1)
    mean = g.mean(axis=-1, keepdims=True)
    g = (g - mean) / np.sqrt(g.var(axis=-1, keepdims=True) + eps)
    return g.reshape(x.shape) * w[:, None, None] + b[:, None, None]


def batch_norm(x, m, v, w, b, eps):
    scale = w / np.sqrt(v + eps)
    return x * scale[:, None, None] + (b - m * scale)[:, None, None]


def attention(q, k, v, causal):
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = k.repeat(group, axis=1), v.repeat(group, axis=1)
    scores = q @ k.swapaxes(-1, -2) * np.float32(q.shape[-1] ** -0.5)
    if causal and q.shape[2] > 1:
        scores = np.where(np.tri(q.shape[2], k.shape[2], dtype=bool), scores, np.float32(-np.inf))
    return softmax(scores) @ v


def rope(case):
    cos, sin = shared_ops.rope_tables(case)
    half = cos.shape[-1]

    def halves(x):
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def neighbours(x):
        a, b = x[..., ::2], x[..., 1::2]
        out = np.empty_like(x)
        out[..., ::2] = a * cos - b * sin
        out[..., 1::2] = b * cos + a * sin
        return out

    return halves if case.op == "rope" else neighbours


def windows(x, size):
    b, c, h, w = x.shape
    return x.reshape(b, c, h // size, size, w // size, size)


def conv1d(x, w, case):
    if case.whole("groups") > 1:
        raise NotImplementedError("groups")
    stride, padding, k = case.whole("stride"), case.whole("padding"), w.shape[-1]
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding)))
    patches = np.lib.stride_tricks.sliding_window_view(x, k, axis=-1)[:, :, ::stride]
    b, c, out, _ = patches.shape
    columns = patches.transpose(0, 1, 3, 2).reshape(b, c * k, out)
    return w.reshape(len(w), -1) @ columns


def conv2d(x, w, case):
    if case.whole("groups") > 1:
        raise NotImplementedError("groups")
    stride, padding, k = case.whole("stride"), case.whole("padding"), w.shape[-1]
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    patches = np.lib.stride_tricks.sliding_window_view(x, (k, k), axis=(-2, -1))
    patches = patches[:, :, ::stride, ::stride]
    b, c, h, width = patches.shape[:4]
    columns = patches.transpose(0, 1, 4, 5, 2, 3).reshape(b, c * k * k, h * width)
    return (w.reshape(len(w), -1) @ columns).reshape(b, len(w), h, width)


def scatter(x, index, source):
    out = x.copy()
    np.put_along_axis(out, index, source, axis=-1)
    return out


def scatter_add(x, index, source):
    out = x.copy()
    rows = np.arange(len(x))[:, None]
    np.add.at(out, (rows, index), source)
    return out


def slice_update(x, source):
    out = x.copy()
    out[:, 16 : 16 + source.shape[1]] = source
    return out
