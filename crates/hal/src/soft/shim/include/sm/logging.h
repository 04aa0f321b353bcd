// <metal_logging>: printf-style messages, formatted by the runtime.
#pragma once

namespace sm {
// Metal's numbers: 1 debug, 2 info, 3 notice (the default), 4 error, 5 fault.
enum class log_level : uint { debug = 1, info = 2, standard = 3, error = 4, fault = 5 };

// An argument as 64 bits and a letter that says what they are.
struct log_argument {
  ulong bits;
  uchar kind;
};
template <class T> SM_FN log_argument log_argument_of(const T& x) {
  if constexpr (metal::is_floating_point_v<T>) return {__builtin_bit_cast(ulong, (double)(float)x), 'f'};
  else if constexpr (__is_pointer(T)) return {(ulong)(const volatile void*)x, 'p'};
  else if constexpr (metal::is_unsigned_v<T>) return {(ulong)x, 'u'};
  else return {(ulong)(long)x, 'i'};
}
SM_FN log_argument log_argument_of(const char* x) { return {(ulong)x, 's'}; }

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
    send(::sm::log_level::level, format, ::sm::log_argument_of(a)...);       \
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
    const ulong bits[] = {a.bits..., 0};
    const uchar kinds[] = {a.kind..., 0};
    ::sm::emit_log(level, subsystem, category, format, bits, kinds, sizeof...(A));
  }
};
constexpr os_log os_log_default{"", ""};
}  // namespace metal
