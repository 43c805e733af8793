// The list of shapes. Names and opcodes as LLVM assembles them.
#include <array>

#include "numerics/mfma_exact.h"
#include "numerics/mfma_f8f6f4.h"
#include "numerics/mfma_fast_avx2.h"
#include "numerics/mfma_i8_avx2.h"

namespace vdev {
namespace {

using enum MfmaSrc;
using mfma::a_regs, mfma::b_regs, mfma::d_regs;

template <MfmaGeometry g>
void exact(const Reg* a, const Reg* b, const Reg* c, Reg* d, const MfmaControl& control) {
  if constexpr (g.d == MfmaDst::kF64 || g.a == kF32)
    mfma::run_fma_chain(g, a, b, c, d, control);
  else
    mfma::run_exact<g>(a, b, c, d, control);
}

// Without AVX2 the exact functions are the only ones; 4x4 and sparse shapes are too rare to matter.
template <MfmaGeometry g>
constexpr MfmaFn fastest() {
#ifdef __AVX2__
  if constexpr (g.m >= 16 && !g.sparse) {
    if constexpr (mfma::is_small_float(g.a)) return mfma::run_fast<g>;
    if constexpr (g.a == kI8) return mfma::run_fast_i8<g>;
  }
#endif
  return exact<g>;
}

template <MfmaGeometry g>
constexpr MfmaShape shape(const char* name, u16 opcode, InstructionSets sets) {
  return {name,
          opcode,
          sets,
          g,
          static_cast<u8>(a_regs(g)),
          static_cast<u8>(b_regs(g)),
          static_cast<u8>(g.sparse ? 1 : d_regs(g)),
          static_cast<u8>(d_regs(g)),
          mfma::has_cbsz_abid(g),
          mfma::permutes_b(g) || g.d == MfmaDst::kF64,
          false,
          fastest<g>(),
          exact<g>};
}

// By the format of A and B: whether each is bf8, into which no other format can be turned.
template <int m, int k, bool plain>
void run_formats(const Reg* a, const Reg* b, const Reg* c, Reg* d, const MfmaControl& control) {
  static constexpr auto kFunctions = [] {
    constexpr auto kOf = []<MfmaSrc x, MfmaSrc y>() {
      constexpr MfmaGeometry g{m, m, k, 1, x, y, MfmaDst::kF32, false, fp8_kind(kCdna4)};
      return plain ? exact<g> : fastest<g>();
    };
    return std::array<MfmaFn, 4>{
        kOf.template operator()<kFp8, kFp8>(), kOf.template operator()<kFp8, kBf8>(),
        kOf.template operator()<kBf8, kFp8>(), kOf.template operator()<kBf8, kBf8>()};
  }();
  Reg wide_a[8], wide_b[8];
  if (control.cbsz > 1) a = mfma::as_fp8(kF8f6f4[control.cbsz], m, a, wide_a);
  if (control.blgp > 1) b = mfma::as_fp8(kF8f6f4[control.blgp], m, b, wide_b);
  kFunctions[(control.cbsz == 1) * 2u + (control.blgp == 1)](a, b, c, d, control);
}
template <int m, int k>
constexpr MfmaShape f8f6f4(const char* name, u16 opcode) {
  MfmaShape shape =
      ::vdev::shape<MfmaGeometry{m, m, k, 1, kFp8, kFp8, MfmaDst::kF32, false, fp8_kind(kCdna4)}>(
          name, opcode, kCdna4);
  shape.chooses_formats = true;
  shape.fn = run_formats<m, k, false>;
  shape.exact = run_formats<m, k, true>;
  return shape;
}

template <int m, int n, int k, int blocks, MfmaSrc a, MfmaSrc b = a, InstructionSets sets = kCdna>
constexpr MfmaShape dense(const char* name, u16 opcode) {
  constexpr MfmaDst kDst = a == kF64 ? MfmaDst::kF64 : a == kI8 ? MfmaDst::kI32 : MfmaDst::kF32;
  return shape<MfmaGeometry{m, n, k, blocks, a, b, kDst, false, fp8_kind(sets)}>(name, opcode,
                                                                                 sets);
}
template <int m, int n, int k, MfmaSrc a, MfmaSrc b = a, InstructionSets sets = kCdna>
constexpr MfmaShape sparse(const char* name, u16 opcode) {
  constexpr MfmaDst kDst = a == kI8 ? MfmaDst::kI32 : MfmaDst::kF32;
  return shape<MfmaGeometry{m, n, k, 1, a, b, kDst, true, fp8_kind(sets)}>(name, opcode, sets);
}

constexpr MfmaShape kShapes[] = {
    dense<16, 16, 8, 1, kXf32, kXf32, kCdna3>("v_mfma_f32_16x16x8_xf32", 0x3e),
    dense<32, 32, 4, 1, kXf32, kXf32, kCdna3>("v_mfma_f32_32x32x4_xf32", 0x3f),
    dense<32, 32, 1, 2, kF32>("v_mfma_f32_32x32x1_2b_f32", 0x40),
    dense<16, 16, 1, 4, kF32>("v_mfma_f32_16x16x1_4b_f32", 0x41),
    dense<4, 4, 1, 16, kF32>("v_mfma_f32_4x4x1_16b_f32", 0x42),
    dense<32, 32, 2, 1, kF32>("v_mfma_f32_32x32x2_f32", 0x44),
    dense<16, 16, 4, 1, kF32>("v_mfma_f32_16x16x4_f32", 0x45),
    dense<32, 32, 4, 2, kF16>("v_mfma_f32_32x32x4_2b_f16", 0x48),
    dense<16, 16, 4, 4, kF16>("v_mfma_f32_16x16x4_4b_f16", 0x49),
    dense<4, 4, 4, 16, kF16>("v_mfma_f32_4x4x4_16b_f16", 0x4a),
    dense<32, 32, 8, 1, kF16>("v_mfma_f32_32x32x8_f16", 0x4c),
    dense<16, 16, 16, 1, kF16>("v_mfma_f32_16x16x16_f16", 0x4d),
    dense<32, 32, 4, 2, kI8>("v_mfma_i32_32x32x4_2b_i8", 0x50),
    dense<16, 16, 4, 4, kI8>("v_mfma_i32_16x16x4_4b_i8", 0x51),
    dense<4, 4, 4, 16, kI8>("v_mfma_i32_4x4x4_16b_i8", 0x52),
    dense<32, 32, 16, 1, kI8>("v_mfma_i32_32x32x16_i8", 0x56),
    dense<16, 16, 32, 1, kI8>("v_mfma_i32_16x16x32_i8", 0x57),
    dense<32, 32, 4, 2, kBf16>("v_mfma_f32_32x32x4_2b_bf16", 0x5d),
    dense<16, 16, 4, 4, kBf16>("v_mfma_f32_16x16x4_4b_bf16", 0x5e),
    dense<4, 4, 4, 16, kBf16>("v_mfma_f32_4x4x4_16b_bf16", 0x5f),
    dense<32, 32, 8, 1, kBf16>("v_mfma_f32_32x32x8_bf16", 0x60),
    dense<16, 16, 16, 1, kBf16>("v_mfma_f32_16x16x16_bf16", 0x61),
    sparse<16, 16, 32, kF16>("v_smfmac_f32_16x16x32_f16", 0x62),
    sparse<32, 32, 16, kF16>("v_smfmac_f32_32x32x16_f16", 0x64),
    sparse<16, 16, 32, kBf16>("v_smfmac_f32_16x16x32_bf16", 0x66),
    sparse<32, 32, 16, kBf16>("v_smfmac_f32_32x32x16_bf16", 0x68),
    sparse<16, 16, 64, kI8>("v_smfmac_i32_16x16x64_i8", 0x6a),
    sparse<32, 32, 32, kI8>("v_smfmac_i32_32x32x32_i8", 0x6c),
    dense<16, 16, 4, 1, kF64>("v_mfma_f64_16x16x4_f64", 0x6e),
    dense<4, 4, 4, 4, kF64>("v_mfma_f64_4x4x4_4b_f64", 0x6f),
    dense<16, 16, 32, 1, kBf8, kBf8, kCdna3>("v_mfma_f32_16x16x32_bf8_bf8", 0x70),
    dense<16, 16, 32, 1, kBf8, kFp8, kCdna3>("v_mfma_f32_16x16x32_bf8_fp8", 0x71),
    dense<16, 16, 32, 1, kFp8, kBf8, kCdna3>("v_mfma_f32_16x16x32_fp8_bf8", 0x72),
    dense<16, 16, 32, 1, kFp8, kFp8, kCdna3>("v_mfma_f32_16x16x32_fp8_fp8", 0x73),
    dense<32, 32, 16, 1, kBf8, kBf8, kCdna3>("v_mfma_f32_32x32x16_bf8_bf8", 0x74),
    dense<32, 32, 16, 1, kBf8, kFp8, kCdna3>("v_mfma_f32_32x32x16_bf8_fp8", 0x75),
    dense<32, 32, 16, 1, kFp8, kBf8, kCdna3>("v_mfma_f32_32x32x16_fp8_bf8", 0x76),
    dense<32, 32, 16, 1, kFp8, kFp8, kCdna3>("v_mfma_f32_32x32x16_fp8_fp8", 0x77),
    sparse<16, 16, 64, kBf8, kBf8, kCdna3>("v_smfmac_f32_16x16x64_bf8_bf8", 0x78),
    sparse<16, 16, 64, kBf8, kFp8, kCdna3>("v_smfmac_f32_16x16x64_bf8_fp8", 0x79),
    sparse<16, 16, 64, kFp8, kBf8, kCdna3>("v_smfmac_f32_16x16x64_fp8_bf8", 0x7a),
    sparse<16, 16, 64, kFp8, kFp8, kCdna3>("v_smfmac_f32_16x16x64_fp8_fp8", 0x7b),
    sparse<32, 32, 32, kBf8, kBf8, kCdna3>("v_smfmac_f32_32x32x32_bf8_bf8", 0x7c),
    sparse<32, 32, 32, kBf8, kFp8, kCdna3>("v_smfmac_f32_32x32x32_bf8_fp8", 0x7d),
    sparse<32, 32, 32, kFp8, kBf8, kCdna3>("v_smfmac_f32_32x32x32_fp8_bf8", 0x7e),
    sparse<32, 32, 32, kFp8, kFp8, kCdna3>("v_smfmac_f32_32x32x32_fp8_fp8", 0x7f),
    // Of the other kind of 8-bit floats.
    dense<16, 16, 32, 1, kBf8, kBf8, kCdna4>("v_mfma_f32_16x16x32_bf8_bf8", 0x70),
    dense<16, 16, 32, 1, kBf8, kFp8, kCdna4>("v_mfma_f32_16x16x32_bf8_fp8", 0x71),
    dense<16, 16, 32, 1, kFp8, kBf8, kCdna4>("v_mfma_f32_16x16x32_fp8_bf8", 0x72),
    dense<16, 16, 32, 1, kFp8, kFp8, kCdna4>("v_mfma_f32_16x16x32_fp8_fp8", 0x73),
    dense<32, 32, 16, 1, kBf8, kBf8, kCdna4>("v_mfma_f32_32x32x16_bf8_bf8", 0x74),
    dense<32, 32, 16, 1, kBf8, kFp8, kCdna4>("v_mfma_f32_32x32x16_bf8_fp8", 0x75),
    dense<32, 32, 16, 1, kFp8, kBf8, kCdna4>("v_mfma_f32_32x32x16_fp8_bf8", 0x76),
    dense<32, 32, 16, 1, kFp8, kFp8, kCdna4>("v_mfma_f32_32x32x16_fp8_fp8", 0x77),
    sparse<16, 16, 64, kBf8, kBf8, kCdna4>("v_smfmac_f32_16x16x64_bf8_bf8", 0x78),
    sparse<16, 16, 64, kBf8, kFp8, kCdna4>("v_smfmac_f32_16x16x64_bf8_fp8", 0x79),
    sparse<16, 16, 64, kFp8, kBf8, kCdna4>("v_smfmac_f32_16x16x64_fp8_bf8", 0x7a),
    sparse<16, 16, 64, kFp8, kFp8, kCdna4>("v_smfmac_f32_16x16x64_fp8_fp8", 0x7b),
    sparse<32, 32, 32, kBf8, kBf8, kCdna4>("v_smfmac_f32_32x32x32_bf8_bf8", 0x7c),
    sparse<32, 32, 32, kBf8, kFp8, kCdna4>("v_smfmac_f32_32x32x32_bf8_fp8", 0x7d),
    sparse<32, 32, 32, kFp8, kBf8, kCdna4>("v_smfmac_f32_32x32x32_fp8_bf8", 0x7e),
    sparse<32, 32, 32, kFp8, kFp8, kCdna4>("v_smfmac_f32_32x32x32_fp8_fp8", 0x7f),
    // Twice as long.
    dense<16, 16, 32, 1, kBf16, kBf16, kCdna4>("v_mfma_f32_16x16x32_bf16", 0x35),
    dense<32, 32, 16, 1, kBf16, kBf16, kCdna4>("v_mfma_f32_32x32x16_bf16", 0x37),
    dense<16, 16, 32, 1, kF16, kF16, kCdna4>("v_mfma_f32_16x16x32_f16", 0x54),
    dense<32, 32, 16, 1, kF16, kF16, kCdna4>("v_mfma_f32_32x32x16_f16", 0x55),
    dense<16, 16, 64, 1, kI8, kI8, kCdna4>("v_mfma_i32_16x16x64_i8", 0x36),
    dense<32, 32, 32, 1, kI8, kI8, kCdna4>("v_mfma_i32_32x32x32_i8", 0x38),
    sparse<16, 16, 64, kF16, kF16, kCdna4>("v_smfmac_f32_16x16x64_f16", 0x5a),
    sparse<32, 32, 32, kF16, kF16, kCdna4>("v_smfmac_f32_32x32x32_f16", 0x5b),
    sparse<16, 16, 64, kBf16, kBf16, kCdna4>("v_smfmac_f32_16x16x64_bf16", 0x39),
    sparse<32, 32, 32, kBf16, kBf16, kCdna4>("v_smfmac_f32_32x32x32_bf16", 0x46),
    sparse<16, 16, 128, kI8, kI8, kCdna4>("v_smfmac_i32_16x16x128_i8", 0x3a),
    sparse<32, 32, 64, kI8, kI8, kCdna4>("v_smfmac_i32_32x32x64_i8", 0x47),
    sparse<16, 16, 128, kBf8, kBf8, kCdna4>("v_smfmac_f32_16x16x128_bf8_bf8", 0x3b),
    sparse<16, 16, 128, kBf8, kFp8, kCdna4>("v_smfmac_f32_16x16x128_bf8_fp8", 0x3c),
    sparse<16, 16, 128, kFp8, kBf8, kCdna4>("v_smfmac_f32_16x16x128_fp8_bf8", 0x3d),
    sparse<16, 16, 128, kFp8, kFp8, kCdna4>("v_smfmac_f32_16x16x128_fp8_fp8", 0x43),
    sparse<32, 32, 64, kBf8, kBf8, kCdna4>("v_smfmac_f32_32x32x64_bf8_bf8", 0x4b),
    sparse<32, 32, 64, kBf8, kFp8, kCdna4>("v_smfmac_f32_32x32x64_bf8_fp8", 0x4e),
    sparse<32, 32, 64, kFp8, kBf8, kCdna4>("v_smfmac_f32_32x32x64_fp8_bf8", 0x4f),
    sparse<32, 32, 64, kFp8, kFp8, kCdna4>("v_smfmac_f32_32x32x64_fp8_fp8", 0x53),
    f8f6f4<16, 128>("v_mfma_f32_16x16x128_f8f6f4", 0x2d),
    f8f6f4<32, 64>("v_mfma_f32_32x32x64_f8f6f4", 0x2e),
    f8f6f4<16, 128>("v_mfma_scale_f32_16x16x128_f8f6f4", kScaledMatrix | 0x2d),
    f8f6f4<32, 64>("v_mfma_scale_f32_32x32x64_f8f6f4", kScaledMatrix | 0x2e),
};

constexpr bool unique_opcodes() {
  for (size_t i = 0; i < std::size(kShapes); ++i)
    for (size_t j = i + 1; j < std::size(kShapes); ++j)
      if (kShapes[i].opcode == kShapes[j].opcode && kShapes[i].sets & kShapes[j].sets) return false;
  return true;
}
static_assert(unique_opcodes());

}  // namespace

std::span<const MfmaShape> mfma_shapes() { return kShapes; }

const char* mfma_control_error(const MfmaShape& shape, const MfmaControl& control) {
  const MfmaGeometry& g = shape.geometry;
  if (control.cbsz > 7) return "cbsz: allowed 0..7";
  if (control.abid > 15) return "abid: allowed 0..15";
  if (control.blgp > 7) return "blgp: allowed 0..7";
  if (shape.chooses_formats) {
    if (control.abid != 0) return "abid: this shape allows 0 only";
    if (control.cbsz > 4) return "cbsz: allowed 0..4 (format of A)";
    return control.blgp > 4 ? "blgp: allowed 0..4 (format of B)" : nullptr;
  }
  if (control.blgp != 0 && !shape.has_blgp) return "blgp: this shape allows 0 only";
  if (!shape.has_cbsz_abid)
    return control.cbsz || control.abid ? "cbsz, abid: this shape allows 0 only" : nullptr;
  if (g.sparse) {
    const int sets = mfma::index_sets(g);
    if (sets > 1 && control.cbsz == 0 && control.abid >= sets)
      return sets == 4 ? "abid: allowed 0..3 (index set)" : "abid: allowed 0..1 (index set)";
    return nullptr;
  }
  if (1 << control.cbsz > g.blocks) return "cbsz: broadcasts to more blocks than the shape has";
  if (control.abid >> control.cbsz) return "abid: must be below 2^cbsz";
  return nullptr;
}

}  // namespace vdev
