// Logging to the host.
#include <metal_stdlib>
#include <metal_logging>
using namespace metal;

constant os_log numbers("org.bessemer.test", "numbers");

kernel void speak(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  if (i == 3) {
    os_log_default.log("thread %u of %d", i, 8);
    numbers.log_info("half of %d is %.2f", 5, 2.5f);
    numbers.log_error("hex %x, wide %lu", 255u, 1ul << 40);
    numbers.log_error("%.1v4f and %v2d of %u", float4(1, 2, 3, -4), int2(5, -6), i);
    numbers.log_debug("debug %d", -1);
    numbers.log_fault("fault");
  }
  out[i] = i;
}
