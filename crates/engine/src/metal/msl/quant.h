// Dequantisation: a chunk of 16 weights of a row, as floats. The meaning of a format is that of quant/legacy.rs and
// quant/k_quants.rs, and the floats have the same bits.
//
// They have them however the compiler contracts products and sums: a scale has 11 bits, that of a group 7 more, a level
// 5, so that every product is exact, and only the last sum, if there is one, is rounded.
//
// Formats have ggml's numbers; `Weights::msl` of quant/matrix.rs gives them. Rows begin at even addresses, those of
// plain floats at a multiple of their size; blocks have an even number of bytes.

// Weights of a chunk.
#define CHUNK 16

// Arrays stay in registers only if their indices are known at compile time.
#define UNROLL _Pragma("clang loop unroll(full)")

// The half-precision number at an even address.
inline float quant_half(device const uchar* from) {
    return float(*(device const half*)from);
}

// 16 bytes at an even address.
struct QuantBytes {
    ushort4 low;
    ushort4 high;

    QuantBytes(device const uchar* from) {
        low = ushort4(((device const packed_ushort4*)from)[0]);
        high = ushort4(((device const packed_ushort4*)from)[1]);
    }

    // Shifts every byte right. Bits that enter from its neighbour are above the remaining ones.
    void shift(uint by) {
        low >>= ushort(by);
        high >>= ushort(by);
    }

    // Bytes 2 i and 2 i + 1, masked.
    uint2 two(uint i, uint mask) const {
        const uint word = i < 4 ? low[i % 4] : high[i % 4];
        return uint2(word & mask, word >> 8 & mask);
    }
};

// Levels with a scale, counted from `zero`.
inline void quant_signed(thread float* to, uint i, uint2 level, int zero, float scale) {
    to[2 * i] = float(int(level.x) - zero) * scale;
    to[2 * i + 1] = float(int(level.y) - zero) * scale;
}

// Levels with a scale and an offset.
inline void quant_affine(thread float* to, uint i, uint2 level, float scale, float offset) {
    to[2 * i] = float(level.x) * scale + offset;
    to[2 * i + 1] = float(level.y) * scale + offset;
}

// Bits 2 i and 2 i + 1 of a word, as bit `at` of two levels.
inline uint2 quant_bits(uint word, uint i, uint at) {
    return uint2(word >> (2 * i) & 1, word >> (2 * i + 1) & 1) << at;
}

// The scale and offset of group `j` of Q4_K and Q5_K: 6 bits each, in 12 bytes.
inline uint2 quant_six_bits(device const uchar* scales, uint j) {
    const uint a = scales[j % 4], b = scales[j % 4 + 4];
    if (j < 4) {
        return uint2(a & 63, b & 63);
    }
    const uint rest = scales[j + 4];
    return uint2((rest & 15) | (a >> 6) << 4, rest >> 4 | (b >> 6) << 4);
}

// The scale of group `j` of Q3_K: 6 bits, in 12 bytes.
inline int quant_q3_scale(device const uchar* scales, uint j) {
    const uint low = scales[j % 8] >> (j / 8 * 4) & 15;
    const uint high = scales[8 + j % 4] >> (j / 4 * 2) & 3;
    return int(low | high << 4) - 32;
}

// Rows of blocks of LEN weights in BYTES bytes.
template <int LEN, int BYTES> struct QuantBlocks {
    // Bytes of a row.
    static ulong row_bytes(uint cols) { return ulong(cols / LEN) * BYTES; }

    // The block of a chunk, and which of its chunks that is.
    static device const uchar* block(device const uchar* row, uint at) {
        return row + at / (LEN / CHUNK) * BYTES;
    }
    static uint chunk_of_block(uint at) { return at % (LEN / CHUNK); }
};

// Weights of a format. `row_bytes` is bytes of a row; `read` gives weights 16 at to 16 at + 15 of a row, and zeros
// beyond the last column, which only plain floats can have within a chunk.
template <int FORMAT> struct Weights;

// f32
template <> struct Weights<0> {
    static ulong row_bytes(uint cols) { return ulong(cols) * 4; }

    static void read(device const uchar* row, uint at, uint cols, thread float* to) {
        device const float* from = (device const float*)row + at * CHUNK;
        if (at * CHUNK + CHUNK <= cols) {
            UNROLL for (uint i = 0; i < CHUNK; i += 4) {
                const float4 four = float4(*(device const packed_float4*)(from + i));
                to[i] = four.x;
                to[i + 1] = four.y;
                to[i + 2] = four.z;
                to[i + 3] = four.w;
            }
            return;
        }
        UNROLL for (uint i = 0; i < CHUNK; i++) {
            to[i] = at * CHUNK + i < cols ? from[i] : 0.0f;
        }
    }
};

