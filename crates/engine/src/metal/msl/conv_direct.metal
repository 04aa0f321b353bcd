#include "types.h"
#include "band.h"
#include "conv_windows.h"
#include "host/DirectConvArgs.h"

FUNCTION_CONSTANT(bool, BIAS);

// One thread per result, for short sums as in depthwise convolutions. Grid: columns, rows, outputs of images.
kernel void ENTRY(conv_direct)(device const T* weights, device const T* images, device const T* bias,
                               device T* result, constant DirectConvArgs& d, constant ConvWindows& w, BAND_ARGUMENT,
                               uint3 at [[thread_position_in_grid]], uint3 grid [[threads_per_grid]]) {
    if (BANDED) {
        at += band.origin;
        grid = band.grid;
    }
    const uint out = at.z % d.outputs;
    device const T* weight = weights + d.weights_offset + out * d.weights[0];
    device const T* plane =
        images + d.images_offset + at.z / d.outputs * d.image + out / d.group * d.channels * w.channel;
    const long top = long(at.y) * w.stride_height - w.padding_height;
    const long side = long(at.x) * w.stride_width - w.padding_width;
    float sum = BIAS ? float(bias[d.bias_offset + out * d.bias]) : 0.0f;
    for (uint c = 0; c < d.channels; c++) {
        for (uint i = 0; i < w.taps_height; i++) {
            const long y = top + long(i) * w.dilation_height;
            if (y < 0 || y >= w.height) {
                continue;
            }
            for (uint j = 0; j < w.taps_width; j++) {
                const long x = side + long(j) * w.dilation_width;
                if (x >= 0 && x < w.width) {
                    const float factor = float(weight[c * d.weights[1] + i * d.weights[2] + j * d.weights[3]]);
                    sum = fma(factor, float(plane[c * w.channel + y * w.row + x * w.column]), sum);
                }
            }
        }
    }
    result[(ulong(at.z) * grid.y + at.y) * grid.x + at.x] = T(sum);
}
