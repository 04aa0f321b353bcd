// From a Metal kernel function to the image's entry point.
//
// Nothing here parses types: the parameter types are deduced from the function itself, and the
// rewriter only specifies the source of each argument.
#pragma once

namespace sm {
// --- replacements of declarations by the rewriter ---

template <uint ID, class T> SM_FN sm_threadgroup T& tgvar() {
  return *(sm_threadgroup T*)sm_tgvar(ID, sizeof(T), alignof(T));
}

template <class T> constexpr uint function_constant_type() {
  if constexpr (__is_same(T, bool)) return 1;
  else if constexpr (__is_same(T, float)) return 2;
  else if constexpr (__is_same(T, half)) return 3;
  else {
    static_assert(metal::is_integral_v<T>, "function constants are bool, float, half or integers");
    return (metal::is_signed_v<T> ? 10 : 20) + sizeof(T);
  }
}

SM_UNCHECKED inline bool get_function_constant(uint index, const char* name, uint type, void* out) {
  return sm_rt_table->fc_get(index, name, type, out);
}
SM_UNCHECKED inline bool fc_defined(const char* name) { return sm_rt_table->fc_has(name); }

// The initialiser of a function constant, which is zero if the host did not set it.
struct fconst {
  uint index;
  const char* name;
  template <class T> SM_FN operator T() const {
    T value{};
    get_function_constant(index, name, function_constant_type<T>(), &value);
    return value;
  }
};

// --- arguments ---

enum source {
  BUFFER,
  TG,
  BI_thread_position_in_grid,
  BI_threads_per_grid,
  BI_thread_position_in_threadgroup,
  BI_threads_per_threadgroup,
  BI_threadgroup_position_in_grid,
  BI_threadgroups_per_grid,
  BI_thread_index_in_threadgroup,
  BI_thread_index_in_simdgroup,
  BI_simdgroup_index_in_threadgroup,
  BI_simdgroups_per_threadgroup,
  BI_threads_per_simdgroup,
  BI_thread_execution_width,
  BI_thread_index_in_quadgroup,
  BI_quadgroup_index_in_threadgroup,
  BI_quadgroups_per_threadgroup,
  BI_dispatch_threads_per_threadgroup,
  BI_dispatch_simdgroups_per_threadgroup,
  BI_dispatch_quadgroups_per_threadgroup,
  BI_grid_origin,
  BI_grid_size,
};
// The source of a parameter's argument: its kind, and the index of a buffer.
template <source S, uint index> struct B {};

struct thread_id {
  uint x, y, z, lane;
};
struct triple {
  uint x, y, z;
};

// The group's fields. The memory checker would treat reads of them as accesses of the kernel, so in check
// mode they are read in functions that are not instrumented.
#if SM_CHECK
#define SM_GROUP_READ __attribute__((noinline, const, SM_UNSEEN)) inline
#else
#define SM_GROUP_READ SM_FN
#endif
SM_GROUP_READ void* buffer_of(const sm_group* g, uint index) { return g->buf[index]; }
SM_GROUP_READ void* threadgroup_memory_of(const sm_group* g, uint index) { return g->tgmem[index]; }
SM_GROUP_READ uint grid_of(const sm_group* g, uint axis) { return g->grid[axis]; }
SM_GROUP_READ uint dispatched_of(const sm_group* g, uint axis) { return g->tgs[axis]; }
SM_GROUP_READ uint groups_of(const sm_group* g, uint axis) { return g->ngroups[axis]; }
SM_GROUP_READ uint position_of(const sm_group* g, uint axis) { return g->tgid[axis]; }
SM_GROUP_READ uint dims_of(const sm_group* g, uint axis) { return g->dims[axis]; }
SM_GROUP_READ uint threads_of(const sm_group* g) { return g->nthreads; }
#undef SM_GROUP_READ

template <source S> SM_FN triple builtin(const sm_group* g, thread_id t) {
  if constexpr (S == BI_thread_position_in_grid)
    return {position_of(g, 0) * dispatched_of(g, 0) + t.x, position_of(g, 1) * dispatched_of(g, 1) + t.y,
            position_of(g, 2) * dispatched_of(g, 2) + t.z};
  else if constexpr (S == BI_threads_per_grid || S == BI_grid_size)
    return {grid_of(g, 0), grid_of(g, 1), grid_of(g, 2)};
  else if constexpr (S == BI_thread_position_in_threadgroup) return {t.x, t.y, t.z};
  else if constexpr (S == BI_threads_per_threadgroup) return {dims_of(g, 0), dims_of(g, 1), dims_of(g, 2)};
  else if constexpr (S == BI_dispatch_threads_per_threadgroup)
    return {dispatched_of(g, 0), dispatched_of(g, 1), dispatched_of(g, 2)};
  else if constexpr (S == BI_threadgroup_position_in_grid)
    return {position_of(g, 0), position_of(g, 1), position_of(g, 2)};
  else if constexpr (S == BI_threadgroups_per_grid) return {groups_of(g, 0), groups_of(g, 1), groups_of(g, 2)};
  else if constexpr (S == BI_thread_index_in_threadgroup) return {t.lane, 0, 0};
  else if constexpr (S == BI_thread_index_in_simdgroup) return {t.lane % 32, 0, 0};
  else if constexpr (S == BI_simdgroup_index_in_threadgroup) return {t.lane / 32, 0, 0};
  else if constexpr (S == BI_thread_index_in_quadgroup) return {t.lane % 4, 0, 0};
  else if constexpr (S == BI_quadgroup_index_in_threadgroup) return {t.lane / 4, 0, 0};
  else if constexpr (S == BI_simdgroups_per_threadgroup) return {(threads_of(g) + 31) / 32, 0, 0};
  else if constexpr (S == BI_quadgroups_per_threadgroup) return {(threads_of(g) + 3) / 4, 0, 0};
  else if constexpr (S == BI_dispatch_simdgroups_per_threadgroup)
    return {(dispatched_of(g, 0) * dispatched_of(g, 1) * dispatched_of(g, 2) + 31) / 32, 0, 0};
  else if constexpr (S == BI_dispatch_quadgroups_per_threadgroup)
    return {(dispatched_of(g, 0) * dispatched_of(g, 1) * dispatched_of(g, 2) + 3) / 4, 0, 0};
  else if constexpr (S == BI_threads_per_simdgroup || S == BI_thread_execution_width) return {32, 0, 0};
  else return {0, 0, 0};
}

// The first 1, 2 or 3 components, converted to the parameter's type.
template <class T> struct shaped {
  static SM_FN T make(triple t) { return (T)t.x; }
};
template <class T> struct shaped<vec<T, 2>> {
  static SM_FN vec<T, 2> make(triple t) { return vec<T, 2>((T)t.x, (T)t.y); }
};
template <class T> struct shaped<vec<T, 3>> {
  static SM_FN vec<T, 3> make(triple t) { return vec<T, 3>((T)t.x, (T)t.y, (T)t.z); }
};

// Pointers are bound, references dereferenced (an unbound slot points at a zero page, so that is sound
// too), values computed from the thread's position.
template <class P, source S, uint index> SM_FN P argument(const sm_group* g, thread_id t) {
  if constexpr (S == BUFFER || S == TG) {
    void* address = S == TG ? sm_argument(threadgroup_memory_of(g, index), 31 + index)
                            : sm_argument(buffer_of(g, index), index);
    if constexpr (__is_pointer(P)) return (P)address;
    else return *(__remove_reference_t(P)*)address;
  } else {
    return shaped<__remove_cv(P)>::make(builtin<S>(g, t));
  }
}

// --- the entry point ---

template <class T> constexpr ulong pointee_size() {
  if constexpr (__is_void(T)) return 1;
  else return sizeof(T);
}
// Result of sm_arg_size for one parameter.
template <class P> constexpr ulong argument_size() {
  if constexpr (__is_reference(P)) return pointee_size<__remove_reference_t(P)>() | 1ul << 63;
  else if constexpr (__is_pointer(P)) return pointee_size<__remove_pointer(P)>() | 1ul << 62;
  else return 0;
}
template <int n> struct sizes {
  ulong entry[n];
};

template <class... Bs> struct entry;
template <source... S, uint... index> struct entry<B<S, index>...> {
  template <class... P> static SM_FN void run(void (*kernel)(P...), const sm_group* g, thread_id t) {
    static_assert(sizeof...(P) == sizeof...(S), "one binding for each kernel parameter");
    kernel(argument<P, S, index>(g, t)...);
  }
  template <class... P> static constexpr sizes<sizeof...(P) + 1> argument_sizes(void (*)(P...)) {
    return {{argument_size<P>()..., 0}};
  }
};
}  // namespace sm

#define SM_EXPORT extern "C" SM_EMITTED __attribute__((visibility("default"), used))

// SM_KERNEL(function, ::sm::B<...>...): the one kernel of an image.
#define SM_KERNEL(function, ...)                                                             \
  extern "C" const sm_rt* sm_rt_table __attribute__((visibility("hidden"))) = nullptr;       \
  SM_EXPORT void sm_kernel(const sm_group* g, uint x, uint y, uint z, uint lane) {           \
    ::sm::entry<__VA_ARGS__>::run(function, g, ::sm::thread_id{x, y, z, lane});              \
  }                                                                                          \
  SM_EXPORT __attribute__((SM_UNSEEN)) ulong sm_arg_size(uint parameter) {                   \
    constexpr auto sizes = ::sm::entry<__VA_ARGS__>::argument_sizes(function);               \
    return sizes.entry[parameter];                                                           \
  }

// SM_GATES(condition...): whether each parameter is enabled by its [[function_constant(...)]].
#define SM_GATES(...)                                                     \
  SM_EXPORT __attribute__((SM_UNSEEN)) bool sm_gate(uint parameter) {     \
    const bool enabled[] = {true, ##__VA_ARGS__};                            \
    return enabled[parameter + 1];                                           \
  }
