// What a wave has loaded of its keys, and how it becomes operands of products.
#pragma once
#include "decode/shape.h"
#include "decode/target.h"
#include "isa/buffer_x2.h"
#include "isa/dpp_banks.h"
#include "isa/global.h"
#include "isa/unroll.h"
#include "isa/valu.h"

// 4, 8 or 16 bytes; those that are not loaded are 0 and take no register.
template <int kBytes>
__device__ __forceinline__ u32x4 load_bytes(BufferResource from, int offset) {
  if constexpr (kBytes == 16) return buffer_load_dwordx4(from, offset);
  if constexpr (kBytes == 8) {
    const u32x2 x = buffer_load_dwordx2(from, offset);
    return {x[0], x[1], 0, 0};
  }
  return {buffer_load_dword(from, offset, 0), 0, 0, 0};
}
template <int kBytes>
__device__ __forceinline__ void store_bytes(Global<uint8_t>* to, u32x4 x) {
  if constexpr (kBytes == 16)
    global_store_dwordx4(to, x);
  else if constexpr (kBytes == 8)
    *(Global<u32x2>*)to = {x[0], x[1]};
  else
    *(Global<uint32_t>*)to = x[0];
}

template <class S>
struct Chunk {
  u32x4 k[S::kKeyTiles][S::kKLoads];
  u32x4 v[S::kKeyTiles][S::kVLoads];  // in rows: load kPanels j + p has key j of the lane, or two

  template <int n, int step>
  __device__ __forceinline__ bf16x8 k_operand() const {
    if constexpr (!S::kFp8) return k[n][step];
    const u32x4 x = k[n][step / 2];
    const bf16x4 a = widened<S::kElement>(x[step % 2 * 2]);
    const bf16x4 b = widened<S::kElement>(x[step % 2 * 2 + 1]);
    return {a[0], a[1], b[0], b[1]};
  }
  // Of four keys column c of those that the lane has of a panel.
  template <int n, int panel, int c>
  __device__ __forceinline__ bf16x4 v_operand() const {
    if constexpr (S::kPacked) {
      const u32x4 x = v[n][panel * (S::kPanel / kMatrix) + c];
      if constexpr (S::kFp8) return widened<S::kElement>(x[0]);
      return {x[0], x[1]};
    } else {
      return {pair<n, panel, c, 0>(), pair<n, panel, c, 2>()};
    }
  }
  // Elements of 8 bits in rows, as loaded: 16 columns of key 2 j, of lanes 8 .. 15 of 2 j + 1.
  // Half of them are exchanged for those of the other key: 8 columns of both.
  template <int n>
  __device__ __forceinline__ void exchange() {
    if constexpr (S::kFp8 && !S::kPacked)
      unroll<S::kVLoads>([&]<int load>() {
        u32x4& x = v[n][load];
        for (int word = 0; word < 2; ++word) {
          const uint32_t lo = x[word], hi = x[word + 2];
          x[word] = v_mov_b32_dpp<kRowRor<8>, kUpperBanks>(hi, lo);
          x[word + 2] = v_mov_b32_dpp<kRowRor<8>, kLowerBanks>(lo, hi);
        }
      });
  }
  // Of the packed keys from `count` on of the lane's four of 16 zeros: there may be anything.
  template <int n>
  __device__ __forceinline__ void clear_behind(int count) {
    for (int word = 0; word < kPackedWords; ++word)
      for (int load = 0; load < S::kVLoads; ++load) v[n][load][word] &= first_of_word(count, word);
  }
  // Of V of the lane's keys of 16, as loaded, zeros before the one that is `count` behind the
  // lane's first: there may be anything.
  template <int n>
  __device__ __forceinline__ void clear_before(int count) {
    if constexpr (S::kPacked) {
      for (int word = 0; word < kPackedWords; ++word)
        for (int load = 0; load < S::kVLoads; ++load)
          v[n][load][word] &= ~first_of_word(count, word);
    } else {
      unroll<S::kVLoads>([&]<int load>() {
        const bool is_before = S::v_key(load) < count;
        for (int word = 0; word < 4; ++word) v[n][load][word] = is_before ? 0 : v[n][load][word];
      });
    }
  }

 private:
  static constexpr int kPackedWords = S::kFp8 ? 1 : 2;
  // The bits of a word of packed keys that the first `count` have.
  static __device__ __forceinline__ uint32_t first_of_word(int count, int word) {
    constexpr int kOfWord = 4 / S::kBytes, kBits = 8 * S::kBytes;
    const int kept = count - word * kOfWord;
    const uint32_t some = (1u << (kept * kBits & 31)) - 1;
    return kept <= 0 ? 0 : kept >= kOfWord ? ~0u : some;
  }
  // Column c of two keys.
  template <int n, int panel, int c, int key>
  __device__ __forceinline__ uint32_t pair() const {
    if constexpr (!S::kFp8) {
      constexpr uint32_t kHalf = c % 2 ? kHighHalfOfBoth : kLowHalfOfBoth;
      return v_perm_b32<kHalf>(v[n][(key + 1) * S::kPanels + panel][c / 2],
                               v[n][key * S::kPanels + panel][c / 2]);
    } else {
      const u32x4 x = v[n][key / 2 * S::kPanels + panel];
      return both<S::kElement, c / 2 % 2 == 1, c % 2>(x[c / 4], x[2 + c / 4]);
    }
  }
};
