// Control flow that hangs, leaves the kernel, or leaves something behind.
#include "planted.h"

// clang-format off: one instruction to a line.

// Wave 1 is one barrier short.
TWO_WAVES barrier_mismatch(const Words, Words out) {
  if (Lane::wave() == 0) {
    asm volatile(CALM "s_barrier\n" USE(barrier_mismatch) "s_barrier\n" ::: "memory");
  } else {
    asm volatile(CALM "s_barrier\n" REPAIR("s_barrier") ::: "memory");
  }
  asm volatile(CALM "global_store_dword %0, %0, %1\n" CALM
               ::"v"(Lane::in_workgroup() * 4), "s"(out) : "memory");
}

ONE_WAVE no_active_lane(const Words, Words out) {
  asm volatile("s_mov_b64 s[40:41], exec\n"
               DEFECT("s_mov_b64 exec, 0") REPAIR("s_mov_b64 exec, 1") CALM
               USE(no_active_lane) "v_readfirstlane_b32 s42, %0\n"
               "s_mov_b64 exec, s[40:41]\n" CALM
               "v_mov_b32_e32 v10, s42\n"
               "global_store_dword %0, v10, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : "v10", "s40", "s41", "s42", "memory");
}

// Every pass differs from the one before, and nothing ever stops it.
ONE_WAVE infinite_loop(const Words, Words out) {
  asm volatile("s_mov_b32 s40, 0\n" CALM
               USE(infinite_loop) "1: s_add_u32 s40, s40, 2\n"
               "s_cmp_lg_u32 s40, " DEFECT("1001") REPAIR("1000")
               PRODUCER(infinite_loop) "s_cbranch_scc1 1b\n" CALM
               "global_store_dword %0, %0, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : "s40", "scc", "memory");
}

// One workgroup waits for the other; tests allow one to be resident. The twin waits for the one
// that starts first.
ONE_WAVE spin_wait_deadlock(const Words, Words out, Words flags) {
#ifdef REPAIRED
  constexpr int kWaits = 1;
#else
  constexpr int kWaits = 0;
#endif
  if (__builtin_amdgcn_workgroup_id_x() == kWaits) {
    asm volatile(CALM "v_mov_b32_e32 v11, 0\n"
                 "1: " USE(spin_wait_deadlock) "global_load_dword v12, v11, %2 sc1\n"
                 "s_waitcnt vmcnt(0)\n"
                 "v_readfirstlane_b32 s41, v12\n"
                 "s_sleep 1\n"
                 "s_cmp_eq_u32 s41, 0\n"
                 PRODUCER(spin_wait_deadlock) "s_cbranch_scc1 1b\n"
                 "global_store_dword %0, %0, %1\n" CALM
                 ::"v"(lane_bytes()), "s"(out), "s"(flags) : "v11", "v12", "s41", "scc", "memory");
  } else {
    asm volatile(CALM "v_mov_b32_e32 v11, 0\n"
                 "v_mov_b32_e32 v12, 1\n"
                 "global_store_dword v11, v12, %0 sc1\n" CALM
                 ::"s"(flags) : "v11", "v12", "memory");
  }
}

// `flags` is declared to be left zero.
ONE_WAVE dirty_semaphore(const Words, Words out, Words flags) {
  asm volatile("v_mov_b32_e32 v10, 8\n"
               "v_mov_b32_e32 v11, 1\n"
               "v_mov_b32_e32 v12, 0\n" CALM
               USE(dirty_semaphore) "global_atomic_add v10, v11, %2\n" CALM
               REPAIR("global_store_dword v10, v12, %2") CALM
               "global_store_dword %0, %0, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out), "s"(flags) : "v10", "v11", "v12", "memory");
}

template <class T>
using Private = T __attribute__((address_space(5)));
ONE_WAVE scratch_beyond_declaration(const Words, Words out) {
  uint32_t local[4];
  const uint32_t address = (uint32_t)(unsigned long)(Private<void>*)local;
  asm volatile(CALM USE(scratch_beyond_declaration)
               DEFECT("scratch_store_dword %2, %0, off offset:1024")
               REPAIR("scratch_store_dword %2, %0, off offset:12") CALM
               "global_store_dword %0, %0, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out), "v"(address) : "memory");
}

// Launched with 256 bytes of dynamic LDS.
extern __shared__ uint32_t dynamic_words[];
ONE_WAVE dynamic_lds_beyond_launch(const Words, Words out) {
  asm volatile(CALM USE(dynamic_lds_beyond_launch)
               DEFECT("ds_write_b32 %2, %0 offset:4") REPAIR("ds_write_b32 %2, %0") CALM
               "global_store_dword %0, %0, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out), "v"(lds_address(dynamic_words) + lane_bytes())
               : "memory");
}

// s_getpc gives the address of the instruction after it; the jump ends 16 bytes later.
ONE_WAVE jump_outside_text(const Words, Words out) {
  asm volatile(CALM "s_getpc_b64 s[40:41]\n"
               DEFECT("s_add_u32 s40, s40, 0x01000000")
               REPAIR(".long 0x8028ff28, 16")  // the same instruction with a literal
               "s_addc_u32 s41, s41, 0\n"
               USE(jump_outside_text) "s_setpc_b64 s[40:41]\n" CALM
               "global_store_dword %0, %0, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : "s40", "s41", "scc", "memory");
}

// The kernel's descriptor lies in .rodata, and is no code.
ONE_WAVE jump_into_data(const Words, Words out) {
  asm volatile(CALM "s_getpc_b64 s[40:41]\n"
               "1: "
               DEFECT("s_add_u32 s40, s40, jump_into_data.kd@rel32@lo+4")
               DEFECT("s_addc_u32 s41, s41, jump_into_data.kd@rel32@hi+12")
               REPAIR("s_add_u32 s40, s40, 2f-1b")
               REPAIR("s_addc_u32 s41, s41, 0")
               USE(jump_into_data) "s_setpc_b64 s[40:41]\n"
               "2: " CALM
               "global_store_dword %0, %0, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : "s40", "s41", "scc", "memory");
}

ONE_WAVE store_into_code(const Words, Words out) {
  asm volatile("v_mov_b32_e32 v10, 0xbf800000\n"  // s_nop 0
               "v_mov_b32_e32 v11, 0\n"
               "s_getpc_b64 s[40:41]\n"
               REPAIR("s_mov_b64 s[40:41], %1") CALM
               USE(store_into_code) "global_store_dword v11, v10, s[40:41]\n" CALM
               "global_store_dword %0, %0, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : "v10", "v11", "s40", "s41", "memory");
}

ONE_WAVE illegal_instruction(const Words, Words out) {
  asm volatile(CALM USE(illegal_instruction) DEFECT(".long 0xffffffff") REPAIR("s_nop 0") CALM
               "global_store_dword %0, %0, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : "memory");
}

ONE_WAVE debug_trap(const Words, Words out) {
  asm volatile(CALM USE(debug_trap) DEFECT("s_trap 3") REPAIR("s_nop 0") CALM
               "global_store_dword %0, %0, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : "memory");
}

ONE_WAVE trap(const Words, Words out) {
  asm volatile(CALM USE(trap) DEFECT("s_trap 2") REPAIR("s_nop 0") CALM
               "global_store_dword %0, %0, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : "memory");
}
