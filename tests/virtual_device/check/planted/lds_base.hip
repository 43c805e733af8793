// A load to LDS whose M0 is no multiple of 4: its two lowest bits do not count.
#include "planted.h"

// clang-format off: one instruction to a line.

ONE_WAVE lds_base(const Words in, Words) {
  __shared__ uint32_t words[65];
  asm volatile(CALM DEFECT("s_add_u32 m0, %1, 2")
               REPAIR("s_add_u32 m0, %1, 4")
               "s_nop 0\n"
               USE(lds_base) "global_load_lds_dword %0, %2\n"
               "s_waitcnt vmcnt(0)\n" CALM
               ::"v"(lane_bytes()), "s"(lds_address(words)), "s"(in) : "scc", "memory");
}
