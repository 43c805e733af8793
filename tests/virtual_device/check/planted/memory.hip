// Addresses that are wrong, and values that nobody wrote. `in` holds data and is declared
// read-only, `out` is as large as kOutBytes says, `spare` is never written by the host.
#include "planted.h"

// clang-format off: one instruction to a line.

inline constexpr int kOutBytes = 4096;

#define STORE_V10 "global_store_dword %0, v10, %1\n" CALM
#define STORE_OPERANDS "v"(lane_bytes()), "s"(out)

// The last lane is one dword too far.
ONE_WAVE out_of_bounds(const Words, Words out) {
  asm volatile(DEFECT("v_add_u32_e32 v10, 0xf04, %0") REPAIR("v_add_u32_e32 v10, 0xf00, %0") CALM
               USE(out_of_bounds) "global_store_dword v10, %0, %1\n" CALM
               ::STORE_OPERANDS : "v10", "memory");
  static_assert(kOutBytes == 0xf00 + 256);
}

// The host has freed `spare`.
ONE_WAVE use_after_free(const Words in, Words out, const Words spare) {
  asm volatile(CALM USE(use_after_free) DEFECT("global_load_dword v10, %0, %3")
               REPAIR("global_load_dword v10, %0, %2") CALM STORE_V10
               ::STORE_OPERANDS, "s"(in), "s"(spare) : "v10", "memory");
}

// num_records covers 63 of 64 lanes: the last one reads zero, without any fault.
ONE_WAVE range_swallowed(const Words in, Words out) {
#ifdef REPAIRED
  constexpr int kBytes = 256;
#else
  constexpr int kBytes = 252;
#endif
  asm volatile(CALM USE(range_swallowed) "buffer_load_dword v10, %0, %2, 0 offen\n" CALM STORE_V10
               ::STORE_OPERANDS, "s"(raw_descriptor(in, kBytes)) : "v10", "memory");
}

// Nothing of a buffer of 0 bytes: whether soffset counts in the check decides, where it wraps.
ONE_WAVE empty_with_soffset(const Words in, Words out) {
#ifdef REPAIRED
  constexpr int kBytes = 1 << 30;
#else
  constexpr int kBytes = 0;
#endif
  asm volatile("s_movk_i32 s40, 0x100\n" CALM
               USE(empty_with_soffset) "buffer_load_dword v10, %0, %2, s40 offen\n" CALM STORE_V10
               ::STORE_OPERANDS, "s"(raw_descriptor(in, kBytes)) : "v10", "s40", "memory");
}

// The last half of the lanes is outside only if soffset counts.
ONE_WAVE soffset_beyond_the_end(const Words in, Words out) {
  asm volatile("s_movk_i32 s40, 0x80\n" CALM USE(soffset_beyond_the_end)
               DEFECT("buffer_load_dword v10, %0, %2, s40 offen")
               REPAIR("buffer_load_dword v10, %0, %3, s40 offen") CALM STORE_V10
               ::STORE_OPERANDS, "s"(raw_descriptor(in, 256)), "s"(raw_descriptor(in, 1 << 30))
               : "v10", "s40", "memory");
}

// The only kind of load that still needs alignment.
ONE_WAVE misaligned_format(const Words in, Words out) {
  asm volatile(CALM USE(misaligned_format)
               DEFECT("tbuffer_load_format_x v10, %0, %2, 0 "
                      "format:[BUF_DATA_FORMAT_32,BUF_NUM_FORMAT_UINT] offen offset:2")
               REPAIR("tbuffer_load_format_x v10, %0, %2, 0 "
                      "format:[BUF_DATA_FORMAT_32,BUF_NUM_FORMAT_UINT] offen offset:4")
               CALM STORE_V10
               ::STORE_OPERANDS, "s"(raw_descriptor(in, kOutBytes)) : "v10", "memory");
}

ONE_WAVE misaligned_atomic(const Words, Words out) {
  asm volatile("v_mov_b32_e32 v10, 1\n" DEFECT("v_add_u32_e32 v11, 2, %0")
               REPAIR("v_add_u32_e32 v11, 4, %0") CALM
               USE(misaligned_atomic) "global_atomic_add v11, v10, %1\n" CALM
               ::STORE_OPERANDS : "v10", "v11", "memory");
}

