"""Ops with the same API in NumPy, JAX and MLX. `xp` is the library's module."""

import numpy as np


def ops(xp):
    """Maps op names to functions of the operands."""
    names = {
        "neg": "negative",
        "abs": "abs",
        "sign": "sign",
        "square": "square",
        "sqrt": "sqrt",
        "reciprocal": "reciprocal",
        "exp": "exp",
        "expm1": "expm1",
        "log": "log",
        "log2": "log2",
        "log10": "log10",
        "log1p": "log1p",
        "sin": "sin",
        "cos": "cos",
        "tan": "tan",
        "asin": "arcsin",
        "acos": "arccos",
        "atan": "arctan",
        "sinh": "sinh",
        "cosh": "cosh",
        "tanh": "tanh",
        "asinh": "arcsinh",
        "acosh": "arccosh",
        "atanh": "arctanh",
        "ceil": "ceil",
        "floor": "floor",
        "round": "round",
        "is_nan": "isnan",
        "is_inf": "isinf",
        "is_finite": "isfinite",
        "logical_not": "logical_not",
        "bitwise_not": "bitwise_invert",
        "add": "add",
        "sub": "subtract",
        "mul": "multiply",
        "div": "divide",
        "floor_div": "floor_divide",
        "rem": "remainder",
        "pow": "power",
        "minimum": "minimum",
        "maximum": "maximum",
        "atan2": "arctan2",
        "eq": "equal",
        "ne": "not_equal",
        "lt": "less",
        "le": "less_equal",
        "gt": "greater",
        "ge": "greater_equal",
        "logical_and": "logical_and",
        "logical_or": "logical_or",
        "bitwise_and": "bitwise_and",
        "bitwise_or": "bitwise_or",
        "bitwise_xor": "bitwise_xor",
        "shift_left": "left_shift",
        "shift_right": "right_shift",
        "where": "where",
        "dot": "inner",
        "outer": "outer",
        "matmul": "matmul",
        "matmul_packed": "matmul",
        "matvec": "matmul",
        "tril": "tril",
        "triu": "triu",
    }
    found = {op: getattr(xp, name) for op, name in names.items() if hasattr(xp, name)}
    found.update(
        add_scalar=lambda x: x + 1,
        clamp=lambda x: xp.clip(x, -0.5, 0.5),
        mul_add=lambda a, b, c: a * b + c,
        lerp=lambda a, b, t: a + t * (b - a),
        matmul_transposed=lambda a, b: a @ b.T,
        mse=lambda a, b: xp.mean(xp.square(a - b)),
        concat=lambda a, b: xp.concatenate([a, b], axis=0),
        stack=lambda a, b: xp.stack([a, b], axis=0),
        repeat=lambda x: xp.repeat(x, 2, axis=0),
        tile=lambda x: xp.tile(x, (2, 2)),
        pad=lambda x: xp.pad(x, ((1, 1), (1, 1))),
        roll=lambda x: xp.roll(x, 7, axis=1),
        take=lambda x, i: xp.take(x, i, axis=0),
        embedding=lambda table, ids: table[ids],
        chain=lambda x, y: xp.sqrt(xp.abs((x * y + x) * 0.5 - y) + 1) * x,
        chain_exp=lambda x, y: xp.reciprocal(1 + xp.exp(-(x * y + x))) * x + y,
    )
    return found


def parametric(xp, case):
    """Ops that take the case's axis or parameters."""
    axis = case.axis()
    found = {
        op: (lambda function: lambda x: function(x, axis=axis))(getattr(xp, op))
        for op in ("sum", "mean", "prod", "min", "max", "any", "all", "var", "std")
    }
    found.update(
        argmin=lambda x: xp.argmin(x, axis=axis),
        argmax=lambda x: xp.argmax(x, axis=axis),
        cumsum=lambda x: xp.cumsum(x, axis=axis),
        cumprod=lambda x: xp.cumprod(x, axis=axis),
        norm=lambda x: xp.linalg.norm(x, axis=axis),
        sort=lambda x: xp.sort(x, axis=-1),
        argsort=lambda x: xp.argsort(x, axis=-1),
        gemm=lambda a, b, c: case.number("alpha") * (a @ b) + case.number("beta") * c,
        einsum=lambda *operands: xp.einsum(case.equation, *operands),
    )
    return found


def rope_tables(case):
    """Cosines and sines of the RoPE angles, as f32."""
    positions, width = case.arrays[0].shape[-2:]
    frequency = case.number("base") ** (-np.arange(0, width, 2) / width)
    angle = (np.arange(positions) + case.number("offset"))[:, None] * frequency
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def pointed_at(op, arrays, output):
    """The values to compare: for argsort the selected elements, since the order of ties is unspecified."""
    if op == "argsort":
        return np.take_along_axis(arrays[0], np.asarray(output), axis=-1)
    return output
