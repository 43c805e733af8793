// Vector ALU rows from lane functions: the lambda's signature is the operand list.
//
//   valu<[](f32 a, f32 b) { return a + b; }>(Format::kVop2, 0x01, "v_add_f32")
//
// Parameters, in operand order: f32 f64 u32 i32 u64 i64, u16 i16 (low half), h16 (f16 bits), bf16,
// b32 b64 (bits without arithmetic, no float modifiers), Acc<T> (the destination, read), CarryIn
// (a lane of the src2 mask), VccIn (a lane of VCC, not an operand), const Wave& (MODE; first).
// Results: any of those, rawf32 / rawf64 (float bits whose NaN is already right), bool (a lane of
// the mask sdst), Carry<T> (dst and a lane of sdst).
#pragma once

#if defined(__AVX__)
#include <immintrin.h>
#endif

#include <cmath>
#include <tuple>
#include <type_traits>
#include <utility>

#include "isa/operand.h"
#include "numerics/float_rules_mxcsr.h"

#if defined(__clang__)
#define VDEV_LANES _Pragma("clang loop vectorize(assume_safety)")
#else
#define VDEV_LANES _Pragma("GCC ivdep")
#endif

namespace vdev {

struct h16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct b32 {
  u32 bits;
};
struct b64 {
  u64 bits;
};
struct rawf32 {
  u32 bits;
};
struct rawf64 {
  u64 bits;
};
struct CarryIn {
  bool value;
};
struct VccIn {
  bool value;
};
struct Clamp {
  bool value;
};
template <class T>
struct Acc {
  T value;
};
template <class T>
struct Carry {
  T value;
  bool carry;
};

namespace lane_detail {

template <class T>
struct Lane;  // how one lane of a T lies in registers
#define VDEV_LANE32(T, TYPE, FROM, TO)                         \
  template <>                                                  \
  struct Lane<T> {                                             \
    static constexpr Type type = TYPE;                         \
    static constexpr int dwords = 1;                           \
    static T load(const Reg* r, int i) {                       \
      const u32 x = r->lane[i];                                \
      return FROM;                                             \
    }                                                          \
    static void store(Reg* r, int i, T x) { r->lane[i] = TO; } \
  };
#define VDEV_LANE64(T, TYPE, FROM, TO)                      \
  template <>                                               \
  struct Lane<T> {                                          \
    static constexpr Type type = TYPE;                      \
    static constexpr int dwords = 2;                        \
    static T load(const Reg* r, int i) {                    \
      const u64 x = r[0].lane[i] | u64{r[1].lane[i]} << 32; \
      return FROM;                                          \
    }                                                       \
    static void store(Reg* r, int i, T x) {                 \
      const u64 y = TO;                                     \
      r[0].lane[i] = static_cast<u32>(y);                   \
      r[1].lane[i] = static_cast<u32>(y >> 32);             \
    }                                                       \
  };
VDEV_LANE32(f32, Type::kF32, bit_cast<f32>(x), bit_cast<u32>(x))
VDEV_LANE32(u32, Type::kU32, x, x)
VDEV_LANE32(i32, Type::kI32, static_cast<i32>(x), static_cast<u32>(x))
VDEV_LANE32(u16, Type::kU16, static_cast<u16>(x), x)
VDEV_LANE32(i16, Type::kI16, static_cast<i16>(x), static_cast<u16>(x))
VDEV_LANE32(h16, Type::kF16, h16{static_cast<u16>(x)}, x.bits)
VDEV_LANE32(bf16, Type::kBf16, bf16{static_cast<u16>(x)}, x.bits)
VDEV_LANE32(b32, Type::kB32, b32{x}, x.bits)
VDEV_LANE32(rawf32, Type::kF32, rawf32{x}, x.bits)
VDEV_LANE64(f64, Type::kF64, bit_cast<f64>(x), bit_cast<u64>(x))
VDEV_LANE64(u64, Type::kU64, x, x)
VDEV_LANE64(i64, Type::kI64, static_cast<i64>(x), static_cast<u64>(x))
VDEV_LANE64(b64, Type::kB64, b64{x}, x.bits)
VDEV_LANE64(rawf64, Type::kF64, rawf64{x}, x.bits)
#undef VDEV_LANE32
#undef VDEV_LANE64

template <class T>
struct IsAcc : std::false_type {
  using Value = T;
};
template <class T>
struct IsAcc<Acc<T>> : std::true_type {
  using Value = T;
};
template <class T>
struct IsCarry : std::false_type {
  using Value = T;
};
template <class T>
struct IsCarry<Carry<T>> : std::true_type {
  using Value = T;
};
template <class T>
inline constexpr bool kIsMode = std::is_same_v<T, const FpMode&>;
template <class T>
inline constexpr bool kIsMask = std::is_same_v<T, CarryIn> || std::is_same_v<T, VccIn>;
template <class T>
inline constexpr bool kIsClamp = std::is_same_v<T, Clamp>;
template <class T>
inline constexpr bool kIsSource = !kIsMode<T> && !kIsMask<T> && !kIsClamp<T> && !IsAcc<T>::value;
template <class T>
inline constexpr bool kIsFloat =
    std::is_same_v<T, f32> || std::is_same_v<T, f64> || std::is_same_v<T, h16>;

inline bool is_nan(f32 x) { return (bit_cast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
inline bool is_nan(f64 x) { return (bit_cast<u64>(x) & ~(u64{1} << 63)) > u64{0x7ff0000000000000}; }
template <class T>
inline bool is_nan(const T&) {
  return false;
}
#if defined(__AVX__)
inline bool any_nan(const f32 (&r)[16]) {
  const __m256 a = _mm256_loadu_ps(r), b = _mm256_loadu_ps(r + 8);
  return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)) != 0;  // either operand a NaN
}
#else
inline bool any_nan(const f32 (&r)[16]) {
  u32 any = 0;
  for (int i = 0; i < 16; ++i) any |= is_nan(r[i]) ? 1u : 0u;
  return any != 0;
}
#endif
inline bool any_nan(const f64 (&r)[16]) {
  u32 any = 0;
  for (int i = 0; i < 16; ++i) any |= is_nan(r[i]) ? 1u : 0u;
  return any != 0;
}
inline f32 quiet(f32 x) { return bit_cast<f32>(bit_cast<u32>(x) | 0x00400000u); }
inline f64 quiet(f64 x) { return bit_cast<f64>(bit_cast<u64>(x) | u64{1} << 51); }
inline f32 default_nan(f32) { return bit_cast<f32>(F32::kDefaultNan); }
inline f64 default_nan(f64) { return bit_cast<f64>(F64::kDefaultNan); }

// A NaN result is the first NaN source, quieted when IEEE=1, else the default NaN. The host picks
// by operand position, which compilers commute.
template <class R, class T>
inline bool take_nan(R& result, const T& source, bool ieee) {
  if constexpr (IsAcc<T>::value) {
    return take_nan(result, source.value, ieee);
  } else if constexpr (std::is_same_v<R, T>) {
    if (!is_nan(source)) return false;
    result = ieee ? quiet(source) : source;
    return true;
  } else {
    return false;
  }
}
template <class R, class... A>
inline R right_nan(bool ieee, const A&... sources) {
  R result = default_nan(R{});
  (void)(take_nan(result, sources, ieee) || ...);
  return result;
}

// Sixteen words, each 0 or ~0, to bits.
inline u32 pack16(const u32* words) {
  u32 bits = 0;
  for (int i = 0; i < 16; ++i) bits |= (words[i] & 1u) << i;
  return bits;
}

template <class F>
struct Signature;
template <class C, class R, class... A>
struct Signature<R (C::*)(A...) const> {
  using Result = R;
  using Value = typename IsCarry<R>::Value;
  static constexpr size_t kArity = sizeof...(A);
  static constexpr bool kMaskOut = std::is_same_v<R, bool> || IsCarry<R>::value;
  static constexpr bool kCarryIn = (std::is_same_v<A, CarryIn> || ...);
  static constexpr bool kVccIn = (std::is_same_v<A, VccIn> || ...);
  static constexpr bool kClamps = (kIsClamp<A> || ...);
  static constexpr bool kReadsDst = (IsAcc<A>::value || ...);
  static constexpr bool kAnyFloat = (kIsFloat<typename IsAcc<A>::Value> || ...) || kIsFloat<R>;
  static constexpr bool kMode64 =
      (std::is_same_v<typename IsAcc<A>::Value, f64> || ...) &&
      (std::is_same_v<R, f64> || std::is_same_v<R, bool> || std::is_same_v<R, Carry<f64>>);

