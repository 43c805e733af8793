// Blocks of K and V on their way from memory to LDS and to the registers of the main loop.
#pragma once
#include "attn/schedule.h"
#include "isa/ordered_l2.h"
#include "isa/unroll.h"
#include "tile/buffer.h"

// ---- Which block is loaded next
// In place: the descriptors have no loads before they are changed throughout. Of V the block may be
// the one before that of K: its rows are counted before those of K's are.
template <int kKeys, bool kInPlace, bool kLagsV = false>
struct KvBlocks {
  u32x4 buffer_k, buffer_v;                  // of the block of keys to be loaded
  uint64_t base_k, base_v, step_k, step_v;   // addresses of that block; bytes between two
  int rows_left, rows;                       // of the tensor from that block on; of the block
  int bytes_k, bytes_v, stride_k, stride_v;  // of the block; of a row
  int gap_k, gap_v;                          // bytes from the end of a row to the next one
  static __device__ __forceinline__ void to_block(u32x4& buffer, uint64_t base, uint32_t bytes) {
    buffer = u32x4{uint32_t(base), uint32_t(base >> 32), bytes, buffer[3]};
  }
  static __device__ __forceinline__ void further(u32x4& buffer, uint64_t& base, uint64_t step) {
    if constexpr (kInPlace) base = uint64_t(buffer[1]) << 32 | buffer[0];
    ordered::s_add_u64(base, step);
    if constexpr (kInPlace) to_block(buffer, base, buffer[2]);
  }
  // The block after the last one loaded: bytes behind its last row read as 0.
  template <int n>
  __device__ __forceinline__ void next_block() {
    constexpr int kOfVFirst[] = {0, 1, 8, 9, 10, 2, 3, 4, 5, 6, 7};
    next_block_in_order<kLagsV ? kOfVFirst[n] : n>();
  }
  template <int n>
  __device__ __forceinline__ void next_block_in_order() {
    if constexpr (n == 0) further(buffer_k, base_k, step_k);
    if constexpr (n == 1) further(buffer_v, base_v, step_v);
    if constexpr (n == 2) rows_left = ordered::s_sub_i32<kKeys>(rows_left);
    if constexpr (n == 3) rows = ordered::s_max_i32<0>(rows_left);
    if constexpr (n == 4) rows = ordered::s_min_i32<kKeys>(rows);
    if constexpr (n == 5) bytes_k = ordered::s_mul_i32(rows, stride_k);
    if constexpr (n == 6) bytes_k = ordered::s_sub_i32(bytes_k, gap_k);
    if constexpr (n == 7) bytes_k = ordered::s_max_i32<0>(bytes_k);
    if constexpr (n == 7 && kInPlace) buffer_k[2] = bytes_k;
    if constexpr (n == 8) bytes_v = ordered::s_mul_i32(rows, stride_v);
    if constexpr (n == 9) bytes_v = ordered::s_sub_i32(bytes_v, gap_v);
    if constexpr (n == 10) {
      bytes_v = ordered::s_max_i32<0>(bytes_v);
      if constexpr (kInPlace) {
        buffer_v[2] = bytes_v;
      } else {
        to_block(buffer_k, base_k, bytes_k);
        to_block(buffer_v, base_v, bytes_v);
      }
    }
  }
};

// ---- V through registers, where it is transposed
template <int kElements>
struct Staged {
  using Row = u32x2;
};
template <>
struct Staged<2> {
  using Row = uint32_t;
};
__device__ __forceinline__ uint32_t dword_of(u32x2 x, int i) { return x[i]; }
__device__ __forceinline__ uint32_t dword_of(uint32_t x, int) { return x; }

template <class S, bool kDirect = S::kDirect>
struct KvLoads : KvBlocks<S::kKeys, false> {   // memory to registers (V) and LDS (K)
  typename Staged<S::kWidthV>::Row staged[4];  // 4 keys x kWidthV elements
  u32x4 transposed[S::kWidthV / 2];
  uint32_t offset_k[S::kLoadsK], offset_v[4];  // bytes from the block's start
  uint32_t m0;
  // Lines that are brought to the L2, if any: of K or of V, as the wave is, all that the workgroup
  // has keys for, or the first 4 GB; what is loaded is not used.
  u32x4 lines;
  uint32_t offset_of_lines, step_of_lines, unused;

  __device__ __forceinline__ void prefetch() {
    ordered::buffer_load_dword_again(unused, offset_of_lines, lines);
  }
  __device__ __forceinline__ void next_prefetch() {
    ordered::v_add_u32(offset_of_lines, step_of_lines);
  }

