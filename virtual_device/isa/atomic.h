// Atomic operations, shared by DS, FLAT, GLOBAL and MUBUF.
//
// An operation maps (memory, data0, data1) to the new value of memory. Operations on floats carry
// the rules of the place where they execute: LDS honours MODE's denormal fields, the L2 does not.
// Both round to nearest even whatever MODE says.
#pragma once

#include <atomic>

#include "core/launch_state.h"
#include "isa/access.h"
#include "numerics/convert.h"
#include "numerics/float_rules_mxcsr.h"

namespace vdev {
namespace atomic {

template <class T>
struct Swap {
  using Value = T;
  T operator()(T, T data, T) const { return data; }
};
template <class T>
struct Add {
  using Value = T;
  T operator()(T memory, T data, T) const { return memory + data; }
};
template <class T>
struct Sub {
  using Value = T;
  T operator()(T memory, T data, T) const { return memory - data; }
};
template <class T>
struct Rsub {
  using Value = T;
  T operator()(T memory, T data, T) const { return data - memory; }
};
template <class T>
struct Inc {
  using Value = T;
  T operator()(T memory, T data, T) const { return memory >= data ? T{0} : memory + 1; }
};
template <class T>
struct Dec {
  using Value = T;
  T operator()(T memory, T data, T) const {
    return memory == 0 || memory > data ? data : memory - 1;
  }
};
template <class T>
struct Umin {
  using Value = T;
  T operator()(T memory, T data, T) const { return std::min(memory, data); }
};
template <class T>
struct Umax {
  using Value = T;
  T operator()(T memory, T data, T) const { return std::max(memory, data); }
};
template <class T>
struct Smin {
  using Value = T;
  using Signed = std::make_signed_t<T>;
  T operator()(T memory, T data, T) const {
    return static_cast<Signed>(data) < static_cast<Signed>(memory) ? data : memory;
  }
};
template <class T>
struct Smax {
  using Value = T;
  using Signed = std::make_signed_t<T>;
  T operator()(T memory, T data, T) const {
    return static_cast<Signed>(data) > static_cast<Signed>(memory) ? data : memory;
  }
};
template <class T>
struct And {
  using Value = T;
  T operator()(T memory, T data, T) const { return memory & data; }
};
template <class T>
struct Or {
  using Value = T;
  T operator()(T memory, T data, T) const { return memory | data; }
};
template <class T>
struct Xor {
  using Value = T;
  T operator()(T memory, T data, T) const { return memory ^ data; }
};
template <class T>
struct MaskOr {
  using Value = T;
  T operator()(T memory, T mask, T bits) const { return (memory & ~mask) | bits; }
};
template <class T>
struct Wrap {
  using Value = T;
  T operator()(T memory, T data, T wrap) const {
    return memory >= data ? memory - data : memory + wrap;
  }
};
// The order of the two data operands differs: memory instructions give the new value first, DS
// the value to compare with.
template <class T>
struct CmpSwap {
  using Value = T;
  T operator()(T memory, T data, T compare) const { return memory == compare ? data : memory; }
};
template <class T>
struct CmpStore {
  using Value = T;
  T operator()(T memory, T compare, T data) const { return memory == compare ? data : memory; }
};

// Input denormals that are flushed are flushed before the comparison.
template <class F>
struct FloatCmpStore {
  using Value = BitsOf<F>;
  FpMode mode;
  Value operator()(Value memory, Value compare, Value data) const {
    const Value a = flush_in<F>(memory, mode), b = flush_in<F>(compare, mode);
    const bool equal =
        !is_nan<F>(a) && !is_nan<F>(b) && (a == b || (is_zero<F>(a) && is_zero<F>(b)));
    return equal ? flush_in<F>(data, mode) : memory;
  }
};
// A signalling NaN wins, quieted; otherwise numbers win over NaNs and -0 is below +0. Flushing
// affects the comparison only: the result is one of the operands.
template <class F, bool kMax>
struct FloatSelect {
  using Value = BitsOf<F>;
  FpMode mode;
  Value operator()(Value memory, Value data, Value) const {
    if (is_snan<F>(memory)) return quiet<F>(memory);
    if (is_snan<F>(data)) return quiet<F>(data);
    if (is_nan<F>(data)) return memory;
    if (is_nan<F>(memory)) return data;
    const auto a = order_key<F>(flush_in<F>(memory, mode)),
               b = order_key<F>(flush_in<F>(data, mode));
    return (kMax ? b > a : b < a) ? data : memory;
  }
};
template <class F>
using FloatMin = FloatSelect<F, false>;
template <class F>
using FloatMax = FloatSelect<F, true>;

// The first NaN operand, memory before data, quieted; the sum of opposite infinities is the
// default NaN.
template <class F, class Host>
inline BitsOf<F> add_floats(BitsOf<F> memory, BitsOf<F> data, const FpMode& mode) {
  const BitsOf<F> a = flush_in<F>(memory, mode), b = flush_in<F>(data, mode);
  const BitsOf<F> sum = bit_cast<BitsOf<F>>(bit_cast<Host>(a) + bit_cast<Host>(b));
  return flush_out<F>(fix_nan<F>(sum, mode, a, b), mode);
}
struct AddF32 {
  using Value = u32;
  FpMode mode;
  Value operator()(Value memory, Value data, Value) const {
    return add_floats<F32, f32>(memory, data, mode);
  }
};
struct AddF64 {  // flushes nowhere
  using Value = u64;
  FpMode mode;
  Value operator()(Value memory, Value data, Value) const {
    FpMode keep = mode;
    keep.denorm64 = FpMode::kKeepIn | FpMode::kKeepOut;
    return add_floats<F64, f64>(memory, data, keep);
  }
};

// Halves are added in f32 and then rounded: a sum of p significant bits may be rounded twice when
// the first time leaves 2p + 2 of them; f32 has 24, f16 11 and bf16 8.
inline f32 widen(F16, u16 x) { return bit_cast<f32>(widen_f16(x)); }
inline f32 widen(Bf16, u16 x) { return bit_cast<f32>(u32{x} << 16); }
inline u16 narrow(F16, f32 x) {
  return f32_to_f16(bit_cast<u32>(x), Round::kNearestEven, FpMode{});
}
inline u16 narrow(Bf16, f32 x) {
  return static_cast<u16>(f32_to_bf16(bit_cast<u32>(x), /*fp16_ovfl=*/false));
}
template <class F>
struct AddPacked {
  using Value = u32;
  FpMode mode;
  Value operator()(Value memory, Value data, Value) const {
    return add(static_cast<u16>(memory), static_cast<u16>(data)) |
           u32{add(static_cast<u16>(memory >> 16), static_cast<u16>(data >> 16))} << 16;
  }

