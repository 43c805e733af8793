// From sums to the result: scales, alpha, bias, what is added, activation, its factors and
// rounding. Sums go through the wave's own part of the LDS, 32 rows at a time, so that a lane
// stores eight neighbours of a row.
#pragma once
#include "gemm/activation.h"
#include "gemm_tiles/loop.h"
#include "gemm_tiles/products.h"
#include "isa/ds.h"
#include "isa/ordered_acc.h"
#include "tile/round.h"

enum OutType { kFloat32, kBfloat16, kFloat16 };
// Where beta * addend comes in.
enum Adds { kAddsNothing, kAddsBefore, kAddsBehind };

// Of four results, by one choice.
__device__ __forceinline__ void activate(f32x4& x, int activation) {
  const auto each = [&](auto of_one) {
    for (int i = 0; i < 4; ++i) x[i] = of_one(x[i]);
  };
  if (activation == kSilu)
    each([](float one) { return activated(one, kSilu); });
  else if (activation == kGeluTanh)
    each([](float one) { return activated(one, kGeluTanh); });
  else if (activation == kGelu)
    each([](float one) { return activated(one, kGelu); });
}

// The last sums may be read behind it.
__device__ __forceinline__ void end_of_sums() {
  ordered::s_nop<16>();
  ordered::s_nop<2>();
}

// Of the nth kTogether columns of fragments of a wave, or of what is left of them.
template <class S, int kNth>
class TileEpilogue {
  static constexpr int kFirst = kNth * S::kTogether, kLeft = S::kN - kFirst;
  static constexpr int kColumns = kLeft < S::kTogether ? kLeft : S::kTogether;
  static constexpr Element kElement = S::Elements::kResult;
  static constexpr bool kScales = S::Elements::kIs8Bit;
  static constexpr OutType kOwn = kElement == Element::kBf16 ? kBfloat16 : kFloat16;
  static constexpr Element kOther = kElement == Element::kBf16 ? Element::kF16 : Element::kBf16;
  static constexpr int kEight = 8, kLanesOfRow = kColumns * S::kFragment / kEight;
  static constexpr int kRowsAtOnce = kWaveLanes / kLanesOfRow, kTurns = S::kFragment / kRowsAtOnce;
  // The first four of eight neighbours lie in the first half of a row, the others in the second;
  // 16 bytes at their number XOR row % kMixed.
  static constexpr int kMixed = kLanesOfRow < 8 ? kLanesOfRow : 8;
  static constexpr int kHalfRow = 16 * kLanesOfRow, kRow = 2 * kHalfRow;
  static constexpr uint32_t kToFactors = 2 * 16;  // 16 results further on: bits of an address
  // Of the LDS a wave has as much for all its columns: no other one waits between them.
  static constexpr int kBytes = S::kFragment * S::kFragment * 4 * S::kTogether;
  static constexpr int kWrites = 2 * kColumns;  // of half a lane's sums of 32 rows
  static_assert(S::kFragment * kRow <= kBytes && S::kWaves * kBytes <= S::kLdsBytes);
  struct Eight {
    f32x4 of[2];
  };

  const GemmTilesArgs& args_;
  uint32_t write_;    // of the lane's first four results
  uint32_t read_;     // of its eight neighbours, in the first turn
  int row_, column_;  // of the result
  int takes_later_;   // 1: rows of the next turn, as its own sums would be factors
  int whole_;         // eight neighbours exist or none, on a boundary of their size, also of addend
  Eight bias_, bias_of_factors_;
  // Alpha times the scales of eight rows of B; of the wave's rows of A lane l has those of 64 n +
  // l.
  Eight scale_, scale_of_factors_;
  float scale_of_rows_[(S::kM + 1) / 2];

