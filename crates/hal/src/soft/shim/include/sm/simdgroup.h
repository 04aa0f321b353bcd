// <metal_simdgroup>: functions over the 32 lanes of a SIMD-group.
#pragma once

namespace metal {
SM_LANE_FUNCTIONS(simd, 32)

class simd_vote {
 public:
  typedef ulong vote_t;
  SM_CX explicit simd_vote(vote_t v = 0) : votes(v) {}
  SM_CX explicit operator vote_t() const { return votes; }
  SM_CX bool all() const { return (votes & ::sm::all_lanes) == ::sm::all_lanes; }
  SM_CX bool any() const { return (votes & ::sm::all_lanes) != 0; }

 private:
  vote_t votes;
};

SM_FN simd_vote simd_ballot(bool condition) { return simd_vote(::sm::ballot(condition)); }
SM_FN simd_vote simd_active_threads_mask() { return simd_vote(::sm::ballot(true)); }
// True if no active lane has a false condition.
SM_FN bool simd_all(bool condition) { return ::sm::ballot(!condition) == 0; }
SM_FN bool simd_any(bool condition) { return ::sm::ballot(condition) != 0; }
SM_FN bool simd_is_first() {
  return (uint)__builtin_ctz(::sm::ballot(true)) == sm_lane() % ::sm::simd_width;
}
SM_FN bool simd_is_helper_thread() { return false; }
}  // namespace metal
