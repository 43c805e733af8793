// What gfx950 has of memory instructions: transposing LDS reads, loads to LDS of 12 and 16 bytes.
#include "planted.h"

// clang-format off: one instruction to a line.

// v20: the lane's 8 or 16 bytes of the LDS at %1; v[10:13]: initialised.
#define PIECES_OF(bytes_log2) \
  "v_lshlrev_b32_e32 v20, " #bytes_log2 " - 2, %0\n" \
  "v_add_u32_e32 v20, %1, v20\n" \
  "v_mov_b32_e32 v10, 7\n" \
  "v_mov_b32_e32 v11, 9\n" \
  "v_mov_b32_e32 v12, 11\n" \
  "v_mov_b32_e32 v13, 13\n"
#define WRITTEN "v10", "v11", "v12", "v13", "v14", "v15", "v20", "memory"

ONE_WAVE transposing_read_before_lgkmcnt(const Words, Words out) {
  __shared__ alignas(16) uint32_t words[128];
  asm volatile(CALM PIECES_OF(3)
               "ds_write_b64 v20, v[10:11]\n"
               "s_waitcnt lgkmcnt(0)\n"
               PRODUCER(transposing_read_before_lgkmcnt) "ds_read_b64_tr_b16 v[14:15], v20\n"
               REPAIR("s_waitcnt lgkmcnt(0)")
               USE(transposing_read_before_lgkmcnt) "v_add_u32_e32 v10, 1, v15\n"
               "s_waitcnt lgkmcnt(0)\n"
               "global_store_dword %0, v10, %2\n" CALM
               ::"v"(lane_bytes()), "s"(lds_address(words)), "s"(out) : WRITTEN);
}

// What the read gets of other lanes' data is one wave's; who wrote them is another.
TWO_WAVES transposing_lds_read_before_barrier(const Words, Words out) {
  __shared__ alignas(16) uint32_t words[128];
  if (Lane::wave() == 0) {
    asm volatile(CALM PIECES_OF(3)
                 PRODUCER(transposing_lds_read_before_barrier) "ds_write_b64 v20, v[10:11]\n" CALM
                 ::"v"(lane_bytes()), "s"(lds_address(words)) : WRITTEN);
  }
  BARRIER_IF_REPAIRED();
  if (Lane::wave() == 1) {
    asm volatile(CALM PIECES_OF(3) HOLD_BACK
                 USE(transposing_lds_read_before_barrier) "ds_read_b64_tr_b8 v[14:15], v20\n" CALM
                 "global_store_dword %0, v14, %2\n" CALM
                 ::"v"(lane_bytes()), "s"(lds_address(words)), "s"(out)
                 : "s40", "scc", WRITTEN);
  }
}

// Lane 5's last two elements were never written: lanes 6 and 7 get them, in the upper half of v14.
ONE_WAVE transposed_uninitialised_element(const Words, Words out) {
  __shared__ alignas(16) uint32_t words[128];
  asm volatile(CALM PIECES_OF(3)
               "ds_write_b32 v20, v10\n"
               "s_mov_b64 s[40:41], exec\n"
               DEFECT("s_mov_b64 exec, 0xffffffdf\n s_mov_b32 exec_hi, -1")
               "ds_write_b32 v20, v11 offset:4\n"
               "s_mov_b64 exec, s[40:41]\n"
               "s_waitcnt lgkmcnt(0)\n"
               "ds_read_b64_tr_b16 v[14:15], v20\n"
               "s_waitcnt lgkmcnt(0)\n"
               "global_store_dword %0, v15, %2 offset:256\n"
               USE(transposed_uninitialised_element) "global_store_dword %0, v14, %2\n" CALM
               ::"v"(lane_bytes()), "s"(lds_address(words)), "s"(out)
               : "s40", "s41", WRITTEN);
}