  // Index into LaneArgs::src of each parameter (Acc reads src[2], where exec puts the dst).
  template <size_t I>
  static constexpr int source_index() {
    int index = 0;
    size_t at = 0;
    ((at++ < I ? (index += kIsSource<A> ? 1 : 0) : 0), ...);
    return index;
  }
  template <size_t I>
  using Arg = std::tuple_element_t<I, std::tuple<A...>>;

  template <size_t I, bool kClamp = false>
  static decltype(auto) load(const LaneArgs& a, int lane) {
    using T = Arg<I>;
    if constexpr (kIsMode<T>) {
      return (a.wave->fp);
    } else if constexpr (kIsClamp<T>) {
      return T{kClamp};
    } else if constexpr (kIsMask<T>) {
      return T{(a.mask_in >> lane & 1) != 0};
    } else if constexpr (IsAcc<T>::value) {
      return T{Lane<typename IsAcc<T>::Value>::load(a.src[2], lane)};
    } else {
      return Lane<T>::load(a.src[source_index<I>()], lane);
    }
  }

  template <auto Fn, bool kClamp, size_t... I>
  static void compute(LaneArgs& args, std::index_sequence<I...>) {
    const LaneArgs a = args;  // a copy, so that stores to lanes cannot change the pointers
    u64 mask = 0;
    const bool ieee = a.wave->fp.ieee;
    (void)ieee;
    for (int c = 0; c < kLanes; c += 16) {
      u32 bits[16];
      if constexpr (std::is_same_v<R, bool>) {
        VDEV_LANES for (int i = 0; i < 16; ++i) bits[i] =
            Fn(load<I, kClamp>(a, c + i)...) ? ~0u : 0u;
        mask |= u64{pack16(bits)} << c;
      } else {
        Value r[16];
        VDEV_LANES for (int i = 0; i < 16; ++i) {
          const auto x = Fn(load<I, kClamp>(a, c + i)...);
          if constexpr (IsCarry<R>::value) {
            r[i] = x.value;
            bits[i] = x.carry ? ~0u : 0u;
          } else {
            r[i] = x;
          }
        }
        if constexpr (IsCarry<R>::value) mask |= u64{pack16(bits)} << c;
        if constexpr (std::is_same_v<R, f32> || std::is_same_v<R, f64>) {
          if (any_nan(r)) [[unlikely]] {
            // Into an array of its own: the common path then keeps its results in host registers.
            Value fixed[16];
            for (int i = 0; i < 16; ++i)
              fixed[i] = is_nan(r[i]) ? right_nan<R>(ieee, load<I>(a, c + i)...) : r[i];
            for (int i = 0; i < 16; ++i) Lane<Value>::store(a.dst, c + i, fixed[i]);
            continue;
          }
        }
        VDEV_LANES for (int i = 0; i < 16; ++i) Lane<Value>::store(a.dst, c + i, r[i]);
      }
    }
    args.mask_out = mask;
  }
};
template <auto Fn>
using SignatureOf = Signature<decltype(&decltype(Fn)::operator())>;

// Out of line: inlined into a caller that keeps the pointers in memory, the loops do not vectorise.
template <auto Fn>
[[gnu::noinline]] void compute(LaneArgs& a) {
  using S = SignatureOf<Fn>;
  constexpr auto kArgs = std::make_index_sequence<S::kArity>();
  if constexpr (S::kMode64) {
    // f64 arithmetic has rounding and denormal fields of its own; MXCSR holds those of f32.
    MxcsrScope scope(kMxcsrModeMask, a.wave->mxcsr64);
    S::template compute<Fn, false>(a, kArgs);
  } else if constexpr (S::kClamps) {  // a constant in each loop, so that both vectorise
    if (a.inst->clamp)
      S::template compute<Fn, true>(a, kArgs);
    else
      S::template compute<Fn, false>(a, kArgs);
  } else {
    S::template compute<Fn, false>(a, kArgs);
  }
}

template <class S, size_t I>
inline void fetch(Wave& w, const Inst& in, LaneArgs& a) {
  using T = typename S::template Arg<I>;
  if constexpr (kIsSource<T>) {
    constexpr int k = S::template source_index<I>();
    a.src[k] = lanes(w, in.src[k], Lane<T>::dwords, 2 * k);
  }
}

// No input or output modifiers: sources are registers or broadcasts, EXEC the only mask.
template <auto Fn>
void exec_plain(Wave& w, const Inst& in) {
  using S = SignatureOf<Fn>;
  using R = typename S::Result;
  LaneArgs a;
  a.wave = &w;
  a.inst = &in;
  [&]<size_t... I>(std::index_sequence<I...>) {
    (fetch<S, I>(w, in, a), ...);
  }(std::make_index_sequence<S::kArity>());
  if constexpr (S::kReadsDst) a.src[2] = vector(w, in.dst);
  if constexpr (S::kCarryIn) a.mask_in = read_scalar64(w, in.src[2]);
  if constexpr (S::kVccIn) a.mask_in = w.vcc();
  const u64 exec = w.exec();
  if constexpr (std::is_same_v<R, bool>) {
    compute<Fn>(a);
  } else {
    constexpr int dwords = Lane<typename S::Value>::dwords;
    if (exec == ~u64{0}) [[likely]] {
      a.dst = vector(w, in.dst);
      compute<Fn>(a);
    } else {
      a.dst = &w.tmp[6];
      compute<Fn>(a);
      merge(vector(w, in.dst), &w.tmp[6], dwords, exec);
    }
  }
  if constexpr (S::kMaskOut) {
    w.set_pair(in.sdst.index, a.mask_out & exec);
    if constexpr (std::is_same_v<R, bool>)
      if (in.row->effects & kWritesExec) w.set_pair(kExec, a.mask_out & exec);
  }
}

}  // namespace lane_detail

// Any modifiers, DPP or SDWA: sources are rewritten into temporaries, `row->compute` runs over
// all lanes, and the result passes output modifiers and masks.
void exec_modified(Wave& w, const Inst& in);

// An f32 source with neg and abs applied, for instructions that exec_modified does not serve.
Reg signed_source(Wave& w, const Inst& in, int i);

template <auto Fn>
constexpr Row valu(Format format, u16 opcode, const char* name, Unit unit = Unit::kValu,
                   u32 effects = 0, Fidelity fidelity = Fidelity::kExact, const char* note = "") {
  using S = lane_detail::SignatureOf<Fn>;
  Row row;
  row.name = name;
  row.format = format;
  row.opcode = opcode;
  row.unit = unit;
  if constexpr (!std::is_same_v<typename S::Result, bool>)
    row.dst = OperandSpec(lane_detail::Lane<typename S::Value>::type);
  if constexpr (S::kMaskOut) row.sdst = OperandSpec(Type::kMask);
  [&]<size_t... I>(std::index_sequence<I...>) {
    (
        [&] {
          using T = typename S::template Arg<I>;
          if constexpr (lane_detail::kIsSource<T>)
            row.src[S::template source_index<I>()] = OperandSpec(lane_detail::Lane<T>::type);
          if constexpr (std::is_same_v<T, CarryIn>) row.src[2] = OperandSpec(Type::kMask);
          if constexpr (std::is_same_v<T, Clamp>) row.traits = row.traits | Trait::kSaturates;
        }(),
        ...);
  }(std::make_index_sequence<S::kArity>());
  row.effects = effects | (S::kReadsDst ? kReadsDst : 0u) | (S::kVccIn ? kReadsVcc : 0u) |
                (S::kAnyFloat ? kFloat | kReadsMode : 0u);
  row.compute = &lane_detail::compute<Fn>;
  if (!(effects & kD16)) row.exec_plain = &lane_detail::exec_plain<Fn>;
  row.exec = &exec_modified;
  row.fidelity = fidelity;
  row.note = note;
  return row;
}

// A vector instruction with semantics of its own (readlane, swap, packed, ...).
constexpr Row vector_row(Format format, u16 opcode, const char* name, Inst::Exec exec,
                         OperandSpec dst, std::initializer_list<OperandSpec> sources,
                         Unit unit = Unit::kValu, u32 effects = 0,
                         Fidelity fidelity = Fidelity::kExact, const char* note = "") {
  Row row;
  row.name = name;
  row.format = format;
  row.opcode = opcode;
  row.unit = unit;
  row.dst = dst;
  int i = 0;
  for (const OperandSpec& s : sources) row.src[i++] = s;
  row.effects = effects;
  row.exec = exec;
  row.fidelity = fidelity;
  row.note = note;
  return row;
}

}  // namespace vdev
