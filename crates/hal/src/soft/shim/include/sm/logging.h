// <metal_logging>: printf-style messages, formatted by the runtime.
#pragma once

namespace sm {
// Metal's numbers: 1 debug, 2 info, 3 notice (the default), 4 error, 5 fault.
enum class log_level : uint { debug = 1, info = 2, standard = 3, error = 4, fault = 5 };

// Arguments as 64 bits each with a letter for their type. A vector is one argument per component.
template <class T> constexpr uint log_argument_count = 1;
template <class T, int N> constexpr uint log_argument_count<vec<T, N>> = N;
template <class T, int N> constexpr uint log_argument_count<packed_vec<T, N>> = N;

template <uint n> struct log_arguments {
  ulong bits[n + 1] = {};
  uchar kinds[n + 1] = {};
  uint count = 0;

  SM_FN void add(ulong value, uchar kind) {
    bits[count] = value;
    kinds[count++] = kind;
  }
  template <class T> SM_FN void put(const T& x) {
    if constexpr (metal::is_floating_point_v<T>) add(__builtin_bit_cast(ulong, (double)(float)x), 'f');
    else if constexpr (__is_pointer(T)) add((ulong)(const volatile void*)x, 'p');
    else if constexpr (metal::is_unsigned_v<T>) add((ulong)x, 'u');
    else add((ulong)(long)x, 'i');
  }
  template <class T, int N> SM_FN void put(const vec<T, N>& v) {
    for (int i = 0; i < N; i++) put(v[i]);
  }
  template <class T, int N> SM_FN void put(const packed_vec<T, N>& v) { put(vec<T, N>(v)); }
  SM_FN void put(const char* x) { add((ulong)x, 's'); }
  SM_FN void put(sm_constant const char* x) { add((ulong)x, 's'); }
};

SM_UNCHECKED inline void emit_log(log_level level, const char* subsystem, const char* category,
                                  const char* format, const ulong* bits, const uchar* kinds, uint count) {
  sm_rt_table->log((uint)level, subsystem, category, format, bits, kinds, count);
}
}  // namespace sm

namespace metal {
class os_log {
 public:
  SM_CX os_log(const char* subsystem_, const char* category_)
      : subsystem(subsystem_), category(category_) {}

#define SM_LOG(name, level)                                                  \
  template <class... A> SM_FN void name(const char* format, A... a) const {  \
    send(::sm::log_level::level, format, a...);                              \
  }
  SM_LOG(log, standard)
  SM_LOG(log_debug, debug)
  SM_LOG(log_info, info)
  SM_LOG(log_error, error)
  SM_LOG(log_fault, fault)
#undef SM_LOG

 private:
  const char* subsystem;
  const char* category;
  template <class... A> SM_FN void send(::sm::log_level level, const char* format, A... a) const {
    ::sm::log_arguments<(::sm::log_argument_count<A> + ... + 0)> all;
    (all.put(a), ...);
    ::sm::emit_log(level, subsystem, category, format, all.bits, all.kinds, all.count);
  }
};
constexpr os_log os_log_default{"", ""};
}  // namespace metal
