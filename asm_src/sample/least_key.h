// The least key that is to be drawn of, digit by digit of its bits.
#pragma once
#include "sample/row.h"

inline constexpr int kDigits = 256;

// The greatest key at which what is there of it and of greater ones is `wanted` or more, 0 if there
// is less: the upper digit first. `each` gives a function all keys and what is there of each, by
// lane.
template <int kLanes, class Each>
__device__ __forceinline__ uint32_t least_key(const Workgroup<kLanes>& group, Local<uint64_t>* sums,
                                              uint64_t wanted, Each&& each) {
  static_assert(kLanes >= kDigits);
  uint32_t known = 0, mask = 0;
#pragma clang loop unroll(disable)
  for (int shift = 24; shift >= 0; shift -= 8) {
    const int lane = Lane::in_workgroup(), digit = kDigits - 1 - lane;  // the greatest first
    if (lane < kDigits) sums[lane] = 0;
    group.join();
    each([&](uint32_t key, uint64_t of) {
      if ((key & mask) == known)
        __atomic_fetch_add(&sums[key >> shift & 255], of, __ATOMIC_RELAXED);
    });
    group.join();
    const uint64_t own[1] = {lane < kDigits ? sums[digit] : 0};
    const Crossing found = group.crossing(own, wanted);
    if (found.at >= kDigits) return 0;  // at the first digit
    wanted -= found.before;
    known |= uint32_t(kDigits - 1 - found.at) << shift;
    mask |= uint32_t(kDigits - 1) << shift;
  }
  return known;
}
