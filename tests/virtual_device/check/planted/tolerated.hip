// What checked mode must not call an error, and a launch with more errors than anybody reads.
#include "planted.h"

// clang-format off: one instruction to a line.

// Loads and stores take any address: x4 at 1, x2 at 2 of a dword, LDS alike.
ONE_WAVE unaligned(const Words in, Words out) {
  __shared__ uint32_t words[64 * 4 + 4];
  const int at = 4 * lane_bytes();
  asm volatile("v_add_u32_e32 v11, %3, %0\n"
               "v_mov_b32_e32 v9, 0\n"
               "v_mov_b32_e32 v10, %0\n"
               "global_load_dwordx4 v[12:15], %0, %2 offset:1\n" CALM
               "global_store_dwordx4 %0, v[12:15], %1 offset:3\n"
               "ds_write_b128 v11, v[12:15] offset:1\n" CALM
               "buffer_load_dwordx2 v[16:17], %0, %4, 0 offen offset:6\n" CALM
               "global_store_dwordx2 %0, v[16:17], %1 offset:1026\n" CALM
               "ds_read_b64 v[18:19], v11 offset:1\n"
               "ds_read_b32 v20, v11 offset:3\n"
               "ds_read_u16 v21, v11 offset:7\n"
               "ds_read2_b32 v[22:23], v11 offset0:0 offset1:1\n" CALM
               "global_store_dwordx4 %0, v[18:21], %1 offset:2049\n" CALM
               ::"v"(at), "s"(out), "s"(in), "v"(lds_address(words)), "s"(raw_descriptor(in, 4096))
               : "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20",
                 "v21", "v22", "v23", "memory");
}

// A hazard at each of 150 places.
ONE_WAVE many_errors(const Words, Words out) {
  asm volatile(".rept 150\n"
               "v_mov_b32_e32 v10, 1\n"
               "v_readlane_b32 s40, v10, 0\n"
               ".endr\n" CALM
               "global_store_dword %0, v10, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : "v10", "s40", "memory");
}

// One instruction that races with 40 others.
TWO_WAVES many_producers(const Words, Words out) {
  __shared__ uint32_t words[40 * 64];
  const uint32_t address = lds_address(words) + lane_bytes();
  if (Lane::wave() == 0) {
    asm volatile("v_mov_b32_e32 v11, %0\n"
                 ".rept 40\n"
                 "ds_write_b32 v11, v11\n"
                 "s_waitcnt lgkmcnt(0)\n"
                 "v_add_u32_e32 v11, 0x100, v11\n"
                 ".endr\n" CALM ::"v"(address) : "v11", "memory");
  } else {
    asm volatile("s_movk_i32 s40, 200\n"
                 "1: s_sub_u32 s40, s40, 1\n"
                 "s_cmp_lg_u32 s40, 0\n"
                 "s_cbranch_scc1 1b\n"
                 "s_movk_i32 s40, 40\n"
                 "v_mov_b32_e32 v11, %0\n"
                 "2:" USE(many_producers) "ds_read_b32 v10, v11\n"
                 "s_waitcnt lgkmcnt(0)\n"
                 "v_add_u32_e32 v11, 0x100, v11\n"
                 "s_sub_u32 s40, s40, 1\n"
                 "s_cmp_lg_u32 s40, 0\n"
                 "s_cbranch_scc1 2b\n" CALM
                 "global_store_dword %1, v10, %2\n" CALM
                 ::"v"(address), "v"(lane_bytes()), "s"(out) : "v10", "v11", "s40", "scc", "memory");
  }
}

// A select right after the comparison, which LLVM keeps two wait states apart.
ONE_WAVE compare_and_select(const Words, Words out) {
  asm volatile("v_mov_b32_e32 v10, 1\n" CALM
               "v_cmp_lt_u32_e32 vcc, 64, %0\n"
               USE(compare_and_select) "v_cndmask_b32_e32 v10, %0, v10, vcc\n" CALM
               "global_store_dword %0, v10, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : "v10", "vcc", "memory");
}

// Functions that are called leave the kernel's code, and come back.
__attribute__((noinline)) __device__ uint32_t times_three(uint32_t x) {
  asm volatile("v_mul_u32_u24_e32 %0, 3, %0\n" : "+v"(x));
  return x;
}
ONE_WAVE calls(const Words, Words out) { out[Lane::in_wave()] = times_three(Lane::in_wave()); }