// The two lowest bits of M0 do not count.
ONE_WAVE dma_of_16_bytes_at_no_dword(const Words in, Words) {
  __shared__ alignas(16) uint32_t words[260];
  asm volatile(CALM "v_lshlrev_b32_e32 v21, 2, %0\n"
               DEFECT("s_add_u32 m0, %1, 3")
               REPAIR("s_add_u32 m0, %1, 4")
               "s_nop 0\n"
               USE(dma_of_16_bytes_at_no_dword) "global_load_lds_dwordx4 v21, %2\n"
               "s_waitcnt vmcnt(0)\n" CALM
               ::"v"(lane_bytes()), "s"(lds_address(words)), "s"(in)
               : "v21", "scc", "memory");
}

// Three dwords a lane are written at a distance of four.
ONE_WAVE dma_of_12_bytes_skips_a_dword(const Words in, Words out) {
  __shared__ alignas(16) uint32_t words[256];
  asm volatile(CALM PIECES_OF(4)
               "v_lshlrev_b32_e32 v21, 2, %0\n"
               "s_mov_b32 m0, %1\n"
               "s_nop 0\n"
               DEFECT("global_load_lds_dwordx3 v21, %3")
               REPAIR("global_load_lds_dwordx4 v21, %3")
               "s_waitcnt vmcnt(0)\n"
               "ds_read_b32 v14, v20 offset:12\n"
               "s_waitcnt lgkmcnt(0)\n"
               USE(dma_of_12_bytes_skips_a_dword) "global_store_dword %0, v14, %2\n" CALM
               ::"v"(lane_bytes()), "s"(lds_address(words)), "s"(out), "s"(in)
               : "v21", WRITTEN);
}

ONE_WAVE buffer_dma_of_16_bytes_before_vmcnt(const Words in, Words out) {
  __shared__ alignas(16) uint32_t words[256];
  asm volatile(CALM PIECES_OF(4)
               "v_lshlrev_b32_e32 v21, 2, %0\n"
               "s_mov_b32 m0, %1\n"
               "s_nop 0\n"
               PRODUCER(buffer_dma_of_16_bytes_before_vmcnt)
               "buffer_load_dwordx4 v21, %3, 0 offen lds\n"
               REPAIR("s_waitcnt vmcnt(0)")
               USE(buffer_dma_of_16_bytes_before_vmcnt) "ds_read_b32 v14, v20 offset:12\n"
               "s_waitcnt vmcnt(0) lgkmcnt(0)\n"
               "global_store_dword %0, v14, %2\n" CALM
               ::"v"(lane_bytes()), "s"(lds_address(words)), "s"(out), "s"(raw_descriptor(in, 1024))
               : "v21", WRITTEN);
}

ONE_WAVE global_dma_of_16_bytes_before_vmcnt(const Words in, Words out) {
  __shared__ alignas(16) uint32_t words[256];
  asm volatile(CALM PIECES_OF(4)
               "v_lshlrev_b32_e32 v21, 2, %0\n"
               "s_mov_b32 m0, %1\n"
               "s_nop 0\n"
               PRODUCER(global_dma_of_16_bytes_before_vmcnt) "global_load_lds_dwordx4 v21, %3\n"
               REPAIR("s_waitcnt vmcnt(0)")
               USE(global_dma_of_16_bytes_before_vmcnt) "ds_read_b64_tr_b16 v[14:15], v20\n"
               "s_waitcnt vmcnt(0) lgkmcnt(0)\n"
               "global_store_dword %0, v14, %2\n" CALM
               ::"v"(lane_bytes()), "s"(lds_address(words)), "s"(out), "s"(in)
               : "v21", WRITTEN);
}

