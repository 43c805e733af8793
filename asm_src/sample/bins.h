// Which bins of logarithms the least logit that may be drawn lies in.
#pragma once
#include "sample/draw.h"
#include "sample/slices.h"

struct Bins {
  Weights weights;
  float bins;  // of a unit of logarithm

  // Greater ones have no greater bin; kBins: it is never drawn.
  __device__ __forceinline__ int of(float x) const {
    const float log = weights.log_of(x);
    if (key_of(x) < kLeastKey || !(log >= -kReach)) return kBins;
    const int bin = int(-log * bins);
    return bin < kBins ? bin : kBins - 1;
  }
};

// The bins in front of `sure` are in. Of those of top_k's bin and of bins [from, to] each logit
// tells, and the others are not in.
struct Boundaries {
  int sure = kBins, of_k = kBins, from = kBins, to = -1;
  uint64_t k_left = 0;              // so many of top_k's bin
  uint64_t mass = 0, in_front = 0;  // of bins in front of top_k's; in front of `from`

  __device__ __forceinline__ bool tells(int bin) const {
    return bin < kBins && (bin == of_k || (bin >= from && bin <= to));
  }

  template <int kLanes>
  __device__ __forceinline__ void find(const SampleArgs& args, const Workgroup<kLanes>& group,
                                       const Global<SharedOfRow>* shared) {
    constexpr int kEach = kBins / kLanes;
    const int first = Lane::in_workgroup() * kEach;
    if (args.top_k > 0 && args.top_k < args.columns) {
      uint64_t count[kEach];
      for (int i = 0; i < kEach; ++i) count[i] = shared->count[first + i];
      const Crossing found = group.crossing(count, args.top_k);
      of_k = found.at;
      k_left = args.top_k - found.before;
    }
    sure = of_k;
    if (args.top_p < 1) {
      uint64_t own[kEach], front = 0, with = 0;
      for (int i = 0; i < kEach; ++i) {
        own[i] = shared->mass[first + i];
        if (first + i < of_k) front += own[i];
        if (first + i <= of_k) with += own[i];
      }
      // As much as all of top_k's bin would come to, and as none of it would.
      mass = group.sum(front);
      const Crossing least = group.crossing(own, Weights::wanted(mass, args.top_p));
      from = to = sure = least.at;
      in_front = least.before;
      if (of_k < kBins) to = group.crossing(own, Weights::wanted(group.sum(with), args.top_p)).at;
    }
  }
};
