// An operand in LDS, fragment after fragment in the order in which lanes read them.
#pragma once
#include "isa/ds.h"
#include "tile/fragment.h"

// kFrags_ x 16 rows, kSteps_ x 32 elements of contraction. A fragment's step is 64 octets, one a
// lane, 1 KiB; a read is the lane's own address plus a constant.
template <int kFrags_, int kSteps_>
struct LdsTile {
  static constexpr int kFrags = kFrags_, kSteps = kSteps_;
  static constexpr int kRows = kFrags * kFragRows;
  static constexpr int kCols = kSteps * kMmaStep;
  static constexpr int kNumOctets = kFrags * kSteps * kWaveLanes;

  Local<u32x4>* base;

  __device__ __forceinline__ u32x4 read(int fragment, int step) const {
    return ds_read_b128(base + slot({fragment, fragment_row()}, step, lane_group()));
  }
  __device__ __forceinline__ void write(int tile_row, int octet, u32x4 value) const {
    ds_write_b128(
        base + slot(FragmentRow::of_tile_row(tile_row), octet / kLaneGroups, octet % kLaneGroups),
        value);
  }

  // The XORs spread eight lanes over the eight slots that span the 32 banks (proof below). Lane and
  // constants stay apart, so that reads need an address register for each of the four constants
  // XORed last, not one each.
  static constexpr __device__ int slot(FragmentRow r, int step, int group) {
    const int lane_slot = group * kFragRows + (r.row ^ group ^ r.row / 8 * 2);
    return (r.fragment * kSteps + step) * kWaveLanes +
           (lane_slot ^ (step % 2 * 4 + r.fragment % 2));
  }
};

namespace lds_proof {
template <class SlotOfLane>
constexpr bool conflict_free(SlotOfLane slot_of_lane) {
  uint32_t seen = 0;
  for (int i = 0; i < 8; ++i) seen |= 1u << (slot_of_lane(i) % 8);
  return seen == 0xff;
}

using Tile = LdsTile<4, 2>;

// In one clock a 128-bit read serves lanes {0-3, 20-23}, {4-7, 16-19}, {8-11, 28-31},
// {12-15, 24-27}, or the same + 32; a 128-bit write serves eight lanes in a row.
constexpr int read_lane(int clock, int i) {
  const int half = clock / 4 * 32, quad = clock % 4;
  return half + (i < 4 ? 4 * quad + i : 16 + 4 * (quad ^ 1) + i - 4);
}

constexpr bool reads() {
  for (int fragment = 0; fragment < Tile::kFrags; ++fragment)
    for (int step = 0; step < Tile::kSteps; ++step)
      for (int clock = 0; clock < 8; ++clock)
        if (!conflict_free([=](int i) {
              const int lane = read_lane(clock, i);
              return Tile::slot({fragment, lane % 16}, step, lane / 16);
            }))
          return false;
  return true;
}

// Tile rows as they are (K): eight lanes write the octets of one row.
constexpr bool row_writes() {
  for (int row = 0; row < Tile::kRows; ++row)
    if (!conflict_free([=](int i) {
          return Tile::slot(FragmentRow::of_tile_row(row), i / kLaneGroups, i % kLaneGroups);
        }))
      return false;
  return true;
}

// Transposed (V): eight lanes write one octet of tile rows that are four apart.
constexpr bool transposed_writes() {
  for (int row = 0; row < Tile::kRows; row += row % 4 == 3 ? 29 : 1)
    for (int octet = 0; octet < Tile::kSteps * kLaneGroups; ++octet)
      if (!conflict_free([=](int i) {
            return Tile::slot(FragmentRow::of_tile_row(row + 4 * i), octet / kLaneGroups,
                              octet % kLaneGroups);
          }))
        return false;
  return true;
}

constexpr bool slots_are_a_permutation() {
  bool seen[Tile::kNumOctets] = {};
  for (int row = 0; row < Tile::kRows; ++row)
    for (int octet = 0; octet < Tile::kSteps * kLaneGroups; ++octet) {
      bool& here =
          seen[Tile::slot(FragmentRow::of_tile_row(row), octet / kLaneGroups, octet % kLaneGroups)];
      if (here) return false;
      here = true;
    }
  return true;
}
static_assert(reads() && row_writes() && transposed_writes() && slots_are_a_permutation());
}  // namespace lds_proof