// f16
template <> struct Weights<1> {
    static ulong row_bytes(uint cols) { return ulong(cols) * 2; }

    static void read(device const uchar* row, uint at, uint cols, thread float* to) {
        device const half* from = (device const half*)row + at * CHUNK;
        if (at * CHUNK + CHUNK <= cols) {
            UNROLL for (uint i = 0; i < CHUNK; i += 4) {
                const float4 four = float4(half4(*(device const packed_half4*)(from + i)));
                to[i] = four.x;
                to[i + 1] = four.y;
                to[i + 2] = four.z;
                to[i + 3] = four.w;
            }
            return;
        }
        UNROLL for (uint i = 0; i < CHUNK; i++) {
            to[i] = at * CHUNK + i < cols ? float(from[i]) : 0.0f;
        }
    }
};

// bf16: the upper half of a float.
template <> struct Weights<30> {
    static ulong row_bytes(uint cols) { return ulong(cols) * 2; }

    static float widen(ushort bits) { return as_type<float>(uint(bits) << 16); }

    static void read(device const uchar* row, uint at, uint cols, thread float* to) {
        device const ushort* from = (device const ushort*)row + at * CHUNK;
        if (at * CHUNK + CHUNK <= cols) {
            UNROLL for (uint i = 0; i < CHUNK; i += 4) {
                const ushort4 four = ushort4(*(device const packed_ushort4*)(from + i));
                to[i] = widen(four.x);
                to[i + 1] = widen(four.y);
                to[i + 2] = widen(four.z);
                to[i + 3] = widen(four.w);
            }
            return;
        }
        UNROLL for (uint i = 0; i < CHUNK; i++) {
            to[i] = at * CHUNK + i < cols ? widen(from[i]) : 0.0f;
        }
    }
};

// Q4_0: d (q - 8). The second chunk of a block is the upper nibbles, here and in all formats of 32 but Q8_0.
template <> struct Weights<2> {
    typedef QuantBlocks<32, 18> Blocks;
    static ulong row_bytes(uint cols) { return Blocks::row_bytes(cols); }

    static void read(device const uchar* row, uint at, uint, thread float* to) {
        device const uchar* from = Blocks::block(row, at);
        const float d = quant_half(from);
        QuantBytes q(from + 2);
        q.shift(Blocks::chunk_of_block(at) * 4);
        UNROLL for (uint i = 0; i < 8; i++) {
            quant_signed(to, i, q.two(i, 15), 8, d);
        }
    }
};

// Q4_1: d q + m
template <> struct Weights<3> {
    typedef QuantBlocks<32, 20> Blocks;
    static ulong row_bytes(uint cols) { return Blocks::row_bytes(cols); }

    static void read(device const uchar* row, uint at, uint, thread float* to) {
        device const uchar* from = Blocks::block(row, at);
        const float d = quant_half(from), m = quant_half(from + 2);
        QuantBytes q(from + 4);
        q.shift(Blocks::chunk_of_block(at) * 4);
        UNROLL for (uint i = 0; i < 8; i++) {
            quant_affine(to, i, q.two(i, 15), d, m);
        }
    }
};

// Q5_0: d (q - 16), the fifth bits in a word.
template <> struct Weights<6> {
    typedef QuantBlocks<32, 22> Blocks;
    static ulong row_bytes(uint cols) { return Blocks::row_bytes(cols); }

    static void read(device const uchar* row, uint at, uint, thread float* to) {
        device const uchar* from = Blocks::block(row, at);
        const float d = quant_half(from);
        const uint fifth = ((device const ushort*)(from + 2))[Blocks::chunk_of_block(at)];
        QuantBytes q(from + 6);
        q.shift(Blocks::chunk_of_block(at) * 4);
        UNROLL for (uint i = 0; i < 8; i++) {
            quant_signed(to, i, q.two(i, 15) | quant_bits(fifth, i, 4), 16, d);
        }
    }
};

// Q5_1: d q + m, the fifth bits in a word.
template <> struct Weights<7> {
    typedef QuantBlocks<32, 24> Blocks;
    static ulong row_bytes(uint cols) { return Blocks::row_bytes(cols); }

    static void read(device const uchar* row, uint at, uint, thread float* to) {
        device const uchar* from = Blocks::block(row, at);
        const float d = quant_half(from), m = quant_half(from + 2);
        const uint fifth = ((device const ushort*)(from + 4))[Blocks::chunk_of_block(at)];
        QuantBytes q(from + 8);
        q.shift(Blocks::chunk_of_block(at) * 4);
        UNROLL for (uint i = 0; i < 8; i++) {
            quant_affine(to, i, q.two(i, 15) | quant_bits(fifth, i, 4), d, m);
        }
    }
};

// Q8_0: d q, with sign.
template <> struct Weights<8> {
    typedef QuantBlocks<32, 34> Blocks;
    static ulong row_bytes(uint cols) { return Blocks::row_bytes(cols); }

    static void read(device const uchar* row, uint at, uint, thread float* to) {
        device const uchar* from = Blocks::block(row, at);
        const float d = quant_half(from);
        const QuantBytes q(from + 2 + Blocks::chunk_of_block(at) * CHUNK);
        UNROLL for (uint i = 0; i < 8; i++) {
            const uint2 two = q.two(i, 255);
            to[2 * i] = float(as_type<char>(uchar(two.x))) * d;
            to[2 * i + 1] = float(as_type<char>(uchar(two.y))) * d;
        }
    }
};

