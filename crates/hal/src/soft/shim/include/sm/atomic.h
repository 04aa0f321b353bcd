// <metal_atomic>. Threadgroups run on several CPU threads, so these are real atomics. MSL only allows relaxed order;
// `memory_order_seq_cst`, which Apple's compiler may accept for threadgroup memory, is implemented as such.
#pragma once

namespace metal {
template <class T> struct atomic {
  static_assert(__is_same(T, int) || __is_same(T, uint) || __is_same(T, bool) || __is_same(T, float) ||
                    __is_same(T, ulong),
                "atomic: the type is int, uint, bool, float or ulong");
  T value;
};
template <class T> using _atomic = atomic<T>;
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<bool> atomic_bool;
typedef atomic<float> atomic_float;
typedef atomic<ulong> atomic_ulong;
}  // namespace metal

namespace sm {
using metal::memory_order;
template <class T> SM_FN T* cell(const volatile metal::atomic<T>* a) { return const_cast<T*>(&a->value); }

// Replaces the value with f(value) and returns the old one, for operations without an atomic instruction that the memory
// checker instruments.
template <class T, class F> SM_FN T replace(T* p, F f) {
  T old, next;
  __atomic_load(p, &old, __ATOMIC_RELAXED);
  do next = f(old);
  while (!__atomic_compare_exchange(p, &old, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}
}  // namespace sm

namespace metal {
#define SM_RELAXED(order)                                                                \
  __attribute__((diagnose_if(order != memory_order_relaxed && order != memory_order_seq_cst, \
                             "'" #order "' argument must be 'metal::memory_order_relaxed'", "error")))

// Calls a builtin with the order as a constant.
#define SM_ORDERED(call)                                              \
  if (order == memory_order_relaxed) {                                \
    call(__ATOMIC_RELAXED);                                           \
  } else {                                                            \
    call(__ATOMIC_SEQ_CST);                                           \
  }

template <class T> SM_FN T atomic_load_explicit(const volatile atomic<T>* object, memory_order order) SM_RELAXED(order) {
  T value;
#define SM_LOAD(o) __atomic_load(::sm::cell(object), &value, o)
  SM_ORDERED(SM_LOAD)
#undef SM_LOAD
  return value;
}
template <class T>
SM_FN void atomic_store_explicit(volatile atomic<T>* object, ::sm::same<T> desired, memory_order order) SM_RELAXED(order) {
#define SM_STORE(o) __atomic_store(::sm::cell(object), &desired, o)
  SM_ORDERED(SM_STORE)
#undef SM_STORE
}
template <class T>
SM_FN T atomic_exchange_explicit(volatile atomic<T>* object, ::sm::same<T> desired, memory_order order) SM_RELAXED(order) {
  T value;
#define SM_EXCHANGE(o) __atomic_exchange(::sm::cell(object), &desired, &value, o)
  SM_ORDERED(SM_EXCHANGE)
#undef SM_EXCHANGE
  return value;
}
template <class T>
SM_FN bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* object, ::sm::same<T>* expected,
                                                 ::sm::same<T> desired, memory_order order, memory_order failure)
    SM_RELAXED(order) SM_RELAXED(failure) {
  bool done;
#define SM_CAS(o) done = __atomic_compare_exchange(::sm::cell(object), expected, &desired, false, o, o)
  SM_ORDERED(SM_CAS)
#undef SM_CAS
  return done;
}

// 32-bit integers have an instruction for these; for other types see below.
#define SM_FETCH(name, builtin)                                                             \
  template <class T, class = enable_if_t<is_integral_v<T> && sizeof(T) == 4>>               \
  SM_FN T atomic_fetch_##name##_explicit(volatile atomic<T>* object, ::sm::same<T> operand, \
                                         memory_order order) SM_RELAXED(order) {            \
    T old;                                                                                  \
    if (order == memory_order_relaxed) old = builtin(::sm::cell(object), operand, __ATOMIC_RELAXED); \
    else old = builtin(::sm::cell(object), operand, __ATOMIC_SEQ_CST);                      \
    return old;                                                                             \
  }
SM_FETCH(add, __atomic_fetch_add)
SM_FETCH(sub, __atomic_fetch_sub)
SM_FETCH(and, __atomic_fetch_and)
SM_FETCH(or, __atomic_fetch_or)
SM_FETCH(xor, __atomic_fetch_xor)
#undef SM_FETCH

#define SM_REPLACE(name, condition, e)                                                      \
  template <class T, enable_if_t<(condition), int> = 0>                                     \
  SM_FN T atomic_fetch_##name##_explicit(volatile atomic<T>* object, ::sm::same<T> operand, memory_order order) \
      SM_RELAXED(order) {                                                                   \
    return ::sm::replace(::sm::cell(object), SM_LAMBDA(T old) { return T(e); });            \
  }
SM_REPLACE(add, (is_same_v<T, float>), old + operand)
SM_REPLACE(sub, (is_same_v<T, float>), old - operand)
SM_REPLACE(and, (is_same_v<T, bool>), old & operand)
SM_REPLACE(or, (is_same_v<T, bool>), old | operand)
SM_REPLACE(xor, (is_same_v<T, bool>), old ^ operand)
SM_REPLACE(min, (is_integral_v<T> && sizeof(T) == 4), (operand < old ? operand : old))
SM_REPLACE(max, (is_integral_v<T> && sizeof(T) == 4), (old < operand ? operand : old))
#undef SM_REPLACE
#undef SM_ORDERED

// Atomic addition of floats exists in device memory only.
#define SM_NOT_IN_THREADGROUP(name)                                                                     \
  __attribute__((unavailable("atomic_float is supported in the device address space only"))) SM_FN float \
  atomic_fetch_##name##_explicit(volatile sm_threadgroup atomic<float>* object, float, memory_order) {  \
    return object->value;                                                                               \
  }
SM_NOT_IN_THREADGROUP(add)
SM_NOT_IN_THREADGROUP(sub)
#undef SM_NOT_IN_THREADGROUP

// 64-bit minimum and maximum without a result, the only 64-bit arithmetic.
SM_FN void atomic_min_explicit(volatile atomic<ulong>* object, ulong operand, memory_order order) SM_RELAXED(order) {
  ::sm::replace(::sm::cell(object), SM_LAMBDA(ulong old) { return operand < old ? operand : old; });
}
SM_FN void atomic_max_explicit(volatile atomic<ulong>* object, ulong operand, memory_order order) SM_RELAXED(order) {
  ::sm::replace(::sm::cell(object), SM_LAMBDA(ulong old) { return old < operand ? operand : old; });
}
#undef SM_RELAXED
}  // namespace metal
