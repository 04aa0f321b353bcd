// <metal_quadgroup>: functions over quads, groups of four neighbouring lanes.
#pragma once

namespace metal {
SM_LANE_FUNCTIONS(quad, 4)
#undef SM_LANE_FUNCTIONS
#undef SM_LANE_FUNCTION
#undef SM_LANE_SHUFFLE
}  // namespace metal

namespace sm {
SM_FN uint quad_ballot(bool flag) { return ballot(flag) >> (sm_lane() % simd_width & ~3u) & 15; }
}  // namespace sm

namespace metal {
class quad_vote {
 public:
  typedef uint vote_t;
  SM_CX explicit quad_vote(vote_t v = 0) : votes(v) {}
  SM_CX explicit operator vote_t() const { return votes; }
  SM_CX bool all() const { return (votes & 15) == 15; }
  SM_CX bool any() const { return (votes & 15) != 0; }

 private:
  vote_t votes;
};

SM_FN quad_vote quad_ballot(bool condition) { return quad_vote(::sm::quad_ballot(condition)); }
SM_FN quad_vote quad_active_threads_mask() { return quad_vote(::sm::quad_ballot(true)); }
SM_FN bool quad_all(bool condition) { return ::sm::quad_ballot(!condition) == 0; }
SM_FN bool quad_any(bool condition) { return ::sm::quad_ballot(condition) != 0; }
SM_FN bool quad_is_first() { return (uint)__builtin_ctz(::sm::quad_ballot(true)) == sm_lane() % 4; }
SM_FN bool quad_is_helper_thread() { return false; }
}  // namespace metal
