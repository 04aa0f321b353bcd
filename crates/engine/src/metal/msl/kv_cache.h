// Elements of the KV cache: plain floats, or, if the type is uchar, blocks of q8_0. A block is a half-precision scale
// and a signed byte for each of 32 elements of a head, or fewer at its end. The values are those of kernel/cache/q8.rs.

// Elements of a block, and its bytes.
#define CACHE_BLOCK_LEN 32
#define CACHE_BLOCK_BYTES 34

template <typename E> struct KvCache {
    // Whether elements are quantised in blocks.
    static bool is_quantised() { return false; }

    // Length of a row, in units of E.
    static ulong row_len(uint dim) { return dim; }

    // Four elements of a row, from a multiple of four on.
    static float4 load_four(device const E* row, uint d) { return float4(*(device const vec<E, 4>*)(row + d)); }
};

template <> struct KvCache<uchar> {
    static bool is_quantised() { return true; }

    static ulong row_len(uint dim) { return dim + 2 * ((dim + CACHE_BLOCK_LEN - 1) / CACHE_BLOCK_LEN); }

    static float4 load_four(device const uchar* row, uint d) {
        device const uchar* block = row + d / CACHE_BLOCK_LEN * CACHE_BLOCK_BYTES;
        const char4 levels = char4(*(device const packed_char4*)(block + 2 + d % CACHE_BLOCK_LEN));
        return float4(levels) * float(*(device const half*)block);
    }
};

// Magnitude for the maximum of a block: a non-finite element counts as infinite, and makes its block NaN.
inline float cache_magnitude(float x) {
    return isfinite(x) ? abs(x) : INFINITY;
}

// Quantisation of a block.
struct CacheScale {
    float inverse;
    half stored;

    CacheScale(float largest) {
        const float scale = largest / 127.0f;
        inverse = scale == 0 ? 0.0f : 1.0f / scale;
        stored = half(isfinite(largest) ? scale : NAN);
    }

    int level(float x) const {
        const float level = round(x * inverse);
        return isfinite(level) ? int(level) : 0;
    }
};

// Writes a row to the cache, by the lanes of a SIMD-group.
template <typename E> inline void cache_store(device E* row, device const float* from, uint dim, uint lane) {
    for (uint i = lane; i < dim; i += 32) {
        row[i] = E(from[i]);
    }
}

inline void cache_store(device uchar* row, device const float* from, uint dim, uint lane) {
    for (uint first = 0; first < dim; first += CACHE_BLOCK_LEN) {
        const float x = first + lane < dim ? from[first + lane] : 0.0f;
        const CacheScale scale(simd_max(cache_magnitude(x)));
        device uchar* block = row + first / CACHE_BLOCK_LEN * CACHE_BLOCK_BYTES;
        if (lane == 0) {
            *(device half*)block = scale.stored;
        }
        if (first + lane < dim) {
            block[2 + lane] = uchar(scale.level(x));
        }
    }
}
