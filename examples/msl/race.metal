// A reduction that forgets the barrier after the first store: the bug this tool is for.
#include <metal_stdlib>
using namespace metal;

kernel void sum(device const float* in [[buffer(0)]],
                device float* out [[buffer(1)]],
                threadgroup float* partial [[threadgroup(0)]],
                uint t [[thread_index_in_threadgroup]],
                uint threads [[threads_per_threadgroup]]) {
    partial[t] = in[t];
    for (uint k = threads / 2; k > 0; k /= 2) {
        if (t < k) {
            partial[t] += partial[t + k];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (t == 0) {
        out[0] = partial[0];
    }
}
