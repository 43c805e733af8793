// Instructions that stay where they are written. The compiler neither moves them against each other
// nor waits for them nor spaces them: waits (s_waitcnt) and the distances of the hazard tables are
// the caller's. One instruction a wrapper, named by the assembler's mnemonic.
#pragma once
#include "isa/device.h"

namespace ordered {

// ---- Matrix: 16-bit in, f32 out; operands as in isa/mfma.h. The _zero forms start at 0.
#define MFMA(shape, suffix, element, Acc, Operand)                                                 \
  __device__ __forceinline__ void v_mfma_f32_##shape##_##suffix(Acc& d, Operand a, Operand b) {    \
    asm volatile("v_mfma_f32_" #shape "_" element " %0, %1, %2, %0" : "+v"(d) : "v"(a), "v"(b));   \
  }                                                                                                \
  __device__ __forceinline__ void v_mfma_f32_##shape##_##suffix##_zero(Acc& d, Operand a,          \
                                                                       Operand b) {                \
    asm volatile("v_mfma_f32_" #shape "_" element " %0, %1, %2, 0" : "=&v"(d) : "v"(a), "v"(b));   \
  }                                                                                                \
  template <int kB>                                                                                \
  __device__ __forceinline__ void v_mfma_f32_##shape##_##suffix##_acc(Acc& d, Operand a) {         \
    asm volatile("v_mfma_f32_" #shape "_" element " %0, %1, a[%c2:%c3], %0"                        \
                 : "+v"(d)                                                                         \
                 : "v"(a), "n"(kB), "n"(kB + sizeof(Operand) / 4 - 1));                            \
  }                                                                                                \
  template <int kB>                                                                                \
  __device__ __forceinline__ void v_mfma_f32_##shape##_##suffix##_acc_zero(Acc& d, Operand a) {    \
    asm volatile("v_mfma_f32_" #shape "_" element " %0, %1, a[%c2:%c3], 0"                         \
                 : "=&v"(d)                                                                        \
                 : "v"(a), "n"(kB), "n"(kB + sizeof(Operand) / 4 - 1));                            \
  }                                                                                                \
  template <int kD>                                                                                \
  __device__ __forceinline__ void v_mfma_f32_##shape##_##suffix##_into_acc(Operand a, Operand b) { \
    asm volatile("v_mfma_f32_" #shape "_" element " a[%c2:%c3], %0, %1, a[%c2:%c3]" ::"v"(a),      \
                 "v"(b), "n"(kD), "n"(kD + sizeof(Acc) / 4 - 1));                                  \
  }
MFMA(16x16x16, bf16, "bf16", f32x4, bf16x4)
MFMA(16x16x16, f16, "f16", f32x4, bf16x4)
MFMA(32x32x8, bf16, "bf16", f32x16, bf16x4)
MFMA(32x32x8, f16, "f16", f32x16, bf16x4)
MFMA(16x16x32, bf16, "bf16", f32x4, bf16x8)
MFMA(16x16x32, f16, "f16", f32x4, bf16x8)
MFMA(32x32x16, bf16, "bf16", f32x16, bf16x8)
MFMA(32x32x16, f16, "f16", f32x16, bf16x8)
#undef MFMA

// a[kD : kD + 31] = 0, given two registers that hold 0: 16 passes in the background.
template <int kD>
__device__ __forceinline__ void v_mfma_f32_32x32x4_2b_zero_acc(bf16x4 zero) {
  asm volatile("v_mfma_f32_32x32x4_2b_bf16 a[%c1:%c2], %0, %0, 0" ::"v"(zero), "n"(kD),
               "n"(kD + 31));
}

// ---- Vector
// x * one half of `pair`, for both halves of x.
template <int kHalf>
__device__ __forceinline__ f32x2 v_pk_mul_f32_half(f32x2 x, f32x2 pair) {
  f32x2 d;
  if constexpr (kHalf == 0)
    asm volatile("v_pk_mul_f32 %0, %1, %2 op_sel_hi:[1,0]" : "=v"(d) : "v"(x), "v"(pair));
  else
    asm volatile("v_pk_mul_f32 %0, %1, %2 op_sel:[0,1]" : "=v"(d) : "v"(x), "v"(pair));
  return d;
}

