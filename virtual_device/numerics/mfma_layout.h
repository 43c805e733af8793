// Where matrix elements lie in registers, as AMD's matrix instruction calculator gives it.
//
// Inputs: a lane holds `per_lane` elements of consecutive k, packed into consecutive registers from
// the low bits up. Lanes run over the rows of A (columns of B), then blocks, then groups of k.
// Outputs: a register row is N lanes wide; 4 rows (1 for f64) lie in consecutive registers, further
// ones in the lanes behind them, and then 4 registers on.
#pragma once

#include "numerics/mfma.h"

#if defined(__clang__)
#define VDEV_UNROLL _Pragma("clang loop unroll(full)")
#else
#define VDEV_UNROLL _Pragma("GCC unroll 16")
#endif
// Kernels are many instances of small functions, more than compilers like to inline.
#define VDEV_INLINE inline __attribute__((always_inline))

namespace vdev::mfma {

constexpr int bits_of(MfmaSrc type) {
  switch (type) {
    case MfmaSrc::kF64:
      return 64;
    case MfmaSrc::kF32:
    case MfmaSrc::kXf32:
      return 32;
    case MfmaSrc::kF16:
    case MfmaSrc::kBf16:
      return 16;
    default:
      return 8;
  }
}

// Columns of A that are stored: 2 of 4 when sparse.
constexpr int stored_k(const MfmaGeometry& g) { return g.sparse ? g.k / 2 : g.k; }

constexpr int a_per_lane(const MfmaGeometry& g) { return stored_k(g) * g.m * g.blocks / kLanes; }
constexpr int b_per_lane(const MfmaGeometry& g) { return g.k * g.n * g.blocks / kLanes; }
constexpr int a_regs(const MfmaGeometry& g) { return a_per_lane(g) * bits_of(g.a) / 32; }
constexpr int b_regs(const MfmaGeometry& g) { return b_per_lane(g) * bits_of(g.b) / 32; }
constexpr int d_regs(const MfmaGeometry& g) {
  return g.m * g.n * g.blocks / kLanes * (g.d == MfmaDst::kF64 ? 2 : 1);
}

struct ElementPlace {
  int lane;
  int index;  // among the elements of the lane
};

constexpr ElementPlace a_place(const MfmaGeometry& g, int block, int i, int stored) {
  const int per_lane = a_per_lane(g);
  return {(stored / per_lane * g.blocks + block) * g.m + i, stored % per_lane};
}

constexpr ElementPlace b_place(const MfmaGeometry& g, int block, int k, int j) {
  const int per_lane = b_per_lane(g);
  return {(k / per_lane * g.blocks + block) * g.n + j, k % per_lane};
}

// Index counts values: register pairs for f64. Row i, columns 0..n-1 are consecutive lanes.
constexpr ElementPlace d_place(const MfmaGeometry& g, int block, int i, int j) {
  const int height = g.d == MfmaDst::kF64 ? 1 : 4;
  const int tiles_per_reg = kLanes / g.n;
  const int tiles_of_block = g.m / height;
  const int blocks_per_reg = tiles_per_reg > tiles_of_block ? tiles_per_reg / tiles_of_block : 1;
  const int tile_lane = i / height % tiles_per_reg * blocks_per_reg + block % blocks_per_reg;
  return {tile_lane * g.n + j,
          block * (g.m * g.n / kLanes) + i / (height * tiles_per_reg) * height + i % height};
}

// The block of A that takes part in place of `block`. The mask keeps fields without meaning inside
// the operand.
constexpr int broadcast_block(const MfmaGeometry& g, int block, const MfmaControl& control) {
  return ((block >> control.cbsz << control.cbsz) + control.abid) & (g.blocks - 1);
}

// The group of 16 lanes of B that stands in for `group`.
constexpr int permuted_group(int group, int blgp) {
  switch (blgp) {
    case 1:
      return group & 1;
    case 2:
      return group | 2;
    case 3:
      return (group + 1) & 3;
    case 0:
      return group;
    default:
      return (blgp - 4) & 3;
  }
}
constexpr int permuted_lane(int lane, int blgp) {
  return permuted_group(lane / 16, blgp) * 16 + lane % 16;
}

// f64 uses BLGP for signs. The shapes that broadcast and permute are those with several blocks and
// the plain f32 ones.
constexpr bool has_cbsz_abid(const MfmaGeometry& g) {
  return g.sparse || (g.blocks > 1 && g.d != MfmaDst::kF64);
}
constexpr bool permutes_b(const MfmaGeometry& g) {
  return !g.sparse && g.d != MfmaDst::kF64 && (g.blocks > 1 || g.a == MfmaSrc::kF32);
}

inline u32 element_bits(const Reg* first, ElementPlace place, int bits) {
  const int bit = place.index * bits;
  const u32 dword = first[bit / 32].lane[place.lane];
  return bits == 32 ? dword : dword >> bit % 32 & ((1u << bits) - 1);
}

}  // namespace vdev::mfma
