// Which lane holds which element, for the 16x16x16 matrix instructions.
//
// Lane group g is the lanes 16 g .. 16 g + 15. In an operand of 16 rows, lane r of group g has row
// r and of the contraction what belongs to g. In an accumulator it has column r, rows 4 g .. 4 g
// + 3. So the accumulator of S^T = K Q^T is, lane for lane, an operand of O^T = V^T P^T, and
// probabilities stay in their registers.
#pragma once
#include "isa/device.h"

inline constexpr int kFragRows = 16;
inline constexpr int kLaneGroups = kWaveLanes / kFragRows;
inline constexpr int kOctet = 8;                       // bf16 elements of one 16-byte access
inline constexpr int kMmaStep = kLaneGroups * kOctet;  // contraction: an octet from each group

__device__ __forceinline__ int fragment_row() { return Lane::in_wave() % kFragRows; }
__device__ __forceinline__ int lane_group() { return Lane::in_wave() / kFragRows; }

// The octet of a contraction that lane group `group` brings to step `step`.
constexpr __device__ int octet_of(int step, int group) { return step * kLaneGroups + group; }

// Rows of a tile are dealt to pairs of fragments by fours: rows 0-3 of each 8 to the even fragment,
// 4-7 to the odd one. A lane's accumulators of a pair then are octet_of(pair, group) of the tile's
// rows: one step of the next product, or 16 bytes of one store.
struct FragmentRow {
  int fragment, row;

  static constexpr __device__ FragmentRow of_tile_row(int tile_row) {
    return {tile_row / 32 * 2 + tile_row / 4 % 2, tile_row / 8 % 4 * 4 + tile_row % 4};
  }
};

namespace fragment_proof {
constexpr bool accumulators_form_octets() {
  for (int tile_row = 0; tile_row < 128; ++tile_row) {
    const auto [fragment, row] = FragmentRow::of_tile_row(tile_row);
    const int group = row / 4, element = fragment % 2 * 4 + row % 4;
    if (octet_of(fragment / 2, group) * kOctet + element != tile_row) return false;
  }
  return true;
}
static_assert(accumulators_form_octets());
}  // namespace fragment_proof
