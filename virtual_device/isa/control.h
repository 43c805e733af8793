// Semantics of instructions that change control flow or machine state rather than registers.
#pragma once

#include "isa/inst.h"

namespace vdev {

// Exists in the encoding, and traps: nothing that runs on HIP can use it.
void exec_unsupported(Wave& w, const Inst& in);
void exec_nothing(Wave& w, const Inst& in);

void exec_setvskip(Wave& w, const Inst& in);
void exec_set_gpr_idx_on(Wave& w, const Inst& in);
void exec_set_gpr_idx_off(Wave& w, const Inst& in);
void exec_set_gpr_idx_idx(Wave& w, const Inst& in);
void exec_set_gpr_idx_mode(Wave& w, const Inst& in);

void exec_getreg(Wave& w, const Inst& in);
void exec_setreg(Wave& w, const Inst& in);
void exec_setreg_imm32(Wave& w, const Inst& in);

void exec_branch(Wave& w, const Inst& in);
void exec_cbranch_scc0(Wave& w, const Inst& in);
void exec_cbranch_scc1(Wave& w, const Inst& in);
void exec_cbranch_vccz(Wave& w, const Inst& in);
void exec_cbranch_vccnz(Wave& w, const Inst& in);
void exec_cbranch_execz(Wave& w, const Inst& in);
void exec_cbranch_execnz(Wave& w, const Inst& in);
void exec_call(Wave& w, const Inst& in);
void exec_getpc(Wave& w, const Inst& in);
void exec_setpc(Wave& w, const Inst& in);
void exec_swappc(Wave& w, const Inst& in);

void exec_endpgm(Wave& w, const Inst& in);
void exec_barrier(Wave& w, const Inst& in);
void exec_sleep(Wave& w, const Inst& in);
void exec_setprio(Wave& w, const Inst& in);
void exec_trap(Wave& w, const Inst& in);
// Of the instructions that trap, whether it is the one that debuggers answer.
inline bool is_debug_trap(const Inst& in) { return (in.imm & 0xff) == 3; }

}  // namespace vdev
