#include "product.h"

// A tile of a product by SIMD-group matrices: TILE × TILE sums by four SIMD-groups, 16 of the depth at a time.
//
// While one part of the factors is multiplied in threadgroup memory the next is on its way to registers; it
// goes to the other half of that memory, so that there is one barrier for each part.

#define DEEP 16
#define THREADS 128
// Vectors of four elements that a thread brings from each factor.
#define EACH (TILE * DEEP / 4 / THREADS)
// Matrices of 8 × 8 that a SIMD-group has in each direction.
#define FRAGMENTS (TILE / 16)
// Lines in threadgroup memory are this much longer than they need to be, so that neighbours in a column are
// in different banks.
#define GAP (16 / sizeof(T))
#define HALF (TILE * (DEEP + GAP))

// The part of a factor that is in registers, and where the next one comes from. In memory a part is lines
// along which elements are neighbours: along the depth (`deep`), or across it.
struct Part {
    vec<T, 4> held[EACH];

    // Vectors in a line, lines that all threads bring at once, and distance of lines in threadgroup memory.
    static uint width(bool deep) { return (deep ? DEEP : TILE) / 4; }
    static uint lines(bool deep) { return THREADS / width(deep); }
    static uint pitch(bool deep) { return (deep ? DEEP : TILE) + GAP; }

    void write(threadgroup T* to, bool deep, uint index) const {
        const uint line = index / width(deep);
        const uint first = index % width(deep) * 4;
        for (uint v = 0; v < EACH; v++) {
            threadgroup T* at = to + (line + v * lines(deep)) * pitch(deep) + first;
            for (uint e = 0; e < 4; e++) {
                at[e] = held[v][e];
            }
        }
    }
};

// A factor by strides, from the first line of a tile on, of which `across` lines exist.
struct Lines {
    device const T* from;
    // From line to line, and along the depth.
    long line;
    long step;
    bool deep;
    bool four;
    uint across;
    uint depth;

    // Brings the part that begins at `k`.
    void read(thread Part& part, uint k, uint index) const {
        const uint own = index / Part::width(deep);
        const uint first = index % Part::width(deep) * 4;
        const long far = deep ? line : step;
        const long near = deep ? step : line;
        const uint lines_left = deep ? across : depth - k;
        const uint left = deep ? depth - k : across;
        const uint rest = left > first ? left - first : 0;
        for (uint v = 0; v < EACH; v++) {
            const uint at = own + v * Part::lines(deep);
            device const T* source = from + k * step + at * far + first * near;
            part.held[v] = fetch(source, near, at < lines_left ? rest : 0, four);
        }
    }
};

// The sums of a SIMD-group.
struct Sums {
    simdgroup_float8x8 of[FRAGMENTS][FRAGMENTS];

    void clear() {
        for (uint i = 0; i < FRAGMENTS; i++) {
            for (uint j = 0; j < FRAGMENTS; j++) {
                of[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
            }
        }
    }

    // Adds the product of the parts in threadgroup memory, of which this SIMD-group has the lines from
    // `row` and `col` on.
    void add(threadgroup const T* left, bool left_deep, threadgroup const T* right, bool right_deep, uint row, uint col) {
        const uint left_pitch = Part::pitch(left_deep);
        const uint right_pitch = Part::pitch(right_deep);
        for (uint k = 0; k < DEEP; k += 8) {
            simdgroup_matrix<T, 8, 8> a[FRAGMENTS];
            simdgroup_matrix<T, 8, 8> b[FRAGMENTS];
            for (uint i = 0; i < FRAGMENTS; i++) {
                if (left_deep) {
                    simdgroup_load(a[i], left + (row + 8 * i) * left_pitch + k, left_pitch);
                } else {
                    simdgroup_load(a[i], left + k * left_pitch + row + 8 * i, left_pitch, ulong2(0, 0), true);
                }
            }
            for (uint j = 0; j < FRAGMENTS; j++) {
                if (right_deep) {
                    simdgroup_load(b[j], right + (col + 8 * j) * right_pitch + k, right_pitch, ulong2(0, 0), true);
                } else {
                    simdgroup_load(b[j], right + k * right_pitch + col + 8 * j, right_pitch);
                }
            }
            for (uint i = 0; i < FRAGMENTS; i++) {
                for (uint j = 0; j < FRAGMENTS; j++) {
                    // There and back, so that the last factor is the next one's first.
                    const uint at = i % 2 == 0 ? j : FRAGMENTS - 1 - j;
                    simdgroup_multiply_accumulate(of[i][at], a[i], b[at], of[i][at]);
                }
            }
        }
    }

    // Stores what lies inside the result; this lane has two neighbours of a row of each matrix.
    void put(constant Problem& p, uint row, uint col, uint batch, uint split, uint batches, device void* output,
             device const T* addend, device const T* residual, uint lane) {
        row += lane / 16 * 4 + lane / 2 % 4;
        col += lane / 8 % 2 * 4 + lane % 2 * 2;
        for (uint i = 0; i < FRAGMENTS; i++) {
            for (uint j = 0; j < FRAGMENTS; j++) {
                const vec<float, 2> two = of[i][j].thread_elements();
                const uint3 at = uint3(row + 8 * i, col + 8 * j, batch);
                if (at.x < p.rows && at.y < p.cols) {
                    store(p, two.x, at, split, batches, output, addend, residual);
                }
                if (at.x < p.rows && at.y + 1 < p.cols) {
                    store(p, two.y, at + uint3(0, 1, 0), split, batches, output, addend, residual);
                }
            }
        }
    }
};

// Bands of this many rows of tiles are done column by column: threadgroups that run at the same time share
// both factors' lines in the cache.
#define BAND 8

// The tile, by row and column, that a threadgroup does.
inline uint2 tile_of(constant Problem& p, uint group) {
    const uint band = group / (BAND * p.wide);
    const uint rest = group % (BAND * p.wide);
    const uint tall = min(uint(BAND), p.tall - band * BAND);
    return uint2(band * BAND + rest % tall, rest / tall);
}

// The product of the lines of a tile, by all threads of a threadgroup. `Right` has the `deep` and `read` of
// `Lines`; `shared` has room for both halves of both factors.
template <typename Right>
inline void multiply(thread Sums& sums, thread const Lines& left, thread const Right& right, uint depth,
                     threadgroup T* shared, uint row, uint col, uint index) {
    threadgroup T* lefts = shared;
    threadgroup T* rights = shared + 2 * HALF;
    Part a, b;
    left.read(a, 0, index);
    right.read(b, 0, index);
    a.write(lefts, left.deep, index);
    b.write(rights, right.deep, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint now = 0;
    for (uint k = 0; k < depth; k += DEEP) {
        const uint next = k + DEEP;
        if (next < depth) {
            left.read(a, next, index);
            right.read(b, next, index);
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