// Q2_K: 128 weights share 32 bytes, two bits each; a chunk is half of those bytes and has a scale and an offset of
// four bits.
template <> struct Weights<10> {
    typedef QuantBlocks<256, 84> Blocks;
    static ulong row_bytes(uint cols) { return Blocks::row_bytes(cols); }

    static void read(device const uchar* row, uint at, uint, thread float* to) {
        device const uchar* from = Blocks::block(row, at);
        const uint j = Blocks::chunk_of_block(at), scales = from[j];
        const float scale = quant_half(from + 80) * float(scales & 15);
        const float offset = quant_half(from + 82) * float(scales >> 4);
        QuantBytes q(from + 16 + j / 8 * 32 + j % 2 * 16);
        q.shift(j % 8 / 2 * 2);
        UNROLL for (uint i = 0; i < 8; i++) {
            quant_affine(to, i, q.two(i, 3), scale, -offset);
        }
    }
};

// Q3_K: as Q2_K without offsets; bit `group` of 32 further bytes is the third one.
template <> struct Weights<11> {
    typedef QuantBlocks<256, 110> Blocks;
    static ulong row_bytes(uint cols) { return Blocks::row_bytes(cols); }

    static void read(device const uchar* row, uint at, uint, thread float* to) {
        device const uchar* from = Blocks::block(row, at);
        const uint j = Blocks::chunk_of_block(at);
        const float scale = quant_half(from + 108) * float(quant_q3_scale(from + 96, j));
        QuantBytes third(from + j % 2 * 16), q(from + 32 + j / 8 * 32 + j % 2 * 16);
        third.shift(j / 2);
        q.shift(j % 8 / 2 * 2);
        UNROLL for (uint i = 0; i < 8; i++) {
            quant_signed(to, i, q.two(i, 3) | third.two(i, 1) << 2, 4, scale);
        }
    }
};

// Q4_K: two groups of 32 share 32 bytes.
template <> struct Weights<12> {
    typedef QuantBlocks<256, 144> Blocks;
    static ulong row_bytes(uint cols) { return Blocks::row_bytes(cols); }

    static void read(device const uchar* row, uint at, uint, thread float* to) {
        device const uchar* from = Blocks::block(row, at);
        const uint j = Blocks::chunk_of_block(at) / 2, side = Blocks::chunk_of_block(at) % 2 * 16;
        const uint2 six = quant_six_bits(from + 4, j);
        const float scale = quant_half(from) * float(six.x), offset = quant_half(from + 2) * float(six.y);
        QuantBytes q(from + 16 + j / 2 * 32 + side);
        q.shift(j % 2 * 4);
        UNROLL for (uint i = 0; i < 8; i++) {
            quant_affine(to, i, q.two(i, 15), scale, -offset);
        }
    }
};

// Q5_K: as Q4_K; bit `group` of 32 further bytes is the fifth one.
template <> struct Weights<13> {
    typedef QuantBlocks<256, 176> Blocks;
    static ulong row_bytes(uint cols) { return Blocks::row_bytes(cols); }

    static void read(device const uchar* row, uint at, uint, thread float* to) {
        device const uchar* from = Blocks::block(row, at);
        const uint j = Blocks::chunk_of_block(at) / 2, side = Blocks::chunk_of_block(at) % 2 * 16;
        const uint2 six = quant_six_bits(from + 4, j);
        const float scale = quant_half(from) * float(six.x), offset = quant_half(from + 2) * float(six.y);
        QuantBytes fifth(from + 16 + side), q(from + 48 + j / 2 * 32 + side);
        fifth.shift(j);
        q.shift(j % 2 * 4);
        UNROLL for (uint i = 0; i < 8; i++) {
            quant_affine(to, i, q.two(i, 15) | fifth.two(i, 1) << 4, scale, -offset);
        }
    }
};

// Q6_K: 128 weights are four lines of 32; lines 0 and 2 share a line of low nibbles, as 1 and 3 do. A chunk has a
// scale of eight bits.
template <> struct Weights<14> {
    typedef QuantBlocks<256, 210> Blocks;
    static ulong row_bytes(uint cols) { return Blocks::row_bytes(cols); }

    static void read(device const uchar* row, uint at, uint, thread float* to) {
        device const uchar* from = Blocks::block(row, at);
        const uint j = Blocks::chunk_of_block(at), upper = j / 8, line = j % 8 / 2, side = j % 2 * 16;
        const float scale = quant_half(from + 208) * float(as_type<char>(from[192 + j]));
        QuantBytes low(from + upper * 64 + line % 2 * 32 + side), high(from + 128 + upper * 32 + side);
        low.shift(line / 2 * 4);
        high.shift(line * 2);
        UNROLL for (uint i = 0; i < 8; i++) {
            quant_signed(to, i, low.two(i, 15) | high.two(i, 3) << 4, 32, scale);
        }
    }
};
