// Operands of the fast matrix kernels: A and B of one block, a row per k, as f32 values and 16-bit
// exponents. Requires AVX2.
#pragma once

#ifdef __AVX2__

#include <immintrin.h>

#include <array>
#include <bit>

#include "numerics/fp8.h"
#include "numerics/mfma_layout.h"

namespace vdev::mfma {

// Exponents of A are biased by 127, those of B so that the sum E of two carries kSumBias: then the
// exponent field of an addend C minus the sum is e(C) - E - 5. The marks show up in sums: zero plus
// anything but special is below kZeroSum, special plus anything is above every real sum.
inline constexpr int kSumBias = 127 + 5;
inline constexpr int kZeroMark = -4096, kSpecialMark = 0x3000;
inline constexpr int kZeroSum = -2000;
// Inside these bounds no scale leaves the normal range of f32 and no product reaches 2^128.
inline constexpr int kLowestSum = kSumBias - 97, kHighestSum = kSumBias + 126;
inline constexpr int kNoSum = kLowestSum - 1;  // stands for the sum of a zero product
inline constexpr int kHighestField = 253;  // of C; above are infinity, NaN and what may overflow

// Exponents of 16 columns. The kernels' 16-bit vectors hold columns 0-3, 8-11 | 4-7, 12-15: what
// packing two 8 x 32 bit vectors gives, and what unpacking turns back into them.
template <MfmaGeometry g>
struct PanelB {
  alignas(32) f32 value[g.k][g.n];
  alignas(32) __m256i exponent[g.k][g.n / 16];
};
// The exponent twice in a dword, for a broadcast that costs one load.
template <MfmaGeometry g>
struct PanelA {
  alignas(32) f32 value[g.k][g.m];
  alignas(32) u32 exponent[g.k][g.m];
};
// Of block-scaled instructions: what scales add to exponents, in the same forms, a row per block.
template <MfmaGeometry g>
struct PanelScale {
  static constexpr int kBlocks = g.k < 32 ? 1 : g.k / 32;
  alignas(32) u32 a[kBlocks][g.m];
  alignas(32) __m256i b[kBlocks][g.n / 16];
};

inline __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void store256(void* p, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }

struct Chunk {  // 16 columns of one k
  __m256i value[2], exponent;
};

template <MfmaSrc type, Fp8Kind fp8>
struct ChunkReader;

// field is 0..255, magnitude is zero iff the input is. Subnormal numbers take the exact path: under
// a MODE that flushes denormals the host's multiplier would drop them.
VDEV_INLINE __m256i exponent_from_field8(__m256i field, __m256i magnitude) {
  const __m256i zero = _mm256_cmpeq_epi16(magnitude, _mm256_setzero_si256());
  const __m256i next =
      _mm256_and_si256(_mm256_add_epi16(field, _mm256_set1_epi16(1)), _mm256_set1_epi16(0xff));
  const __m256i special = _mm256_cmpgt_epi16(_mm256_set1_epi16(2), next);  // field 0 or 255
  return _mm256_add_epi16(
      _mm256_add_epi16(field, _mm256_and_si256(special, _mm256_set1_epi16(kSpecialMark))),
      _mm256_and_si256(zero, _mm256_set1_epi16(kZeroMark - kSpecialMark)));
}

template <Fp8Kind fp8>
struct ChunkReader<MfmaSrc::kBf16, fp8> {
  static constexpr int kPerDword = 2;
  VDEV_INLINE static void read(__m256i x0, __m256i x1, Chunk* out) {
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000));
    out[0].value[0] = _mm256_slli_epi32(x0, 16);
    out[0].value[1] = _mm256_slli_epi32(x1, 16);
    out[1].value[0] = _mm256_and_si256(x0, high);
    out[1].value[1] = _mm256_and_si256(x1, high);
    out[0].exponent = exponent(_mm256_packus_epi32(_mm256_srli_epi32(out[0].value[0], 16),
                                                   _mm256_srli_epi32(out[0].value[1], 16)));
    out[1].exponent =
        exponent(_mm256_packus_epi32(_mm256_srli_epi32(x0, 16), _mm256_srli_epi32(x1, 16)));
  }
  VDEV_INLINE static __m256i exponent(__m256i bits) {
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x7fff));
    return exponent_from_field8(_mm256_srli_epi16(magnitude, 7), magnitude);
  }
};

template <Fp8Kind fp8>
struct ChunkReader<MfmaSrc::kXf32, fp8> {
  static constexpr int kPerDword = 1;
  VDEV_INLINE static void read(__m256i x0, __m256i x1, Chunk* out) {
    const __m256i kept = _mm256_set1_epi32(static_cast<int>(0xffffe000));
    out->value[0] = _mm256_and_si256(x0, kept);
    out->value[1] = _mm256_and_si256(x1, kept);
    // The three low bits of the fraction only matter for being zero: they join the upper ones.
    const auto upper = [](__m256i x) {
      const __m256i low = _mm256_and_si256(_mm256_srli_epi32(x, 13), _mm256_set1_epi32(7));
      return _mm256_or_si256(_mm256_srli_epi32(x, 16), low);
    };
    out->exponent = ChunkReader<MfmaSrc::kBf16, fp8>::exponent(
        _mm256_packus_epi32(upper(out->value[0]), upper(out->value[1])));
  }
};

