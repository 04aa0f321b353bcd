// The macros of Apple's headers. The preprocessor sees nothing else of the standard library; the library
// itself is precompiled and included after preprocessing.
#pragma once

#define METAL_FUNC inline __attribute__((__always_inline__))
#define METAL_INTERNAL inline __attribute__((__always_inline__))
#define METAL_ALWAYS_INLINE __attribute__((__always_inline__))
#define METAL_CONST __attribute__((__const__))
#define METAL_PURE __attribute__((__pure__))
#define METAL_CONST_ARG(x)
#define METAL_MAYBE_UNDEF
#define METAL_ASM(...)

#define __METAL_MAYBE_FAST_MATH__ 0
#define __METAL_FAST_MATH__ 1
#define __METAL_PRECISE_MATH__ 0
#define __METAL_MEMORY_SCOPE_THREAD__ 0
#define __METAL_MEMORY_SCOPE_SIMDGROUP__ 4
#define __METAL_MEMORY_SCOPE_THREADGROUP__ 1
#define __METAL_MEMORY_SCOPE_DEVICE__ 2

// Language and device features.
#if __METAL_VERSION__ >= 310
#define __HAVE_BFLOAT__ 1
#define __HAVE_SIMDGROUP_MATRIX_BFLOAT__ 1
#endif
#define __HAVE_NATIVE_HALF__ 1
#define __HAVE_SIMDGROUP_REDUCTION__ 1
#define __HAVE_SIMDGROUP_BARRIER__ 1
#define __HAVE_SIMDGROUP_BALLOT__ 1
#define __HAVE_SIMDGROUP_MATRIX__ 1
#define __HAVE_QUADGROUP__ 1
#define __HAVE_INT64__ 1
#define __HAVE_ATOMIC_FLOAT__ 1
#define __HAVE_ATOMIC_ULONG__ 1
#define __HAVE_ATOMIC_ULONG_MIN_MAX__ 1

#include "sm_limits.h"
#include "sm_constants.h"

#define ATOMIC_VAR_INIT(x) {x}
#define ATOMIC_FLAG_INIT {0}
#undef assert
#define assert(x) ((void)0)
