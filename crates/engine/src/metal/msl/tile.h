#include "product.h"

// A tile of a matmul by SIMD-group matrices: TILE × TILE sums by four SIMD-groups, 16 of the depth at a time.
//
// Double buffering: while one slice of the factors is multiplied in threadgroup memory, the next is loaded to
// registers; it goes to the other stage of that memory, so that there is one barrier for each slice.

#define DEEP 16
#define THREADS 128
// Vectors of four elements that a thread loads from each factor.
#define EACH (TILE * DEEP / 4 / THREADS)
// Matrices of 8 × 8 that a SIMD-group has in each direction.
#define FRAGMENTS (TILE / 16)
// Padding of lines in threadgroup memory, which keeps neighbours in a column in different banks.
#define GAP (16 / sizeof(T))
#define HALF (TILE * (DEEP + GAP))

// Sums stay in registers only if their indices are known at compile time.
#define UNROLL _Pragma("clang loop unroll(full)")

// The slice of a factor that is in registers. In threadgroup memory a slice is lines along which elements are
// neighbours: along the depth (`k_major`), or across it.
struct Part {
    vec<T, 4> held[EACH];

    // Vectors in a line, lines that all threads load together, and pitch of lines in threadgroup memory.
    static uint width(bool deep) { return (deep ? DEEP : TILE) / 4; }
    static uint lines(bool deep) { return THREADS / width(deep); }
    static uint pitch(bool deep) { return (deep ? DEEP : TILE) + GAP; }

    void write(threadgroup T* to, bool deep, uint index) const {
        const uint line = index / width(deep);
        const uint first = index % width(deep) * 4;
        for (uint v = 0; v < EACH; v++) {
            *(threadgroup vec<T, 4>*)(to + (line + v * lines(deep)) * pitch(deep) + first) = held[v];
        }
    }
};

// A strided factor, as one thread loads it, slice after slice.
struct Lines {
    // The thread's first vector of the next slice.
    device const T* from;
    // Strides to its next vector, from element to element of one, and to the next slice.
    long hop;
    long near;
    long advance;
    // Its line and the first element of its vector, in any slice; `across` lines of the tile exist.
    uint own;
    uint first;
    uint across;
    uint depth;
    bool deep;
    bool four;

    // `start` is the first element of the tile's lines, `strides` those from line to line and along the depth.
    Lines(device const T* start, constant MatrixStrides& sides, bool lies_deep, bool lies_four, uint lines, uint all,
          uint index) {
        deep = lies_deep;
        four = lies_four;
        across = lines;
        depth = all;
        own = index / Part::width(deep);
        first = index % Part::width(deep) * 4;
        const long far = deep ? sides.line : sides.step;
        near = deep ? sides.step : sides.line;
        from = start + own * far + first * near;
        hop = Part::lines(deep) * far;
        advance = DEEP * sides.step;
    }

    // Loads the slice that begins at `k`; slices must be loaded in order.
    void read(thread Part& part, uint k) {
        const uint lines_left = deep ? across : depth - k;
        const uint left = deep ? depth - k : across;
        const uint rest = left > first ? left - first : 0;
        for (uint v = 0; v < EACH; v++) {
            const uint at = own + v * Part::lines(deep);
            part.held[v] = fetch(from + v * hop, near, at < lines_left ? rest : 0, four);
        }
        from += advance;
    }
};

// The sums of a SIMD-group.
struct Sums {
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
    void add(threadgroup const T* left, bool left_deep, threadgroup const T* right, bool right_deep, uint row, uint col) {
        const uint left_pitch = Part::pitch(left_deep);
        const uint right_pitch = Part::pitch(right_deep);
        for (uint k = 0; k < DEEP; k += 8) {
            simdgroup_matrix<T, 8, 8> a[FRAGMENTS];
            simdgroup_matrix<T, 8, 8> b[FRAGMENTS];
            UNROLL for (uint i = 0; i < FRAGMENTS; i++) {
                if (left_deep) {
                    simdgroup_load(a[i], left + (row + 8 * i) * left_pitch + k, left_pitch);
                } else {
                    simdgroup_load(a[i], left + k * left_pitch + row + 8 * i, left_pitch, ulong2(0, 0), true);
                }
            }
            UNROLL for (uint j = 0; j < FRAGMENTS; j++) {
                if (right_deep) {
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
    void put(constant MatmulArgs& p, thread const Goal<T>& goal, uint row, uint col, uint lane) {
        row += lane / 16 * 4 + lane / 2 % 4;
        col += lane / 8 % 2 * 4 + lane % 2 * 2;
        UNROLL for (uint i = 0; i < FRAGMENTS; i++) {
            UNROLL for (uint j = 0; j < FRAGMENTS; j++) {
                const vec<float, 2> two = of[i][j].thread_elements();
                const uint2 at = uint2(row + 8 * i, col + 8 * j);
                for (uint e = 0; e < 2; e++) {
                    if (at.x < p.rows && at.y + e < p.cols) {
                        goal.store(p, two[e], at + uint2(0, e));
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
    const uint block = group / (SWIZZLE * p.wide);
    const uint rest = group % (SWIZZLE * p.wide);
    const uint tall = min(uint(SWIZZLE), p.tall - block * SWIZZLE);
    return uint2(block * SWIZZLE + rest % tall, rest / tall);
}

// The product of the lines of a tile, by all threads of a threadgroup. `Right` has the `k_major` and `load` of
// `StridedFactor`; `shared` has space for both stages of both factors.
template <typename Right>
inline void multiply(thread Sums& sums, thread Lines& left, thread Right& right, uint depth,
                     threadgroup T* shared, uint row, uint col, uint index) {
    threadgroup T* lefts = shared;
    threadgroup T* rights = shared + 2 * HALF;
    Part a, b;
    left.read(a, 0);
    right.read(b, 0);
    a.write(lefts, left.deep, index);
    b.write(rights, right.deep, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint now = 0;
    for (uint k = 0; k < depth; k += DEEP) {
        const uint next = k + DEEP;
        if (next < depth) {
            left.read(a, next);
            right.read(b, next);
        }
        sums.add(lefts + now, left.deep, rights + now, right.deep, row, col);
        now = HALF - now;
        if (next < depth) {
            a.write(lefts + now, left.deep, index);
            b.write(rights + now, right.deep, index);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}
