// The fast form of the dense i8 matrix instructions: pairs of products by vpmaddwd, which neither
// saturates nor overflows on inputs this small. Requires AVX2.
#pragma once

#ifdef __AVX2__

#include <cstring>

#include "numerics/mfma_panel_avx2.h"

namespace vdev::mfma {

// A dword holds k, k + 1, k + 2, k + 3 as bytes. As pairs of i16 it becomes (k, k + 2) and
// (k + 1, k + 3): any pairing will do, as long as it is the same for A and B.
struct PairPanel {
  alignas(32) i32 pair[32][32];
};

template <int rows, int k_total, int blocks>
VDEV_INLINE void read_pairs(const Reg* src, int block, int blgp, PairPanel* panel) {
  constexpr int kRegs = k_total * rows * blocks / kLanes / 4;
  for (int group = 0; group < k_total / (4 * kRegs); ++group)
    for (int reg = 0; reg < kRegs; ++reg)
      for (int row = 0; row < rows; row += 16) {
        const int lane = permuted_lane((group * blocks + block) * rows + row, blgp);
        for (int half = 0; half < 16; half += 8) {
          const __m256i x = load256(src[reg].lane + lane + half);
          i32(*const pair)[32] = panel->pair + (group * kRegs + reg) * 2;
          store256(&pair[0][row + half], _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8));
          store256(&pair[1][row + half], _mm256_srai_epi16(x, 8));
        }
      }
}

template <MfmaGeometry g>
void run_fast_i8(const Reg* a, const Reg* b, const Reg* c, Reg* d, const MfmaControl& control) {
  PairPanel panel_a, panel_b;
  Reg result[d_regs(g)];
  for (int block = 0; block < g.blocks; ++block) {
    const int a_block = has_cbsz_abid(g) ? broadcast_block(g, block, control) : block;
    read_pairs<g.m, g.k, g.blocks>(a, a_block, 0, &panel_a);
    read_pairs<g.n, g.k, g.blocks>(b, block, permutes_b(g) ? control.blgp : 0, &panel_b);
    for (int i = 0; i < g.m; ++i)
      for (int column = 0; column < g.n; column += 16) {
        const ElementPlace place = d_place(g, block, i, column);
        const u32* const from = c[place.index].lane + place.lane;
        __m256i sum[2] = {load256(from), load256(from + 8)};
        for (int pair = 0; pair < g.k / 2; ++pair) {
          const __m256i x = _mm256_set1_epi32(panel_a.pair[pair][i]);
          const i32* const y = panel_b.pair[pair] + column;
          sum[0] = _mm256_add_epi32(sum[0], _mm256_madd_epi16(x, load256(y)));
          sum[1] = _mm256_add_epi32(sum[1], _mm256_madd_epi16(x, load256(y + 8)));
        }
        u32* const to = result[place.index].lane + place.lane;
        store256(to, sum[0]);
        store256(to + 8, sum[1]);
      }
  }
  std::memcpy(d, result, sizeof(result));
}

}  // namespace vdev::mfma

#endif  // __AVX2__