 public:
  __device__ __forceinline__ TileEpilogue(const GemmTilesArgs& args, const TilePlace& place,
                                          uint32_t lds, int wave, int lane)
      : args_(args) {
    const uint32_t own = lds + wave * kBytes;
    const int of_row = lane % S::kFragment, group = lane / S::kFragment;
    write_ = own + of_row * kRow + group * kHalfRow + of_row % kMixed * 16;
    const int eighth = lane % kLanesOfRow, row = lane / kLanesOfRow;
    read_ = own + row * kRow + (eighth ^ row % kMixed) * 16;
    const bool gated = args.up_offset != 0;
    const int each = gated ? S::kFragment / 2 : S::kFragment;
    const int wave_m = wave / S::kWavesN, wave_n = wave % S::kWavesN;
    row_ = place.m + wave_m * S::kM * S::kFragment + row;
    const int in_fragment = gated ? eighth % 2 : eighth % 4;
    column_ = place.n + (wave_n * S::kN + kFirst + eighth / 4) * each + in_fragment * kEight;
    takes_later_ = gated && eighth % 4 >= 2;
    bias_ = bias(column_);
    if (gated) bias_of_factors_ = bias(column_ + args.up_offset);
    if constexpr (kScales) {
      scale_ = scales(column_);
      if (gated) scale_of_factors_ = scales(column_ + args.up_offset);
      unroll<(S::kM + 1) / 2>([&]<int i>() {
        const int nth = row_ - row + kWaveLanes * i + lane;
        scale_of_rows_[i] = scale(args.scale_a, args.scale_a_step, nth, args.m);
      });
    }
    const int bytes = args.out_type == kFloat32 ? 4 : 2;
    uint32_t places = uint32_t(args.out) | uint32_t(args.out_stride) * bytes;
    if (args.adds) places |= uint32_t(args.addend) | uint32_t(args.addend_stride) * bytes;
    whole_ = (places & 15) == 0 && args.n % kEight == 0;
  }
  __device__ __forceinline__ void operator()(int lane) {
    const bool plain = whole_ && args_.out_type == kOwn && args_.activation == kIdentity;
    if (plain && args_.adds == kAddsNothing)
      store_plain<false>(lane);
    else if (S::kPlainAdds && plain)
      store_plain<true>(lane);
    else
      store_any(lane);
  }

