// What indices that only the device knows name: of all kernels that read a cache or append to it.
//
// One that is out of range names nothing. A sequence whose length, padding or row of the cache is
// out of range has no keys: nothing is read, nothing appended. A page that is out of range is not
// written to; of what a cache would have in it K is NaN, so that the queries that see it are, too.
// Kernels report such indices.
#pragma once
#include "isa/global.h"
#include "isa/uniform.h"
#include "tile/integers.h"
#include "tile/reduce.h"

__device__ __forceinline__ bool is_within(int index, int count) {
  return uint32_t(index) < uint32_t(count);
}

inline constexpr int kWorkgroupLanes = 256;  // of the kernels that append

// To the debugger; goes on where there is none.
__device__ __forceinline__ void report_index() { __builtin_debugtrap(); }

// Of a sequence.
struct Keys {
  int old, all;  // before those appended, and with them
  int seen;      // the first that any query sees; -1: an index is out of range

  Keys() = default;
  __device__ __forceinline__ Keys(bool is_known, int length, int added, int pad, int queries,
                                  int window_left) {
    old = is_known ? length : 0;
    all = is_known ? length + added : 0;
    int first = max_of(pad, 0);
    if (window_left >= 0) first = max_of(first, max_of(all - queries, 0) - window_left);
    seen = is_known ? min_of(first, all) : -1;
  }
  __device__ __forceinline__ bool are_known() const { return seen >= 0; }
};

// Of sequences that append to rows of the cache: reports those of which two have the same one,
// since what both append is in no order. By one workgroup.
template <class Of>
__device__ __forceinline__ void check_rows_differ(const Of& args) {
  if (!args.k_new || !args.cache_batch_idx) return;
  const auto* rows = (const Global<int32_t>*)args.cache_batch_idx;
  const int batch = args.batch, lane = Lane::in_wave();
  const auto row_of = [&](int b) { return rows[min_of(b, batch - 1)]; };
  bool again = false;
#pragma unroll 1
  for (int own = Lane::in_workgroup(); own - lane < batch; own += kWorkgroupLanes) {
    const int row = row_of(own);
#pragma unroll 1
    for (int first = 0; first < batch; first += kWaveLanes) {
      const int others = row_of(first + lane);
#pragma unroll 1
      for (int i = 0; i < kWaveLanes; ++i) {
        const int b = first + i;
        again |=
            __builtin_amdgcn_readlane(others, i) == row && b < batch && own < batch && b != own;
      }
    }
  }
  if (any_lane(again)) report_index();
}
