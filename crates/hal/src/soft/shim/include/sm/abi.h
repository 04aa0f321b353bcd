// The C interface between a kernel image, the IR pass that splits it into regions, and the runtime.
// Names and layouts here are fixed: the IR pass and the runtime depend on them.
#pragma once

// The address spaces of MSL. `thread` is the default one: a superset of the others, so that methods, copies and
// assignments of classes work for objects in every space.
#define sm_device __attribute__((opencl_global_device))
#define sm_constant __attribute__((opencl_global_host))
#define sm_threadgroup __attribute__((opencl_local))

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

// Since version 22, clang emits only marked functions and their callees.
#if __has_cpp_attribute(clang::sycl_external)
#define SM_EMITTED [[clang::sycl_external]]
#else
#define SM_EMITTED
#endif

// Functions of the library are inlined everywhere. The calling convention does not affect results, but
// with it x86-64 passes small structs by field; the default convention packs them into vector registers,
// which would leave shuffles in the kernel that prevent vectorisation over lanes.
#if defined(__x86_64__)
#define SM_FN inline __attribute__((always_inline, regcall))
#else
#define SM_FN inline __attribute__((always_inline))
#endif
#define SM_CX constexpr SM_FN
// Functions whose accesses the memory checker must not see: collective operations and services of the
// runtime. They stay out of line, because inlining into a checked function would lose the attribute.
// (no_sanitize is not sufficient: it leaves atomics and function entries instrumented.)
#define SM_UNSEEN disable_sanitizer_instrumentation
#define SM_UNCHECKED __attribute__((noinline, SM_UNSEEN))

// One running threadgroup; the kernel only reads it.
struct sm_group {
  void* buf[31];    // buffer bindings, offset applied; unbound slots point at a zero page
  void* tgmem[31];  // threadgroup memory sized by the host, by [[threadgroup(i)]] index
  void* arena;      // threadgroup variables declared inside the kernel
  uint grid[3];     // threads_per_grid
  uint tgs[3];      // dispatch_threads_per_threadgroup
  uint ngroups[3];  // threadgroups_per_grid
  uint tgid[3];     // threadgroup_position_in_grid
  uint dims[3];     // threads_per_threadgroup; edge groups of a non-uniform dispatch are smaller
  uint nthreads;    // dims[0] * dims[1] * dims[2]
};

// Services of the runtime, passed to the image when it is loaded.
struct sm_rt {
  void (*access)(void* address, uint size_and_flags, uint location);
  bool (*fc_get)(uint index, const char* name, uint type, void* out);
  bool (*fc_has)(const char* name);
  void (*log)(uint level, const char* subsystem, const char* category, const char* format,
              const ulong* arguments, const uchar* kinds, uint count);
  uint (*random)(void);
  // Elementary functions: the C library's own differ by version and processor.
  float (*acos)(float), (*acosh)(float), (*asin)(float), (*asinh)(float), (*atan)(float), (*atanh)(float);
  float (*cos)(float), (*cosh)(float), (*log10)(float), (*sin)(float), (*sinh)(float), (*tan)(float);
  float (*atan2)(float, float), (*fmod)(float, float), (*pow)(float, float);
  double (*sin_double)(double);
  // Check mode: a thread exhausted its loop iterations; a lane reads from an inactive lane.
  void (*step)(uint location);
  void (*inactive_lane)(uint reader, uint source);
  void (*defect)(uint kind, ulong a, ulong b, ulong c, uint location);
};

extern "C" {
extern const sm_rt* sm_rt_table __attribute__((visibility("hidden")));

// Recognised and replaced by the IR pass; none of these exists at link time.
__attribute__((convergent)) void sm_sync_tg(uint flags);
__attribute__((convergent)) void sm_sync_sg(uint flags);
__attribute__((const)) uint sm_lane(void);
__attribute__((const)) const sm_group* sm_self(void);
__attribute__((const)) void* sm_tgvar(uint id, ulong size, ulong align);
// Returns its first argument. If the call is left after optimisation, the kernel uses the parameter: a buffer by its index,
// threadgroup memory by its index + 31.
__attribute__((const)) void* sm_argument(void* address, uint index);
#if SM_CHECK
// Reports a defect of this kind if the condition holds, see check/defect.rs.
void __sm_mark(bool condition, uint kind, ulong a, ulong b, ulong c);
#endif
}

namespace sm {
// A collective operation over one SIMD-group: a column of 32 values per operand, a column for the
// results, and the mask of active lanes. It must not write the results of inactive lanes.
typedef void (*simd_op)(const void* const* args, void* ret, uint mask);

// Every lane of a SIMD-group passes its operands and receives its result. Operands and result are scalars
// (never bool, structs or vectors). Declared only: the IR pass ends a region here.
template <class R, class... A> __attribute__((convergent)) R sync_simd(simd_op op, A... a);
}  // namespace sm
