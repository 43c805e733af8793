// f32 and f64 matrix instructions: one correctly rounded FMA per k, in ascending k.
#include <cmath>
#include <cstring>

#include "numerics/float_rules_mxcsr.h"
#include "numerics/mfma_exact.h"

namespace vdev::mfma {
namespace {

constexpr int kMaxM = 32, kMaxN = 32, kMaxK = 4;
constexpr int kMaxDRegs = 32;

u32 flush_denormal(u32 x) { return x & 0x7f800000 ? x : x & 0x80000000; }

struct F32 {
  static f32 load(const Reg* first, ElementPlace place) {
    return bit_cast<f32>(first[place.index].lane[place.lane]);
  }
  static void store(Reg* first, ElementPlace place, f32 x) {
    first[place.index].lane[place.lane] = std::isnan(x) ? kNanF32 : bit_cast<u32>(x);
  }
  static f32 input(f32 x, bool flush, bool) {
    return flush ? bit_cast<f32>(flush_denormal(bit_cast<u32>(x))) : x;
  }
};

struct F64 {
  static f64 load(const Reg* first, ElementPlace place) {
    const Reg* const pair = first + 2 * place.index;
    return bit_cast<f64>(u64{pair[1].lane[place.lane]} << 32 | pair[0].lane[place.lane]);
  }
  static void store(Reg* first, ElementPlace place, f64 x) {
    const u64 bits = std::isnan(x) ? kNanF64 : bit_cast<u64>(x);
    first[2 * place.index].lane[place.lane] = static_cast<u32>(bits);
    first[2 * place.index + 1].lane[place.lane] = static_cast<u32>(bits >> 32);
  }
  static f64 input(f64 x, bool, bool negate) { return negate ? -x : x; }
};

template <class Format>
void run(const MfmaGeometry& g, const Reg* a, const Reg* b, const Reg* c, Reg* d,
         const MfmaControl& control) {
  using Value = decltype(Format::load(a, ElementPlace{}));
  // A wave's MODE lives in MXCSR while it runs; these instructions round to nearest and keep
  // denormals whatever it says.
  const MxcsrScope scope(kMxcsrModeMask, 0);
  const bool flush = control.flush_f32_ab;
  const int blgp = permutes_b(g) ? control.blgp : 0;
  const int negate = permutes_b(g) ? 0 : control.blgp;
  Reg result[kMaxDRegs];
  for (int block = 0; block < g.blocks; ++block) {
    const int a_block = has_cbsz_abid(g) ? broadcast_block(g, block, control) : block;
    Value rows[kMaxM][kMaxK], columns[kMaxK][kMaxN], sums[kMaxN];
    for (int i = 0; i < g.m; ++i)
      for (int k = 0; k < g.k; ++k)
        rows[i][k] = Format::input(Format::load(a, a_place(g, a_block, i, k)), flush, negate & 1);
    for (int k = 0; k < g.k; ++k)
      for (int j = 0; j < g.n; ++j) {
        ElementPlace place = b_place(g, block, k, j);
        place.lane = permuted_lane(place.lane, blgp);
        columns[k][j] = Format::input(Format::load(b, place), flush, negate & 2);
      }
    for (int i = 0; i < g.m; ++i) {
      const ElementPlace first = d_place(g, block, i, 0);  // the row lies in the lanes behind
      const auto place = [&](int j) { return ElementPlace{first.lane + j, first.index}; };
      for (int j = 0; j < g.n; ++j)
        sums[j] = Format::input(Format::load(c, place(j)), false, negate & 4);
      for (int k = 0; k < g.k; ++k)
        for (int j = 0; j < g.n; ++j) sums[j] = std::fma(rows[i][k], columns[k][j], sums[j]);
      for (int j = 0; j < g.n; ++j) Format::store(result, place(j), sums[j]);
    }
  }
  std::memcpy(d, result, sizeof(Reg) * static_cast<size_t>(d_regs(g)));
}

}  // namespace

void run_fma_chain(const MfmaGeometry& g, const Reg* a, const Reg* b, const Reg* c, Reg* d,
                   const MfmaControl& control) {
  if (g.d == MfmaDst::kF64)
    run<F64>(g, a, b, c, d, control);
  else
    run<F32>(g, a, b, c, d, control);
}

}  // namespace vdev::mfma
