// Bytes that two waves or two workgroups touch without anything that orders them. Where the side
// that comes second matters, it is held back by a chain of s_nop.
#include "planted.h"

// clang-format off: one instruction to a line.
// Values differ, because equal ones written twice do no harm.

TWO_WAVES lds_read_after_write(const Words, Words out) {
  __shared__ uint32_t words[64];
  const uint32_t address = lds_address(words) + lane_bytes();
  if (Lane::wave() == 0) {
    asm volatile(CALM PRODUCER(lds_read_after_write) "ds_write_b32 %0, %0\n" CALM
                 ::"v"(address) : "memory");
  }
  BARRIER_IF_REPAIRED();
  if (Lane::wave() == 1) {
    asm volatile(CALM HOLD_BACK
                 USE(lds_read_after_write) "ds_read_b32 v10, %1\n" CALM
                 "global_store_dword %0, v10, %2\n" CALM
                 ::"v"(lane_bytes()), "v"(address), "s"(out) : "v10", "s40", "scc", "memory");
  }
}

TWO_WAVES lds_write_after_read(const Words, Words out) {
  __shared__ uint32_t words[64];
  const uint32_t address = lds_address(words) + lane_bytes();
  if (Lane::wave() == 0) {
    asm volatile(CALM "ds_write_b32 %1, %1\n" CALM
                 PRODUCER(lds_write_after_read) "ds_read_b32 v10, %1\n" CALM
                 "global_store_dword %0, v10, %2\n" CALM
                 ::"v"(lane_bytes()), "v"(address), "s"(out) : "v10", "memory");
  }
  BARRIER_IF_REPAIRED();
  if (Lane::wave() == 1) {
    // Only the address of words[0]: that wave 0 wrote it too is the same race.
    asm volatile(CALM HOLD_BACK USE(lds_write_after_read) "ds_write_b32 %0, %0\n" CALM
                 ::"v"(address) : "s40", "scc", "memory");
  }
}

TWO_WAVES lds_write_after_write(const Words, Words) {
  __shared__ uint32_t words[64];
  const uint32_t address = lds_address(words) + lane_bytes();
  if (Lane::wave() == 0) {
    asm volatile(CALM PRODUCER(lds_write_after_write) "ds_write_b32 %0, %0\n" CALM
                 ::"v"(address) : "memory");
  }
  BARRIER_IF_REPAIRED();
  if (Lane::wave() == 1) {
    asm volatile("v_add_u32_e32 v10, 1, %0\n" CALM HOLD_BACK
                 USE(lds_write_after_write) "ds_write_b32 %0, v10\n" CALM
                 ::"v"(address) : "v10", "s40", "scc", "memory");
  }
}

// The same through device memory, between waves of one workgroup.
TWO_WAVES global_between_waves(const Words, Words out) {
  if (Lane::wave() == 0) {
    asm volatile(CALM PRODUCER(global_between_waves) "global_store_dword %0, %0, %1\n" CALM
                 ::"v"(lane_bytes()), "s"(out) : "memory");
  }
  BARRIER_IF_REPAIRED();
  if (Lane::wave() == 1) {
    asm volatile(CALM HOLD_BACK
                 USE(global_between_waves) "global_load_dword v10, %0, %1\n" CALM
                 "global_store_dword %0, v10, %1 offset:256\n" CALM
                 ::"v"(lane_bytes()), "s"(out) : "v10", "s40", "scc", "memory");
  }
}

// Every workgroup writes its number into the same words; the twins each into their own.
ONE_WAVE global_write_write(const Words, Words out) {
  const int workgroup = __builtin_amdgcn_workgroup_id_x();
#ifdef REPAIRED
  const int mine = workgroup * 256;
#else
  const int mine = 0;
#endif
  asm volatile(CALM USE(global_write_write) "global_store_dword %0, %2, %1\n" CALM
               ::"v"(lane_bytes() + mine), "s"(out), "v"(workgroup) : "memory");
}

// Both write what the other writes, too: to LDS, to memory from waves, from workgroups.
TWO_WAVES lds_same_value(const Words, Words) {
  __shared__ uint32_t words[64];
  const uint32_t address = lds_address(words) + lane_bytes();
  if (Lane::wave() == 0) {
    asm volatile(CALM PRODUCER(lds_same_value) "ds_write_b32 %0, %0\n" CALM
                 ::"v"(address) : "memory");
  }
  BARRIER_IF_REPAIRED();
  if (Lane::wave() == 1) {
    asm volatile(CALM HOLD_BACK USE(lds_same_value) "ds_write_b32 %0, %0\n" CALM
                 ::"v"(address) : "s40", "scc", "memory");
  }
}