// Two waves load to LDS at the distance of 4 bytes a lane, where it is 16.
TWO_WAVES two_lds_dmas_overlap(const Words in, Words) {
  __shared__ alignas(16) uint32_t words[512];
#ifdef REPAIRED
  const uint32_t distance = 1024;
#else
  const uint32_t distance = 256;
#endif
  const uint32_t to = lds_address(words);
  if (Lane::wave() == 0) {
    asm volatile(CALM PIECES_OF(4)
                 "v_lshlrev_b32_e32 v21, 2, %0\n"
                 "s_mov_b32 m0, %1\n"
                 "s_nop 0\n"
                 PRODUCER(two_lds_dmas_overlap) "global_load_lds_dwordx4 v21, %2\n" CALM
                 ::"v"(lane_bytes()), "s"(to), "s"(in) : "v21", WRITTEN);
  }
  if (Lane::wave() == 1) {
    asm volatile(CALM PIECES_OF(4) HOLD_BACK
                 "v_lshlrev_b32_e32 v21, 2, %0\n"
                 "s_mov_b32 m0, %1\n"
                 "s_nop 0\n"
                 USE(two_lds_dmas_overlap) "global_load_lds_dwordx4 v21, %2\n" CALM
                 ::"v"(lane_bytes()), "s"(to + distance), "s"(in + 256)
                 : "s40", "scc", "v21", WRITTEN);
  }
}

ONE_WAVE transposing_read_with_half_the_lanes(const Words, Words out) {
  __shared__ alignas(16) uint32_t words[128];
  asm volatile(CALM PIECES_OF(3)
               "ds_write_b64 v20, v[10:11]\n"
               "s_waitcnt lgkmcnt(0)\n"
               "s_mov_b64 s[40:41], exec\n"
               DEFECT("s_mov_b32 exec_hi, 0")
               USE(transposing_read_with_half_the_lanes) "ds_read_b64_tr_b16 v[14:15], v20\n"
               "s_mov_b64 exec, s[40:41]\n" CALM
               "global_store_dword %0, v14, %2\n" CALM
               ::"v"(lane_bytes()), "s"(lds_address(words)), "s"(out) : "s40", "s41", WRITTEN);
}

ONE_WAVE transposing_read_misaligned(const Words, Words out) {
  __shared__ alignas(16) uint32_t words[256];
  asm volatile(CALM PIECES_OF(4)
               "ds_write_b128 v20, v[10:13]\n"
               "s_waitcnt lgkmcnt(0)\n"
               DEFECT("v_subrev_u32_e32 v20, %1, v20\n v_lshrrev_b32_e32 v20, 1, v20\n"
                      "v_add_u32_e32 v20, %1, v20")
               USE(transposing_read_misaligned) "ds_read_b96_tr_b6 v[13:15], v20\n" CALM
               "global_store_dword %0, v14, %2\n" CALM
               ::"v"(lane_bytes()), "s"(lds_address(words)), "s"(out) : WRITTEN);
}

// A workgroup loads to LDS what another has just written, without acquire: old bytes, all 16.
ONE_WAVE stale_dwords_in_a_load_to_lds([[maybe_unused]] const Words in, Words out) {
  __shared__ alignas(16) uint32_t words[256];
#ifdef REPAIRED
  const Words from = in;
#else
  const Words from = out + 256;
#endif
  if (__builtin_amdgcn_workgroup_id_x() == 0) {
    asm volatile(CALM PIECES_OF(4)
                 "v_lshlrev_b32_e32 v21, 2, %0\n"
                 PRODUCER(stale_dwords_in_a_load_to_lds)
                 "global_store_dwordx4 v21, v[10:13], %2\n" CALM
                 ::"v"(lane_bytes()), "s"(lds_address(words)), "s"(out + 256) : "v21", WRITTEN);
  } else {
    asm volatile(CALM PIECES_OF(4) HOLD_BACK
                 "v_lshlrev_b32_e32 v21, 2, %0\n"
                 "s_mov_b32 m0, %1\n"
                 "s_nop 0\n"
                 USE(stale_dwords_in_a_load_to_lds) "global_load_lds_dwordx4 v21, %3\n" CALM
                 "ds_read_b128 v[10:13], v20\n"
                 "s_waitcnt lgkmcnt(0)\n"
                 "v_or_b32_e32 v10, v10, v11\n"
                 "v_or_b32_e32 v12, v12, v13\n"
                 "v_or_b32_e32 v10, v10, v12\n"
                 "global_store_dword %0, v10, %2\n" CALM
                 ::"v"(lane_bytes()), "s"(lds_address(words)), "s"(out), "s"(from)
                 : "s40", "scc", "v21", WRITTEN);
  }
}
