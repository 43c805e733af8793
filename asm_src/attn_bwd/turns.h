// Adding to dQ in the order of blocks of keys, so that its sums are the same every time. A block
// waits for the one before it, which has begun: workgroups take blocks as they come. Of splits it
// is the one that has the same tile: all splits of a block come before those of the next one.
#pragma once
#include "attn_bwd/work.h"
#include "isa/ordered_lanes.h"
#include "isa/wait.h"

// Which workgroup this is, counted as they begin. The last one leaves 0.
__device__ __forceinline__ int take_ticket(const AttnBwdArgs& args, Local<int>* shared) {
  if (Lane::in_workgroup() == 0) {
    auto* at = (Global<uint32_t>*)args.turns;
    const uint32_t ticket =
        __hip_atomic_fetch_add(at, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    const int blocks = args.heads * args.of_head;
    const int of_block = args.head_splits * args.row_splits;
    if (ticket + 1 == uint32_t(args.whole_blocks + (blocks - args.whole_blocks) * of_block))
      __hip_atomic_store(at, 0, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    *shared = ticket;
  }
  s_barrier();  // the ticket is in LDS
  const int ticket = uniform(*shared);
  s_barrier();  // all waves have read it
  return ticket;
}

// Of one wave and a tile of dQ.
struct Turn {
  uint64_t counter = 0;
  int before = -1;  // blocks that are added before; -1: there is no such tile
  int then = 0;     // what the counter is after this one

  template <class S>
  __device__ __forceinline__ void set(const BackwardWork<S>& work, uint64_t at, int tile) {
    counter = at;
    before = work.turn(tile);
    then = before + 1 == work.turns(tile) ? 0 : before + 1;
  }
  __device__ __forceinline__ void load(uint32_t& seen) const {
    if (before >= 0) ordered::global_load_dword_sc1(seen, counter);
  }
  // What was loaded has come. Nobody passes a tile on twice, so that it is never beyond `before`;
  // without a tile nothing is waited for, whatever was seen last.
  __device__ __forceinline__ void wait(uint32_t& seen) const {
    ordered::settle(seen);
    if (__builtin_expect(uniform(int(seen)) < before, false)) do {
        __builtin_amdgcn_s_sleep(1);
        load(seen);
        ordered::s_waitcnt<0, ordered::kAnyLgkm>();
        ordered::settle(seen);
      } while (uniform(int(seen)) < before);
  }
  // The same where the compiler waits for what is loaded.
  __device__ __forceinline__ void wait() const {
    const auto* at = (const Global<uint32_t>*)counter;
    while (uniform(int(__hip_atomic_load(at, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT))) !=
           before)
      __builtin_amdgcn_s_sleep(1);
  }
  // All that was added before has arrived.
  __device__ __forceinline__ void pass() const {
    if (before >= 0) ordered::global_store_dword_sc1(counter, then);
  }
};

// One that is passed later: in vector registers.
struct Passed {
  uint64_t counter = 0;
  int then = 0;

  __device__ __forceinline__ void keep(const Turn& turn) {
    counter = turn.before < 0 ? 0 : turn.counter;
    then = turn.then;
    park(counter, then);
  }
  __device__ __forceinline__ void pass() const {
    if (uniform(int(counter)) != 0) ordered::global_store_dword_sc1_lane(counter, then);
  }
};