TWO_WAVES lds_dma_same_value(const Words in, Words) {
  __shared__ uint32_t words[64];
  const uint32_t to = lds_address(words);
  if (Lane::wave() == 0) {
    asm volatile(CALM "s_mov_b32 m0, %1\n"
                 "s_nop 0\n"
                 PRODUCER(lds_dma_same_value) "global_load_lds_dword %0, %2\n"
                 "s_waitcnt vmcnt(0)\n" CALM
                 ::"v"(lane_bytes()), "s"(to), "s"(in) : "memory");
  }
  BARRIER_IF_REPAIRED();
  if (Lane::wave() == 1) {
    asm volatile(CALM HOLD_BACK "s_mov_b32 m0, %1\n"
                 "s_nop 0\n"
                 USE(lds_dma_same_value) "global_load_lds_dword %0, %2\n"
                 "s_waitcnt vmcnt(0)\n" CALM
                 ::"v"(lane_bytes()), "s"(to), "s"(in) : "s40", "scc", "memory");
  }
}

// Likewise while both are under way.
TWO_WAVES lds_dma_same_value_under_way(const Words in, Words) {
  __shared__ uint32_t words[64];
  const uint32_t to = lds_address(words);
  if (Lane::wave() == 0) {
    asm volatile(CALM "s_mov_b32 m0, %1\n"
                 "s_nop 0\n"
                 PRODUCER(lds_dma_same_value_under_way) "global_load_lds_dword %0, %2\n"
                 REPAIR("s_waitcnt vmcnt(0)")
                 ::"v"(lane_bytes()), "s"(to), "s"(in) : "memory");
  }
  BARRIER_IF_REPAIRED();
  if (Lane::wave() == 1) {
    asm volatile(HOLD_BACK "s_mov_b32 m0, %1\n"
                 "s_nop 0\n"
                 USE(lds_dma_same_value_under_way) "global_load_lds_dword %0, %2\n"
                 "s_waitcnt vmcnt(0)\n" CALM
                 ::"v"(lane_bytes()), "s"(to), "s"(in) : "s40", "scc", "memory");
  }
}

// The value that LDS holds in checked mode until a load arrives is not what the load brings.
TWO_WAVES lds_store_over_dma(const Words in, Words) {
  __shared__ uint32_t words[64];
  const uint32_t to = lds_address(words), address = to + lane_bytes();
  if (Lane::wave() == 0) {
    asm volatile(CALM "s_mov_b32 m0, %1\n"
                 "s_nop 0\n"
                 PRODUCER(lds_store_over_dma) "global_load_lds_dword %0, %2\n"
                 REPAIR("s_waitcnt vmcnt(0)")
                 ::"v"(lane_bytes()), "s"(to), "s"(in) : "memory");
  }
  BARRIER_IF_REPAIRED();
  if (Lane::wave() == 1) {
    asm volatile(HOLD_BACK USE(lds_store_over_dma) "ds_write_b32 %0, %1\n"
                 "s_waitcnt lgkmcnt(0)\n" CALM
                 ::"v"(address), "v"(0xffb7ffb7u) : "s40", "scc", "memory");
  }
}

// The same of other words is an error.
TWO_WAVES lds_dma_other_value(const Words in, Words) {
  __shared__ uint32_t words[64];
  const uint32_t to = lds_address(words);
  if (Lane::wave() == 0) {
    asm volatile(CALM "s_mov_b32 m0, %1\n"
                 "s_nop 0\n"
                 PRODUCER(lds_dma_other_value) "global_load_lds_dword %0, %2\n"
                 "s_waitcnt vmcnt(0)\n" CALM
                 ::"v"(lane_bytes()), "s"(to), "s"(in) : "memory");
  }
  BARRIER_IF_REPAIRED();
  if (Lane::wave() == 1) {
    asm volatile(CALM HOLD_BACK "s_mov_b32 m0, %1\n"
                 "s_nop 0\n"
                 USE(lds_dma_other_value) "global_load_lds_dword %0, %2\n"
                 "s_waitcnt vmcnt(0)\n" CALM
                 ::"v"(lane_bytes() + 4), "s"(to), "s"(in) : "s40", "scc", "memory");
  }
}

TWO_WAVES waves_same_value(const Words, Words out) {
  if (Lane::wave() == 0) {
    asm volatile(CALM PRODUCER(waves_same_value) "global_store_dword %0, %0, %1\n" CALM
                 ::"v"(lane_bytes()), "s"(out) : "memory");
  }
  BARRIER_IF_REPAIRED();
  if (Lane::wave() == 1) {
    // Bytes of what the other stored as dwords.
    asm volatile(CALM HOLD_BACK
                 USE(waves_same_value) "global_store_byte %0, %0, %1\n" CALM
                 ::"v"(lane_bytes()), "s"(out) : "s40", "scc", "memory");
  }
}

ONE_WAVE workgroups_same_value(const Words, Words out) {
#ifdef REPAIRED
  const int mine = __builtin_amdgcn_workgroup_id_x() * 256;
#else
  const int mine = 0;
#endif
  asm volatile(CALM USE(workgroups_same_value) "global_store_dword %0, %2, %1\n" CALM
               ::"v"(lane_bytes() + mine), "s"(out), "v"(lane_bytes() + 1) : "memory");
}

