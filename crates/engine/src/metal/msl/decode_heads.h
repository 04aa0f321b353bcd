// Heads of queries, keys and values of a token. The struct is that of decoder/plan/attention.rs.

struct Heads {
    uint width;
    uint heads;
    uint kv_heads;
    uint dim;
    // Pairs of a head that turn.
    uint pairs;
    // Positions there is room for.
    uint capacity;
    // Positions that a token sees.
    uint window;
    // Threadgroups that share the keys of a head.
    uint splits;
    float eps;
    // What turned elements are multiplied with.
    float factor;
    float scale;
    float cap;
    // How often lanes take rows of the matrices.
    uint repeats;
};

// The elements of pair `p` of a head; those past the ones that turn are pairs of neighbours.
inline uint2 pair_place(constant Heads& heads, bool interleaved, uint p) {
    if (interleaved || p >= heads.pairs) {
        return uint2(2 * p, 2 * p + 1);
    }
    return uint2(p, p + heads.pairs);
}