 private:
  u16 add(u16 memory, u16 data) const {
    const u16 a = flush_in<F>(memory, mode), b = flush_in<F>(data, mode);
    const f32 sum = widen(F(), a) + widen(F(), b);
    if (sum != sum) return propagate_nan<F>(mode, a, b);
    return flush_out<F>(narrow(F(), sum), mode);
  }
};
using AddPackedF16 = AddPacked<F16>;
using AddPackedBf16 = AddPacked<Bf16>;

inline constexpr const char* kL2FloatNote =
    "nearest even, denormals kept (LLVM: memory-atomic-fadd-f32-denormal-support); "
    "choice among NaNs unverified";

// Of the rows of an operation.
template <class Op>
inline constexpr bool kCompares = false;
template <class T>
inline constexpr bool kCompares<CmpSwap<T>> = true;
template <class T>
inline constexpr bool kCompares<CmpStore<T>> = true;
template <class F>
inline constexpr bool kCompares<FloatCmpStore<F>> = true;
template <class Op>
inline constexpr Traits kTraits = kCompares<Op> ? Traits(Trait::kComparesFirst) : Traits();
template <class T>
inline constexpr Traits kTraits<Swap<T>> = Trait::kReplaces;

template <class Op>
concept OnFloats = requires(Op op) { op.mode; };

// NaNs come out quiet and sums rounded to nearest even whatever MODE says.
inline FpMode lds_float_mode(const Wave& w) {
  FpMode mode;
  mode.denorm32 = w.fp.denorm32;
  mode.denorm64 = w.fp.denorm64;
  return mode;
}
template <class Op>
inline Op make(const FpMode& mode) {
  if constexpr (OnFloats<Op>)
    return Op{mode};
  else
    return Op{};
}

template <class T>
inline T read_lane(const Reg* r, int lane) {
  if constexpr (sizeof(T) == 8)
    return r[0].lane[lane] | u64{r[1].lane[lane]} << 32;
  else
    return r->lane[lane];
}
template <class T>
inline void write_lane(Reg* r, int lane, T value) {
  r[0].lane[lane] = static_cast<u32>(value);
  if constexpr (sizeof(T) == 8) r[1].lane[lane] = static_cast<u32>(value >> 32);
}

// Lanes one after the other, in the order of the launch.
template <class F>
inline void for_lanes_in_turn(const Wave& w, u64 mask, F&& f) {
  if (!w.workgroup->launch->descending_lanes) [[likely]]
    return for_lanes(mask, f);
  while (mask) {
    const int lane = std::bit_width(mask) - 1;
    mask &= ~(u64{1} << lane);
    f(lane);
  }
}

[[noreturn]] void misaligned(u64 address, u32 bytes, int lane);
template <class T>
inline void check_alignment(u64 address, int lane) {
  if (address % sizeof(T)) [[unlikely]]
    misaligned(address, sizeof(T), lane);
}

}  // namespace atomic

// A workgroup runs on one thread, so that plain accesses to its LDS are atomic. `data1` and `dst`
// may be null.
template <class Op>
inline void lds_atomic(Wave& w, const Reg& address, u64 mask, const Reg* data0, const Reg* data1,
                       Reg* dst) {
  using T = typename Op::Value;
  const MxcsrScope nearest_even(kMxcsrModeMask, 0);
  const Op op = atomic::make<Op>(atomic::lds_float_mode(w));
  atomic::for_lanes_in_turn(w, mask, [&](int lane) {
    const u32 at = address.lane[lane];
    atomic::check_alignment<T>(at, lane);
    std::byte* const memory = w.workgroup->local(at, sizeof(T), Access::kAtomic, lane);
    const T old = read_as<T>(memory);
    const T result = op(old, atomic::read_lane<T>(data0, lane),
                        data1 ? atomic::read_lane<T>(data1, lane) : T{0});
    std::memcpy(memory, &result, sizeof result);
    if (dst) atomic::write_lane<T>(dst, lane, old);
  });
}

template <class Op>
inline void global_atomic(Wave& w, const Addresses& address, u64 mask, const Reg* data0,
                          const Reg* data1, Reg* dst) {
  using T = typename Op::Value;
  if (!mask) return;
  const MxcsrScope nearest_even(kMxcsrModeMask, 0);
  const Op op = atomic::make<Op>(FpMode{});
  const GlobalView view(w, address, mask, sizeof(T), Access::kAtomic);
  bool changed = false;
  atomic::for_lanes_in_turn(w, mask, [&](int lane) {
    atomic::check_alignment<T>(address.lane[lane], lane);
    std::atomic_ref<T> memory(*reinterpret_cast<T*>(view.checked(lane)));
    const T data = atomic::read_lane<T>(data0, lane);
    const T more = data1 ? atomic::read_lane<T>(data1, lane) : T{0};
    T old = memory.load(std::memory_order_relaxed), result;
    do {
      result = op(old, data, more);
    } while (!memory.compare_exchange_weak(old, result));
    changed |= old != result;
    if (dst) atomic::write_lane<T>(dst, lane, old);
  });
  if (changed) w.workgroup->progress();
}

}  // namespace vdev
