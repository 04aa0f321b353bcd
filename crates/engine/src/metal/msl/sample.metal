#include "types.h"
#include "group.h"
#include "exp.h"
#include "host/SampleArgs.h"
#include "host/LogitBias.h"
#include "host/SamplerState.h"
#include "host/TokenRecord.h"

// Sampling of a token from the logits of a row, by one threadgroup.
//
// Weights are integers in units of 2^-40: their sums do not depend on the order of the threads, so that the same logits
// and random numbers always sample the same token. Nothing is sorted: a limit is the last token of the shortest prefix
// of the order that reaches a sum, and it is found by histograms, whose bins are refined until few tokens are left
// (radix select). Those are compared with each other.

FUNCTION_CONSTANT(bool, BIAS);
FUNCTION_CONSTANT(bool, PENALTY);
FUNCTION_CONSTANT(bool, GREEDY);
FUNCTION_CONSTANT(bool, TOP_K);
FUNCTION_CONSTANT(bool, TYPICAL);
FUNCTION_CONSTANT(bool, TOP_P);
// Whether any state is carried from token to token.
FUNCTION_CONSTANT(bool, STATE);
// Whether logits are changed in place, or only read.
FUNCTION_CONSTANT(bool, CHANGED);
FUNCTION_CONSTANT(bool, READ);

#define BINS 1024
#define BIN_BITS 10
// Bins per unit of logits.
#define FINENESS 32.0f
// Maximum tokens that are compared with each other.
#define LIST 512
// An entry has the sortable bits of a logit above its token; the first of equals is the greatest. 0 is none.
#define TOKEN_BITS 20
#define LAST_TOKEN 0xFFFFFu
#define ENTRY_BITS (32 + TOKEN_BITS)

inline ulong entry_of(float logit, uint token) {
    const uint bits = as_type<uint>(logit);
    const uint order = bits ^ (uint(int(bits) >> 31) | 0x80000000u);
    return isnan(logit) ? 0 : ulong(order) << TOKEN_BITS | (LAST_TOKEN - token);
}

inline uint token_of(ulong entry) {
    return LAST_TOKEN - (uint(entry) & LAST_TOKEN);
}

inline float logit_of(ulong entry) {
    const uint order = uint(entry >> TOKEN_BITS);
    return as_type<float>(order ^ (order >> 31 != 0 ? 0x80000000u : 0xFFFFFFFFu));
}

// The upper 64 bits of a product.
inline ulong product_above(ulong a, ulong b) {
    const ulong a_high = a >> 32, a_low = a & 0xffffffff, b_high = b >> 32, b_low = b & 0xffffffff;
    const ulong middle = a_high * b_low + (a_low * b_low >> 32);
    const ulong other = a_low * b_high + (middle & 0xffffffff);
    return a_high * b_high + (middle >> 32) + (other >> 32);
}

// e^x as a weight, for x <= 0.
inline ulong weight_of(float x) {
    return ulong(exp_precise(x) * 0x1p40f);
}

// Position of a thread in the threadgroup, whose size is a power of two.
struct Team {
    uint index;
    uint threads;
    uint lane;
    uint simd_group;
    uint simd_groups;
};

// Threadgroup memory.
struct Space {
    threadgroup atomic_uint* counts;
    threadgroup atomic_uint* lows;
    threadgroup atomic_uint* highs;
    threadgroup ulong* entries;
    threadgroup ulong* orders;
    threadgroup ulong* weights;
    // A value of each SIMD-group.
    threadgroup ulong* parts;
    // Values that one thread broadcasts to the others.
    threadgroup ulong* told;
};

struct Most {
    typedef ulong State;
    static State identity() { return 0; }
    static State join(State a, State b) { return a > b ? a : b; }
    static State pass(State state, ushort bits) { return lane_xor(state, bits); }
};

struct Total {
    typedef ulong State;
    static State identity() { return 0; }
    static State join(State a, State b) { return a + b; }
    static State pass(State state, ushort bits) { return lane_xor(state, bits); }
};

