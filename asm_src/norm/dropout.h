// Which columns are dropped: those whose 16 random bits are below a threshold. Philox4x32-10 makes
// 128 bits for each 8 columns: the key is the seed, the counter (column / 8, row, offset). Bits of
// column 2 i of these 8 are the lower half of word i, of column 2 i + 1 the upper one.
#pragma once
#include "norm/chunk.h"
#include "sample/philox.h"

class Dropout {
 public:
  __device__ __forceinline__ Dropout(const u32x4& state, uint32_t threshold, float kept)
      : state_(state), threshold_(threshold), kept_(kept) {}
  // `state`: a seed and an offset, of which `behind` less counts.
  __device__ __forceinline__ Dropout(uint64_t state, uint32_t threshold, float kept,
                                     uint32_t behind = 0)
      : threshold_(threshold), kept_(kept) {
    const auto* words = (Constant<u32x4>*)state;
    state_ = *words;
    const uint64_t offset = (state_[2] | uint64_t(state_[3]) << 32) - behind;
    state_[2] = offset, state_[3] = offset >> 32;
  }
  // The offset behind this launch.
  __device__ __forceinline__ uint64_t next() const {
    return (state_[2] | uint64_t(state_[3]) << 32) + 1;
  }
  // Of the chunk at `column`, of which the first `others` are another lane's: what it has instead,
  // so that those before `column` come first. Nothing is right of what another lane has.
  template <bool kWhole, int kWidth>
  __device__ __forceinline__ void operator()(f32x2 (&x)[Chunk<kWidth>::kPairs], uint32_t row,
                                             uint32_t column, int others) const {
    drop<kWhole, kWidth>(x, words(row, column), column, others);
  }
  // What decides about the chunk at `column`.
  __device__ __forceinline__ u32x4 words(uint32_t row, uint32_t column) const {
    return philox(u32x4{column / 8, row, state_[2], state_[3]}, state_.xy);
  }
  template <bool kWhole, int kWidth>
  __device__ __forceinline__ void drop(f32x2 (&x)[Chunk<kWidth>::kPairs], const u32x4& words,
                                       uint32_t column, int others) const {
    if constexpr (kWidth == 1) {
      const uint32_t i = column % 8;
      const uint32_t low = i & 2 ? words[1] : words[0], high = i & 2 ? words[3] : words[2];
      const uint32_t word = i & 4 ? high : low;
      x[0][0] = (i & 1 ? word : word << 16) >= threshold_ ? x[0][0] * kept_ : 0;
    } else {
      static_assert(kWidth == 8);
      uint32_t stay = 0;
      if constexpr (!kWhole) {
        for (int i = 0; i < 8; ++i) stay |= uint32_t(stays(words, i)) << i;
        stay <<= others & 31;
      }
      for (int i = 0; i < 8; ++i) {
        const bool is_kept = kWhole ? stays(words, i) : stay >> i & 1;
        x[i / 2][i % 2] = is_kept ? x[i / 2][i % 2] : 0;
      }
      for (int i = 0; i < 4; ++i) x[i] *= kept_;
    }
  }

 private:
  __device__ __forceinline__ bool stays(const u32x4& words, int i) const {
    return (i % 2 ? words[i / 2] : words[i / 2] << 16) >= threshold_;
  }
  u32x4 state_;
  uint32_t threshold_;
  float kept_;
};
