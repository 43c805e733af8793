// Scalar ALU rows from functions: the lambda's signature is the operand list.
//
//   salu<[](u32 a, u32 b) { return Scc<u32>{a & b, (a & b) != 0}; }>(kSop2, 0x0c, "s_and_b32")
//
// Parameters, in operand order: u32 i32 u64 i64; Simm (SIMM16, sign-extended), SccIn, Dst<T> (the
// destination, read). Results: T, Scc<T> (writes SCC as well), bool (SCC alone), Maybe<T> (the
// destination is left alone when `write` is false).
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "isa/operand.h"

namespace vdev {

struct SccIn {
  bool value;
};
struct Simm {
  i32 value;
};
template <class T>
struct Dst {
  T value;
};
template <class T>
struct Scc {
  T value;
  bool scc;
};
template <class T>
struct Maybe {
  T value;
  bool write;
};

namespace scalar_detail {

template <class T>
struct Unwrap {
  using type = T;
};
template <class T>
struct Unwrap<Scc<T>> {
  using type = T;
};
template <class T>
struct Unwrap<Maybe<T>> {
  using type = T;
};
template <class T>
struct Unwrap<Dst<T>> {
  using type = T;
};
template <class T>
struct IsDst : std::false_type {};
template <class T>
struct IsDst<Dst<T>> : std::true_type {};
template <class T>
struct IsScc : std::false_type {};
template <class T>
struct IsScc<Scc<T>> : std::true_type {};
template <class T>
struct IsMaybe : std::false_type {};
template <class T>
struct IsMaybe<Maybe<T>> : std::true_type {};
template <class T>
inline constexpr bool kIsSource =
    !std::is_same_v<T, SccIn> && !std::is_same_v<T, Simm> && !IsDst<T>::value;

template <class T>
constexpr Type type_of() {
  if constexpr (std::is_same_v<T, u32>)
    return Type::kB32;
  else if constexpr (std::is_same_v<T, i32>)
    return Type::kI32;
  else if constexpr (std::is_same_v<T, u64>)
    return Type::kB64;
  else
    return Type::kI64;
}
template <class T>
T read(const Wave& w, const Operand& o) {
  if constexpr (sizeof(T) == 4)
    return static_cast<T>(read_scalar(w, o));
  else
    return static_cast<T>(read_scalar64(w, o));
}
template <class T>
void write(Wave& w, const Operand& o, T value) {
  if constexpr (sizeof(T) == 4)
    write_scalar(w, o, static_cast<u32>(value));
  else
    write_scalar64(w, o, static_cast<u64>(value));
}

template <class F>
struct Signature;
template <class C, class R, class... A>
struct Signature<R (C::*)(A...) const> {
  using Result = R;
  static constexpr size_t kArity = sizeof...(A);
  template <size_t I>
  using Arg = std::tuple_element_t<I, std::tuple<A...>>;
  static constexpr bool kReadsDst = (IsDst<A>::value || ...) || IsMaybe<R>::value;
  static constexpr bool kReadsScc = (std::is_same_v<A, SccIn> || ...);
  static constexpr bool kImmediate = (std::is_same_v<A, Simm> || ...);
  static constexpr bool kWritesScc = std::is_same_v<R, bool> || IsScc<R>::value;
  template <size_t I>
  static constexpr int source_index() {
    int index = 0;
    size_t at = 0;
    ((at++ < I ? (index += kIsSource<A> ? 1 : 0) : 0), ...);
    return index;
  }
  template <size_t I>
  static Arg<I> load(const Wave& w, const Inst& in) {
    using T = Arg<I>;
    if constexpr (std::is_same_v<T, SccIn>)
      return {w.scc};
    else if constexpr (std::is_same_v<T, Simm>)
      return {in.imm};
    else if constexpr (IsDst<T>::value)
      return {read<typename Unwrap<T>::type>(w, in.dst)};
    else
      return read<T>(w, in.src[source_index<I>()]);
  }
  template <auto Fn, size_t... I>
  static void exec(Wave& w, const Inst& in, std::index_sequence<I...>) {
    const R r = Fn(load<I>(w, in)...);
    if constexpr (std::is_same_v<R, bool>) {
      w.scc = r;
    } else if constexpr (IsScc<R>::value) {
      write(w, in.dst, r.value);
      w.scc = r.scc;
    } else if constexpr (IsMaybe<R>::value) {
      if (r.write) write(w, in.dst, r.value);
    } else {
      write(w, in.dst, r);
    }
  }
};
template <auto Fn>
using SignatureOf = Signature<decltype(&decltype(Fn)::operator())>;

template <auto Fn>
void exec(Wave& w, const Inst& in) {
  using S = SignatureOf<Fn>;
  S::template exec<Fn>(w, in, std::make_index_sequence<S::kArity>());
}

}  // namespace scalar_detail

template <auto Fn>
constexpr Row salu(Format format, u16 opcode, const char* name, u32 effects = 0) {
  using S = scalar_detail::SignatureOf<Fn>;
  using R = typename S::Result;
  Row row;
  row.name = name;
  row.format = format;
  row.opcode = opcode;
  row.unit = Unit::kSalu;
  if constexpr (!std::is_same_v<R, bool>)
    row.dst = scalar_detail::type_of<typename scalar_detail::Unwrap<R>::type>();
  [&]<size_t... I>(std::index_sequence<I...>) {
    (
        [&] {
          using T = typename S::template Arg<I>;
          if constexpr (scalar_detail::kIsSource<T>)
            row.src[S::template source_index<I>()] = scalar_detail::type_of<T>();
          // A compare against an immediate has its register in the dst field.
          if constexpr (scalar_detail::IsDst<T>::value)
            row.dst = scalar_detail::type_of<typename scalar_detail::Unwrap<T>::type>();
        }(),
        ...);
  }(std::make_index_sequence<S::kArity>());
  row.effects = effects | (S::kReadsDst ? kReadsDst : 0u) | (S::kReadsScc ? kReadsScc : 0u) |
                (S::kWritesScc ? kWritesScc : 0u);
  row.exec = &scalar_detail::exec<Fn>;
  return row;
}

// A scalar instruction with effects beyond its operands.
constexpr Row scalar_row(Format format, u16 opcode, const char* name, Inst::Exec exec,
                         OperandSpec dst = {}, std::initializer_list<OperandSpec> sources = {},
                         u32 effects = 0, Unit unit = Unit::kSalu,
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
