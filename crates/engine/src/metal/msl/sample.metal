#include "types.h"
#include "threadgroup_reduce.h"
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
FUNCTION_CONSTANT(bool, IN_PLACE);
FUNCTION_CONSTANT(bool, READ_ONLY);

#define BINS 1024
#define BIN_BITS 10
// Bins per unit of logits.
#define BINS_PER_LOGIT 32.0f
// Maximum tokens that are compared with each other.
#define MAX_LISTED 512
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
inline ulong mulhi_64(ulong a, ulong b) {
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
struct ThreadIndex {
    uint index;
    uint threads;
    uint lane;
    uint simd_group;
    uint simd_groups;
};

// Threadgroup memory.
struct Scratch {
    threadgroup atomic_uint* counts;
    threadgroup atomic_uint* lows;
    threadgroup atomic_uint* highs;
    threadgroup ulong* entries;
    threadgroup ulong* orders;
    threadgroup ulong* weights;
    // A value of each SIMD-group.
    threadgroup ulong* partials;
    // Values that one thread broadcasts to the others.
    threadgroup ulong* broadcast;
};

struct Maximum {
    typedef ulong State;
    static State identity() { return 0; }
    static State combine(State a, State b) { return a > b ? a : b; }
    static State shuffle_xor(State state, ushort bits) { return lane_xor(state, bits); }
};

struct Total {
    typedef ulong State;
    static State identity() { return 0; }
    static State combine(State a, State b) { return a + b; }
    static State shuffle_xor(State state, ushort bits) { return lane_xor(state, bits); }
};

// Broadcasts the value of the first thread.
inline ulong broadcast_first(ulong value, ThreadIndex tid, Scratch scratch) {
    if (tid.index == 0) {
        scratch.broadcast[0] = value;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    value = scratch.broadcast[0];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return value;
}

template <typename F> inline ulong all_reduce(ulong value, ThreadIndex tid, Scratch scratch) {
    value = group_combine<F>(value, scratch.partials, tid.lane, tid.simd_group, tid.simd_groups);
    return broadcast_first(value, tid, scratch);
}

// The exclusive prefix sum over the threads, and the sum of all.
inline ulong prefix_sum(ulong value, ThreadIndex tid, Scratch scratch, thread ulong& all) {
    ulong sum = value;
    for (ushort by = 1; by < 32; by *= 2) {
        const ulong other = lane_up(sum, by);
        sum += tid.lane >= by ? other : 0;
    }
    if (tid.lane == 31) {
        scratch.partials[tid.simd_group] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    ulong before = sum - value;
    all = 0;
    for (uint i = 0; i < tid.simd_groups; i++) {
        before += i < tid.simd_group ? scratch.partials[i] : 0;
        all += scratch.partials[i];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return before;
}

// Weights of tokens.
enum Weighting { UNIT_WEIGHT, PROBABILITY, SAMPLING_WEIGHT };

// The tokens that remain: those of the vocabulary, or of the list, that are within the bounds.
struct Candidates {
    device const float* logits;
    uint count;
    bool listed;
    // The greatest logit of the candidates.
    float top;
    // The least entry, and the least in the other order: by the distance of logits from a mean, nearest first.
    ulong bound;
    ulong distance_bound;
    bool by_distance;
    // Origin of the mean, and how far the mean is below it.
    float mean_origin;
    float mean;

    float distance(float logit) const { return fabs((mean_origin - logit) - mean); }

    ulong other_order(ulong entry) const {
        const uint nearness = ~as_type<uint>(distance(logit_of(entry)));
        return ulong(nearness) << TOKEN_BITS | (entry & LAST_TOKEN);
    }

    ulong order(ulong entry) const { return by_distance ? other_order(entry) : entry; }

    // The first bin of a token; tokens that come earlier in the order have lower ones.
    uint bin(ulong entry) const {
        const float logit = logit_of(entry);
        const float below = by_distance ? distance(logit) : top - logit;
        return uint(min(below * BINS_PER_LOGIT, float(BINS - 1)));
    }

    // The entry at an index; 0 if it is no candidate.
    ulong at(uint i, Scratch scratch) const {
        const ulong entry = listed ? scratch.entries[i] : entry_of(logits[i], i);
        return entry >= bound && (distance_bound == 0 || other_order(entry) >= distance_bound) ? entry : 0;
    }
};

inline ulong weigh(Weighting by, thread const Candidates& candidates, constant SampleArgs& options, ulong entry) {
    if (by == UNIT_WEIGHT) {
        return 1;
    }
    const float x = logit_of(entry) - candidates.top;
    if (by == PROBABILITY) {
        return weight_of(x);
    }
    return exp_precise(x) < options.min_p ? 0 : weight_of(x * options.sharpness);
}

inline void clear(ThreadIndex tid, Scratch scratch) {
    for (uint i = tid.index; i < BINS; i += tid.threads) {
        atomic_store_explicit(&scratch.counts[i], 0, memory_order_relaxed);
        atomic_store_explicit(&scratch.lows[i], 0, memory_order_relaxed);
        atomic_store_explicit(&scratch.highs[i], 0, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

inline void count_into(uint bin, ulong weight, Scratch scratch) {
    const uint low = uint(weight);
    const uint old = atomic_fetch_add_explicit(&scratch.lows[bin], low, memory_order_relaxed);
    const uint high = uint(weight >> 32) + (old + low < old ? 1 : 0);
    if (high != 0) {
        atomic_fetch_add_explicit(&scratch.highs[bin], high, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&scratch.counts[bin], 1, memory_order_relaxed);
}

// Where a sum is reached, with the sum and the count before it.
struct BinPosition {
    uint bin;
    uint count;
    ulong before;
    uint count_before;
    // The sum of all bins.
    ulong all;
};

// The sum to reach: a fraction of the total, in units of 2^-64, plus an offset, but at least a minimum.
struct Target {
    ulong minimum;
    ulong fraction;
    ulong offset;

    ulong of(ulong all) const {
        const ulong part = mulhi_64(all, fraction) + offset;
        return part > minimum ? part : minimum;
    }
};

inline ulong weight_at(uint bin, Scratch scratch) {
    const ulong high = atomic_load_explicit(&scratch.highs[bin], memory_order_relaxed);
    return high << 32 | atomic_load_explicit(&scratch.lows[bin], memory_order_relaxed);
}

// The bin in which the sum reaches the target; `so_far` has been reached before. BINS if the total is less.
inline BinPosition find_bin(Target target, ulong so_far, ThreadIndex tid, Scratch scratch) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint own = BINS / tid.threads;
    ulong weight = 0;
    ulong count = 0;
    for (uint i = tid.index * own; i < (tid.index + 1) * own; i++) {
        weight += weight_at(i, scratch);
        count += atomic_load_explicit(&scratch.counts[i], memory_order_relaxed);
    }
    BinPosition position;
    ulong counted;
    ulong before = so_far + prefix_sum(weight, tid, scratch, position.all);
    ulong count_before = prefix_sum(count, tid, scratch, counted);
    const ulong threshold = target.of(so_far + position.all);
    if (tid.index == 0) {
        scratch.broadcast[0] = BINS;
        scratch.broadcast[1] = scratch.broadcast[2] = scratch.broadcast[3] = 0;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // Every thread goes through its bins, and the one that has the bin only stores it: no thread is alone in a loop
    // that the others wait for.
    uint bin = BINS;
    uint reached_count = 0;
    ulong reached = 0;
    ulong reached_before = 0;
    for (uint i = tid.index * own; i < (tid.index + 1) * own; i++) {
        const ulong bin_weight = weight_at(i, scratch);
        const uint counted_here = atomic_load_explicit(&scratch.counts[i], memory_order_relaxed);
        const bool reaches = before < threshold && before + bin_weight >= threshold;
        bin = reaches ? i : bin;
        reached_count = reaches ? counted_here : reached_count;
        reached = reaches ? before : reached;
        reached_before = reaches ? count_before : reached_before;
        before += bin_weight;
        count_before += counted_here;
    }
    if (bin < BINS) {
        scratch.broadcast[0] = bin;
        scratch.broadcast[1] = reached_count;
        scratch.broadcast[2] = reached;
        scratch.broadcast[3] = reached_before;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    position.bin = uint(scratch.broadcast[0]);
    position.count = uint(scratch.broadcast[1]);
    position.before = scratch.broadcast[2];
    position.count_before = uint(scratch.broadcast[3]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return position;
}

// The last token of the shortest prefix that reaches a target.
struct Cutoff {
    // In the requested order; 0 if the total does not reach it.
    ulong order;
    // Length of the prefix.
    uint count;
};

// Finds it among `count` entries of the list, given the sum and the count before them.
inline Cutoff find_listed(ulong threshold, uint count, ulong before, uint count_before, ThreadIndex tid,
                          Scratch scratch) {
    if (tid.index == 0) {
        scratch.broadcast[0] = scratch.broadcast[1] = 0;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = tid.index; i < count; i += tid.threads) {
        const ulong own = scratch.orders[i];
        ulong sum = before;
        uint rank = 0;
        for (uint j = 0; j < count; j++) {
            const bool precedes = scratch.orders[j] >= own;
            sum += precedes ? scratch.weights[j] : 0;
            rank += precedes ? 1 : 0;
        }
        if (sum >= threshold && sum - scratch.weights[i] < threshold) {
            scratch.broadcast[0] = own;
            scratch.broadcast[1] = count_before + rank;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const Cutoff cutoff = {scratch.broadcast[0], uint(scratch.broadcast[1])};
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return cutoff;
}

inline Cutoff find_cutoff(thread const Candidates& candidates, Weighting by, Target target,
                          constant SampleArgs& options, ThreadIndex tid, Scratch scratch) {
    if (candidates.listed) {
        ulong sum = 0;
        for (uint i = tid.index; i < candidates.count; i += tid.threads) {
            const ulong entry = candidates.at(i, scratch);
            const ulong weight = entry == 0 ? 0 : weigh(by, candidates, options, entry);
            scratch.orders[i] = entry == 0 ? 0 : candidates.order(entry);
            scratch.weights[i] = weight;
            sum += weight;
        }
        // This is also a barrier for the list.
        const ulong all = all_reduce<Total>(sum, tid, scratch);
        return find_listed(target.of(all), candidates.count, 0, 0, tid, scratch);
    }
    clear(tid, scratch);
    for (uint i = tid.index; i < candidates.count; i += tid.threads) {
        const ulong entry = candidates.at(i, scratch);
        if (entry != 0) {
            count_into(candidates.bin(entry), weigh(by, candidates, options, entry), scratch);
        }
    }
    BinPosition position = find_bin(target, 0, tid, scratch);
    if (position.bin == BINS) {
        return Cutoff{0, 0};
    }
    const ulong threshold = target.of(position.all);
    const Target rest = {threshold, 0, 0};
    const uint bin = position.bin;
    // Bits of the order that are not yet known, and those that are.
    uint open_bits = ENTRY_BITS;
    ulong prefix = 0;
    while (position.count > MAX_LISTED) {
        const uint bits = min(uint(BIN_BITS), open_bits);
        const uint last = (1u << bits) - 1;
        clear(tid, scratch);
        for (uint i = tid.index; i < candidates.count; i += tid.threads) {
            const ulong entry = candidates.at(i, scratch);
            if (entry != 0 && candidates.bin(entry) == bin && candidates.order(entry) >> open_bits == prefix) {
                const uint digit = uint(candidates.order(entry) >> (open_bits - bits)) & last;
                count_into(last - digit, weigh(by, candidates, options, entry), scratch);
            }
        }
        const uint count_before = position.count_before;
        position = find_bin(rest, position.before, tid, scratch);
        position.count_before += count_before;
        prefix = prefix << bits | (last - position.bin);
        open_bits -= bits;
    }
    threadgroup atomic_uint* next = scratch.counts;
    clear(tid, scratch);
    for (uint i = tid.index; i < candidates.count; i += tid.threads) {
        const ulong entry = candidates.at(i, scratch);
        if (entry != 0 && candidates.bin(entry) == bin && candidates.order(entry) >> open_bits == prefix) {
            const uint to = atomic_fetch_add_explicit(next, 1, memory_order_relaxed);
            scratch.orders[to] = candidates.order(entry);
            scratch.weights[to] = weigh(by, candidates, options, entry);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return find_listed(threshold, position.count, position.before, position.count_before, tid, scratch);
}

// Lists the candidates if they are few: `count` tokens.
inline void list_candidates(thread Candidates& candidates, uint count, ThreadIndex tid, Scratch scratch) {
    if (candidates.listed || count > MAX_LISTED) {
        return;
    }
    threadgroup atomic_uint* next = scratch.counts;
    clear(tid, scratch);
    for (uint i = tid.index; i < candidates.count; i += tid.threads) {
        const ulong entry = candidates.at(i, scratch);
        if (entry != 0) {
            const uint to = atomic_fetch_add_explicit(next, 1, memory_order_relaxed);
            scratch.entries[to] = entry;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    candidates.listed = true;
    candidates.count = count;
}

// The greatest entry of the candidates.
inline ulong greatest_entry(thread const Candidates& candidates, ThreadIndex tid, Scratch scratch) {
    ulong maximum = 0;
    for (uint i = tid.index; i < candidates.count; i += tid.threads) {
        maximum = Maximum::combine(maximum, candidates.at(i, scratch));
    }
    return all_reduce<Maximum>(maximum, tid, scratch);
}

// Locally typical sampling: keeps the tokens whose information is nearest to the expected one. Information is the
// distance from the top, up to a constant that is the same for all.
inline void keep_typical(thread Candidates& candidates, constant SampleArgs& options, ThreadIndex tid,
                         Scratch scratch) {
    ulong weights = 0;
    ulong products = 0;
    for (uint i = tid.index; i < candidates.count; i += tid.threads) {
        const ulong entry = candidates.at(i, scratch);
        if (entry != 0) {
            const float below = candidates.top - logit_of(entry);
            const float weight = exp_precise(-below);
            weights += ulong(weight * 0x1p40f);
            // A token without weight may be infinitely far below.
            products += weight > 0 ? ulong(weight * below * 0x1p40f) : 0;
        }
    }
    weights = all_reduce<Total>(weights, tid, scratch);
    products = all_reduce<Total>(products, tid, scratch);
    candidates.mean_origin = candidates.top;
    candidates.mean = float(products) / float(weights);
    candidates.by_distance = true;
    const Cutoff cutoff = find_cutoff(candidates, PROBABILITY, Target{1, options.typical, 0}, options, tid, scratch);
    candidates.by_distance = false;
    candidates.distance_bound = cutoff.order;
    list_candidates(candidates, cutoff.count, tid, scratch);
    candidates.top = logit_of(greatest_entry(candidates, tid, scratch));
}

// Applies biases and penalties in place.
inline void apply_biases_and_penalties(device float* logits, device const LogitBias* biases,
                                       device const SamplerState* state,
                                       device const TokenRecord* records, device const uint* history,
                                       constant SampleArgs& options, ThreadIndex tid) {
    if (BIAS) {
        for (uint i = tid.index; i < options.biases; i += tid.threads) {
            logits[biases[i].token] += biases[i].added;
        }
        threadgroup_barrier(mem_flags::mem_device);
    }
    if (PENALTY) {
        const uint seen = state->seen;
        for (uint i = tid.index; i < min(seen, options.window); i += tid.threads) {
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
inline void record_token(uint token, device SamplerState* state, device TokenRecord* records, device uint* history,
                         constant SampleArgs& options) {
    const uint number = state->seen;
    const uint slot = number % options.window;
    if (number >= options.window && history[slot] < options.vocab) {
        records[history[slot]].count -= 1;
    }
    history[slot] = token;
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

kernel void ENTRY(sample)(device const float* input [[buffer(0), function_constant(READ_ONLY)]],
                          device float* adjusted [[buffer(1), function_constant(IN_PLACE)]],
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
    threadgroup ulong entries[MAX_LISTED];
    threadgroup ulong orders[MAX_LISTED];
    threadgroup ulong weights[MAX_LISTED];
    threadgroup ulong partials[32];
    threadgroup ulong broadcast[4];
    const ThreadIndex tid = {index, threads, lane, simd_group, simd_groups};
    const Scratch scratch = {counts, lows, highs, entries, orders, weights, partials, broadcast};
    apply_biases_and_penalties(adjusted, biases, state, records, history, options, tid);
    device const float* logits = IN_PLACE ? adjusted : input;

    ulong first = 0;
    for (uint i = index; i < options.vocab; i += threads) {
        const float logit = logits[i];
        // Zeros of either sign are equal here, as in comparisons.
        first = Maximum::combine(first, entry_of(GREEDY && logit == 0 ? 0.0f : logit, i));
    }
    first = all_reduce<Maximum>(first, tid, scratch);
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
            Candidates candidates = {logits, options.vocab, false, top, 1, 0, false, 0, 0};
            if (TOP_K) {
                const Cutoff cutoff = find_cutoff(candidates, UNIT_WEIGHT, Target{options.top_k, 0, 0}, options, tid,
                                                  scratch);
                if (cutoff.order != 0) {
                    candidates.bound = cutoff.order;
                    list_candidates(candidates, cutoff.count, tid, scratch);
                }
            }
            if (TYPICAL) {
                keep_typical(candidates, options, tid, scratch);
            }
            if (TOP_P) {
                const Cutoff cutoff = find_cutoff(candidates, PROBABILITY, Target{1, options.top_p, 0}, options, tid,
                                                  scratch);
                candidates.bound = cutoff.order;
                list_candidates(candidates, cutoff.count, tid, scratch);
            }
            token = token_of(find_cutoff(candidates, SAMPLING_WEIGHT, Target{1, random << 40, 1}, options, tid,
                                         scratch).order);
        }
    }
    if (index == 0) {
        if (PENALTY) {
            record_token(token, state, records, history, options);
        }
        *next_token = token;
        *id = token;
    }
}
