// as_type<T>(x): the same bits as another type of the same size.
#pragma once

template <class To, class From> SM_CX To as_type(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "as_type: source and result differ in size");
  if constexpr (__is_trivially_copyable(To) && __is_trivially_copyable(From)) {
    return __builtin_bit_cast(To, from);
  } else {
    To to;
    __builtin_memcpy((void*)&to, (const void*)&from, sizeof(To));
    return to;
  }
}

namespace metal {
using ::as_type;
}