__device__ __forceinline__ f32x2 v_pk_fma_f32(f32x2 a, f32x2 b, f32x2 c) {
  f32x2 d;
  asm volatile("v_pk_fma_f32 %0, %1, %2, %3" : "=v"(d) : "v"(a), "v"(b), "v"(c));
  return d;
}

// a * uniform + c
__device__ __forceinline__ f32x2 v_pk_fma_f32_uniform(f32x2 a, f32x2 uniform, f32x2 c) {
  f32x2 d;
  asm volatile("v_pk_fma_f32 %0, %1, %2, %3" : "=v"(d) : "v"(a), "s"(uniform), "v"(c));
  return d;
}

__device__ __forceinline__ bf16x4 v_mov_b64_zero() {
  bf16x4 d;
  asm volatile("v_mov_b64 %0, 0" : "=v"(d));
  return d;
}

__device__ __forceinline__ float v_max_f32(float a, float b) {
  float d;
  asm volatile("v_max_f32 %0, %1, %2" : "=v"(d) : "v"(a), "v"(b));
  return d;
}

// The greatest; NaNs lose against numbers.
__device__ __forceinline__ float v_max3_f32(float a, float b, float c) {
  float d;
  asm volatile("v_max3_f32 %0, %1, %2, %3" : "=v"(d) : "v"(a), "v"(b), "v"(c));
  return d;
}

__device__ __forceinline__ float v_add_f32(float a, float b) {
  float d;
  asm volatile("v_add_f32 %0, %1, %2" : "=v"(d) : "v"(a), "v"(b));
  return d;
}

// x * scale + y
__device__ __forceinline__ float v_fma_f32(float x, float scale, float y) {
  float d;
  asm volatile("v_fma_f32 %0, %1, %2, %3" : "=v"(d) : "v"(x), "s"(scale), "v"(y));
  return d;
}

// The same of three vector registers.
__device__ __forceinline__ float v_fma_f32_vector(float a, float b, float c) {
  float d;
  asm volatile("v_fma_f32 %0, %1, %2, %3" : "=v"(d) : "v"(a), "v"(b), "v"(c));
  return d;
}

__device__ __forceinline__ float v_mul_f32(float scale, float x) {
  float d;
  asm volatile("v_mul_f32 %0, %1, %2" : "=v"(d) : "s"(scale), "v"(x));
  return d;
}

template <uint32_t kConstant>
__device__ __forceinline__ uint32_t v_add_u32(uint32_t a) {
  uint32_t d;
  asm volatile("v_add_u32 %0, %1, %2" : "=v"(d) : "n"(kConstant), "v"(a));
  return d;
}

__device__ __forceinline__ uint32_t v_or3_b32(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm volatile("v_or3_b32 %0, %1, %2, %3" : "=v"(d) : "v"(a), "v"(b), "v"(c));
  return d;
}

template <uint32_t kConstant>
__device__ __forceinline__ uint32_t v_and_b32(uint32_t a) {
  uint32_t d;
  asm volatile("v_and_b32 %0, %1, %2" : "=v"(d) : "n"(kConstant), "v"(a));
  return d;
}

// kBits bits from kFirst on, with their sign.
template <int kFirst, int kBits>
__device__ __forceinline__ int v_bfe_i32(uint32_t a) {
  int d;
  asm volatile("v_bfe_i32 %0, %1, %2, %3" : "=v"(d) : "v"(a), "n"(kFirst), "n"(kBits));
  return d;
}

// Bits of a uniform value where `which` has ones, else those of b.
__device__ __forceinline__ float v_bfi_b32(int which, float uniform, float b) {
  float d;
  asm volatile("v_bfi_b32 %0, %1, %2, %3" : "=v"(d) : "v"(which), "s"(uniform), "v"(b));
  return d;
}

template <uint32_t kConstant>
__device__ __forceinline__ void v_xor_b32(uint32_t& a) {
  asm volatile("v_xor_b32 %0, %1, %0" : "+v"(a) : "n"(kConstant));
}