  template <int n>
  __device__ __forceinline__ void load_v() {
    if constexpr (S::kWidthV == 4)
      ordered::buffer_load_dwordx2(staged[n], offset_v[n], this->buffer_v);
    else
      ordered::buffer_load_dword(staged[n], offset_v[n], this->buffer_v);
  }
  template <int n>
  __device__ __forceinline__ void set_m0() {
    ordered::s_add_m0<n * kWaves * S::kPitchK>(m0);
  }
  template <int n>
  __device__ __forceinline__ void load_k() {
    ordered::buffer_load_dword_lds(offset_k[n], this->buffer_k);  // K, straight to LDS
  }
  // Transposition p * kWidthV + e: element e of rows 2 p and 2 p + 1.
  template <int n>
  __device__ __forceinline__ void transpose(uint32_t low_halves, uint32_t high_halves) {
    constexpr int element = n % S::kWidthV, pair = n / S::kWidthV;
    transposed[element / 2][element % 2 * 2 + pair] = ordered::v_perm_b32(
        dword_of(staged[2 * pair + 1], element / 2), dword_of(staged[2 * pair], element / 2),
        element % 2 ? high_halves : low_halves);
  }
};

template <class S, bool kDirect = S::kDirect>
struct LdsAddresses {  // bytes
  uint32_t read_k[S::kAddressesK], read_v, write_v;

  template <int kUnit, int n, class Operands>
  __device__ __forceinline__ void read_keys(Operands& into) const {
    constexpr int octet = n / S::kHalves, half = n % S::kHalves;
    constexpr int offset =
        octet / S::kAddressesK * S::kAddressesK * 16 * S::kGroups + half * S::kTile * S::kRowBytesK;
    ordered::ds_read_b128<offset>(into.k[half][octet], read_k[octet % S::kAddressesK]);
  }
  template <int kUnit, int n, class Operands>
  __device__ __forceinline__ void read_values(Operands& into) const {
    constexpr int step = n / S::kReadsV, octet = n % S::kReadsV;
    constexpr int offset = octet * S::kOctetV + step * S::kGroups * S::kGroupV;
    ordered::ds_read_b128<offset>(into.v[step][octet], read_v);
  }
  template <int n>
  __device__ __forceinline__ void write_values(const u32x4 (&transposed)[S::kWidthV / 2]) const {
    ordered::ds_write_b128<n * S::kOctetV>(write_v, transposed[n]);
  }
};

// ---- V straight to LDS, transposed as it is read
template <class S>
struct KvLoads<S, true> : KvBlocks<S::kKeys, true, S::kLagsV> {
  uint32_t offset[S::kLoadsToLds];  // bytes from the block's start: of K, then of V
  uint32_t m0;
  // The bits by which the stage of m0 and of V changes next, and that of K if it is a block ahead.
  uint32_t flip[2];

  void prefetch() = delete;
  void next_prefetch() = delete;
  template <int n>
  void load_v() = delete;
  template <int n>
  __device__ __forceinline__ void set_m0() {
    constexpr bool is_v = n >= S::kLoadsK;
    constexpr int nth = is_v ? n - S::kLoadsK : n;
    ordered::s_add_m0<(is_v ? S::kStageBytesV : 0) + nth * kWaves * S::kLoadBytes>(m0);
  }
  template <int n>
  __device__ __forceinline__ void load_k() {
    ordered::buffer_load_dwordx4_lds(offset[n], n >= S::kLoadsK ? this->buffer_v : this->buffer_k);
  }
  __device__ __forceinline__ void flip_m0() { ordered::s_xor_b32(m0, flip[0]); }
  template <int n>
  __device__ __forceinline__ void flip_flips() {
    ordered::s_xor_b32<3 * S::kStage>(flip[n]);
  }
};

template <class S>
struct LdsAddresses<S, true> {  // bytes
  uint32_t read_k[S::kAddressesK], read_v;

  template <int kUnit, int n, class Operands>
  __device__ __forceinline__ void read_keys(Operands& into) const {
    constexpr int offset = n / S::kAddressesK * S::kFurtherK + S::first_key(kUnit) * S::kRowBytesK;
    ordered::ds_read_b128<offset>(into.k[0][n], read_k[n % S::kAddressesK]);
  }
  // Of 8 keys of a lane the first or the last four, of a tile of columns.
  template <int kUnit, int n, class Operands>
  __device__ __forceinline__ void read_values(Operands& into) const {
    constexpr int half = n % 2, tile = n / 2 % S::kTilesD, step = n / 2 / S::kTilesD;
    constexpr int group = S::first_key(kUnit) / 4 + 4 * step + 2 * half;
    const u32x2 x = ordered::ds_read_b64_tr_b16<group * S::kGroupV + tile * S::kTileV>(read_v);
    into.v[step][tile][2 * half] = x[0];
    into.v[step][tile][2 * half + 1] = x[1];
  }
};
