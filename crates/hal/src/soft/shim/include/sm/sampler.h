// Types that helpers of texture functions use besides textures: samplers, which cannot be kernel arguments here, and rays.
// The rewriter removes functions that take textures or trace rays.
#pragma once

namespace metal {
enum class coord { normalized, pixel };
enum class address { clamp_to_zero, clamp_to_edge, clamp_to_border, repeat, mirrored_repeat };
enum class s_address { clamp_to_zero, clamp_to_edge, clamp_to_border, repeat, mirrored_repeat };
enum class t_address { clamp_to_zero, clamp_to_edge, clamp_to_border, repeat, mirrored_repeat };
enum class r_address { clamp_to_zero, clamp_to_edge, clamp_to_border, repeat, mirrored_repeat };
enum class border_color { transparent_black, opaque_black, opaque_white };
enum class filter { nearest, linear, bicubic };
enum class mag_filter { nearest, linear, bicubic };
enum class min_filter { nearest, linear, bicubic };
enum class mip_filter { none, nearest, linear };
enum class compare_func { never, less, less_equal, greater, greater_equal, equal, not_equal, always, none };
enum class access { sample, read, write, read_write };
struct max_anisotropy {
  SM_CX max_anisotropy(int) {}
};
struct lod_clamp {
  SM_CX lod_clamp(float, float) {}
};

struct sampler {
  SM_CX sampler() {}
  template <class... A, class = enable_if_t<(sizeof...(A) > 0)>> SM_CX explicit sampler(A...) {}
};

namespace raytracing {
struct ray {
  vec<float, 3> origin;
  float min_distance;
  vec<float, 3> direction;
  float max_distance;
  SM_CX ray(vec<float, 3> o = vec<float, 3>(0.0f), vec<float, 3> d = vec<float, 3>(0.0f), float low = 0.0f,
            float high = __builtin_inff())
      : origin(o), min_distance(low), direction(d), max_distance(high) {}
};
}  // namespace raytracing
}  // namespace metal
