// Kernels with one unordered access each, and beside each what differs in it when it is right: the
// argument `n` chooses (0: defect). Where values can tell, `out` shows what was read.
#include "isa/device.h"

#define AGENT __HIP_MEMORY_SCOPE_AGENT
#define GROUP __HIP_MEMORY_SCOPE_WORKGROUP
#define KERNEL extern "C" __global__ WORKGROUP(256, 1) void
#define ARGUMENTS                                                   \
  [[maybe_unused]] uint32_t *data, [[maybe_unused]] uint32_t *flag, \
      [[maybe_unused]] uint32_t *out, [[maybe_unused]] uint32_t n
#define PLACE(name) ".globl " name "\n" name ":\n"
#define CALM "s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)\ns_nop 15\ns_nop 15\n"

__device__ __forceinline__ uint32_t lane() { return Lane::in_workgroup(); }
__device__ __forceinline__ uint32_t workgroup() { return __builtin_amdgcn_workgroup_id_x(); }
__device__ __forceinline__ void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
// Keeps the compiler from moving accesses, and adds nothing.
__device__ __forceinline__ void here() { asm volatile("" ::: "memory"); }

// ---- Two workgroups

// Byte 3 of one dword is written by both; otherwise each has its half of it.
KERNEL same_byte(ARGUMENTS) {
  if (lane() != 0) return;
  auto* const bytes = (uint8_t*)out;
  bytes[4 + 2 * workgroup()] = 1 + workgroup();
  bytes[n == 0 ? 7 : 5 + 2 * workgroup()] = 1 + workgroup();
}
KERNEL same_value(ARGUMENTS) {
  if (workgroup() == 0 || n == 0) out[lane()] = 0;
}
// A workgroup reads what the next one writes, or the one before it.
KERNEL read_next(ARGUMENTS) {
  const uint32_t other = n == 0 ? workgroup() + 1 : workgroup();
  const uint32_t seen = data[other * 256 + lane()];
  data[workgroup() * 256 + lane()] = lane();
  out[workgroup() * 256 + lane()] = seen;
}
KERNEL read_previous(ARGUMENTS) {
  data[(workgroup() + 1) * 256 + lane()] = lane();
  here();
  out[workgroup() * 256 + lane()] = data[(n == 0 ? workgroup() : workgroup() + 1) * 256 + lane()];
}
// A counter that one workgroup clears and the others count in.
KERNEL cleared_counter(ARGUMENTS) {
  if (lane() != 0) return;
  if (workgroup() == 0)
    data[0] = 0;
  else
    __hip_atomic_fetch_add(&data[n == 0 ? 0 : 1], 1, __ATOMIC_RELAXED, AGENT);
}
// A load of what others count in: a guess that a compare-and-swap confirms, but not one that the
// program ends behind, whatever comes after it in the code.
KERNEL guess(ARGUMENTS) {
  if (lane() != 0) return;
  if (workgroup() == 0) {
    __hip_atomic_fetch_add(data, 1, __ATOMIC_RELAXED, AGENT);
    return;
  }
  asm volatile(
      "v_mov_b32_e32 v10, 0\n"
      "s_cmp_lg_u32 %2, 0\n"
      "s_cbranch_scc1 1f\n"
      "global_load_dword v11, v10, %0\n"
      "s_waitcnt vmcnt(0)\n"
      "global_store_dword v10, v11, %1\n"
      "s_endpgm\n"
      "1: global_load_dword v11, v10, %0\n"
      "s_waitcnt vmcnt(0)\n"
      "2: v_mov_b32_e32 v13, v11\n"
      "v_add_u32_e32 v12, 1, v11\n"
      "global_atomic_cmpswap v11, v10, v[12:13], %0 sc0\n"
      "s_waitcnt vmcnt(0)\n"
      "v_cmp_ne_u32_e32 vcc, v11, v13\n"
      "s_cbranch_vccnz 2b\n" ::"s"(data),
      "s"(out), "s"(n)
      : "v10", "v11", "v12", "v13", "vcc", "scc", "memory");
}

