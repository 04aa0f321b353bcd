// Linear algebra on row-major matrices. Lanes outside of the result do nothing.
#include <metal_stdlib>
using namespace metal;

// c = a * b, of m by k and k by n; sizes holds m, n and k. One lane for each element of c, columns along x.
kernel void gemm(
    device const float* a [[buffer(0)]],
    device const float* b [[buffer(1)]],
    device float* c [[buffer(2)]],
    constant uint3& sizes [[buffer(3)]],
    uint2 id [[thread_position_in_grid]])
{
    const uint m = sizes.x, n = sizes.y, k = sizes.z;
    if (id.x >= n || id.y >= m) {
        return;
    }
    float sum = 0.0f;
    for (uint i = 0; i < k; i++) {
        sum = fma(a[id.y * k + i], b[i * n + id.x], sum);
    }
    c[id.y * n + id.x] = sum;
}
