// Results used, or registers overwritten, before the wait that covers the load.
#include "planted.h"

// clang-format off: one instruction to a line.

ONE_WAVE vgpr_before_vmcnt(const Words in, Words out) {
  asm volatile(CALM
               PRODUCER(vgpr_before_vmcnt) "global_load_dword v10, %0, %1\n"
               REPAIR("s_waitcnt vmcnt(0)")
               USE(vgpr_before_vmcnt) "v_add_u32_e32 v11, 1, v10\n"
               "s_waitcnt vmcnt(0)\n"
               "global_store_dword %0, v11, %2\n" CALM
               ::"v"(lane_bytes()), "s"(in), "s"(out) : "v10", "v11", "memory");
}

// The second of two loads is used after a wait for the first.
ONE_WAVE vmcnt_too_weak(const Words in, Words out) {
  asm volatile(CALM
               "global_load_dword v10, %0, %1\n"
               PRODUCER(vmcnt_too_weak) "global_load_dword v11, %0, %1 offset:256\n"
               DEFECT("s_waitcnt vmcnt(1)") REPAIR("s_waitcnt vmcnt(0)")
               USE(vmcnt_too_weak) "v_add_u32_e32 v12, 1, v11\n"
               "s_waitcnt vmcnt(0)\n"
               "v_add_u32_e32 v12, v12, v10\n"
               "global_store_dword %0, v12, %2\n" CALM
               ::"v"(lane_bytes()), "s"(in), "s"(out) : "v10", "v11", "v12", "memory");
}

ONE_WAVE sgpr_before_lgkmcnt(const Words in, Words out) {
  asm volatile(CALM
               PRODUCER(sgpr_before_lgkmcnt) "s_load_dword s40, %1, 0x0\n"
               REPAIR("s_waitcnt lgkmcnt(0)")
               USE(sgpr_before_lgkmcnt) "s_add_u32 s41, s40, 1\n"
               "s_waitcnt lgkmcnt(0)\n"
               "v_mov_b32_e32 v10, s41\n"
               "global_store_dword %0, v10, %2\n" CALM
               ::"v"(lane_bytes()), "s"(in), "s"(out) : "v10", "s40", "s41", "scc", "memory");
}

ONE_WAVE lds_read_before_lgkmcnt(const Words, Words out) {
  __shared__ uint32_t words[64];
  asm volatile(CALM
               "v_mov_b32_e32 v10, 7\n"
               "ds_write_b32 %1, v10\n"
               "s_waitcnt lgkmcnt(0)\n"
               PRODUCER(lds_read_before_lgkmcnt) "ds_read_b32 v11, %1\n"
               REPAIR("s_waitcnt lgkmcnt(0)")
               USE(lds_read_before_lgkmcnt) "v_add_u32_e32 v12, 1, v11\n"
               "s_waitcnt lgkmcnt(0)\n"
               "global_store_dword %0, v12, %2\n" CALM
               ::"v"(lane_bytes()), "v"(lds_address(words) + lane_bytes()), "s"(out)
               : "v10", "v11", "v12", "memory");
}

// A buffer load with LDS as its destination: nothing but vmcnt tells when the bytes are there.
ONE_WAVE buffer_lds_dma_before_vmcnt(const Words in, Words out) {
  __shared__ uint32_t words[64];
  asm volatile(CALM
               "s_mov_b32 m0, %4\n"
               "s_nop 0\n"
               PRODUCER(buffer_lds_dma_before_vmcnt) "buffer_load_dword %0, %1, 0 offen lds\n"
               REPAIR("s_waitcnt vmcnt(0)")
               USE(buffer_lds_dma_before_vmcnt) "ds_read_b32 v10, %2\n"
               "s_waitcnt vmcnt(0) lgkmcnt(0)\n"
               "global_store_dword %0, v10, %3\n" CALM
               ::"v"(lane_bytes()), "s"(raw_descriptor(in, 256)),
               "v"(lds_address(words) + lane_bytes()), "s"(out), "s"(lds_address(words))
               : "v10", "memory");
}

ONE_WAVE global_lds_dma_before_vmcnt(const Words in, Words out) {
  __shared__ uint32_t words[64];
  asm volatile(CALM
               "s_mov_b32 m0, %4\n"
               "s_nop 0\n"
               PRODUCER(global_lds_dma_before_vmcnt) "global_load_lds_dword %0, %1\n"
               REPAIR("s_waitcnt vmcnt(0)")
               USE(global_lds_dma_before_vmcnt) "ds_read_b32 v10, %2\n"
               "s_waitcnt vmcnt(0) lgkmcnt(0)\n"
               "global_store_dword %0, v10, %3\n" CALM
               ::"v"(lane_bytes()), "s"(in), "v"(lds_address(words) + lane_bytes()), "s"(out),
               "s"(lds_address(words))
               : "v10", "memory");
}

