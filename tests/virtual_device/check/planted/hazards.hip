// Sequences that are one wait state short of what the hardware needs; the twin has exactly enough.
#include "planted.h"

// clang-format off: one instruction to a line.

// Four initialised VGPRs, v10 to v13, as the operands of matrix instructions.
#define OPERANDS                 \
  "v_cvt_f32_u32_e32 v10, %0\n"  \
  "v_mov_b32_e32 v11, v10\n"     \
  "v_mov_b32_e32 v12, v10\n"     \
  "v_mov_b32_e32 v13, v10\n" CALM
#define MFMA_CLOBBERS                                                                         \
  "v10", "v11", "v12", "v13", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "memory"
#define SWAP_PAIRS "quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf"

// 4 passes: 7 wait states before a VALU instruction reads the result.
ONE_WAVE mfma_then_valu(const Words, Words out) {
  asm volatile(OPERANDS
               PRODUCER(mfma_then_valu) "v_mfma_f32_16x16x16_f16 v[20:23], v[10:11], v[12:13], 0\n"
               DEFECT("s_nop 5") REPAIR("s_nop 6")
               USE(mfma_then_valu) "v_add_f32_e32 v24, 1.0, v20\n" CALM
               "global_store_dword %0, v24, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : MFMA_CLOBBERS);
}

ONE_WAVE mfma_then_store(const Words, Words out) {
  asm volatile(OPERANDS
               PRODUCER(mfma_then_store) "v_mfma_f32_16x16x16_f16 v[20:23], v[10:11], v[12:13], 0\n"
               DEFECT("s_nop 5") REPAIR("s_nop 6")
               USE(mfma_then_store) "global_store_dword %0, v20, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : MFMA_CLOBBERS);
}

ONE_WAVE mfma_then_lds(const Words, Words out) {
  __shared__ uint32_t words[64];
  asm volatile(OPERANDS
               PRODUCER(mfma_then_lds) "v_mfma_f32_16x16x16_f16 v[20:23], v[10:11], v[12:13], 0\n"
               DEFECT("s_nop 5") REPAIR("s_nop 6")
               USE(mfma_then_lds) "ds_write_b32 %2, v20\n"
               "s_waitcnt lgkmcnt(0)\n"
               "ds_read_b32 v24, %2\n"
               "s_waitcnt lgkmcnt(0)\n"
               "global_store_dword %0, v24, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out), "v"(lds_address(words) + lane_bytes())
               : MFMA_CLOBBERS);
}

ONE_WAVE mfma_then_mfma_operand(const Words, Words out) {
  asm volatile(OPERANDS
               PRODUCER(mfma_then_mfma_operand)
               "v_mfma_f32_16x16x16_f16 v[20:23], v[10:11], v[12:13], 0\n"
               DEFECT("s_nop 5") REPAIR("s_nop 6")
               USE(mfma_then_mfma_operand)
               "v_mfma_f32_16x16x16_f16 v[20:23], v[20:21], v[12:13], 0\n" CALM
               "global_store_dword %0, v20, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : MFMA_CLOBBERS);
}

// The accumulator overlaps the result of another instruction without being the same registers.
ONE_WAVE mfma_then_overlapping_accumulator(const Words, Words out) {
  asm volatile(OPERANDS
               "v_mov_b32_e32 v24, 0\n"
               "v_mov_b32_e32 v25, 0\n" CALM
               PRODUCER(mfma_then_overlapping_accumulator)
               "v_mfma_f32_16x16x16_f16 v[20:23], v[10:11], v[12:13], 0\n"
               DEFECT("s_nop 3") REPAIR("s_nop 4")
               USE(mfma_then_overlapping_accumulator)
               "v_mfma_f32_16x16x16_f16 v[22:25], v[10:11], v[12:13], v[22:25]\n" CALM
               "global_store_dword %0, v22, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : MFMA_CLOBBERS);
}

ONE_WAVE valu_then_mfma(const Words, Words out) {
  asm volatile(OPERANDS
               PRODUCER(valu_then_mfma) "v_mov_b32_e32 v10, v12\n"
               DEFECT("s_nop 0") REPAIR("s_nop 1")
               USE(valu_then_mfma) "v_mfma_f32_16x16x16_f16 v[20:23], v[10:11], v[12:13], 0\n" CALM
               "global_store_dword %0, v20, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : MFMA_CLOBBERS);
}

ONE_WAVE valu_overwrites_mfma_accumulator(const Words, Words out) {
  asm volatile(OPERANDS
               "v_mov_b32_e32 v20, 0\n"
               "v_mov_b32_e32 v21, 0\n"
               "v_mov_b32_e32 v22, 0\n"
               "v_mov_b32_e32 v23, 0\n" CALM
               PRODUCER(valu_overwrites_mfma_accumulator)
               "v_mfma_f32_16x16x16_f16 v[24:27], v[10:11], v[12:13], v[20:23]\n"
               DEFECT("s_nop 1") REPAIR("s_nop 2")
               USE(valu_overwrites_mfma_accumulator) "v_mov_b32_e32 v20, 7\n" CALM
               "global_store_dword %0, v20, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : MFMA_CLOBBERS);
}

ONE_WAVE trans_then_valu(const Words, Words out) {
  asm volatile("v_cvt_f32_u32_e32 v10, %0\n" CALM
               PRODUCER(trans_then_valu) "v_exp_f32_e32 v11, v10\n"
               REPAIR("s_nop 0")
               USE(trans_then_valu) "v_add_f32_e32 v12, 1.0, v11\n"
               "global_store_dword %0, v12, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : "v10", "v11", "v12", "memory");
}

ONE_WAVE valu_sgpr_then_vmem(const Words in, Words out) {
  asm volatile("v_mov_b32_e32 v10, 64\n" CALM
               PRODUCER(valu_sgpr_then_vmem) "v_readfirstlane_b32 s40, v10\n"
               DEFECT("s_nop 3") REPAIR("s_nop 4")
               USE(valu_sgpr_then_vmem) "buffer_load_dword v11, %0, %1, s40 offen\n" CALM
               "global_store_dword %0, v11, %2\n" CALM
               ::"v"(lane_bytes()), "s"(raw_descriptor(in, 1024)), "s"(out)
               : "v10", "v11", "s40", "memory");
}

ONE_WAVE valu_sgpr_then_lane_select(const Words, Words out) {
  asm volatile("v_mov_b32_e32 v10, 3\n" CALM
               PRODUCER(valu_sgpr_then_lane_select) "v_readfirstlane_b32 s40, v10\n"
               DEFECT("s_nop 2") REPAIR("s_nop 3")
               USE(valu_sgpr_then_lane_select) "v_readlane_b32 s41, %0, s40\n" CALM
               "v_mov_b32_e32 v11, s41\n"
               "global_store_dword %0, v11, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : "v10", "v11", "s40", "s41", "memory");
}

ONE_WAVE valu_sgpr_then_valu(const Words, Words out) {
  asm volatile("v_mov_b32_e32 v10, 3\n" CALM
               PRODUCER(valu_sgpr_then_valu) "v_readfirstlane_b32 s40, v10\n"
               DEFECT("s_nop 0") REPAIR("s_nop 1")
               USE(valu_sgpr_then_valu) "v_add_u32_e32 v11, s40, %0\n" CALM
               "global_store_dword %0, v11, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : "v10", "v11", "s40", "memory");
}

ONE_WAVE valu_then_readlane(const Words, Words out) {
  asm volatile(CALM
               PRODUCER(valu_then_readlane) "v_add_u32_e32 v10, 1, %0\n"
               REPAIR("s_nop 0")
               USE(valu_then_readlane) "v_readlane_b32 s40, v10, 5\n" CALM
               "v_mov_b32_e32 v11, s40\n"
               "global_store_dword %0, v11, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : "v10", "v11", "s40", "memory");
}

ONE_WAVE vcc_then_div_fmas(const Words, Words out) {
  asm volatile("v_cvt_f32_u32_e32 v10, %0\n" CALM
               PRODUCER(vcc_then_div_fmas) "v_cmp_lt_f32_e32 vcc, 1.0, v10\n"
               DEFECT("s_nop 2") REPAIR("s_nop 3")
               USE(vcc_then_div_fmas) "v_div_fmas_f32 v11, v10, v10, v10\n" CALM
               "global_store_dword %0, v11, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : "v10", "v11", "vcc", "memory");
}

// The comparison holds for every lane: EXEC stays as it is.
ONE_WAVE valu_exec_then_dpp(const Words, Words out) {
  asm volatile("v_mov_b32_e32 v10, %0\n" CALM
               PRODUCER(valu_exec_then_dpp) "v_cmpx_le_u32_e32 vcc, 0, v10\n"
               DEFECT("s_nop 3") REPAIR("s_nop 4")
               USE(valu_exec_then_dpp) "v_mov_b32_dpp v11, v10 " SWAP_PAIRS "\n"
               CALM
               "global_store_dword %0, v11, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : "v10", "v11", "vcc", "memory");
}

ONE_WAVE valu_then_dpp(const Words, Words out) {
  asm volatile(CALM
               PRODUCER(valu_then_dpp) "v_add_u32_e32 v10, 1, %0\n"
               DEFECT("s_nop 0") REPAIR("s_nop 1")
               USE(valu_then_dpp) "v_mov_b32_dpp v11, v10 " SWAP_PAIRS "\n"
               CALM
               "global_store_dword %0, v11, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : "v10", "v11", "memory");
}

// SDWA writes half a register: its consumer may get the other half stale.
ONE_WAVE sdwa_then_valu(const Words, Words out) {
  asm volatile("v_mov_b32_e32 v10, 5\n" CALM
               PRODUCER(sdwa_then_valu)
               "v_add_u16_sdwa v10, %0, %0 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE "
               "src0_sel:WORD_0 src1_sel:WORD_0\n"
               REPAIR("s_nop 0")
               USE(sdwa_then_valu) "v_add_u32_e32 v11, 1, v10\n" CALM
               "global_store_dword %0, v11, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : "v10", "v11", "memory");
}

ONE_WAVE m0_then_lds_dma(const Words in, Words out) {
  __shared__ uint32_t words[64];
  asm volatile(CALM
               PRODUCER(m0_then_lds_dma) "s_mov_b32 m0, %4\n"
               REPAIR("s_nop 0")
               USE(m0_then_lds_dma) "buffer_load_dword %0, %1, 0 offen lds\n"
               "s_waitcnt vmcnt(0)\n"
               "ds_read_b32 v10, %2\n"
               "s_waitcnt lgkmcnt(0)\n"
               "global_store_dword %0, v10, %3\n" CALM
               ::"v"(lane_bytes()), "s"(raw_descriptor(in, 256)),
               "v"(lds_address(words) + lane_bytes()), "s"(out), "s"(lds_address(words))
               : "v10", "memory");
}

// Rounding towards zero and back.
ONE_WAVE setreg_then_getreg(const Words, Words out) {
  asm volatile("s_mov_b32 s40, 3\n" CALM
               PRODUCER(setreg_then_getreg) "s_setreg_b32 hwreg(HW_REG_MODE, 0, 2), s40\n"
               DEFECT("s_nop 0") REPAIR("s_nop 1")
               USE(setreg_then_getreg) "s_getreg_b32 s41, hwreg(HW_REG_MODE, 0, 2)\n" CALM
               "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 0\n" CALM
               "v_mov_b32_e32 v10, s41\n"
               "global_store_dword %0, v10, %1\n" CALM
               ::"v"(lane_bytes()), "s"(out) : "v10", "s40", "s41", "memory");
}

// The data of a wide store leave their registers late.
ONE_WAVE wide_store_then_valu(const Words, Words out) {
  asm volatile(OPERANDS
               PRODUCER(wide_store_then_valu) "global_store_dwordx4 %0, v[10:13], %1\n"
               DEFECT("s_nop 0") REPAIR("s_nop 1")
               USE(wide_store_then_valu) "v_mov_b32_e32 v12, 7\n" CALM
               ::"v"(lane_bytes() * 4), "s"(out) : MFMA_CLOBBERS);
}

// The second load of a clause overwrites the address of the first.
ONE_WAVE vector_clause(const Words in, Words out) {
  asm volatile("v_mov_b32_e32 v10, %0\n" CALM
               PRODUCER(vector_clause) "global_load_dword v11, v10, %1\n"
               REPAIR("s_nop 0")
               USE(vector_clause) "global_load_dword v10, %0, %1 offset:256\n" CALM
               "v_add_u32_e32 v10, v10, v11\n"
               "global_store_dword %0, v10, %2\n" CALM
               ::"v"(lane_bytes()), "s"(in), "s"(out) : "v10", "v11", "memory");
}

// The first load overwrites its own address; alone it may.
ONE_WAVE vector_clause_of_itself(const Words in, Words out) {
  asm volatile("v_mov_b32_e32 v10, %0\n" CALM
               PLACE(vector_clause_of_itself, "producer")
               USE(vector_clause_of_itself) "global_load_dword v10, v10, %1\n"
               REPAIR("s_nop 0")
               "global_load_dword v11, %0, %1 offset:256\n" CALM
               "v_add_u32_e32 v10, v10, v11\n"
               "global_store_dword %0, v10, %2\n" CALM
               ::"v"(lane_bytes()), "s"(in), "s"(out) : "v10", "v11", "memory");
}

ONE_WAVE scalar_clause(const Words in, Words out) {
  asm volatile("s_mov_b64 s[40:41], %1\n" CALM
               PRODUCER(scalar_clause) "s_load_dword s42, s[40:41], 0x0\n"
               REPAIR("s_nop 0")
               USE(scalar_clause) "s_load_dword s40, %1, 0x4\n" CALM
               "s_add_u32 s40, s40, s42\n"
               "v_mov_b32_e32 v10, s40\n"
               "global_store_dword %0, v10, %2\n" CALM
               ::"v"(lane_bytes()), "s"(in), "s"(out) : "v10", "s40", "s41", "s42", "scc", "memory");
}
