// Kernels whose accum_offset is 8 of 16 registers. `alias` stores v8 and v9 after writing a0 and v9,
// and a1 after that: out = {a0, v9, a1} for each lane. `beyond` names v16.
.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
.text

.macro entry name
.globl \name
.p2align 8
.type \name,@function
\name:
  s_load_dwordx2 s[0:1], s[0:1], 0x0
  v_mul_u32_u24_e32 v1, 12, v0
.endm

entry alias
  v_add_u32_e32 v2, 1000, v0
  v_add_u32_e32 v9, 2000, v0
  v_accvgpr_write_b32 a0, v2
  s_nop 7
  v_mov_b32_e32 v4, v8
  v_mov_b32_e32 v5, v9
  v_accvgpr_read_b32 v6, a1
  s_waitcnt lgkmcnt(0)
  global_store_dwordx3 v1, v[4:6], s[0:1]
  s_endpgm

entry beyond
  v_mov_b32_e32 v16, 0
  s_endpgm

.macro descriptor name
.amdhsa_kernel \name
  .amdhsa_next_free_vgpr 16
  .amdhsa_next_free_sgpr 8
  .amdhsa_accum_offset 8
  .amdhsa_kernarg_size 8
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
.end_amdhsa_kernel
.endm

.rodata
.p2align 6
descriptor alias
descriptor beyond

.amdgpu_metadata
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: alias
    .symbol: alias.kd
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 8
    .vgpr_count: 16
    .max_flat_workgroup_size: 64
    .args: [{.offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}]
  - .name: beyond
    .symbol: beyond.kd
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 8
    .vgpr_count: 16
    .max_flat_workgroup_size: 64
    .args: [{.offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}]
.end_amdgpu_metadata