// The load arrives after the move and destroys its result.
ONE_WAVE overwrite_pending_load(const Words in, Words out) {
  asm volatile(CALM
               PRODUCER(overwrite_pending_load) "global_load_dword v10, %0, %1\n"
               REPAIR("s_waitcnt vmcnt(0)")
               USE(overwrite_pending_load) "v_mov_b32_e32 v10, 7\n"
               "s_waitcnt vmcnt(0)\n"
               "global_store_dword %0, v10, %2\n" CALM
               ::"v"(lane_bytes()), "s"(in), "s"(out) : "v10", "memory");
}

// Scalar loads return in any order: one outstanding may be either.
ONE_WAVE smem_out_of_order(const Words in, Words out) {
  asm volatile(CALM
               PRODUCER(smem_out_of_order) "s_load_dword s40, %1, 0x0\n"
               "s_load_dword s41, %1, 0x40\n"
               DEFECT("s_waitcnt lgkmcnt(1)") REPAIR("s_waitcnt lgkmcnt(0)")
               USE(smem_out_of_order) "s_add_u32 s42, s40, 1\n"
               "s_waitcnt lgkmcnt(0)\n"
               "s_add_u32 s42, s42, s41\n"
               "v_mov_b32_e32 v10, s42\n"
               "global_store_dword %0, v10, %2\n" CALM
               ::"v"(lane_bytes()), "s"(in), "s"(out)
               : "v10", "s40", "s41", "s42", "scc", "memory");
}

// LDS returns in order, but a scalar load may overtake it, so that lgkmcnt(1) says nothing.
ONE_WAVE smem_and_lds_share_a_counter(const Words in, Words out) {
  __shared__ uint32_t words[64];
  asm volatile(CALM
               "v_mov_b32_e32 v10, 7\n"
               "ds_write_b32 %1, v10\n"
               "s_waitcnt lgkmcnt(0)\n"
               PRODUCER(smem_and_lds_share_a_counter) "ds_read_b32 v11, %1\n"
               "s_load_dword s40, %2, 0x0\n"
               DEFECT("s_waitcnt lgkmcnt(1)") REPAIR("s_waitcnt lgkmcnt(0)")
               USE(smem_and_lds_share_a_counter) "v_add_u32_e32 v12, 1, v11\n"
               "s_waitcnt lgkmcnt(0)\n"
               "v_add_u32_e32 v12, s40, v12\n"
               "global_store_dword %0, v12, %3\n" CALM
               ::"v"(lane_bytes()), "v"(lds_address(words) + lane_bytes()), "s"(in), "s"(out)
               : "v10", "v11", "v12", "s40", "memory");
}

// A FLAT load may go to memory or to LDS and counts in both counters.
ONE_WAVE flat_needs_both_counters(const Words in, Words out) {
  asm volatile(CALM
               PRODUCER(flat_needs_both_counters) "flat_load_dword v10, %1\n"
               DEFECT("s_waitcnt vmcnt(0)") REPAIR("s_waitcnt vmcnt(0) lgkmcnt(0)")
               USE(flat_needs_both_counters) "v_add_u32_e32 v11, 1, v10\n"
               "s_waitcnt vmcnt(0) lgkmcnt(0)\n"
               "global_store_dword %0, v11, %2\n" CALM
               ::"v"(lane_bytes()), "v"(in + Lane::in_wave()), "s"(out)
               : "v10", "v11", "memory");
}

// s_barrier does not wait for LDS: the other wave may read what was there before.
TWO_WAVES lds_write_before_barrier(const Words, Words out) {
  __shared__ uint32_t words[128];
  const uint32_t mine = lds_address(words) + Lane::in_workgroup() * 4;
  const uint32_t others = lds_address(words) + (Lane::in_workgroup() ^ 64) * 4;
  asm volatile(CALM
               PRODUCER(lds_write_before_barrier) "ds_write_b32 %1, %0\n"
               REPAIR("s_waitcnt lgkmcnt(0)")
               PLACE(lds_write_before_barrier, "barrier") "s_barrier\n"
               USE(lds_write_before_barrier) "ds_read_b32 v10, %2\n"
               "s_waitcnt lgkmcnt(0)\n"
               "global_store_dword %0, v10, %3\n" CALM
               ::"v"(Lane::in_workgroup() * 4), "v"(mine), "v"(others), "s"(out)
               : "v10", "memory");
}

