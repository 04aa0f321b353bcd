#include "matmul.h"

// A tile of a matmul by SIMD-group matrices: TILE × TILE sums by four SIMD-groups, 16 of the depth at a time.
//
// Double buffering: while one slice of the factors is multiplied in threadgroup memory, the next is loaded to
// registers; it goes to the other stage of that memory, so that there is one barrier for each slice.

#define TILE_DEPTH 16
#define TILE_THREADS 128
// Vectors of four elements that a thread loads from each factor.
#define VECTORS_PER_THREAD (TILE * TILE_DEPTH / 4 / TILE_THREADS)
// Matrices of 8 × 8 that a SIMD-group has in each direction.
#define FRAGMENTS (TILE / 16)
// Padding of lines in threadgroup memory, which keeps neighbours in a column in different banks.
#define LINE_PADDING (16 / sizeof(T))
#define STAGE_LEN (TILE * (TILE_DEPTH + LINE_PADDING))

// Sums stay in registers only if their indices are known at compile time.
#define UNROLL _Pragma("clang loop unroll(full)")

// The slice of a factor that is in registers. In threadgroup memory a slice is lines along which elements are
// neighbours: along the depth (`k_major`), or across it.
struct TileSlice {
    vec<T, 4> values[VECTORS_PER_THREAD];

    // Vectors in a line, lines that all threads load together, and pitch of lines in threadgroup memory.
    static uint width(bool k_major) { return (k_major ? TILE_DEPTH : TILE) / 4; }
    static uint lines(bool k_major) { return TILE_THREADS / width(k_major); }
    static uint pitch(bool k_major) { return (k_major ? TILE_DEPTH : TILE) + LINE_PADDING; }

    void store(threadgroup T* to, bool k_major, uint index) const {
        const uint line = index / width(k_major);
        const uint first = index % width(k_major) * 4;
        for (uint v = 0; v < VECTORS_PER_THREAD; v++) {
            *(threadgroup vec<T, 4>*)(to + (line + v * lines(k_major)) * pitch(k_major) + first) = values[v];
        }
    }
};

// A strided factor, as one thread loads it, slice after slice.
struct StridedFactor {
    // The thread's first vector of the next slice.
    device const T* from;
    // Strides to its next vector, from element to element of one, and to the next slice.
    long vector_stride;
    long element_stride;
    long slice_stride;
    // Its line and the first element of its vector, in any slice; `across` lines of the tile exist.
    uint line;
    uint first;
    uint across;
    uint depth;
    bool k_major;
    bool vector;

    // `start` is the first element of the tile's lines, `strides` those from line to line and along the depth.
    StridedFactor(device const T* start, constant MatrixStrides& strides, bool is_k_major, bool is_vector, uint lines,
                  uint all, uint index) {
        k_major = is_k_major;
        vector = is_vector;
        across = lines;
        depth = all;
        line = index / TileSlice::width(k_major);
        first = index % TileSlice::width(k_major) * 4;
        const long far = k_major ? strides.outer : strides.inner;
        element_stride = k_major ? strides.inner : strides.outer;
        from = start + line * far + first * element_stride;
        vector_stride = TileSlice::lines(k_major) * far;
        slice_stride = TILE_DEPTH * strides.inner;
    }

    // Loads the slice that begins at `k`; slices must be loaded in order.
    void load(thread TileSlice& slice, uint k) {
        const uint lines_left = k_major ? across : depth - k;
        const uint left = k_major ? depth - k : across;
        const uint rest = left > first ? left - first : 0;
        for (uint v = 0; v < VECTORS_PER_THREAD; v++) {
            const uint at = line + v * TileSlice::lines(k_major);
            slice.values[v] = load_four(from + v * vector_stride, element_stride, at < lines_left ? rest : 0, vector);
        }
        from += slice_stride;
    }
};

// The sums of a SIMD-group.
struct TileSums {
    simdgroup_float8x8 of[FRAGMENTS][FRAGMENTS];