ONE_WAVE uninitialised_vgpr(const Words, Words out) {
  asm volatile(REPAIR("v_mov_b32_e32 v10, 7") CALM
               USE(uninitialised_vgpr) STORE_V10 ::STORE_OPERANDS : "v10", "memory");
}

// One lane of 64: the move is masked.
ONE_WAVE uninitialised_lane(const Words, Words out) {
  asm volatile("s_mov_b64 s[40:41], exec\n"
               DEFECT("s_bitset0_b64 exec, 17")
               "v_mov_b32_e32 v10, 7\n"
               "s_mov_b64 exec, s[40:41]\n" CALM
               USE(uninitialised_lane) STORE_V10
               ::STORE_OPERANDS : "v10", "s40", "s41", "memory");
}

ONE_WAVE uninitialised_sgpr(const Words, Words out) {
  asm volatile(REPAIR("s_mov_b32 s40, 7")
               "v_mov_b32_e32 v10, s40\n" CALM
               USE(uninitialised_sgpr) STORE_V10 ::STORE_OPERANDS : "v10", "s40", "memory");
}

ONE_WAVE uninitialised_agpr(const Words, Words out) {
  asm volatile(REPAIR("v_accvgpr_write_b32 a5, %0") CALM
               "v_accvgpr_read_b32 v10, a5\n" CALM
               USE(uninitialised_agpr) STORE_V10 ::STORE_OPERANDS : "v10", "a5", "memory");
}

ONE_WAVE uninitialised_lds(const Words, Words out) {
  __shared__ uint32_t words[64];
  asm volatile(CALM REPAIR("ds_write_b32 %2, %0\ns_waitcnt lgkmcnt(0)")
               "ds_read_b32 v10, %2\n" CALM
               USE(uninitialised_lds) STORE_V10
               ::STORE_OPERANDS, "v"(lds_address(words) + lane_bytes()) : "v10", "memory");
}

ONE_WAVE uninitialised_device_memory(const Words in, Words out, const Words spare) {
  asm volatile(CALM DEFECT("global_load_dword v10, %0, %3")
               REPAIR("global_load_dword v10, %0, %2") CALM
               USE(uninitialised_device_memory) STORE_V10
               ::STORE_OPERANDS, "s"(in), "s"(spare) : "v10", "memory");
}

// Masked so that any value is a legal address.
ONE_WAVE uninitialised_address(const Words in, Words out) {
  asm volatile(REPAIR("v_mov_b32_e32 v11, 0")
               "v_and_b32_e32 v11, 0xfc, v11\n" CALM
               USE(uninitialised_address) "global_load_dword v10, v11, %2\n" CALM
               "global_store_dword %0, %0, %1\n" CALM
               ::STORE_OPERANDS, "s"(in) : "v10", "v11", "memory");
}

ONE_WAVE uninitialised_branch(const Words, Words out) {
  asm volatile(REPAIR("s_mov_b32 s40, 0") CALM
               "s_cmp_eq_u32 s40, 0\n"
               USE(uninitialised_branch) "s_cbranch_scc1 1f\n"
               "s_nop 0\n"
               "1: global_store_dword %0, %0, %1\n" CALM
               ::STORE_OPERANDS : "s40", "scc", "memory");
}

// Lane 63 is switched off; the host copies what it should have written.
ONE_WAVE unwritten_output(const Words, Words, Words spare) {
  asm volatile("s_mov_b64 s[40:41], exec\n"
               DEFECT("s_bitset0_b64 exec, 63") CALM
               "global_store_dword %0, %0, %1\n" CALM
               "s_mov_b64 exec, s[40:41]\n"
               ::"v"(lane_bytes()), "s"(spare) : "s40", "s41", "memory");
}

ONE_WAVE read_only_write(const Words in, Words out) {
  asm volatile(CALM USE(read_only_write) DEFECT("global_store_dword %0, %0, %2")
               REPAIR("global_store_dword %0, %0, %1") CALM
               ::STORE_OPERANDS, "s"(in) : "memory");
}

// Behind the three pointers.
ONE_WAVE kernarg_overread(const Words, Words out, Words) {
  asm volatile(CALM USE(kernarg_overread) DEFECT("s_load_dword s40, %2, 0x18")
               REPAIR("s_load_dword s40, %2, 0x14") CALM
               "global_store_dword %0, %0, %1\n" CALM
               ::STORE_OPERANDS, "s"((uint64_t)__builtin_amdgcn_kernarg_segment_ptr())
               : "s40", "memory");
}