// Nor for a load to LDS: each wave waits for its own before the others may read what it brought.
TWO_WAVES lds_dma_before_barrier(const Words in, Words out) {
  __shared__ uint32_t words[64];
  if (Lane::wave() == 0) {
    asm volatile(CALM
                 "s_mov_b32 m0, %2\n"
                 "s_nop 0\n"
                 PRODUCER(lds_dma_before_barrier) "global_load_lds_dword %0, %1\n"
                 REPAIR("s_waitcnt vmcnt(0)")
                 ::"v"(lane_bytes()), "s"(in), "s"(lds_address(words)) : "memory");
  }
  asm volatile("s_barrier" ::: "memory");
  if (Lane::wave() == 1) {
    asm volatile(USE(lds_dma_before_barrier) "ds_read_b32 v10, %0\n"
                 "s_waitcnt lgkmcnt(0)\n"
                 "global_store_dword %1, v10, %2\n" CALM
                 ::"v"(lds_address(words) + lane_bytes()), "v"(lane_bytes()), "s"(out)
                 : "v10", "memory");
  }
}

// The reads of the wave before it may still be under way, and then get what is loaded over them.
TWO_WAVES lds_dma_over_pending_read(const Words in, Words out) {
  __shared__ uint32_t words[64];
  const uint32_t address = lds_address(words) + lane_bytes();
  if (Lane::wave() == 1) {
    asm volatile(CALM
                 "ds_write_b32 %0, %1\n"
                 "s_waitcnt lgkmcnt(0)\n"
                 PRODUCER(lds_dma_over_pending_read) "ds_read_b32 v10, %0\n"
                 REPAIR("s_waitcnt lgkmcnt(0)")
                 "s_barrier\n"
                 "s_waitcnt lgkmcnt(0)\n"
                 "global_store_dword %1, v10, %2\n" CALM
                 ::"v"(address), "v"(lane_bytes()), "s"(out) : "v10", "memory");
  } else {
    asm volatile(CALM
                 "s_mov_b32 m0, %2\n"
                 "s_barrier\n"
                 USE(lds_dma_over_pending_read) "global_load_lds_dword %0, %1\n" CALM
                 ::"v"(lane_bytes()), "s"(in), "s"(lds_address(words)) : "memory");
  }
}

// 15 reads behind it: lgkmcnt counts no more, so that a wait for 15 is none.
ONE_WAVE lgkmcnt_saturated(const Words, Words out) {
  __shared__ uint32_t words[128];
  asm volatile(CALM
               "v_mov_b32_e32 v10, 7\n"
               "ds_write_b32 %1, v10\n"
               "ds_write_b32 %1, v10 offset:256\n"
               "s_waitcnt lgkmcnt(0)\n"
               PRODUCER(lgkmcnt_saturated) "ds_read_b32 v26, %1\n"
               ".rept 15\n"
               "ds_read_b32 v11, %1 offset:4\n"
               ".endr\n"
               DEFECT("s_waitcnt lgkmcnt(15)") REPAIR("s_waitcnt lgkmcnt(14)")
               USE(lgkmcnt_saturated) "v_add_u32_e32 v27, 1, v26\n"
               "s_waitcnt lgkmcnt(0)\n"
               "global_store_dword %0, v27, %2\n" CALM
               ::"v"(lane_bytes()), "v"(lds_address(words) + lane_bytes()), "s"(out)
               : "v10", "v11", "v26", "v27", "memory");
}

// The same of 64 loads and vmcnt.
ONE_WAVE vmcnt_saturated(const Words in, Words out) {
  asm volatile(CALM
               PRODUCER(vmcnt_saturated) "global_load_dword v10, %0, %1\n"
               ".rept 63\n"
               "global_load_dword v11, %0, %1 offset:256\n"
               ".endr\n"
               DEFECT("s_waitcnt vmcnt(63)") REPAIR("s_waitcnt vmcnt(62)")
               USE(vmcnt_saturated) "v_add_u32_e32 v12, 1, v10\n"
               "s_waitcnt vmcnt(0)\n"
               "global_store_dword %0, v12, %2\n" CALM
               ::"v"(lane_bytes()), "s"(in), "s"(out) : "v10", "v11", "v12", "memory");
}