// What looks like one value and is not: an atomic is no store, and one with sc1 may come late.
TWO_WAVES lds_write_after_atomic(const Words, Words) {
  __shared__ uint32_t words[64];
  const uint32_t address = lds_address(words) + lane_bytes();
  if (Lane::wave() == 0) {
    asm volatile("ds_write_b32 %0, %0\n"
                 "v_mov_b32_e32 v10, 0\n" CALM
                 PRODUCER(lds_write_after_atomic) "ds_add_u32 %0, v10\n" CALM
                 ::"v"(address) : "v10", "memory");
  }
  BARRIER_IF_REPAIRED();
  if (Lane::wave() == 1) {
    asm volatile(CALM HOLD_BACK USE(lds_write_after_atomic) "ds_write_b32 %0, %0\n" CALM
                 ::"v"(address) : "s40", "scc", "memory");
  }
}

// The words are zero, and zero is what the second workgroup stores.
ONE_WAVE zero_over_late_store(const Words, Words out) {
  const int workgroup = __builtin_amdgcn_workgroup_id_x();
  if (workgroup == 0) {
    asm volatile(CALM "v_add_u32_e32 v10, 1, %0\n"
                 PRODUCER(zero_over_late_store) "global_store_dword %0, v10, %1 sc1\n"
                 HOLD_BACK HOLD_BACK
                 ::"v"(lane_bytes()), "s"(out) : "v10", "s40", "scc", "memory");
  } else {
#ifdef REPAIRED
    const int mine = 256;
#else
    const int mine = 0;
#endif
    asm volatile("v_mov_b32_e32 v10, 0\n" CALM HOLD_BACK
                 USE(zero_over_late_store) "global_store_dword %0, v10, %1\n" CALM
                 ::"v"(lane_bytes() + mine), "s"(out) : "v10", "s40", "scc", "memory");
  }
}

// Workgroup 0 (of XCD 0) publishes out[0..63] and raises flags[0]; workgroup 1 (of XCD 1) waits for
// it and copies. `flag_load` to `read_fence` are what each defect spoils.
#define PUBLISH(kernel, release)                                             \
  asm volatile(CALM "v_add_u32_e32 v10, 1, %0\n"                             \
               PRODUCER(kernel) "global_store_dword %0, v10, %1\n"           \
               release                                                       \
               "s_waitcnt vmcnt(0)\n"                                        \
               "v_mov_b32_e32 v11, 0\n"                                      \
               "v_mov_b32_e32 v12, 1\n"                                      \
               PLACE(kernel, "raise") "global_store_dword v11, v12, %2 sc1\n" CALM \
               ::"v"(lane_bytes()), "s"(out), "s"(flags) : "v10", "v11", "v12", "memory")
#define FOLLOW(kernel, flag_bits, acquire)                                   \
  asm volatile(CALM "v_mov_b32_e32 v11, 0\n"                                 \
               "s_movk_i32 s40, 2000\n"                                      \
               "1: " PLACE(kernel, "poll") "global_load_dword v12, v11, %2" flag_bits "\n" \
               "s_waitcnt vmcnt(0)\n"                                        \
               "v_readfirstlane_b32 s41, v12\n"                              \
               "s_sub_u32 s40, s40, 1\n"                                     \
               "s_cmp_eq_u32 s40, 0\n"                                       \
               "s_cbranch_scc1 2f\n"                                         \
               "s_sleep 1\n"                                                 \
               "s_cmp_eq_u32 s41, 0\n"                                       \
               "s_cbranch_scc1 1b\n"                                         \
               "2: s_cmp_eq_u32 s41, 0\n"                                    \
               "s_cbranch_scc1 3f\n" acquire                                 \
               USE(kernel) "global_load_dword v10, %0, %1\n" CALM            \
               "global_store_dword %0, v10, %1 offset:256\n" \
               "3: " CALM ::"v"(lane_bytes()), "s"(out), "s"(flags)          \
               : "v10", "v11", "v12", "s40", "s41", "scc", "memory")
#define RELEASE "buffer_wbl2 sc1\n"
#define ACQUIRE "buffer_inv sc1\n"

ONE_WAVE read_without_acquire(const Words, Words out, Words flags) {
  if (__builtin_amdgcn_workgroup_id_x() == 0) {
    PUBLISH(read_without_acquire, RELEASE);
  } else {
    FOLLOW(read_without_acquire, " sc1", REPAIR(ACQUIRE));
  }
}

ONE_WAVE write_without_release(const Words, Words out, Words flags) {
  if (__builtin_amdgcn_workgroup_id_x() == 0) {
    PUBLISH(write_without_release, REPAIR(RELEASE));
  } else {
    FOLLOW(write_without_release, " sc1", ACQUIRE);
  }
}

// The flag is polled from the L2 of the workgroup's own XCD, which nobody updates.
#ifdef REPAIRED
#define FLAG_BITS " sc1"
#else
#define FLAG_BITS ""
#endif
ONE_WAVE stale_flag(const Words, Words out, Words flags) {
  if (__builtin_amdgcn_workgroup_id_x() == 0) {
    PUBLISH(stale_flag, RELEASE);
  } else {
    FOLLOW(stale_flag, FLAG_BITS, ACQUIRE);
  }
}
