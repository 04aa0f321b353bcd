// <metal_type_traits>. Only names that Apple defines: user code adds its own beside them.
#pragma once

namespace metal {
template <class T, T V> struct integral_constant {
  static constexpr T value = V;
  using value_type = T;
  using type = integral_constant;
  constexpr operator T() const { return V; }
  constexpr T operator()() const { return V; }
};
template <bool B> using bool_constant = integral_constant<bool, B>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <bool B, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool B, class T = void> using enable_if_t = typename enable_if<B, T>::type;

template <bool B, class T, class F> struct conditional { using type = T; };
template <class T, class F> struct conditional<false, T, F> { using type = F; };
template <bool B, class T, class F> using conditional_t = typename conditional<B, T, F>::type;

template <class...> struct _disjunction : false_type {};
template <class A> struct _disjunction<A> : A {};
template <class A, class... B>
struct _disjunction<A, B...> : conditional_t<A::value, A, _disjunction<B...>> {};
template <class...> struct _conjunction : true_type {};
template <class A> struct _conjunction<A> : A {};
template <class A, class... B>
struct _conjunction<A, B...> : conditional_t<A::value, _conjunction<B...>, A> {};

#define SM_TRAIT(name, expr)                            \
  template <class T> constexpr bool name##_v = (expr);  \
  template <class T> struct name : bool_constant<(expr)> {};
#define SM_TRAIT2(name, expr)                                    \
  template <class A, class B> constexpr bool name##_v = (expr);  \
  template <class A, class B> struct name : bool_constant<(expr)> {};

SM_TRAIT(is_void, __is_void(T))
SM_TRAIT(is_integral, __is_integral(T))
SM_TRAIT(is_floating_point, __is_floating_point(T) || __is_same(__remove_cv(T), half) ||
                                __is_same(__remove_cv(T), bfloat))
SM_TRAIT(is_arithmetic, is_integral_v<T> || is_floating_point_v<T>)
SM_TRAIT(is_signed, __is_signed(T) || is_floating_point_v<T>)
SM_TRAIT(is_unsigned, __is_unsigned(T))
SM_TRAIT(is_fundamental, is_arithmetic_v<T> || __is_void(T))
SM_TRAIT(is_scalar, is_arithmetic_v<T> || __is_enum(T) || __is_pointer(T))
SM_TRAIT(is_array, __is_array(T))
SM_TRAIT(is_enum, __is_enum(T))
SM_TRAIT(is_union, __is_union(T))
SM_TRAIT(is_class, __is_class(T))
SM_TRAIT(is_function, __is_function(T))
SM_TRAIT(is_object, __is_object(T))
SM_TRAIT(is_compound, __is_compound(T))
SM_TRAIT(is_pointer, __is_pointer(T))
SM_TRAIT(is_reference, __is_reference(T))
SM_TRAIT(is_lvalue_reference, __is_lvalue_reference(T))
SM_TRAIT(is_rvalue_reference, __is_rvalue_reference(T))
SM_TRAIT(is_const, __is_const(T))
SM_TRAIT(is_volatile, __is_volatile(T))
SM_TRAIT(is_trivial, __is_trivial(T))
SM_TRAIT(is_trivially_copyable, __is_trivially_copyable(T))
SM_TRAIT(is_standard_layout, __is_standard_layout(T))
SM_TRAIT(is_polymorphic, __is_polymorphic(T))
SM_TRAIT(is_abstract, __is_abstract(T))
SM_TRAIT(is_default_constructible, __is_constructible(T))
SM_TRAIT2(is_same, __is_same(A, B))
SM_TRAIT2(is_convertible, __is_convertible_to(A, B))
SM_TRAIT2(is_base_of, __is_base_of(A, B))
SM_TRAIT2(is_assignable, __is_assignable(A, B))
#undef SM_TRAIT
#undef SM_TRAIT2
template <class T, class... A> constexpr bool is_constructible_v = __is_constructible(T, A...);
template <class T, class... A>
struct is_constructible : bool_constant<__is_constructible(T, A...)> {};

#define SM_TRANSFORM(name, expr)                     \
  template <class T> struct name { using type = expr; }; \
  template <class T> using name##_t = expr;
SM_TRANSFORM(remove_reference, __remove_reference_t(T))
SM_TRANSFORM(remove_cv, __remove_cv(T))
SM_TRANSFORM(remove_const, __remove_const(T))
SM_TRANSFORM(remove_volatile, __remove_volatile(T))
SM_TRANSFORM(remove_pointer, __remove_pointer(T))
SM_TRANSFORM(remove_extent, __remove_extent(T))
SM_TRANSFORM(remove_all_extents, __remove_all_extents(T))
SM_TRANSFORM(add_pointer, __add_pointer(T))
SM_TRANSFORM(add_lvalue_reference, __add_lvalue_reference(T))
SM_TRANSFORM(add_rvalue_reference, __add_rvalue_reference(T))
SM_TRANSFORM(add_const, const T)
SM_TRANSFORM(add_volatile, volatile T)
SM_TRANSFORM(add_cv, const volatile T)
SM_TRANSFORM(decay, __decay(T))
SM_TRANSFORM(make_signed, __make_signed(T))
SM_TRANSFORM(make_unsigned, __make_unsigned(T))
SM_TRANSFORM(underlying_type, __underlying_type(T))
// The rewriter replaces `constant T` with `const T`.
SM_TRANSFORM(remove_addrspace, __remove_const(typename ::sm::spaceless<T>::type))
#undef SM_TRANSFORM

template <class T> T&& declval() noexcept;
template <class T> SM_CX void swap(T& a, T& b) {
  T c = a;
  a = b;
  b = c;
}
template <class T> SM_CX T* addressof(T& x) { return __builtin_addressof(x); }
}  // namespace metal
