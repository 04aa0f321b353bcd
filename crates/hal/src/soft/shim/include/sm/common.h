// <metal_common>.
#pragma once

namespace metal {
#define SM_COMMON_SET                                                                   \
  SM_FN float mix(float x, float y, float a) { return x + (y - x) * a; }                \
  SM_FN half mix(half x, half y, half a) { return half(x + half(half(y - x) * a)); }    \
  SM_FN float saturate(float x) { return ::sm::elementary::saturate(x); }               \
  SM_FN half saturate(half x) { return (half)::sm::elementary::saturate((float)x); }    \
  SM_FN float sign(float x) { return ::sm::elementary::sign(x); }                       \
  SM_FN half sign(half x) { return (half)::sm::elementary::sign((float)x); }            \
  SM_FN float step(float edge, float x) { return x < edge ? 0.0f : 1.0f; }              \
  SM_FN half step(half edge, half x) { return x < edge ? (half)0.0f : (half)1.0f; }     \
  SM_FN float smoothstep(float low, float high, float x) {                              \
    float t = saturate((x - low) / (high - low));                                       \
    return t * t * (3.0f - 2.0f * t);                                                   \
  }                                                                                     \
  SM_FN half smoothstep(half low, half high, half x) {                                  \
    return (half)smoothstep((float)low, (float)high, (float)x);                         \
  }                                                                                     \
  SM_LIFT3(mix, if_floating)                                                                         \
  SM_LIFT1(saturate, if_floating)                                                                    \
  SM_LIFT1(sign, if_floating)                                                                        \
  SM_LIFT2(step, if_floating)                                                                        \
  SM_LIFT3(smoothstep, if_floating)
SM_COMMON_SET
namespace fast {
SM_COMMON_SET
}
namespace precise {
SM_COMMON_SET
}
#undef SM_COMMON_SET
}  // namespace metal
