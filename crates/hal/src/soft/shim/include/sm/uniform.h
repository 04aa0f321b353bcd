// uniform<T>: a value that is the same in all threads. Here it only marks the value.
#pragma once

namespace metal {
template <class T> struct uniform {
  uniform() = default;
  SM_CX uniform(T v) : value(v) {}
  template <class U> SM_CX uniform(uniform<U> other) : value((T)(U)other) {}
  SM_CX operator T() const { return value; }

 private:
  T value;
};
template <class T> SM_CX uniform<T> make_uniform(T x) { return uniform<T>(x); }

// Two uniform values give a uniform value; with other operands, the value itself is the operand.
#define SM_UNIFORM(op)                                                           \
  template <class A, class B> SM_CX auto operator op(uniform<A> a, uniform<B> b) { \
    return make_uniform((A)a op (B)b);                                           \
  }                                                                              \
  template <class A, class B, class = ::sm::if_scalar<B>>                        \
  SM_CX auto operator op(uniform<A> a, B b) { return (A)a op b; }                \
  template <class A, class B, class = ::sm::if_scalar<A>>                        \
  SM_CX auto operator op(A a, uniform<B> b) { return a op (B)b; }
SM_UNIFORM(+) SM_UNIFORM(-) SM_UNIFORM(*) SM_UNIFORM(/) SM_UNIFORM(%)
SM_UNIFORM(&) SM_UNIFORM(|) SM_UNIFORM(^) SM_UNIFORM(<<) SM_UNIFORM(>>)
SM_UNIFORM(==) SM_UNIFORM(!=) SM_UNIFORM(<) SM_UNIFORM(>) SM_UNIFORM(<=) SM_UNIFORM(>=)
SM_UNIFORM(&&) SM_UNIFORM(||)
#undef SM_UNIFORM
}  // namespace metal