__device__ __forceinline__ float v_add_f32_1(float a) {
  float d;
  asm volatile("v_add_f32 %0, 1.0, %1" : "=v"(d) : "v"(a));
  return d;
}

__device__ __forceinline__ float v_exp_f32(float x) {
  float d;
  asm volatile("v_exp_f32 %0, %1" : "=v"(d) : "v"(x));
  return d;
}

__device__ __forceinline__ float v_rcp_f32(float x) {
  float d;
  asm volatile("v_rcp_f32 %0, %1" : "=v"(d) : "v"(x));
  return d;
}

__device__ __forceinline__ uint32_t v_perm_b32(uint32_t hi, uint32_t lo, uint32_t selector) {
  uint32_t d;
  asm volatile("v_perm_b32 %0, %1, %2, %3" : "=v"(d) : "v"(hi), "v"(lo), "s"(selector));
  return d;
}

// a * b + uniform as float16, in one half: the other half is anything, or as it was.
__device__ __forceinline__ uint32_t v_fma_mixlo_f16(float a, float b, float uniform) {
  uint32_t d;
  asm volatile("v_fma_mixlo_f16 %0, %1, %2, %3" : "=v"(d) : "v"(a), "v"(b), "s"(uniform));
  return d;
}
__device__ __forceinline__ uint32_t v_fma_mixhi_f16(uint32_t d, float a, float b, float uniform) {
  asm volatile("v_fma_mixhi_f16 %0, %1, %2, %3" : "+v"(d) : "v"(a), "v"(b), "s"(uniform));
  return d;
}

// x as float16, to nearest even, likewise.
__device__ __forceinline__ uint32_t v_fma_mixlo_f16(float x) {
  uint32_t d;
  asm volatile("v_fma_mixlo_f16 %0, %1, 1.0, 0" : "=v"(d) : "v"(x));
  return d;
}
__device__ __forceinline__ uint32_t v_fma_mixhi_f16(uint32_t d, float x) {
  asm volatile("v_fma_mixhi_f16 %0, %1, 1.0, 0" : "+v"(d) : "v"(x));
  return d;
}

// Rounds towards zero.
__device__ __forceinline__ uint32_t v_cvt_pkrtz_f16_f32(float lo, float hi) {
  uint32_t d;
  asm volatile("v_cvt_pkrtz_f16_f32 %0, %1, %2" : "=v"(d) : "v"(lo), "v"(hi));
  return d;
}

// One bit a lane: not (a < uniform); a NaN gives 1.
__device__ __forceinline__ uint64_t v_cmp_nlt_f32(float a, float uniform) {
  uint64_t lanes;
  asm volatile("v_cmp_nlt_f32 %0, %1, %2" : "=s"(lanes) : "v"(a), "s"(uniform));
  return lanes;
}

// One bit a lane: not (a = 0); a NaN gives 1.
__device__ __forceinline__ uint64_t v_cmp_neq_f32_0(float a) {
  uint64_t lanes;
  asm volatile("v_cmp_neq_f32 %0, 0, %1" : "=s"(lanes) : "v"(a));
  return lanes;
}

// a or, in lanes that are not, 0.
__device__ __forceinline__ float v_cndmask_b32_0(float a, uint64_t lanes) {
  float d;
  asm volatile("v_cndmask_b32 %0, 0, %1, %2" : "=v"(d) : "v"(a), "s"(lanes));
  return d;
}

// To nearest even, as MODE has it at a kernel's start.
__device__ __forceinline__ uint32_t v_cvt_pk_bf16_f32(float lo, float hi) {
  uint32_t d;
  asm volatile("v_cvt_pk_bf16_f32 %0, %1, %2" : "=v"(d) : "v"(lo), "v"(hi));
  return d;
}
__device__ __forceinline__ uint32_t v_cvt_pk_f16_f32(float lo, float hi) {
  uint32_t d;
  asm volatile("v_cvt_pk_f16_f32 %0, %1, %2" : "=v"(d) : "v"(lo), "v"(hi));
  return d;
}

// The upper 32 lanes of a for the lower ones of b.
__device__ __forceinline__ void v_permlane32_swap_b32(uint32_t& a, uint32_t& b) {
  asm volatile("v_permlane32_swap_b32 %0, %1" : "+v"(a), "+v"(b));
}

