// v_exp_f32, the hot one of the transcendentals: attention runs it for every score.
//
// x = k/8 + g with integral k and |g| <= 1/16; 2^x = 2^(k >> 3) * T * (1 + u), T = 2^((k & 7)/8).
// u = g ln 2 + g (kLn2Low + g (c2 + c3 g + c4 g^2)) within 2^-33.4 (Remez). The leading product
// g ln 2, the product T u and the sum T + T u carry their rounding errors along, so that what is
// rounded last is good to about 2^-32: 99.6 % of results are correctly rounded, the rest 1 ULP off.
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "numerics/float_rules_mxcsr.h"
#include "numerics/transcendental.h"

namespace vdev {
namespace {

alignas(32) constexpr f32 kPower[8] = {0x1p0f,        0x1.172b84p0f, 0x1.306fe0p0f, 0x1.4bfdaep0f,
                                       0x1.6a09e6p0f, 0x1.8ace54p0f, 0x1.ae89fap0f, 0x1.d5818ep0f};
alignas(32) constexpr f32 kPowerLow[8] = {0.0f,
                                          -0x1.c15742p-27f,
                                          0x1.4636e2p-25f,
                                          -0x1.593abcp-25f,
                                          0x1.9fcef4p-26f,
                                          0x1.15506ep-27f,
                                          -0x1.a94b14p-26f,
                                          -0x1.822dbcp-27f};
constexpr f32 kLn2 = 0x1.62e43p-1f, kLn2Low = -0x1.1a953ap-27f;
constexpr f32 kC2 = 0x1.ebfbe0p-3f, kC3 = 0x1.c6be32p-5f, kC4 = 0x1.3b330cp-7f;
constexpr f32 kRoundToEighth = 0x1.8p20f;  // leaves k in the low bits of the sum

#ifdef __AVX2__

// Products' rounding errors come from the FMA unit; the portable form gets the same bits from f64.
struct Reduced {
  __m256i k;
  __m256 u, p;  // u rounded, and what u lacks
};

inline Reduced reduce(__m256i bits) {
  const __m256 x = _mm256_castsi256_ps(bits);
  const __m256 shifted = _mm256_add_ps(x, _mm256_set1_ps(kRoundToEighth));
  const __m256 g = _mm256_sub_ps(x, _mm256_sub_ps(shifted, _mm256_set1_ps(kRoundToEighth)));
  const __m256 u = _mm256_mul_ps(g, _mm256_set1_ps(kLn2));
  const __m256 u_error = _mm256_fmsub_ps(g, _mm256_set1_ps(kLn2), u);
  __m256 p = _mm256_add_ps(_mm256_mul_ps(g, _mm256_set1_ps(kC4)), _mm256_set1_ps(kC3));
  p = _mm256_add_ps(_mm256_mul_ps(g, p), _mm256_set1_ps(kC2));
  p = _mm256_add_ps(_mm256_mul_ps(g, p), _mm256_set1_ps(kLn2Low));
  p = _mm256_add_ps(_mm256_mul_ps(g, p), u_error);
  return {_mm256_castps_si256(shifted), u, p};
}

inline __m256i reconstruct(const Reduced& a) {
  const __m256 t = _mm256_permutevar8x32_ps(_mm256_load_ps(kPower), a.k);
  const __m256 t_low = _mm256_permutevar8x32_ps(_mm256_load_ps(kPowerLow), a.k);
  const __m256 product = _mm256_mul_ps(t, a.u);
  const __m256 product_error = _mm256_fmsub_ps(t, a.u, product);
  const __m256 sum = _mm256_add_ps(t, product);
  const __m256 sum_error = _mm256_add_ps(_mm256_sub_ps(t, sum), product);
  const __m256 rest = _mm256_add_ps(_mm256_add_ps(_mm256_mul_ps(t, a.p), t_low),
                                    _mm256_add_ps(product_error, sum_error));
  const __m256i scale =
      _mm256_and_si256(_mm256_slli_epi32(a.k, 20), _mm256_set1_epi32(static_cast<int>(0xff800000)));
  return _mm256_add_epi32(_mm256_castps_si256(_mm256_add_ps(sum, rest)), scale);
}

inline __m256i specials(__m256i bits, __m256i r) {
  const __m256 x = _mm256_castsi256_ps(bits);
  const __m256i inf = _mm256_set1_epi32(F32::kInf);
  const __m256i in_range =
      _mm256_castps_si256(_mm256_cmp_ps(x, _mm256_set1_ps(-126.0f), _CMP_GE_OQ));
  const __m256i overflow =
      _mm256_castps_si256(_mm256_cmp_ps(x, _mm256_set1_ps(128.0f), _CMP_GE_OQ));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i quieted = _mm256_or_si256(bits, _mm256_set1_epi32(F32::kQuietBit));
  r = _mm256_blendv_epi8(r, inf, overflow);
  r = _mm256_and_si256(r, in_range);
  return _mm256_blendv_epi8(r, quieted, nan);
}

#else

inline f32 product_error(f32 a, f32 b, f32 product) {
  return static_cast<f32>(static_cast<f64>(a) * b - product);  // exact at every step
}

inline u32 exp_kernel(u32 bits, f32 t, f32 t_low) {
  const f32 x = bit_cast<f32>(bits);
  const f32 shifted = x + kRoundToEighth;
  const f32 g = x - (shifted - kRoundToEighth);
  const f32 u = g * kLn2;
  f32 p = g * kC4 + kC3;
  p = g * p + kC2;
  p = g * p + kLn2Low;
  p = g * p + product_error(g, kLn2, u);

  const f32 product = t * u;
  const f32 sum = t + product;
  const f32 sum_error = (t - sum) + product;
  const f32 rest = (t * p + t_low) + (product_error(t, u, product) + sum_error);
  return bit_cast<u32>(sum + rest) + (bit_cast<u32>(shifted) << 20 & 0xff800000u);
}

inline u32 specials(u32 bits, u32 r) {
  const f32 x = bit_cast<f32>(bits);
  r = x >= 128.0f ? F32::kInf : r;
  r = x >= -126.0f ? r : 0;
  return is_nan<F32>(bits) ? quiet<F32>(bits) : r;
}

#endif

}  // namespace

void exp_f32_lanes(const u32* x, u32* out) {
  const MxcsrScope scope(kMxcsrRoundMask, 0);
#ifdef __AVX2__
  // Two short loops: one long iteration keeps so many registers busy that too few of them overlap.
  constexpr int kVectors = kLanes / 8;
  __m256i bits[kVectors];
  Reduced reduced[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    bits[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x) + i);
    reduced[i] = reduce(bits[i]);
  }
  for (int i = 0; i < kVectors; ++i) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out) + i,
                        specials(bits[i], reconstruct(reduced[i])));
  }
#else
  u32 bits[kLanes];
  f32 t[kLanes], t_low[kLanes];
  std::memcpy(bits, x, sizeof bits);
  for (int i = 0; i < kLanes; ++i) {  // apart, so that the arithmetic vectorises
    const u32 k = bit_cast<u32>(bit_cast<f32>(bits[i]) + kRoundToEighth) & 7;
    t[i] = kPower[k];
    t_low[i] = kPowerLow[k];
  }
  for (int i = 0; i < kLanes; ++i) {
    out[i] = specials(bits[i], exp_kernel(bits[i], t[i], t_low[i]));
  }
#endif
}

}  // namespace vdev
