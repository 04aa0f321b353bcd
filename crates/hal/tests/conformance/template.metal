// Template kernels and their names, in every spelling that libraries use.
#include <metal_stdlib>
using namespace metal;

template <typename T, int N>
[[kernel]] void fill(device T* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  out[i] = T(N) + T(i);
}

// The whole signature again.
template [[host_name("fill_signature")]] [[kernel]] void fill<float, 1>(
    device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]);
// With the keyword instead of the attribute.
template [[host_name("fill_keyword")]] kernel void fill<float, 2>(device float* out [[buffer(0)]],
                                                                  uint i [[thread_position_in_grid]]);
// By decltype.
template [[host_name("fill_decltype")]] [[kernel]] decltype(fill<float, 3>) fill<float, 3>;
// By an alias of the type.
typedef decltype(fill<float, 4>) fill_t;
template [[host_name("fill_alias")]] kernel fill_t fill<float, 4>;
using fill_type = decltype(fill<float, 5>);
template [[host_name("fill_using")]] [[kernel]] fill_type fill<float, 5>;
// Names concatenated from string literals.
#define FILL_NAME(name) "fill_" #name
#define INSTANTIATE_FILL(name, type, n) \
  template [[host_name(FILL_NAME(name))]] [[kernel]] decltype(fill<type, n>) fill<type, n>;
INSTANTIATE_FILL(macro, float, 6)
template [[host_name("fill_" "adjacent")]] [[kernel]] decltype(fill<float, 7>) fill<float, 7>;
// The attributes in one list.
template [[host_name("fill_list"), kernel]] decltype(fill<float, 8>) fill<float, 8>;
// A comparison as a template argument, and a nested template as one.
template [[host_name("fill_comparison")]] [[kernel]] decltype(fill<float, (sizeof(float) > 2 ? 9 : 0)>) fill<float, (sizeof(float) > 2 ? 9 : 0)>;

// Arguments deduced from the signature.
template <typename T>
[[kernel]] void negate(const device T* in [[buffer(0)]], device T* out [[buffer(1)]],
                       uint i [[thread_position_in_grid]]) {
  out[i] = -in[i];
}
template [[host_name("negate_deduced")]] [[kernel]] void negate(const device float*, device float*, uint);

// Types, values, booleans, functions and templates as parameters.
struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Multiply {
  template <typename T>
  T operator()(T a, T b) const {
    return a * b;
  }
};
template <typename T, typename Op, bool reverse = false>
kernel void binary(const device T* a [[buffer(0)]], const device T* b [[buffer(1)]], device T* out [[buffer(2)]],
                   uint i [[thread_position_in_grid]], uint n [[threads_per_grid]]) {
  uint j = reverse ? n - 1 - i : i;
  out[i] = Op()(a[j], b[j]);
}
template [[host_name("add_float")]] [[kernel]] decltype(binary<float, Add>) binary<float, Add>;
template [[host_name("multiply_int_reversed")]] [[kernel]] decltype(binary<int, Multiply, true>) binary<int, Multiply, true>;

float halve(float x) { return x / 2; }
float square(float x) { return x * x; }
template <float (*F)(float), int times>
kernel void apply(const device float* in [[buffer(0)]], device float* out [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) {
  float x = in[i];
  for (int k = 0; k < times; k++) x = F(x);
  out[i] = x;
}
template [[host_name("halve_twice")]] [[kernel]] decltype(apply<halve, 2>) apply<halve, 2>;
template [[host_name("square_once")]] [[kernel]] decltype(apply<square, 1>) apply<square, 1>;

// Overloads by address space, partial specialisation, SFINAE, constexpr if.
template <typename T>
T first(const device T* p) {
  return p[0];
}
template <typename T>
T first(const threadgroup T* p) {
  return p[0] * T(10);
}
template <typename T>
T first(const thread T* p) {
  return p[0] * T(100);
}
template <typename T>
T first(constant T* p) {
  return p[0] * T(1000);
}
constant int program_values[2] = {4, 5};
kernel void address_spaces(const device int* in [[buffer(0)]], constant int* c [[buffer(1)]],
                           device int* out [[buffer(2)]]) {
  threadgroup int shared[1];
  shared[0] = 2;
  int own[1] = {3};
  out[0] = first(in);
  out[1] = first(shared);
  out[2] = first(own);
  out[3] = first(c);
  out[4] = first(program_values);
}

template <typename T>
struct Name {
  static constant constexpr int value = 0;
};
template <>
struct Name<float> {
  static constant constexpr int value = 1;
};
template <typename T, int N>
struct Name<vec<T, N>> {
  static constant constexpr int value = 10 * N + Name<T>::value;
};
template <typename T, typename U = enable_if_t<is_integral_v<T>>>
int kind(T) {
  return 1;
}
template <typename T, typename U = void, typename V = enable_if_t<is_floating_point_v<T>>>
int kind(T) {
  return 2;
}
template <typename T>
int bits() {
  if constexpr (sizeof(T) == 2) {
    return 16;
  } else {
    return int(sizeof(T) * 8);
  }
}
kernel void traits(device int* out [[buffer(0)]]) {
  out[0] = Name<float>::value;
  out[1] = Name<float3>::value;
  out[2] = Name<int4>::value;
  out[3] = kind(1) * 10 + kind(1.0f);
  out[4] = bits<half>() + bits<float>();
  out[5] = is_same_v<conditional_t<true, float, int>, float> ? 1 : 0;
  out[6] = is_same<remove_const_t<const float>, float>::value ? 1 : 0;
}

namespace tools {
namespace inner {
inline int twice(int x) { return 2 * x; }
}  // namespace inner
template <typename T>
class Counter {
 public:
  Counter(T start) thread : value(start) {}
  void add(T x) thread { value += x; }
  T get() const thread { return value; }

 private:
  T value;
};
enum class Mode : uchar { off, on = 5 };
}  // namespace tools

kernel void in_namespaces(device int* out [[buffer(0)]]) {
  tools::Counter<int> counter(3);
  counter.add(4);
  out[0] = counter.get();
  out[1] = tools::inner::twice(21);
  out[2] = int(tools::Mode::on);
  auto lambda_free = counter;
  lambda_free.add(1);
  out[3] = lambda_free.get();
  using tools::inner::twice;
  out[4] = twice(4);
}