template <int kRelease, int kAcquire, int kScope>
__device__ __forceinline__ void message(uint32_t* data, uint32_t* flag, uint32_t* out) {
  if (workgroup() == 0) {
    data[lane()] = lane();
    barrier();
    if (lane() == 0) __hip_atomic_store(flag, 1, kRelease, kScope);
  } else {
    if (lane() == 0)
      while (__hip_atomic_load(flag, kAcquire, kScope) == 0) {
      }
    barrier();
    out[lane()] = data[lane()];
  }
}
KERNEL relaxed_release(ARGUMENTS) {
  if (n == 0)
    message<__ATOMIC_RELAXED, __ATOMIC_ACQUIRE, AGENT>(data, flag, out);
  else
    message<__ATOMIC_RELEASE, __ATOMIC_ACQUIRE, AGENT>(data, flag, out);
}
KERNEL relaxed_acquire(ARGUMENTS) {
  if (n == 0)
    message<__ATOMIC_RELEASE, __ATOMIC_RELAXED, AGENT>(data, flag, out);
  else
    message<__ATOMIC_RELEASE, __ATOMIC_ACQUIRE, AGENT>(data, flag, out);
}
KERNEL workgroup_scope(ARGUMENTS) {
  if (n == 0)
    message<__ATOMIC_RELEASE, __ATOMIC_ACQUIRE, GROUP>(data, flag, out);
  else
    message<__ATOMIC_RELEASE, __ATOMIC_ACQUIRE, AGENT>(data, flag, out);
}
// The leader raises the flag without a barrier before.
KERNEL no_barrier_before_release(ARGUMENTS) {
  if (workgroup() == 0) {
    data[lane()] = lane();
    if (n != 0) barrier();
    if (lane() == 64) __hip_atomic_store(flag, 1, __ATOMIC_RELEASE, AGENT);
  } else {
    if (lane() == 0)
      while (__hip_atomic_load(flag, __ATOMIC_ACQUIRE, AGENT) == 0) {
      }
    barrier();
    out[lane()] = data[lane()];
  }
}
KERNEL no_barrier_after_acquire(ARGUMENTS) {
  if (workgroup() == 0) {
    data[lane()] = lane();
    barrier();
    if (lane() == 0) __hip_atomic_store(flag, 1, __ATOMIC_RELEASE, AGENT);
  } else {
    if (lane() == 0)
      while (__hip_atomic_load(flag, __ATOMIC_ACQUIRE, AGENT) == 0) {
      }
    if (n != 0) barrier();
    for (int i = 0; i < 99; ++i) __builtin_amdgcn_s_sleep(1);
    out[lane()] = data[lane()];
  }
}