// The upper float16 of a pair.
__device__ __forceinline__ float v_fma_mix_f32_high(uint32_t pair) {
  float d;
  asm volatile("v_fma_mix_f32 %0, %1, 1.0, 0 op_sel:[1,0,0] op_sel_hi:[1,0,0]"
               : "=v"(d)
               : "v"(pair));
  return d;
}

__device__ __forceinline__ void v_xor_b32(uint32_t& a, uint32_t uniform) {
  asm volatile("v_xor_b32 %0, %1, %0" : "+v"(a) : "s"(uniform));
}

// ---- LDS: byte addresses
template <int kOffset>
__device__ __forceinline__ void ds_read_b128(bf16x8& d, uint32_t address) {
  asm volatile("ds_read_b128 %0, %1 offset:%2" : "=v"(d) : "v"(address), "n"(kOffset));
}

// Of 16 lanes that each address 4 elements: lane i gets the element i of each of 4 rows, of which
// lanes 4 r to 4 r + 3 have the rth.
template <int kOffset>
__device__ __forceinline__ u32x2 ds_read_b64_tr_b16(uint32_t address) {
  u32x2 d;
  asm volatile("ds_read_b64_tr_b16 %0, %1 offset:%2" : "=v"(d) : "v"(address), "n"(kOffset));
  return d;
}

__device__ __forceinline__ void ds_write_b32(uint32_t address, float value) {
  asm volatile("ds_write_b32 %0, %1" ::"v"(address), "v"(value));
}

template <int kOffset>
__device__ __forceinline__ void ds_write_b128(uint32_t address, u32x4 value) {
  asm volatile("ds_write_b128 %0, %1 offset:%2" ::"v"(address), "v"(value), "n"(kOffset));
}

// The value of lane `lane_bytes / 4`.
__device__ __forceinline__ float ds_bpermute_b32(uint32_t lane_bytes, float value) {
  float d;
  asm volatile("ds_bpermute_b32 %0, %1, %2" : "=v"(d) : "v"(lane_bytes), "v"(value));
  return d;
}

// ---- Memory
template <int kBytes>
__device__ __forceinline__ void global_load_dwordx4(bf16x8& d, const Global<void>* from) {
  asm volatile("global_load_dwordx4 %0, %1, off offset:%c2" : "=v"(d) : "v"(from), "n"(kBytes));
}

template <int kD, int kBytes>
__device__ __forceinline__ void global_load_dwordx4_acc(const Global<void>* from) {
  asm volatile("global_load_dwordx4 a[%c1:%c2], %0, off offset:%c3" ::"v"(from), "n"(kD),
               "n"(kD + 3), "n"(kBytes));
}

// ---- Memory through a descriptor (base address in words 0-1, bytes in word 2)
__device__ __forceinline__ void buffer_load_dword(uint32_t& d, uint32_t offset, u32x4 buffer) {
  asm volatile("buffer_load_dword %0, %1, %2, 0 offen" : "=v"(d) : "v"(offset), "s"(buffer));
}

__device__ __forceinline__ void buffer_load_dwordx2(u32x2& d, uint32_t offset, u32x4 buffer) {
  asm volatile("buffer_load_dwordx2 %0, %1, %2, 0 offen" : "=v"(d) : "v"(offset), "s"(buffer));
}

// 64 consecutive dwords of LDS from the address in M0, one a lane.
__device__ __forceinline__ void buffer_load_dword_lds(uint32_t offset, u32x4 buffer) {
  asm volatile("buffer_load_dword %0, %1, 0 offen lds" ::"v"(offset), "s"(buffer));
}

// The same of 16 bytes a lane.
__device__ __forceinline__ void buffer_load_dwordx4_lds(uint32_t offset, u32x4 buffer) {
  asm volatile("buffer_load_dwordx4 %0, %1, 0 offen lds" ::"v"(offset), "s"(buffer));
}

template <uint32_t kBytes>
__device__ __forceinline__ void s_add_m0(uint32_t address) {
  asm volatile("s_add_u32 m0, %0, %1" ::"s"(address), "n"(kBytes) : "scc");
}

