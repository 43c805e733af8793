// Scales of 32 elements of k, a byte each: of each row of A and of B.
#pragma once
#include "gemm_tiles/loads.h"
#include "gemm_tiles/mx_element.h"

// Scales of a turn, 16 of a row, are loaded at once, while those of the turn before are in use: of
// rows that lie apart a load takes the L1 as long whatever it brings of each. Lane l has those of
// row l % 32 of each fragment; what a matrix instruction takes of it are those of the 32 elements
// that the lane has.
template <class S>
struct MxScales {
  static constexpr int kBlock = 32, kOfTurn = 16, kOfWord = 4;  // elements; scales; of a register
  static constexpr int kFragments = S::kM + S::kN, kWords = kOfTurn / 2 / kOfWord;
  // Bytes of k of a turn, steps of it, matrix instructions of a fragment in a step.
  static constexpr int kTurnBytes = kOfTurn * kBlock * S::Elements::kBits / 8;
  static constexpr int kTurns = kTurnBytes / S::kRowBytes, kOfStep = 8 / kTurns;
  // Whether k may end within a step.
  static constexpr bool kEndsWithin = S::Elements::kBits == 4;

  uint32_t scale[kFragments][kWords];  // in use
  u32x4 loaded[kFragments];            // of the next turn, or those in use
  uint32_t offset[kFragments], selector[kWords];
  u32x4 buffer_a, buffer_b;
  int left, group;

  __device__ __forceinline__ void begin(const TileOperand& a, const TileOperand& b, int wave,
                                        int lane, int scales_of_row) {
    left = scales_of_row;
    group = lane / S::kFragment;
    buffer_a = found<S::kM>(a, wave / S::kWavesN, lane, 0);
    buffer_b = found<S::kN>(b, wave % S::kWavesN, lane, S::kM);
    unroll<kFragments>([&]<int f>() {
      loaded[f] = u32x4{};
      unroll<kWords>([&]<int word>() { scale[f][word] = 0; });
    });
    select_all();
    end();
  }
  // Of the fth fragment, of the next turn.
  template <int f>
  __device__ __forceinline__ void load() {
    ordered::buffer_load_dwordx4_to(loaded[f], offset[f], f < S::kM ? buffer_a : buffer_b);
    ordered::v_add_u32_in_place<kOfTurn>(offset[f]);
  }
  // Behind all of them.
  __device__ __forceinline__ void advance() {
    left -= kOfTurn;
    end();
  }
  // What was loaded is in use from here on.
  template <int f, int word>
  __device__ __forceinline__ void take() {
    ordered::v_perm_b32_to(scale[f][word], loaded[f][2 * word + 1], loaded[f][2 * word],
                           selector[word]);
  }
  // All that was loaded has come.
  __device__ __forceinline__ void settle() {
    for (u32x4& one : loaded) ordered::settle(one);
  }

 private:
  // A wave's rows of A or of B; those that do not exist are the last one.
  template <int kCount>
  __device__ __forceinline__ u32x4 found(const TileOperand& x, int nth_wave, int lane, int first) {
    const int each = x.each(), wanted = x.first + nth_wave * kCount * each;
    const int base = wanted < x.rows ? wanted : x.rows - 1, last = x.rows - 1 - base;
    const int in = lane % S::kFragment, further = in < each ? 0 : x.up_offset;
    unroll<kCount>([&]<int f>() {
      const int nth = f * each + (in & (each - 1));
      offset[first + f] = uint32_t((nth < last ? nth : last) + further) * uint32_t(x.stride);
    });
    const int most = kCount * each - 1;
    const uint32_t rows = (last < most ? last : most) + x.up_offset;
    return uniform_descriptor(x.base + uint64_t(uint32_t(base)) * uint32_t(x.stride),
                              rows * uint32_t(x.stride) + left);
  }
  // Of a pair of registers those of the lane: every second one, or, of 6 bits, two of each four.
  __device__ __forceinline__ void select_all() {
    constexpr bool kPairs = S::Elements::kBits == 6;
    for (uint32_t& one : selector)
      one = kPairs ? 0x05040100 + group * 0x02020202 : 0x06040200 + group * 0x01010101;
  }
  // None behind the end of k.
  __device__ __forceinline__ void end() {
    if constexpr (!kEndsWithin) return;
    ordered::settle_uniform(left);
    if (__builtin_expect(left >= kOfTurn, 1)) return;
    select_all();
    unroll<kWords>([&]<int word>() {
      unroll<kOfWord>([&]<int i>() {
        const int nth = 2 * kOfWord * word + 2 * i + group;
        if (nth >= left) selector[word] = (selector[word] & ~(0xffu << 8 * i)) | 12u << 8 * i;
      });
      ordered::settle(selector[word]);
    });
  }
};
