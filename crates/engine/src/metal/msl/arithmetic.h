// Whatever the mode of the compiler, operations are done as they are written, and a product and a sum are one
// rounding only in `fma`.
#if __METAL_VERSION__ >= 320
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#else
#pragma clang fp contract(off)
#endif