// Split-K: what every wave does after its store, what the leader does before it arrives, and what
// every wave of the last workgroup does before it reads. (The fences are assembly because LLVM up
// to 22 may leave out the wait behind buffer_wbl2; see its pull request 178316.)
#define SPLIT_K(name, store_bits, release, leader, acquire)                                      \
  KERNEL name(ARGUMENTS) {                                                                       \
    __shared__ uint32_t last;                                                                    \
    asm volatile(CALM PLACE("store." #name) "global_store_dword %0, %0, %1" store_bits           \
                                            "\n" release::"v"(4 * (workgroup() * 256 + lane())), \
                 "s"(data)                                                                       \
                 : "memory");                                                                    \
    __builtin_amdgcn_s_barrier();                                                                \
    if (lane() == 0) {                                                                           \
      asm volatile(leader::: "memory");                                                          \
      last = __hip_atomic_fetch_add(flag, 1, __ATOMIC_RELAXED, AGENT) == n - 1;                  \
    }                                                                                            \
    barrier();                                                                                   \
    if (!last) return;                                                                           \
    uint32_t sum = 0;                                                                            \
    asm volatile(CALM acquire::: "memory");                                                      \
    for (uint32_t i = 0; i < n; ++i) {                                                           \
      uint32_t partial;                                                                          \
      asm volatile("global_load_dword %0, %1, %2\ns_waitcnt vmcnt(0)"                            \
                   : "=&v"(partial)                                                              \
                   : "v"(4 * (i * 256 + lane())), "s"(data)                                      \
                   : "memory");                                                                  \
      sum += partial;                                                                            \
    }                                                                                            \
    out[lane()] = sum;                                                                           \
  }
#define WBL2 "buffer_wbl2 sc1\n"
#define INV "buffer_inv sc1\n"
#define WAIT "s_waitcnt vmcnt(0)\n"
SPLIT_K(split_k, "", WBL2 WAIT, "", INV)
SPLIT_K(split_k_by_leader, "", "", WBL2 WAIT, INV)
SPLIT_K(split_k_through, " sc1", WAIT, "", INV)
SPLIT_K(split_k_no_write_back, "", WAIT, "", INV)
SPLIT_K(split_k_no_wait, "", WBL2, "", INV)
SPLIT_K(split_k_leader_no_wait, "", WAIT, WBL2, INV)
SPLIT_K(split_k_through_no_wait, " sc1", "", "", INV)
SPLIT_K(split_k_no_acquire, "", WBL2 WAIT, "", "")

// ---- Within a workgroup

KERNEL waves_read(ARGUMENTS) {
  data[lane()] = lane();
  if (n != 0) barrier();
  here();
  for (int i = 0; i < 9 && Lane::wave() == 3; ++i) __builtin_amdgcn_s_sleep(1);
  out[lane()] = data[255 - lane()];
}
KERNEL waves_overwrite(ARGUMENTS) {
  const uint32_t seen = data[255 - lane()];
  out[lane()] = seen;
  if (n != 0) barrier();
  here();
  data[lane()] = lane();
}
KERNEL waves_write(ARGUMENTS) { out[lane() % 64 + (n == 0 ? 0 : 64 * Lane::wave())] = lane(); }

// ---- Scalar loads

#define SCALAR(name, sequence)                                                             \
  KERNEL name(ARGUMENTS) {                                                                 \
    uint32_t seen;                                                                         \
    asm volatile(CALM "v_mov_b32_e32 v10, 0\n"                                           \
                 "v_mov_b32_e32 v11, 7\ns_nop 15\n"                                      \
                 "global_store_dword v10, v11, %1\n" sequence                            \
                 PLACE("use." #name) "s_load_dword s40, %1, 0x0\ns_waitcnt lgkmcnt(0)\n" \
                 "v_mov_b32_e32 %0, s40\n" CALM                                          \
                 : "=&v"(seen) : "s"(data) : "v10", "v11", "s40", "memory"); \
    if (lane() == 0) out[0] = seen;                                                        \
  }
SCALAR(scalar_ordered, "s_waitcnt vmcnt(0)\ns_dcache_inv\ns_waitcnt lgkmcnt(0)\n")
SCALAR(scalar_not_waited, "s_dcache_inv\ns_waitcnt lgkmcnt(0)\n")
SCALAR(scalar_not_invalidated, "s_waitcnt vmcnt(0)\n")
SCALAR(scalar_invalidated_early, "s_dcache_inv\ns_waitcnt vmcnt(0) lgkmcnt(0)\n")

// ---- What stale data look like, in every kind of load

// Workgroup 0 stores ~i over every dword, 1 raises nothing and reads with all widths and
// extensions.
#define LOADS(load)                                                                  \
  load("ubyte", 0, 0) load("sbyte", 1, 1) load("ushort", 2, 2) load("sshort", 3, 2)  \
      load("dword", 4, 4) load("ubyte_d16", 5, 3) load("ubyte_d16_hi", 6, 1)         \
          load("sbyte_d16", 7, 3) load("sbyte_d16_hi", 8, 0) load("short_d16", 9, 2) \
              load("short_d16_hi", 10, 0)
#define ONE_LOAD(kind, slot, offset)                                                  \
  asm volatile(                                                                       \
      "v_mov_b32_e32 v10, 0\ns_nop 15\n"                                              \
      "global_load_" kind " v10, %0, %1 offset:" #offset "\n" CALM                    \
      "global_store_dword %0, v10, %2 offset:256*" #slot "\n" CALM ::"v"(4 * lane()), \
      "s"(data), "s"(out)                                                             \
      : "v10", "memory");
KERNEL stale_values(ARGUMENTS) {
  if (workgroup() == 0) {
    data[lane()] = ~lane();
  } else if (lane() < 64) {
    LOADS(ONE_LOAD)
    asm volatile("global_load_dwordx4 v[10:13], %0, %1 offset:1\n" CALM
                 "global_store_dwordx4 %2, v[10:13], %3 offset:2816\n" CALM ::"v"(4 * lane()),
                 "s"(data), "v"(16 * lane()), "s"(out)
                 : "v10", "v11", "v12", "v13", "memory");
  }
}
// A load to LDS.
KERNEL stale_in_lds(ARGUMENTS) {
  __shared__ uint32_t words[64];
  if (workgroup() == 0) {
    data[lane()] = ~lane();
  } else if (lane() < 64) {
    asm volatile(
        "s_mov_b32 m0, %0\ns_nop 15\n"
        "global_load_lds_dword %1, %2\n" CALM "ds_read_b32 v10, %3\n" CALM
        "global_store_dword %1, v10, %4\n" CALM ::"s"((uint32_t)(unsigned long)(Local<void>*)words),
        "v"(4 * lane()), "s"(data), "v"(4 * lane() + (uint32_t)(unsigned long)(Local<void>*)words),
        "s"(out)
        : "v10", "memory");
  }
}
