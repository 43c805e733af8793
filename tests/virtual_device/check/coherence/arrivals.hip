// Workgroups of two waves add up numbers in memory, by atomics or one of them at the end; the last
// one to arrive at a counter has the sums. In the kernels that are not right a wait or a barrier in
// front of the counter is missing.
#include "isa/device.h"
#include "isa/wait.h"

enum class By { kAtomics, kStores };
enum class Before { kWaitAndBarrier, kBarrier, kWait, kWriteBack };

__device__ __forceinline__ uint32_t loaded_sc1(const uint32_t* from) {
  uint32_t value;
  asm volatile("global_load_dword %0, %1, off sc1\ns_waitcnt vmcnt(0)"
               : "=&v"(value)
               : "v"(from)
               : "memory");
  return value;
}

// `sums`: 128 words that are 0, or 128 for each workgroup.
template <By kBy, Before kBefore>
__device__ __forceinline__ void add_up(uint32_t* sums, uint32_t* counter, uint32_t* out,
                                       uint32_t workgroups) {
  __shared__ uint32_t arrived;
  const uint32_t lane = Lane::in_workgroup(), workgroup = __builtin_amdgcn_workgroup_id_x();
  const uint32_t value = (workgroup + 1) * (lane + 1);
  if (kBy == By::kAtomics)
    asm volatile("global_atomic_add %0, %1, off" ::"v"(sums + lane), "v"(value) : "memory");
  else
    asm volatile("global_store_dword %0, %1, off sc1" ::"v"(sums + workgroup * 128 + lane),
                 "v"(value)
                 : "memory");
  if (kBefore == Before::kWaitAndBarrier || kBefore == Before::kWait)
    asm volatile("s_waitcnt vmcnt(0)" ::: "memory");
  if (kBefore != Before::kWait) s_barrier();
  if (kBefore == Before::kWriteBack && lane < 64)
    asm volatile("buffer_wbl2 sc1\ns_waitcnt vmcnt(0)" ::: "memory");
  if (lane == 0) {
    uint32_t before;
    asm volatile("global_atomic_add %0, %1, %2, off sc0\ns_waitcnt vmcnt(0)"
                 : "=&v"(before)
                 : "v"(counter), "v"(1)
                 : "memory");
    arrived = before;
  }
  s_barrier();
  if (arrived != workgroups - 1) return;
  uint32_t sum = 0;
  if (kBy == By::kAtomics)
    asm volatile("global_atomic_swap %0, %1, %2, off sc0\ns_waitcnt vmcnt(0)"
                 : "=&v"(sum)
                 : "v"(sums + lane), "v"(0)
                 : "memory");
  else
    for (uint32_t i = 0; i < workgroups; ++i) sum += loaded_sc1(sums + i * 128 + lane);
  out[lane] = sum;
}

#define KERNEL(name, by, before)                                                          \
  extern "C" __global__ WORKGROUP(128, 1) void name(uint32_t* sums, uint32_t* counter,    \
                                                    uint32_t* out, uint32_t workgroups) { \
    add_up<By::by, Before::before>(sums, counter, out, workgroups);                       \
  }
KERNEL(atomics, kAtomics, kWaitAndBarrier)
KERNEL(atomics_no_wait, kAtomics, kBarrier)
KERNEL(atomics_no_barrier, kAtomics, kWait)
// One wave's write-back is after what the others did before the barrier.
KERNEL(atomics_written_back, kAtomics, kWriteBack)
KERNEL(stores, kStores, kWaitAndBarrier)
KERNEL(stores_no_wait, kStores, kBarrier)
KERNEL(stores_no_barrier, kStores, kWait)

// What a wave does to one address keeps its order, and other waves of the workgroup see it behind a
// barrier, waited for or not.
extern "C" __global__ WORKGROUP(128, 1) void own_workgroup(uint32_t* words, uint32_t* out) {
  uint32_t* const mine = words + Lane::in_wave();
  if (Lane::wave() == 0)
    asm volatile(
        "global_store_dword %0, %1, off sc1\n"
        "global_store_dword %0, %2, off sc1\n"
        "global_atomic_add %0, %1, off\n"
        "global_store_dword %0, %2, off offset:256 sc1" ::"v"(mine),
        "v"(5), "v"(7)
        : "memory");
  s_barrier();
  if (Lane::wave() != 1) return;
  uint32_t sum, stored;
  asm volatile(
      "global_load_dword %0, %2, off sc1\n"
      "global_load_dword %1, %2, off offset:256\n"
      "s_waitcnt vmcnt(0)"
      : "=&v"(sum), "=&v"(stored)
      : "v"(mine)
      : "memory");
  out[Lane::in_wave()] = sum * 256 + stored;
}

// A workgroup waits for the answer to what it stored, and never for the store itself.
extern "C" __global__ WORKGROUP(64, 1) void answered(uint32_t* flag, uint32_t* answer,
                                                     uint32_t* out) {
  if (__builtin_amdgcn_workgroup_id_x() == 0)
    asm volatile(
        "global_store_dword %0, %1, %2 sc1\n"
        "1: s_dcache_inv\n"
        "s_load_dword s40, %3, 0\n"
        "s_waitcnt lgkmcnt(0)\n"
        "s_cmp_eq_u32 s40, 0\n"
        "s_cbranch_scc1 1b" ::"v"(0),
        "v"(1), "s"(flag), "s"(answer)
        : "s40", "scc", "memory");
  else
    asm volatile(
        "1: global_load_dword v10, %0, %2 sc1\n"
        "s_waitcnt vmcnt(0)\n"
        "v_readfirstlane_b32 s40, v10\n"
        "s_cmp_eq_u32 s40, 0\n"
        "s_cbranch_scc1 1b\n"
        "global_store_dword %0, %1, %3 sc1" ::"v"(0),
        "v"(1), "s"(flag), "s"(answer)
        : "v10", "s40", "scc", "memory");
  out[__builtin_amdgcn_workgroup_id_x() * 64 + Lane::in_wave()] = 1;
}