 private:
  // Four sums of a lane, of 32 rows, to LDS.
  template <int m, int place>
  __device__ __forceinline__ void write() const {
    constexpr int kLow = place % 8 * 16, kHigh = place / 8 * 128;
    ordered::ds_write_b128_acc<16 * (m * S::kN + kFirst) + 4 * place, kHigh>(write_ ^ kLow);
  }
  __device__ __forceinline__ Eight bias(int column) const {
    Eight x{};
    if (args_.bias == 0) return x;
    const int end = end_of(column);
    for (int i = 0; i < kEight; ++i)
      if (column + i < end) x.of[i / 4][i % 4] = bias_of(column + i);
    return x;
  }
  __device__ __forceinline__ float bias_of(int column) const {
    if (kScales && args_.out_type == kFloat32)
      return usual(((const Global<float>*)args_.bias)[column]);
    const uint16_t bits = ((const Global<uint16_t>*)args_.bias)[column];
    if (kScales && args_.out_type == kFloat16) return float_of<Element::kF16>(bits);
    return float_of<kElement>(bits);
  }
  // Behind the rows of B that results, or factors, are of.
  __device__ __forceinline__ int end_of(int column) const {
    return column < args_.up_offset ? args_.up_offset : args_.n + args_.up_offset;
  }
  __device__ __forceinline__ Eight scales(int column) const {
    Eight x;
    for (int i = 0; i < kEight; ++i)
      x.of[i / 4][i % 4] =
          args_.alpha * scale(args_.scale_b, args_.scale_b_step, column + i, end_of(column));
    return x;
  }
  // Of rows that do not exist the last one's.
  static __device__ __forceinline__ float scale(uint64_t from, int step, int row, int end) {
    if (from == 0) return 1;
    const uint64_t nth = uint32_t(row < end ? row : end - 1) * uint64_t(step);
    return usual(((const Global<float>*)from)[nth]);
  }
  // NaN of any payload as one that rounding does not wrap.
  static __device__ __forceinline__ float usual(float x) { return x == x ? x : __builtin_nanf(""); }
  // That of a lane's row in a turn.
  __device__ __forceinline__ float of_row(int m, int turn, int lane) const {
    if constexpr (!kScales) return 1;
    const int nth = m % 2 * S::kFragment + turn * kRowsAtOnce + lane / kLanesOfRow;
    return ds_bpermute_b32(4 * nth, m < 2 ? scale_of_rows_[0] : scale_of_rows_[S::kM > 2]);
  }
  __device__ __forceinline__ f32x4 scaled(f32x4 sums, f32x4 scale, float of_row, f32x4 bias) const {
    if constexpr (kScales)
      return __builtin_elementwise_fma(sums * scale, f32x4(of_row), bias);
    else
      return __builtin_elementwise_fma(sums, f32x4(args_.alpha), bias);
  }
  static constexpr __device__ uint32_t turned(uint32_t at, int turn) {
    return (at ^ turn * kRowsAtOnce % kMixed * 16) + turn * kRowsAtOnce * kRow;
  }
  __device__ __forceinline__ uint64_t address(int row, int column, int bytes) const {
    return args_.out + (row * args_.out_stride + column) * bytes;
  }
  __device__ __forceinline__ uint64_t addend(int row, int column, int bytes) const {
    return args_.addend + (row * args_.addend_stride + column) * bytes;
  }
  // In halves: one is stored while the LDS is busy with the other, or with the next rows. It takes
  // what a wave asks of it in order, and counts up to 15 of that.
  template <bool kAdds>
  __device__ __forceinline__ void store_plain(int lane) const {
    bf16x8 sums[kTurns][2];
    u32x4 addends[kTurns];
    float rows[S::kM][kTurns];
    unroll<S::kM>([&]<int m>() {
      unroll<kTurns>([&]<int turn>() { rows[m][turn] = of_row(m, turn, lane); });
    });
    if constexpr (kScales)
      for (auto& of_m : rows)
        for (auto& one : of_m) ordered::settle(one);
    write_half<0, 0>();
    write_half<0, 1>();
    unroll<S::kM>([&]<int m>() {
      if constexpr (kAdds) load_addends<m>(addends);
      read_half<0>(sums);
      read_half<1>(sums);
      ordered::s_waitcnt<ordered::kAnyVm, kTurns>();
      store_half<kAdds, m, 0>(sums, rows[m], addends);
      if constexpr (m + 1 < S::kM) {
        write_half<m + 1, 0>();
        ordered::s_waitcnt<ordered::kAnyVm, kWrites>();
      } else {
        ordered::s_waitcnt<ordered::kAnyVm, 0>();
      }
      store_half<kAdds, m, 1>(sums, rows[m], addends);
      if constexpr (m + 1 < S::kM) write_half<m + 1, 1>();
    });
  }
  template <int m, int half>
  __device__ __forceinline__ void write_half() const {
    ordered::s_waitcnt<ordered::kAnyVm, 15 - kWrites>();
    unroll_from<half * kWrites, (half + 1) * kWrites>([&]<int place>() { write<m, place>(); });
  }
  template <int half>
  __device__ __forceinline__ void read_half(bf16x8 (&sums)[kTurns][2]) const {
    ordered::s_waitcnt<ordered::kAnyVm, 15 - kTurns>();
    unroll_from<half * kTurns / 2, (half + 1) * kTurns / 2>([&]<int turn>() {
      const uint32_t from = read_ ^ turn * kRowsAtOnce % kMixed * 16;
      unroll<2>([&]<int h>() {
        ordered::ds_read_b128<turn * kRowsAtOnce * kRow + h * kHalfRow>(sums[turn][h], from);
      });
    });
  }
  // Eight neighbours of each turn.
  template <int m>
  __device__ __forceinline__ void load_addends(u32x4 (&addends)[kTurns]) const {
    uint64_t from = addend(row_ + m * S::kFragment, column_, 2);
    unroll<kTurns>([&]<int turn>() {
      addends[turn] = u32x4{};
      if (row_ + m * S::kFragment + turn * kRowsAtOnce < args_.m && column_ < args_.n)
        addends[turn] = *(const Global<u32x4>*)from;
      from += 2 * kRowsAtOnce * args_.addend_stride;
    });
  }
  template <bool kAdds, int m, int half>
  __device__ __forceinline__ void store_half(bf16x8 (&sums)[kTurns][2], const float (&rows)[kTurns],
                                             const u32x4 (&addends)[kTurns]) const {
    constexpr int kTurn = half * kTurns / 2;
    const int row = row_ + m * S::kFragment + kTurn * kRowsAtOnce;
    uint64_t to = address(row, column_, 2);
    unroll_from<kTurn, kTurn + kTurns / 2>([&]<int turn>() {
      u32x4 to_store;  // eight neighbours, scaled, and converted to the result's type
      unroll<2>([&]<int h>() {
        ordered::settle(sums[turn][h]);
        f32x4 x =
            scaled(__builtin_bit_cast(f32x4, sums[turn][h]), scale_.of[h], rows[turn], bias_.of[h]);
        if constexpr (kAdds)
          x = added(x, four_of<kElement>(bf16x4{addends[turn][2 * h], addends[turn][2 * h + 1]}));
        for (int i = 0; i < 2; ++i) to_store[2 * h + i] = rounded(x[2 * i], x[2 * i + 1]);
      });
      if (row + (turn - kTurn) * kRowsAtOnce < args_.m && column_ < args_.n)
        *(Global<u32x4>*)to = to_store;
      to += 2 * kRowsAtOnce * args_.out_stride;
    });
  }
  // NaN come from NaN of the inputs' type, of `usual` or of arithmetic: in that type their payloads
  // do not wrap.
  template <Element kTo = kElement>
  static __device__ __forceinline__ uint32_t rounded(float lo, float hi) {
    if constexpr (Here::kConvertsPairs)
      return convert_pair<kTo>(lo, hi);
    else if constexpr (kTo == kElement)
      return round_numbers<kTo, Rounding::kNearestEven>(lo, hi);
    else
      return round_pair<kTo, Rounding::kNearestEven>(lo, hi);
  }
  // Results of any type, activation and boundary. A lane's sums of a turn are read while those of
  // the turn before are worked on. Of gated rows half are factors: the lanes that would have these
  // take results of the next turn.
  __device__ __forceinline__ void store_any(int lane) const {
    const int turns = here(args_.up_offset) != 0 ? kTurns / 2 : kTurns;
#pragma unroll 1
    for (int m = 0; m < S::kM; ++m) {
      unroll<S::kM>([&]<int one>() {
        if (m == one) unroll<2 * kWrites>([&]<int place>() { write<one, place>(); });
      });
      Read next = read(0);
#pragma unroll 1
      for (int nth = 0; nth < turns; ++nth) {
        const Read now = next;
        next = read(nth + 1 < turns ? nth + 1 : nth);
        const int turn = turn_of(nth);
        store_eight(row_ + m * S::kFragment + turn * kRowsAtOnce, now, of_row(m, turn, lane));
      }
    }
  }
  struct Read {
    Eight sums, factors;
  };
  __device__ __forceinline__ int turn_of(int nth) const {
    return here(args_.up_offset) != 0 ? 2 * nth + takes_later_ : nth;
  }
  __device__ __forceinline__ Read read(int nth) const {
    const uint32_t at = turned(read_ ^ takes_later_ * kToFactors, turn_of(nth));
    return {eight_at(at), here(args_.up_offset) != 0 ? eight_at(at ^ kToFactors) : Eight{}};
  }
  // Asked at loads and stores: whoever does not exist goes through loops as the others do.
  __device__ __forceinline__ bool exists(int row, int column) const {
    return row < args_.m && column < args_.n;
  }
  // Compared where it is asked: answers would take two scalar registers each.
  static __device__ __forceinline__ int here(int x) {
    x = uniform(x);
    ordered::settle_uniform(x);
    return x;
  }
  // Branches that are taken cost more than arithmetic: there are few, and only what is long is a
  // loop over the halves, which change places in it.
  __device__ __forceinline__ void store_eight(int row, const Read& read, float of_row) const {
    Eight x;
    unroll<2>(
        [&]<int h>() { x.of[h] = scaled(read.sums.of[h], scale_.of[h], of_row, bias_.of[h]); });
    if (here(args_.adds) == kAddsBefore) add_to(x, row);
    if (here(args_.activation) != kIdentity) activate_both(x);
    if (here(args_.up_offset) != 0) multiply(x, read.factors, of_row);
    if (here(args_.adds) == kAddsBehind) add_to(x, row);
    const int out_type = here(args_.out_type);
    if (out_type == kFloat32) {
      unroll<2>([&]<int h>() { put<float>(x.of[h], row, column_ + 4 * h); });
      return;
    }
    u32x4 results;
    unroll<4>([&]<int i>() {
      const float low = x.of[i / 2][i % 2 * 2], high = x.of[i / 2][i % 2 * 2 + 1];
      results[i] = out_type == kOwn ? rounded<kElement>(low, high) : rounded<kOther>(low, high);
    });
    put<uint16_t>(results, row, column_);
  }
  __device__ __forceinline__ void activate_both(Eight& x) const {
#pragma unroll 1
    for (int h = 0; h < 2; ++h) {
      f32x4 half = x.of[0];
      activate(half, here(args_.activation));
      x = {{x.of[1], half}};
    }
  }
  __device__ __forceinline__ void multiply(Eight& x, const Eight& factors, float of_row) const {
    unroll<2>([&]<int h>() {
      x.of[h] *= scaled(factors.of[h], scale_of_factors_.of[h], of_row, bias_of_factors_.of[h]);
    });
  }
  __device__ __forceinline__ void add_to(Eight& x, int row) const {
#pragma unroll 1
    for (int h = 0; h < 2; ++h) x = {{x.of[1], added(x.of[0], addend_at(row, column_ + 4 * h))}};
  }
  __device__ __forceinline__ f32x4 added(f32x4 x, f32x4 addend) const {
    return __builtin_elementwise_fma(addend, f32x4(args_.beta), x);
  }
  template <Element kOf>
  static __device__ __forceinline__ f32x4 four_of(bf16x4 bits) {
    f32x4 x;
    for (int i = 0; i < 4; ++i) x[i] = float_of<kOf>(bits[i / 2] >> 16 * (i % 2) & 0xffff);
    return x;
  }
  // Of four neighbours those that there are.
  __device__ __forceinline__ f32x4 addend_at(int row, int column) const {
    f32x4 x{};
    for (int i = 0; i < 4; ++i) {
      if (!exists(row, column + i)) break;
      const uint64_t from = addend(row, column + i, args_.out_type == kFloat32 ? 4 : 2);
      if (args_.out_type == kFloat32) {
        x[i] = *(const Global<float>*)from;
      } else {
        const uint32_t bits = *(const Global<uint16_t>*)from;
        x[i] = args_.out_type == kBfloat16 ? float_of<Element::kBf16>(bits)
                                           : float_of<Element::kF16>(bits);
      }
    }
    return x;
  }
  static __device__ __forceinline__ Eight eight_at(uint32_t at) {
    const auto* halves = (const Local<f32x4>*)at;
    return {{halves[0], halves[kHalfRow / 16]}};
  }
  // 16 bytes of neighbours.
  template <class Out, class Bits>
  __device__ __forceinline__ void put(Bits bits, int row, int column) const {
    constexpr int kCount = 16 / sizeof(Out);
    using Elements = Out __attribute__((ext_vector_type(kCount)));
    const auto elements = __builtin_bit_cast(Elements, bits);
    auto* to = (Global<Out>*)address(row, column, sizeof(Out));
    if (here(whole_)) {
      if (exists(row, column)) *(Global<Elements>*)to = elements;
    } else {
      unroll<kCount>([&]<int i>() {
        if (exists(row, column + i)) to[i] = elements[i];
      });
    }
  }
};
