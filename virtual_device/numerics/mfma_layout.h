// Where matrix elements lie in registers, as AMD's matrix instruction calculator gives it.
//
// Inputs: a lane holds `per_lane` elements, packed into consecutive registers from the low bits up.
// Runs of consecutive k, of 16 bytes at most (of 6-bit elements, all of a lane's), go to the groups
// of lanes in turn: where a lane has one run, it holds consecutive k. Lanes run over the rows of A
// (columns of B), then blocks, then groups of k.
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
    case MfmaSrc::kFp6:
    case MfmaSrc::kBf6:
      return 6;
    case MfmaSrc::kFp4:
      return 4;
    default:
      return 8;
  }
}

// Columns of A that are stored: 2 of 4 when sparse.
constexpr int stored_k(const MfmaGeometry& g) { return g.sparse ? g.k / 2 : g.k; }

constexpr int a_per_lane(const MfmaGeometry& g) { return stored_k(g) * g.m * g.blocks / kLanes; }
constexpr int b_per_lane(const MfmaGeometry& g) { return g.k * g.n * g.blocks / kLanes; }
// Of a sparse shape: how many sets of indices a register has.
constexpr int index_sets(const MfmaGeometry& g) { return g.sparse ? 16 / a_per_lane(g) : 1; }
constexpr int a_regs(const MfmaGeometry& g) { return a_per_lane(g) * bits_of(g.a) / 32; }
constexpr int b_regs(const MfmaGeometry& g) { return b_per_lane(g) * bits_of(g.b) / 32; }
constexpr int d_regs(const MfmaGeometry& g) {
  return g.m * g.n * g.blocks / kLanes * (g.d == MfmaDst::kF64 ? 2 : 1);
}

// The same with the formats of A and B that f8f6f4 selects.
constexpr MfmaGeometry of_formats(MfmaGeometry g, const MfmaControl& control) {
  g.a = kF8f6f4[control.cbsz];
  g.b = kF8f6f4[control.blgp];
  return g;
}

struct ElementPlace {
  int lane;
  int index;  // among the elements of the lane
};

// Elements of consecutive k.
constexpr int run_of(int per_lane, int bits) {
  return bits == 6 || per_lane * bits < 128 ? per_lane : 128 / bits;
}

// Element k of `row`, of `rows` times `blocks` rows.
constexpr ElementPlace input_place(int rows, int blocks, int per_lane, int bits, int block, int row,
                                   int k) {
  const int run = run_of(per_lane, bits);
  const int groups = kLanes / (rows * blocks);
  const int group = k / run % groups;
  return {(group * blocks + block) * rows + row, k / run / groups * run + k % run};
}

constexpr ElementPlace a_place(const MfmaGeometry& g, int block, int i, int stored) {
  return input_place(g.m, g.blocks, a_per_lane(g), bits_of(g.a), block, i, stored);
}

constexpr ElementPlace b_place(const MfmaGeometry& g, int block, int k, int j) {
  return input_place(g.n, g.blocks, b_per_lane(g), bits_of(g.b), block, j, k);
}

// f8f6f4: the lane with the scale of element k of `row`.
constexpr int scale_lane(int rows, int row, int k) { return k / 32 * rows + row; }

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
  u64 window = first[bit / 32].lane[place.lane];
  if (bit % 32 + bits > 32) window |= u64{first[bit / 32 + 1].lane[place.lane]} << 32;
  return static_cast<u32>(window >> bit % 32 & ((u64{1} << bits) - 1));
}

}  // namespace vdev::mfma