// Broadcasts the value of the first thread.
inline ulong tell(ulong value, Team team, Space space) {
    if (team.index == 0) {
        space.told[0] = value;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    value = space.told[0];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return value;
}

template <typename F> inline ulong of_all(ulong value, Team team, Space space) {
    value = group_join<F>(value, space.parts, team.lane, team.simd_group, team.simd_groups);
    return tell(value, team, space);
}

// The exclusive prefix sum over the threads, and the sum of all.
inline ulong sum_before(ulong value, Team team, Space space, thread ulong& all) {
    ulong sum = value;
    for (ushort by = 1; by < 32; by *= 2) {
        const ulong other = lane_up(sum, by);
        sum += team.lane >= by ? other : 0;
    }
    if (team.lane == 31) {
        space.parts[team.simd_group] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    ulong before = sum - value;
    all = 0;
    for (uint i = 0; i < team.simd_groups; i++) {
        before += i < team.simd_group ? space.parts[i] : 0;
        all += space.parts[i];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return before;
}

// Weights of tokens.
enum Measure { EACH_ONE, AS_GIVEN, AS_DRAWN };

// The tokens that remain: those of the vocabulary, or of the list, that are within the bounds.
struct Left {
    device const float* logits;
    uint count;
    bool listed;
    // The greatest logit of the candidates.
    float top;
    // The least entry, and the least in the other order: by the distance of logits from a mean, nearest first.
    ulong bound;
    ulong near;
    bool by_distance;
    // Origin of the mean, and how far the mean is below it.
    float origin;
    float mean;

    float distance(float logit) const { return fabs((origin - logit) - mean); }

    ulong other_order(ulong entry) const {
        const uint nearness = ~as_type<uint>(distance(logit_of(entry)));
        return ulong(nearness) << TOKEN_BITS | (entry & LAST_TOKEN);
    }

    ulong order(ulong entry) const { return by_distance ? other_order(entry) : entry; }

    // The first bin of a token; tokens that come earlier in the order have lower ones.
    uint bin(ulong entry) const {
        const float logit = logit_of(entry);
        const float below = by_distance ? distance(logit) : top - logit;
        return uint(min(below * FINENESS, float(BINS - 1)));
    }

    // The entry at an index; 0 if it is no candidate.
    ulong at(uint i, Space space) const {
        const ulong entry = listed ? space.entries[i] : entry_of(logits[i], i);
        return entry >= bound && (near == 0 || other_order(entry) >= near) ? entry : 0;
    }
};

inline ulong measure(Measure by, thread const Left& left, constant SampleArgs& options, ulong entry) {
    if (by == EACH_ONE) {
        return 1;
    }
    const float x = logit_of(entry) - left.top;
    if (by == AS_GIVEN) {
        return weight_of(x);
    }
    return exp_precise(x) < options.min_p ? 0 : weight_of(x * options.sharpness);
}

inline void clear(Team team, Space space) {
    for (uint i = team.index; i < BINS; i += team.threads) {
        atomic_store_explicit(&space.counts[i], 0, memory_order_relaxed);
        atomic_store_explicit(&space.lows[i], 0, memory_order_relaxed);
        atomic_store_explicit(&space.highs[i], 0, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

inline void count_into(uint bin, ulong weight, Space space) {
    const uint low = uint(weight);
    const uint old = atomic_fetch_add_explicit(&space.lows[bin], low, memory_order_relaxed);
    const uint high = uint(weight >> 32) + (old + low < old ? 1 : 0);
    if (high != 0) {
        atomic_fetch_add_explicit(&space.highs[bin], high, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&space.counts[bin], 1, memory_order_relaxed);
}

// Where a sum is reached, with the sum and the count before it.
struct Place {
    uint bin;
    uint count;
    ulong before;
    uint count_before;
    // The sum of all bins.
    ulong all;
};

// The sum to reach: a fraction of the total, in units of 2^-64, plus an offset, but at least a minimum.
struct Goal {
    ulong number;
    ulong share;
    ulong more;

    ulong of(ulong all) const {
        const ulong part = product_above(all, share) + more;
        return part > number ? part : number;
    }
};

inline ulong weight_at(uint bin, Space space) {
    const ulong high = atomic_load_explicit(&space.highs[bin], memory_order_relaxed);
    return high << 32 | atomic_load_explicit(&space.lows[bin], memory_order_relaxed);
}

// The bin in which the sum reaches the target; `so_far` has been reached before. BINS if the total is less.
inline Place find_bin(Goal goal, ulong so_far, Team team, Space space) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint own = BINS / team.threads;
    ulong weight = 0;
    ulong count = 0;
    for (uint i = team.index * own; i < (team.index + 1) * own; i++) {
        weight += weight_at(i, space);
        count += atomic_load_explicit(&space.counts[i], memory_order_relaxed);
    }
    Place place;
    ulong counted;
    ulong before = so_far + sum_before(weight, team, space, place.all);
    ulong count_before = sum_before(count, team, space, counted);
    const ulong target = goal.of(so_far + place.all);
    if (team.index == 0) {
        space.told[0] = BINS;
        space.told[1] = space.told[2] = space.told[3] = 0;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // Every thread goes through its bins, and the one that has the bin only stores it: no thread is alone in a loop
    // that the others wait for.
    uint bin = BINS;
    uint reached_count = 0;
    ulong reached = 0;
    ulong reached_before = 0;
    for (uint i = team.index * own; i < (team.index + 1) * own; i++) {
        const ulong here = weight_at(i, space);
        const uint counted_here = atomic_load_explicit(&space.counts[i], memory_order_relaxed);
        const bool reaches = before < target && before + here >= target;
        bin = reaches ? i : bin;
        reached_count = reaches ? counted_here : reached_count;
        reached = reaches ? before : reached;
        reached_before = reaches ? count_before : reached_before;
        before += here;
        count_before += counted_here;
    }
    if (bin < BINS) {
        space.told[0] = bin;
        space.told[1] = reached_count;
        space.told[2] = reached;
        space.told[3] = reached_before;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    place.bin = uint(space.told[0]);
    place.count = uint(space.told[1]);
    place.before = space.told[2];
    place.count_before = uint(space.told[3]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return place;
}

// The last token of the shortest prefix that reaches a target.
struct Found {
    // In the requested order; 0 if the total does not reach it.
    ulong order;
    // Length of the prefix.
    uint count;
};

// Finds it among `count` entries of the list, given the sum and the count before them.
inline Found find_listed(ulong target, uint count, ulong before, uint count_before, Team team, Space space) {
    if (team.index == 0) {
        space.told[0] = space.told[1] = 0;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = team.index; i < count; i += team.threads) {
        const ulong own = space.orders[i];
        ulong sum = before;
        uint rank = 0;
        for (uint j = 0; j < count; j++) {
            const bool comes = space.orders[j] >= own;
            sum += comes ? space.weights[j] : 0;
            rank += comes ? 1 : 0;
        }
        if (sum >= target && sum - space.weights[i] < target) {
            space.told[0] = own;
            space.told[1] = count_before + rank;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const Found found = {space.told[0], uint(space.told[1])};
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return found;
}

inline Found reach(thread const Left& left, Measure by, Goal goal, constant SampleArgs& options, Team team, Space space) {
    if (left.listed) {
        ulong sum = 0;
        for (uint i = team.index; i < left.count; i += team.threads) {
            const ulong entry = left.at(i, space);
            const ulong weight = entry == 0 ? 0 : measure(by, left, options, entry);
            space.orders[i] = entry == 0 ? 0 : left.order(entry);
            space.weights[i] = weight;
            sum += weight;
        }
        // This is also a barrier for the list.
        const ulong all = of_all<Total>(sum, team, space);
        return find_listed(goal.of(all), left.count, 0, 0, team, space);
    }
    clear(team, space);
    for (uint i = team.index; i < left.count; i += team.threads) {
        const ulong entry = left.at(i, space);
        if (entry != 0) {
            count_into(left.bin(entry), measure(by, left, options, entry), space);
        }
    }
    Place place = find_bin(goal, 0, team, space);
    if (place.bin == BINS) {
        return Found{0, 0};
    }
    const ulong target = goal.of(place.all);
    const Goal rest = {target, 0, 0};
    const uint bin = place.bin;
    // Bits of the order that are not yet known, and those that are.
    uint open = ENTRY_BITS;
    ulong known = 0;
    while (place.count > LIST) {
        const uint bits = min(uint(BIN_BITS), open);
        const uint last = (1u << bits) - 1;
        clear(team, space);
        for (uint i = team.index; i < left.count; i += team.threads) {
            const ulong entry = left.at(i, space);
            if (entry != 0 && left.bin(entry) == bin && left.order(entry) >> open == known) {
                const uint digit = uint(left.order(entry) >> (open - bits)) & last;
                count_into(last - digit, measure(by, left, options, entry), space);
            }
        }
        const uint count_before = place.count_before;
        place = find_bin(rest, place.before, team, space);
        place.count_before += count_before;
        known = known << bits | (last - place.bin);
        open -= bits;
    }
    threadgroup atomic_uint* next = space.counts;
    clear(team, space);
    for (uint i = team.index; i < left.count; i += team.threads) {
        const ulong entry = left.at(i, space);
        if (entry != 0 && left.bin(entry) == bin && left.order(entry) >> open == known) {
            const uint to = atomic_fetch_add_explicit(next, 1, memory_order_relaxed);
            space.orders[to] = left.order(entry);
            space.weights[to] = measure(by, left, options, entry);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return find_listed(target, place.count, place.before, place.count_before, team, space);
}

// Lists the candidates if they are few: `count` tokens.
inline void list(thread Left& left, uint count, Team team, Space space) {
    if (left.listed || count > LIST) {
        return;
    }
    threadgroup atomic_uint* next = space.counts;
    clear(team, space);
    for (uint i = team.index; i < left.count; i += team.threads) {
        const ulong entry = left.at(i, space);
        if (entry != 0) {
            const uint to = atomic_fetch_add_explicit(next, 1, memory_order_relaxed);
            space.entries[to] = entry;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    left.listed = true;
    left.count = count;
}

// The greatest entry of the candidates.
inline ulong greatest(thread const Left& left, Team team, Space space) {
    ulong most = 0;
    for (uint i = team.index; i < left.count; i += team.threads) {
        most = Most::join(most, left.at(i, space));
    }
    return of_all<Most>(most, team, space);
}

// Locally typical sampling: keeps the tokens whose information is nearest to the expected one. Information is the
// distance from the top, up to a constant that is the same for all.
inline void leave_typical(thread Left& left, constant SampleArgs& options, Team team, Space space) {
    ulong weights = 0;
    ulong products = 0;
    for (uint i = team.index; i < left.count; i += team.threads) {
        const ulong entry = left.at(i, space);
        if (entry != 0) {
            const float below = left.top - logit_of(entry);
            const float weight = exp_precise(-below);
            weights += ulong(weight * 0x1p40f);
            // A token without weight may be infinitely far below.
            products += weight > 0 ? ulong(weight * below * 0x1p40f) : 0;
        }
    }
    weights = of_all<Total>(weights, team, space);
    products = of_all<Total>(products, team, space);
    left.origin = left.top;
    left.mean = float(products) / float(weights);
    left.by_distance = true;
    const Found found = reach(left, AS_GIVEN, Goal{1, options.typical, 0}, options, team, space);
    left.by_distance = false;
    left.near = found.order;
    list(left, found.count, team, space);
    left.top = logit_of(greatest(left, team, space));
}

// Biases and penalties, in place.
inline void adjust(device float* logits, device const LogitBias* biases, device const SamplerState* state,
                   device const TokenRecord* records, device const uint* history, constant SampleArgs& options, Team team) {
    if (BIAS) {
        for (uint i = team.index; i < options.biases; i += team.threads) {
            logits[biases[i].token] += biases[i].added;
        }
        threadgroup_barrier(mem_flags::mem_device);
    }
    if (PENALTY) {
        const uint seen = state->seen;
        for (uint i = team.index; i < min(seen, options.window); i += team.threads) {
            const uint token = history[i];
            // The last time that this slot of the window was written. A token is penalised at its last slot.
            const uint number = i + (seen - 1 - i) / options.window * options.window;
            if (token < options.vocab && records[token].last == number) {
                const float logit = logits[token];
                const float scaled = logit > 0 ? logit / options.repetition : logit * options.repetition;
                const float often = options.frequency * float(records[token].count);
                logits[token] = scaled - (options.presence + often);
            }
        }
        threadgroup_barrier(mem_flags::mem_device);
    }
}

// Adds a token to those seen.
inline void remember(uint token, device SamplerState* state, device TokenRecord* records, device uint* history,
                     constant SampleArgs& options) {
    const uint number = state->seen;
    const uint place = number % options.window;
    if (number >= options.window && history[place] < options.vocab) {
        records[history[place]].count -= 1;
    }
    history[place] = token;
    records[token].count += 1;
    records[token].last = number;
    state->seen = number + 1;
}

// The random number of a draw, as 24 bits: SplitMix64, a counter put through a mixing function.
inline ulong draw(ulong seed, ulong draws) {
    ulong z = seed + draws * 0x9E3779B97F4A7C15ul;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ul;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBul;
    return (z ^ (z >> 31)) >> 40;
}

kernel void ENTRY(sample)(device const float* given [[buffer(0), function_constant(READ)]],
                          device float* changed [[buffer(1), function_constant(CHANGED)]],
                          device const LogitBias* biases [[buffer(2), function_constant(BIAS)]],
                          device SamplerState* state [[buffer(3), function_constant(STATE)]],
                          device TokenRecord* records [[buffer(4), function_constant(PENALTY)]],
                          device uint* history [[buffer(5), function_constant(PENALTY)]],
                          device uint* next_token [[buffer(6)]], device uint* id [[buffer(7)]],
                          constant SampleArgs& options [[buffer(8)]],
                          uint index [[thread_index_in_threadgroup]], uint threads [[threads_per_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint simd_group [[simdgroup_index_in_threadgroup]],
                          uint simd_groups [[simdgroups_per_threadgroup]]) {
    threadgroup atomic_uint counts[BINS];
    threadgroup atomic_uint lows[BINS];
    threadgroup atomic_uint highs[BINS];
    threadgroup ulong entries[LIST];
    threadgroup ulong orders[LIST];
    threadgroup ulong weights[LIST];
    threadgroup ulong parts[32];
    threadgroup ulong told[4];
    const Team team = {index, threads, lane, simd_group, simd_groups};
    const Space space = {counts, lows, highs, entries, orders, weights, parts, told};
    adjust(changed, biases, state, records, history, options, team);
    device const float* logits = CHANGED ? changed : given;

    ulong first = 0;
    for (uint i = index; i < options.vocab; i += threads) {
        const float logit = logits[i];
        // Zeros of either sign are equal here, as in comparisons.
        first = Most::join(first, entry_of(GREEDY && logit == 0 ? 0.0f : logit, i));
    }
    first = of_all<Most>(first, team, space);
    const float top = first == 0 ? -INFINITY : logit_of(first);
    // All logits are -infinity or NaN: the first token.
    uint token = top == -INFINITY ? 0 : token_of(first);
    if (!GREEDY) {
        // All threads compute it, so that none waits for a single one.
        const ulong draws = state->draws + 1;
        const ulong random = draw(state->seed, draws);
        threadgroup_barrier(mem_flags::mem_device);
        if (index == 0) {
            state->draws = draws;
        }
        if (!isinf(top)) {
            Left left = {logits, options.vocab, false, top, 1, 0, false, 0, 0};
            if (TOP_K) {
                const Found found = reach(left, EACH_ONE, Goal{options.top_k, 0, 0}, options, team, space);
                if (found.order != 0) {
                    left.bound = found.order;
                    list(left, found.count, team, space);
                }
            }
            if (TYPICAL) {
                leave_typical(left, options, team, space);
            }
            if (TOP_P) {
                const Found found = reach(left, AS_GIVEN, Goal{1, options.top_p, 0}, options, team, space);
                left.bound = found.order;
                list(left, found.count, team, space);
            }
            token = token_of(reach(left, AS_DRAWN, Goal{1, random << 40, 1}, options, team, space).order);
        }
    }
    if (index == 0) {
        if (PENALTY) {
            remember(token, state, records, history, options);
        }
        *next_token = token;
        *id = token;
    }
}