template <Fp8Kind fp8>
struct ChunkReader<MfmaSrc::kF16, fp8> {
  static constexpr int kPerDword = 2;
  VDEV_INLINE static void read(__m256i x0, __m256i x1, Chunk* out) {
    const __m256i low = _mm256_set1_epi32(0xffff);
    read16(_mm256_packus_epi32(_mm256_and_si256(x0, low), _mm256_and_si256(x1, low)), out);
    read16(_mm256_packus_epi32(_mm256_srli_epi32(x0, 16), _mm256_srli_epi32(x1, 16)), out + 1);
  }
  VDEV_INLINE static void read16(__m256i bits, Chunk* out) {
    const __m256i in_order = _mm256_permute4x64_epi64(bits, 0xd8);
    out->value[0] = _mm256_castps_si256(_mm256_cvtph_ps(_mm256_castsi256_si128(in_order)));
    out->value[1] = _mm256_castps_si256(_mm256_cvtph_ps(_mm256_extracti128_si256(in_order, 1)));
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x7fff));
    const __m256i field = _mm256_srli_epi16(magnitude, 10);
    const __m256i zero = _mm256_cmpeq_epi16(magnitude, _mm256_setzero_si256());
    const __m256i special = _mm256_cmpgt_epi16(field, _mm256_set1_epi16(30));
    const __m256i mark =
        _mm256_or_si256(_mm256_and_si256(zero, _mm256_set1_epi16(kZeroMark)),
                        _mm256_and_si256(special, _mm256_set1_epi16(kSpecialMark)));
    out->exponent =
        _mm256_add_epi16(_mm256_add_epi16(_mm256_max_epi16(field, _mm256_set1_epi16(1)), mark),
                         _mm256_set1_epi16(127 - 15));
  }
};

// 8-bit floats of a format of numerics/fp8.h.
template <class Fmt>
struct Float8Reader {
  static constexpr int kFraction = Fmt::kManBits, kBias = Fmt::kBias;
  static constexpr int kPerDword = 4;
  VDEV_INLINE static void read(__m256i x0, __m256i x1, Chunk* out) {
    const __m256i low = _mm256_set1_epi32(0xff);
    for (int byte = 0; byte < 4; ++byte)
      read16(_mm256_packus_epi32(_mm256_and_si256(_mm256_srli_epi32(x0, 8 * byte), low),
                                 _mm256_and_si256(_mm256_srli_epi32(x1, 8 * byte), low)),
             out + byte);
  }
  VDEV_INLINE static void read16(__m256i bits, Chunk* out) {
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x7f));
    const __m256i field = _mm256_srli_epi16(magnitude, kFraction);
    // The upper halves of the f32 values; a table has those of the subnormal ones.
    const __m256i normal =
        _mm256_add_epi16(_mm256_slli_epi16(magnitude, 7 - kFraction),
                         _mm256_set1_epi16(static_cast<i16>((127 - kBias) << 7)));
    const __m256i byte_index = _mm256_add_epi16(
        _mm256_mullo_epi16(magnitude, _mm256_set1_epi16(0x0202)), _mm256_set1_epi16(0x0100));
    const __m256i subnormal = _mm256_shuffle_epi8(subnormal_table(), byte_index);
    const __m256i is_normal = _mm256_cmpgt_epi16(field, _mm256_setzero_si256());
    const __m256i sign = _mm256_slli_epi16(_mm256_andnot_si256(_mm256_set1_epi16(0x7f), bits), 8);
    const __m256i upper = _mm256_or_si256(sign, _mm256_blendv_epi8(subnormal, normal, is_normal));
    out->value[0] = _mm256_unpacklo_epi16(_mm256_setzero_si256(), upper);
    out->value[1] = _mm256_unpackhi_epi16(_mm256_setzero_si256(), upper);
    // Where -0 is a zero, the greatest codes are special; else -0 is the only one.
    const __m256i zero =
        _mm256_cmpeq_epi16(Fmt::kSigned ? magnitude : bits, _mm256_setzero_si256());
    const __m256i special = Fmt::kSigned
                                ? _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(Fmt::kMax))
                                : _mm256_cmpeq_epi16(bits, _mm256_set1_epi16(Fmt::kNan));
    const __m256i mark =
        _mm256_or_si256(_mm256_and_si256(zero, _mm256_set1_epi16(kZeroMark)),
                        _mm256_and_si256(special, _mm256_set1_epi16(kSpecialMark)));
    out->exponent =
        _mm256_add_epi16(_mm256_add_epi16(_mm256_max_epi16(field, _mm256_set1_epi16(1)), mark),
                         _mm256_set1_epi16(127 - kBias));
  }
  VDEV_INLINE static __m256i subnormal_table() {
    alignas(16) static constexpr std::array<u16, 8> kUpperHalves = [] {
      std::array<u16, 8> halves{};
      for (u32 m = 1; m < 1 << kFraction; ++m) {
        const u32 top = static_cast<u32>(std::bit_width(m)) - 1;
        const u32 field = 127 + 1 - kBias - kFraction + top;
        halves[m] = static_cast<u16>(field << 7 | (m << (7 - top) & 0x7f));
      }
      return halves;
    }();
    return _mm256_broadcastsi128_si256(
        _mm_load_si128(reinterpret_cast<const __m128i*>(kUpperHalves.data())));
  }
};
template <Fp8Kind fp8>
struct ChunkReader<MfmaSrc::kFp8, fp8> : Float8Reader<typename Fp8Formats<fp8>::Fp8> {};
template <Fp8Kind fp8>
struct ChunkReader<MfmaSrc::kBf8, fp8> : Float8Reader<typename Fp8Formats<fp8>::Bf8> {};

