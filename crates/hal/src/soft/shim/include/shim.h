// The Metal standard library as C++14 with clang's extensions, for kernels that run on the CPU.
//
// This is the only precompiled header; every kernel image includes it. Address spaces are part of the
// types (see `abi.h`) and do not affect code generation. Public names are in `metal::` or the global
// namespace, exactly where Apple has them, because user code reopens `namespace metal` and adds
// overloads of its own; everything else is in `sm::`.
#pragma once

#include "sm/abi.h"
#include "sm/scalar.h"
#include "sm/traits.h"
#include "sm/component.h"
#include "sm/vector.h"
#include "sm/vector_ops.h"
#include "sm/packed.h"
#include "sm/matrix.h"
#include "sm/names.h"
#include "sm/simd_names.h"
#include "sm/as_type.h"
#include "sm/limits.h"
#include "sm/array.h"

#include "sm/fuzz.h"
#include "sm/polynomial.h"
#include "sm/elementary.h"
#include "sm/lift.h"
#include "sm/integer.h"
#include "sm/math.h"
#include "sm/common.h"
#include "sm/relational.h"
#include "sm/geometric.h"
#include "sm/pack.h"
#include "sm/overload.h"

#include "sm/barrier.h"
#include "sm/collective.h"
#include "sm/reduce.h"
#include "sm/simdgroup.h"
#include "sm/quadgroup.h"
#include "sm/simdgroup_matrix.h"
#include "sm/atomic.h"
#include "sm/uniform.h"
#include "sm/logging.h"
#include "sm/sampler.h"
#include "sm/apple_internal.h"

#include "sm/glue.h"
#include "sm/runtime.h"
