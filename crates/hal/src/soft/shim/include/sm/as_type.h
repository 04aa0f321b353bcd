// as_type<T>(x): the same bits as another type of the same size. A constraint and not an assertion, so
// that an error is reported at the user's call.
#pragma once

template <class To, class From, class = metal::enable_if_t<sizeof(To) == sizeof(From)>>
SM_CX To as_type(const From& from) {
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
