// Angles in units of 2^-64 turns: products of a table's entry with an integer position wrap, so that whole turns do not
// matter and no position is too large.

// The cosine and the sine of an angle.
inline float2 cosine_and_sine(ulong turns) {
    // The nearest quarter turn, and the remainder, at most an eighth, in radians. The upper half of its bits is more
    // than float has.
    const uint quarter = uint((turns + (1ul << 61)) >> 62);
    const long rest = long(turns - (ulong(quarter) << 62));
    const float radians = float(int(rest >> 32)) * 0x1.921fb6p-30f;
    const float near = precise::cos(radians);
    const float far = precise::sin(radians);
    const float cosine = quarter % 2 == 0 ? near : far;
    const float sine = quarter % 2 == 0 ? far : near;
    return float2(quarter == 1 || quarter == 2 ? -cosine : cosine, quarter >= 2 ? -sine : sine);
}