    void clear() {
        UNROLL for (uint i = 0; i < FRAGMENTS; i++) {
            UNROLL for (uint j = 0; j < FRAGMENTS; j++) {
                of[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
            }
        }
    }

    // Adds the product of the slices in threadgroup memory, of which this SIMD-group has the lines from `row` and `col`
    // on.
    void multiply_accumulate(threadgroup const T* left, bool left_k_major, threadgroup const T* right,
                             bool right_k_major, uint row, uint col) {
        const uint left_pitch = TileSlice::pitch(left_k_major);
        const uint right_pitch = TileSlice::pitch(right_k_major);
        for (uint k = 0; k < TILE_DEPTH; k += 8) {
            simdgroup_matrix<T, 8, 8> a[FRAGMENTS];
            simdgroup_matrix<T, 8, 8> b[FRAGMENTS];
            UNROLL for (uint i = 0; i < FRAGMENTS; i++) {
                if (left_k_major) {
                    simdgroup_load(a[i], left + (row + 8 * i) * left_pitch + k, left_pitch);
                } else {
                    simdgroup_load(a[i], left + k * left_pitch + row + 8 * i, left_pitch, ulong2(0, 0), true);
                }
            }
            UNROLL for (uint j = 0; j < FRAGMENTS; j++) {
                if (right_k_major) {
                    simdgroup_load(b[j], right + (col + 8 * j) * right_pitch + k, right_pitch, ulong2(0, 0), true);
                } else {
                    simdgroup_load(b[j], right + k * right_pitch + col + 8 * j, right_pitch);
                }
            }
            UNROLL for (uint i = 0; i < FRAGMENTS; i++) {
                UNROLL for (uint j = 0; j < FRAGMENTS; j++) {
                    // Serpentine order, so that the last factor is the next one's first.
                    const uint at = i % 2 == 0 ? j : FRAGMENTS - 1 - j;
                    simdgroup_multiply_accumulate(of[i][at], a[i], b[at], of[i][at]);
                }
            }
        }
    }

    // Stores the sums that are inside the result; this lane has two neighbours of a row of each matrix.
    void store(constant MatmulArgs& p, thread const MatmulOutput<T>& result, uint row, uint col, uint lane) {
        row += lane / 16 * 4 + lane / 2 % 4;
        col += lane / 8 % 2 * 4 + lane % 2 * 2;
        UNROLL for (uint i = 0; i < FRAGMENTS; i++) {
            UNROLL for (uint j = 0; j < FRAGMENTS; j++) {
                const vec<float, 2> two = of[i][j].thread_elements();
                const uint2 at = uint2(row + 8 * i, col + 8 * j);
                for (uint e = 0; e < 2; e++) {
                    if (at.x < p.rows && at.y + e < p.cols) {
                        result.store(p, two[e], at + uint2(0, e));
                    }
                }
            }
        }
    }
};

// Swizzle: blocks of this many rows of tiles are computed column by column, so that threadgroups that run at the same
// time share both factors' lines in the cache.
#define SWIZZLE 8

// The tile, by row and column, that a threadgroup computes.
inline uint2 tile_of(constant MatmulArgs& p, uint group) {
    const uint block = group / (SWIZZLE * p.tile_cols);
    const uint rest = group % (SWIZZLE * p.tile_cols);
    const uint block_rows = min(uint(SWIZZLE), p.tile_rows - block * SWIZZLE);
    return uint2(block * SWIZZLE + rest % block_rows, rest / block_rows);
}

// The product of the lines of a tile, by all threads of a threadgroup. `Right` has the `k_major` and `load` of
// `StridedFactor`; `shared` has space for both stages of both factors.
template <typename Right>
inline void multiply(thread TileSums& sums, thread StridedFactor& left, thread Right& right, uint depth,
                     threadgroup T* shared, uint row, uint col, uint index) {
    threadgroup T* lefts = shared;
    threadgroup T* rights = shared + 2 * STAGE_LEN;
    TileSlice a, b;
    left.load(a, 0);
    right.load(b, 0);
    a.store(lefts, left.k_major, index);
    b.store(rights, right.k_major, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint stage = 0;
    for (uint k = 0; k < depth; k += TILE_DEPTH) {
        const uint next = k + TILE_DEPTH;
        if (next < depth) {
            left.load(a, next);
            right.load(b, next);
        }
        sums.multiply_accumulate(lefts + stage, left.k_major, rights + stage, right.k_major, row, col);
        stage = STAGE_LEN - stage;
        if (next < depth) {
            a.store(lefts + stage, left.k_major, index);
            b.store(rights + stage, right.k_major, index);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}