// ---- Scalar
template <uint32_t kConstant>
__device__ __forceinline__ void s_xor_b32(uint32_t& a) {
  asm volatile("s_xor_b32 %0, %0, %1" : "+s"(a) : "n"(kConstant) : "scc");
}

__device__ __forceinline__ void s_xor_b32(uint32_t& a, uint32_t b) {
  asm volatile("s_xor_b32 %0, %0, %1" : "+s"(a) : "s"(b) : "scc");
}

#define SCALAR(name)                                                      \
  __device__ __forceinline__ int name(int a, int b) {                     \
    int d;                                                                \
    asm volatile(#name " %0, %1, %2" : "=s"(d) : "s"(a), "s"(b) : "scc"); \
    return d;                                                             \
  }
SCALAR(s_sub_i32)
SCALAR(s_mul_i32)
#undef SCALAR

// With a constant, -16 to 64.
#define SCALAR(name)                                                       \
  template <int kB>                                                        \
  __device__ __forceinline__ int name(int a) {                             \
    int d;                                                                 \
    asm volatile(#name " %0, %1, %2" : "=s"(d) : "s"(a), "n"(kB) : "scc"); \
    return d;                                                              \
  }
SCALAR(s_sub_i32)
SCALAR(s_max_i32)
SCALAR(s_min_i32)
#undef SCALAR

// Two instructions: nothing may come between an addition and its carry.
__device__ __forceinline__ void s_add_u64(uint64_t& a, uint64_t b) {
  uint32_t lo = uint32_t(a), hi = uint32_t(a >> 32);
  asm volatile("s_add_u32 %0, %0, %2\n\ts_addc_u32 %1, %1, %3"
               : "+s"(lo), "+s"(hi)
               : "s"(uint32_t(b)), "s"(uint32_t(b >> 32))
               : "scc");
  a = uint64_t(hi) << 32 | lo;
}

// ---- In place, so that the register of a value stays the same where paths meet.
__device__ __forceinline__ void v_mov_b32(float& x, float value) {
  asm volatile("v_mov_b32 %0, %1" : "+v"(x) : "v"(value));
}
__device__ __forceinline__ void v_mov_b64(bf16x4& x, bf16x4 value) {
  asm volatile("v_mov_b64 %0, %1" : "+v"(x) : "v"(value));
}
__device__ __forceinline__ void v_accumulate_f32(float& x, float y) {
  asm volatile("v_add_f32 %0, %0, %1" : "+v"(x) : "v"(y));
}

// ---- No instruction: x is in a register here; no use moves before it, no computation behind it.
template <class T>
__device__ __forceinline__ void settle(T& x) {
  asm volatile("" : "+v"(x));
}
template <class T>
__device__ __forceinline__ void settle_uniform(T& x) {
  asm volatile("" : "+s"(x));
}

// They are in scalar registers here.
template <class... T>
__device__ __forceinline__ void need_uniform(T... x) {
  const auto need = [](auto one) { asm volatile("" ::"s"(one)); };
  (need(x), ...);
}

// ---- The wave's end
__device__ __forceinline__ void s_endpgm() { asm volatile("s_endpgm"); }

// ---- Synchronisation
inline constexpr int kAnyVm = 63, kAnyLgkm = 15;
template <int kVm, int kLgkm>
__device__ __forceinline__ void s_waitcnt() {
  if constexpr (kVm == kAnyVm)
    asm volatile("s_waitcnt lgkmcnt(%0)" ::"n"(kLgkm));
  else if constexpr (kLgkm == kAnyLgkm)
    asm volatile("s_waitcnt vmcnt(%0)" ::"n"(kVm));
  else
    asm volatile("s_waitcnt vmcnt(%0) lgkmcnt(%1)" ::"n"(kVm), "n"(kLgkm));
}

__device__ __forceinline__ void s_barrier() { asm volatile("s_barrier"); }

template <int kStates>
__device__ __forceinline__ void s_nop() {
  asm volatile("s_nop %0" ::"n"(kStates - 1));
}

}  // namespace ordered
