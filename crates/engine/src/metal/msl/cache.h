// Elements of the KV cache: plain floats, or, if the type is uchar, blocks of q8_0. A block is a half-precision scale
// and a signed byte for each of 32 elements of a head, or fewer at its end. The values are those of kernel/cache/q8.rs.

// Elements of a block, and its bytes.
#define CACHE_GROUP 32
#define CACHE_BYTES 34

template <typename E> struct Cached {
    // Whether elements are quantised in blocks.
    static bool grouped() { return false; }

    // Length of a row, in units of E.
    static ulong row(uint dim) { return dim; }

    // Four elements of a row, from a multiple of four on.
    static float4 four(device const E* row, uint d) { return float4(*(device const vec<E, 4>*)(row + d)); }
};

template <> struct Cached<uchar> {
    static bool grouped() { return true; }

    static ulong row(uint dim) { return dim + 2 * ((dim + CACHE_GROUP - 1) / CACHE_GROUP); }

    static float4 four(device const uchar* row, uint d) {
        device const uchar* block = row + d / CACHE_GROUP * CACHE_BYTES;
        const char4 levels = char4(*(device const packed_char4*)(block + 2 + d % CACHE_GROUP));
        return float4(levels) * float(*(device const half*)block);
    }
};

// Magnitude for the maximum of a block: a non-finite element counts as infinite, and makes its block NaN.
inline float cache_size(float x) {
    return isfinite(x) ? abs(x) : INFINITY;
}

// Quantisation of a block.
struct CacheScale {
    float inverse;
    half kept;

    CacheScale(float largest) {
        const float scale = largest / 127.0f;
        inverse = scale == 0 ? 0.0f : 1.0f / scale;
        kept = half(isfinite(largest) ? scale : NAN);
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
    for (uint first = 0; first < dim; first += CACHE_GROUP) {
        const float x = first + lane < dim ? from[first + lane] : 0.0f;
        const CacheScale scale(simd_max(cache_size(x)));
        device uchar* block = row + first / CACHE_GROUP * CACHE_BYTES;
        if (lane == 0) {
            *(device half*)block = scale.kept;
        }
        if (first + lane < dim) {
            block[2 + lane] = uchar(scale.level(x));
        }
    }
}
