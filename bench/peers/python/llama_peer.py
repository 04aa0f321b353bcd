"""llama.cpp through its C interface, from whichever Python package brings it.

`llama-cpp-python` is built on the machine for its processor and comes first, `xllamacpp` is a wheel. Both hold the same
functions, so neither's own interface is between the clock and the library. Structures that are passed by
value differ between versions at their ends only: they are taken with room to spare, and what is set in
their stable beginnings is read back through functions.
"""

import ctypes as c
import glob
import importlib.metadata
import importlib.util
import os

import numpy as np

PACKAGES = (("llama_cpp", "llama-cpp-python", "lib/libllama.*"), ("xllamacpp", "xllamacpp", "xllamacpp*.so"))


class Parameters(c.Structure):
    _fields_ = [("start", c.c_uint32 * 3), ("rest", c.c_uint8 * 1012)]


class Batch(c.Structure):
    _fields_ = [("count", c.c_int32), ("pointers", c.c_void_p * 6)]


def find():
    """The package that is installed and its library."""
    for module, package, pattern in PACKAGES:
        spec = importlib.util.find_spec(module)
        for folder in (spec and spec.submodule_search_locations) or []:
            for path in sorted(glob.glob(os.path.join(folder, pattern))):
                return package, path
    raise ImportError("neither llama-cpp-python nor xllamacpp is installed")


def functions(path):
    library = c.CDLL(path)
    pointer = c.c_void_p
    for name, result, arguments in (
        ("llama_print_system_info", c.c_char_p, []),
        ("llama_log_set", None, [pointer, pointer]),
        ("llama_backend_init", None, []),
        ("llama_model_default_params", Parameters, []),
        ("llama_context_default_params", Parameters, []),
        ("llama_model_load_from_file", pointer, [c.c_char_p, Parameters]),
        ("llama_init_from_model", pointer, [pointer, Parameters]),
        ("llama_set_n_threads", None, [pointer, c.c_int32, c.c_int32]),
        ("llama_n_ctx", c.c_uint32, [pointer]),
        ("llama_n_batch", c.c_uint32, [pointer]),
        ("llama_n_threads", c.c_int32, [pointer]),
        ("llama_model_get_vocab", pointer, [pointer]),
        ("llama_vocab_n_tokens", c.c_int32, [pointer]),
        ("llama_get_memory", pointer, [pointer]),
        ("llama_memory_seq_rm", c.c_bool, [pointer, c.c_int32, c.c_int32, c.c_int32]),
        ("llama_batch_get_one", Batch, [pointer, c.c_int32]),
        ("llama_decode", c.c_int32, [pointer, Batch]),
        ("llama_get_logits_ith", c.POINTER(c.c_float), [pointer, c.c_int32]),
        ("llama_free", None, [pointer]),
        ("llama_model_free", None, [pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Library:
    name = "llama.cpp"

    def __init__(self):
        self.package, path = find()
        self.llama = functions(path)
        # Warnings could fill the pipe faster than it is read.
        self.silence = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)(lambda *_: None)
        self.llama.llama_log_set(c.cast(self.silence, c.c_void_p), None)
        self.llama.llama_backend_init()
        self.model = self.context = None

    def version(self):
        found = self.llama.llama_print_system_info().decode()
        features = [part.split("=")[0].strip(" :") for part in found.replace("CPU :", "").split("|") if "= 1" in part]
        return f"{self.package} {importlib.metadata.version(self.package)} ({', '.join(features)})"

    def prepare(self, case):
        if case.model is None:
            return None
        self.load(case.model)
        prompt = tokens(case.model["prompt"])
        following = [tokens([token]) for token in case.model["next"]]
        logits = self.forward(prompt)

        def prefill():
            self.truncate(0)
            self.forward(prompt)

        def decode():
            self.truncate(len(prompt))
            for token in following:
                logits = self.forward(token)
            return logits

        def wake():
            self.truncate(len(prompt))
            self.forward(following[0])

        if case.op == "prefill":
            return prefill, self.read(logits), wake
        return decode, self.read(decode()), wake

    def load(self, model):
        llama, count = self.llama, len(model["prompt"]) + len(model["next"])
        self.close()
        self.model = llama.llama_model_load_from_file(model["path"].encode(), llama.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"cannot load {model['path']}")
        # Tokens of the context, of a batch and of a micro-batch: a prompt is one. Everything else is the library's
        # default: repacked weights, and flash attention if it is faster.
        parameters = llama.llama_context_default_params()
        context = max(512, -(-count // 256) * 256)
        parameters.start[:] = [context, context, context]
        self.context = llama.llama_init_from_model(self.model, parameters)
        if not self.context or llama.llama_n_ctx(self.context) != context or llama.llama_n_batch(self.context) != context:
            raise RuntimeError("this version has other parameters")
        threads = int(os.environ.get("BENCH_THREADS", os.cpu_count()))
        llama.llama_set_n_threads(self.context, threads, threads)
        if llama.llama_n_threads(self.context) != threads:
            raise RuntimeError("this version does not take a number of threads")
        self.vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))

    def close(self):
        if self.context:
            self.llama.llama_free(self.context)
        if self.model:
            self.llama.llama_model_free(self.model)
        self.model = self.context = None

    def truncate(self, length):
        if not self.llama.llama_memory_seq_rm(self.llama.llama_get_memory(self.context), -1, length, -1):
            raise RuntimeError("the sequence cannot be shortened")

    def forward(self, ids):
        """The logits after the last of these tokens, in the library's memory."""
        batch = self.llama.llama_batch_get_one(c.addressof(ids), len(ids))
        if self.llama.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        return self.llama.llama_get_logits_ith(self.context, -1)

    def read(self, logits):
        return np.ctypeslib.as_array(logits, (self.vocabulary,)).astype(np.float64)


def tokens(ids):
    return (c.c_int32 * len(ids))(*ids)
