// <metal_pack>: conversion between vectors and normalised integers packed into 16 or 32 bits.
#pragma once

namespace sm {
SM_FN float unorm(uint v, uint largest) { return (float)v / (float)largest; }
SM_FN float snorm(int v, int largest) { return __builtin_fmaxf((float)v / (float)largest, -1.0f); }
SM_FN uint to_unorm(float v, uint largest) {
  return (uint)__builtin_rintf(elementary::saturate(v) * (float)largest);
}
SM_FN uint to_snorm(float v, int largest) {
  float clamped = __builtin_fminf(__builtin_fmaxf(v, -1.0f), 1.0f);
  return (uint)(int)__builtin_rintf(clamped * (float)largest);
}
SM_FN float linear_from_srgb(float s) {
  return s <= 0.04045f ? s / 12.92f : elementary::pow<accuracy::precise>((s + 0.055f) / 1.055f, 2.4f);
}
SM_FN float srgb_from_linear(float c) {
  c = elementary::saturate(c);
  return c <= 0.0031308f ? c * 12.92f : 1.055f * elementary::pow<accuracy::precise>(c, 1.0f / 2.4f) - 0.055f;
}
}  // namespace sm

namespace metal {
// Each format once for float and once for half.
#define SM_UNPACK(format, from, N, e)                                       \
  SM_FN vec<float, N> unpack_##format##_to_float(from v) { return vec<float, N> e; } \
  SM_FN vec<half, N> unpack_##format##_to_half(from v) { return vec<half, N>(unpack_##format##_to_float(v)); }
#define SM_PACK(format, to, N, e)                                           \
  SM_FN to pack_float_to_##format(vec<float, N> v) { return (to)(e); }      \
  SM_FN to pack_half_to_##format(vec<half, N> h) { return pack_float_to_##format(vec<float, N>(h)); }

#define SM_U8(shift) ::sm::unorm(v >> shift & 255, 255)
#define SM_S8(shift) ::sm::snorm((signed char)(v >> shift), 127)
#define SM_SRGB(shift) ::sm::linear_from_srgb(SM_U8(shift))
SM_UNPACK(unorm4x8, uint, 4, (SM_U8(0), SM_U8(8), SM_U8(16), SM_U8(24)))
SM_UNPACK(snorm4x8, uint, 4, (SM_S8(0), SM_S8(8), SM_S8(16), SM_S8(24)))
SM_UNPACK(unorm4x8_srgb, uint, 4, (SM_SRGB(0), SM_SRGB(8), SM_SRGB(16), SM_U8(24)))
SM_UNPACK(unorm2x16, uint, 2, (::sm::unorm(v & 65535, 65535), ::sm::unorm(v >> 16, 65535)))
SM_UNPACK(snorm2x16, uint, 2, (::sm::snorm((short)v, 32767), ::sm::snorm((short)(v >> 16), 32767)))
SM_UNPACK(unorm10a2, uint, 4,
          (::sm::unorm(v & 1023, 1023), ::sm::unorm(v >> 10 & 1023, 1023),
           ::sm::unorm(v >> 20 & 1023, 1023), ::sm::unorm(v >> 30, 3)))
// Red is in the highest bits.
SM_UNPACK(unorm565, ushort, 3,
          (::sm::unorm(v >> 11 & 31, 31), ::sm::unorm(v >> 5 & 63, 63), ::sm::unorm(v & 31, 31)))
#undef SM_U8
#undef SM_S8
#undef SM_SRGB

#define SM_U8(k, shift) (::sm::to_unorm(v.k, 255) << shift)
#define SM_S8(k, shift) ((::sm::to_snorm(v.k, 127) & 255) << shift)
#define SM_SRGB(k, shift) (::sm::to_unorm(::sm::srgb_from_linear(v.k), 255) << shift)
SM_PACK(unorm4x8, uint, 4, SM_U8(x, 0) | SM_U8(y, 8) | SM_U8(z, 16) | SM_U8(w, 24))
SM_PACK(snorm4x8, uint, 4, SM_S8(x, 0) | SM_S8(y, 8) | SM_S8(z, 16) | SM_S8(w, 24))
SM_PACK(srgb_unorm4x8, uint, 4, SM_SRGB(x, 0) | SM_SRGB(y, 8) | SM_SRGB(z, 16) | SM_U8(w, 24))
SM_PACK(unorm2x16, uint, 2, ::sm::to_unorm(v.x, 65535) | ::sm::to_unorm(v.y, 65535) << 16)
SM_PACK(snorm2x16, uint, 2, (::sm::to_snorm(v.x, 32767) & 65535) | ::sm::to_snorm(v.y, 32767) << 16)
SM_PACK(unorm10a2, uint, 4,
        ::sm::to_unorm(v.x, 1023) | ::sm::to_unorm(v.y, 1023) << 10 |
            ::sm::to_unorm(v.z, 1023) << 20 | ::sm::to_unorm(v.w, 3) << 30)
SM_PACK(unorm565, ushort, 3,
        ::sm::to_unorm(v.x, 31) << 11 | ::sm::to_unorm(v.y, 63) << 5 | ::sm::to_unorm(v.z, 31))
#undef SM_U8
#undef SM_S8
#undef SM_SRGB
#undef SM_UNPACK
#undef SM_PACK
}  // namespace metal