// Calls use(k, column, chunk) for every 16 columns and k of `block`. `rows` is the m of A or the n
// of B, a multiple of 16.
template <MfmaSrc type, Fp8Kind fp8, int rows, int k_total, int blocks, class Use>
VDEV_INLINE void read_chunks(const Reg* src, int block, int blgp, const Use& use) {
  constexpr int kPerLane = k_total * rows * blocks / kLanes;
  constexpr int kPerDword = ChunkReader<type, fp8>::kPerDword;
  constexpr int kGroups = k_total / kPerLane, kRun = run_of(kPerLane, bits_of(type));
  for (int group = 0; group < kGroups; ++group)
    for (int column = 0; column < rows; column += 16) {
      const int lane = (group * blocks + block) * rows + column;
      const int source = permuted_lane(lane, blgp);
      for (int reg = 0; reg < kPerLane / kPerDword; ++reg) {
        Chunk chunks[kPerDword];
        const u32* const from = src[reg].lane + source;
        ChunkReader<type, fp8>::read(load256(from), load256(from + 8), chunks);
        for (int e = 0; e < kPerDword; ++e) {
          const int index = reg * kPerDword + e;
          use((index / kRun * kGroups + group) * kRun + index % kRun, column, chunks[e]);
        }
      }
    }
}

template <MfmaGeometry g>
VDEV_INLINE void read_a(const Reg* a, int block, PanelA<g>* panel) {
  read_chunks<g.a, g.fp8, g.m, g.k, g.blocks>(
      a, block, 0, [&](int k, int row, const Chunk& chunk) __attribute__((always_inline)) {
        store256(&panel->value[k][row], chunk.value[0]);
        store256(&panel->value[k][row + 8], chunk.value[1]);
        store256(&panel->exponent[k][row], _mm256_unpacklo_epi16(chunk.exponent, chunk.exponent));
        store256(&panel->exponent[k][row + 8],
                 _mm256_unpackhi_epi16(chunk.exponent, chunk.exponent));
      });
}

template <MfmaGeometry g>
VDEV_INLINE void read_b(const Reg* b, int block, int blgp, PanelB<g>* panel) {
  read_chunks<g.b, g.fp8, g.n, g.k, g.blocks>(
      b, block, blgp, [&](int k, int column, const Chunk& chunk) __attribute__((always_inline)) {
        store256(&panel->value[k][column], chunk.value[0]);
        store256(&panel->value[k][column + 8], chunk.value[1]);
        panel->exponent[k][column / 16] =
            _mm256_sub_epi16(chunk.exponent, _mm256_set1_epi16(2 * 127 - kSumBias));
      });
}

// NaN scales are marked as special numbers are.
VDEV_INLINE __m256i scale_exponents(const Reg* scale, int byte, int lane) {
  const auto of = [&](int first) {
    const __m256i field = _mm256_and_si256(
        _mm256_srl_epi32(load256(scale->lane + first), _mm_cvtsi32_si128(8 * byte)),
        _mm256_set1_epi32(0xff));
    const __m256i nan = _mm256_cmpeq_epi32(field, _mm256_set1_epi32(0xff));
    return _mm256_blendv_epi8(_mm256_sub_epi32(field, _mm256_set1_epi32(127)),
                              _mm256_set1_epi32(kSpecialMark), nan);
  };
  return _mm256_packs_epi32(of(lane), of(lane + 8));
}

template <MfmaGeometry g>
VDEV_INLINE void read_scales(const MfmaControl& control, PanelScale<g>* panel) {
  for (int block = 0; block < panel->kBlocks; ++block)
    for (int row = 0; row < g.m; row += 16) {
      const int lane = scale_lane(g.m, row, 32 * block);
      const __m256i a = scale_exponents(control.scale[0], control.scale_byte[0], lane);
      store256(&panel->a[block][row], _mm256_unpacklo_epi16(a, a));
      store256(&panel->a[block][row + 8], _mm256_unpackhi_epi16(a, a));
      panel->b[block][row / 16] = scale_exponents(control.scale[1], control.scale_byte[1], lane);
    }
}

}  // namespace vdev::mfma

#endif  // __AVX2__
