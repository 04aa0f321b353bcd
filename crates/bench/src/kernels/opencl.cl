kernel void add(global const float* a, global const float* b, global float* out) {
    size_t i = get_global_id(0);
    out[i] = a[i] + b[i];
}

kernel void gelu(global const float* a, global const float* b, global float* out) {
    size_t i = get_global_id(0);
    float x = a[i] + b[i];
    out[i] = 0.5f * x * (1.0f + tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}

kernel void softmax(global const float* x, global float* y, uint n, local float* s) {
    uint row = get_group_id(0), t = get_local_id(0), size = get_local_size(0);
    float top = -INFINITY;
    for (uint i = t; i < n; i += size) top = fmax(top, x[row * n + i]);
    s[t] = top;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = size / 2; k > 0; k >>= 1) {
        if (t < k) s[t] = fmax(s[t], s[t + k]);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    top = s[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum = 0;
    for (uint i = t; i < n; i += size) {
        float e = exp(x[row * n + i] - top);
        y[row * n + i] = e;
        sum += e;
    }
    s[t] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = size / 2; k > 0; k >>= 1) {
        if (t < k) s[t] += s[t + k];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    float scale = 1.0f / s[0];
    for (uint i = t; i < n; i += size) y[row * n + i] *= scale;
}

kernel void rmsnorm(global const float* x, global float* y, uint n, local float* s) {
    uint row = get_group_id(0), t = get_local_id(0), size = get_local_size(0);
    float sum = 0;
    for (uint i = t; i < n; i += size) {
        float v = x[row * n + i];
        sum += v * v;
    }
    s[t] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = size / 2; k > 0; k >>= 1) {
        if (t < k) s[t] += s[t + k];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    float scale = 1.0f / sqrt(s[0] / (float)n + 1e-5f);
    for (uint i = t; i < n; i += size) y[row * n + i] = x[row * n + i] * scale;
}

kernel void matmul(global const float* a, global const float* b, global float* c, uint n) {
    local float ta[16][16];
    local float tb[16][16];
    uint tx = get_local_id(0), ty = get_local_id(1);
    uint row = get_group_id(1) * 16 + ty, col = get_group_id(0) * 16 + tx;
    float sum = 0;
    for (uint k = 0; k < n; k += 16) {
        ta[ty][tx] = a[row * n + k + tx];
        tb[ty][tx] = b[(k + ty) * n + col];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint j = 0; j < 16; ++j) sum += ta[ty][j] * tb[j][tx];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[row * n + col] = sum;
}
