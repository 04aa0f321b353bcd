"""A worker of the benchmark for a Python library: numpy, jax, mlx or llama, by argument.

Reads one JSON request a line, answers with one JSON line; see ../protocol/src/lib.rs. Time is
measured here, around the calls alone.
"""

import importlib
import json
import os
import sys
import time

import numpy as np

# numpy.random differs from Rust's generators; this formula is the same.
CHECK = [9620015, 9871609, 9364823]
COMPARED_ELEMENTS = 251


def bits(index, seed):
    """24 random bits of index and seed (the finaliser of MurmurHash3)."""
    h = index + np.uint32((seed + 1) * 0x9E3779B9 & 0xFFFFFFFF)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (h ^ (h >> np.uint32(16))) >> np.uint32(8)


def make(spec, seed):
    """An input as a NumPy array; bf16 as f32, which the library rounds."""
    count = int(np.prod(spec["shape"], dtype=np.int64))
    (kind, fill), dtype = next(iter(spec["fill"].items())), spec["dtype"]
    if kind == "stride":
        values = np.arange(count, dtype=np.uint64) * 7919 % fill["modulus"]
    else:
        share = bits(np.arange(count, dtype=np.uint32), seed) / 2.0**24
        values = fill["low"] + (fill["high"] - fill["low"]) * share
        if dtype == "bool":
            values = values >= 0.5
        elif dtype[0] in "iu":
            values = np.floor(values)
    if dtype in ("f16", "bf16"):
        values = values.astype(np.float32)
    return values.astype(NUMPY_TYPES[dtype]).reshape(spec["shape"])


NUMPY_TYPES = {
    "f16": np.float16,
    "bf16": np.float32,
    "f32": np.float32,
    "f64": np.float64,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
    "bool": np.bool_,
}


def summary(values):
    """A summary of the result."""
    values = np.asarray(values, dtype=np.float64).reshape(-1)
    samples = min(values.size, COMPARED_ELEMENTS)
    positions = [i * values.size // samples for i in range(samples)]
    finite = values[np.isfinite(values)]
    return {
        "count": int(values.size),
        "mean": float(finite.mean()) if finite.size else 0.0,
        "sample": [float(v) if np.isfinite(v) else None for v in values[positions]],
    }


class Case:
    """A case: inputs and parameters."""

    def __init__(self, spec):
        self.op = spec["op"]
        self.dtypes = [i["dtype"] for i in spec["inputs"]]
        self.numbers = spec.get("numbers") or {}
        self.to = spec.get("to")
        self.equation = spec.get("equation")
        self.model = spec.get("model")
        self.arrays = [make(i, seed) for seed, i in enumerate(spec["inputs"])]

    def number(self, name):
        return self.numbers.get(name, 0.0)

    def whole(self, name):
        return int(self.number(name))

    def axis(self):
        return int(self.numbers["axis"]) if "axis" in self.numbers else None


def main():
    library = importlib.import_module(sys.argv[1] + "_peer").Library()
    work = wake = None
    probe = [bits(np.uint32([i]), s)[0] for i, s in ((0, 0), (1, 0), (12345, 3))]
    assert probe == CHECK, probe
    # Libraries may print; the protocol owns the true standard output.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        kind, value = next(iter(request.items())) if isinstance(request, dict) else (request, None)
        try:
            if kind == "info":
                reply = {
                    "info": {
                        "name": library.name,
                        "version": library.version(),
                        "threads": int(os.environ.get("BENCH_THREADS", os.cpu_count())),
                    }
                }
            elif kind == "prepare":
                work = wake = None
                case = Case(value)
                prepared = library.prepare(case)
                if prepared is None:
                    reply = {"unsupported": f"no {case.op}"}
                else:
                    # Long work comes with shorter work that wakes the threads.
                    work, output, wake = (*prepared, prepared[0])[:3]
                    reply = {"ready": summary(output)}
                del case, prepared
            elif kind == "run":
                calls = range(value)
                # The threads of a library sleep between its turns; in a real program they would be awake.
                wake()
                start = time.perf_counter_ns()
                for _ in calls:
                    work()
                reply = {"nanoseconds": time.perf_counter_ns() - start}
            elif kind == "drop":
                work = wake = output = None
                reply = "dropped"
            else:
                reply = {"error": f"not a request: {kind}"}
        except Exception as error:  # a library that fails, fails this case, not the run
            reply = {"error": f"{type(error).__name__}: {error}"[:300]}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
