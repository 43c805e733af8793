// No race, and yet a result that depends on which workgroup comes first.
#include "planted.h"

// clang-format off: one instruction to a line.

// Every workgroup takes the next free slot; the twins each their own.
ONE_WAVE slot_by_arrival(const Words, Words out, Words flags) {
  const int workgroup = __builtin_amdgcn_workgroup_id_x();
  asm volatile("s_mov_b64 s[40:41], exec\n"
               "s_mov_b64 exec, 1\n"
               "v_mov_b32_e32 v10, 0\n"
               "v_mov_b32_e32 v11, 1\n" CALM
               "global_atomic_add v12, v10, v11, %1 sc0\n" CALM
               REPAIR("v_mov_b32_e32 v12, %2")
               "v_lshlrev_b32_e32 v12, 2, v12\n"
               "global_store_dword v12, %2, %0\n" CALM
               "s_mov_b64 exec, s[40:41]\n"
               ::"s"(out), "s"(flags), "v"(workgroup)
               : "v10", "v11", "v12", "s40", "s41", "memory");
}

// A sum of floats of different size rounds by its order; a sum of integers does not.
ONE_WAVE float_sum_by_arrival(const Words in, Words out) {
  const int workgroup = __builtin_amdgcn_workgroup_id_x();
  asm volatile("v_mov_b32_e32 v10, 0\n" CALM
               "global_load_dword v11, %2, %1\n" CALM
               DEFECT("v_cvt_f32_u32_e32 v11, v11")
               DEFECT("global_atomic_add_f32 v10, v11, %0")
               REPAIR("global_atomic_add v10, v11, %0") CALM
               ::"s"(out), "s"(in), "v"(lane_bytes() + workgroup * 256)
               : "v10", "v11", "memory");
}
