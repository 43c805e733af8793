// The MUBUF and MTBUF tables.
#include "isa/mubuf_semantics.h"
#include "isa/tables.h"

namespace vdev {
namespace {

using namespace atomic;  // operation names, as in the table
using mubuf::Half;

constexpr const char* kTypedNote =
    "conversions by the D3D rules; rounding of stores and clamping of integers unverified";

constexpr Row base(Format format, u16 opcode, const char* name, Inst::Exec exec, u32 effects,
                   u32 bytes) {
  Row row;
  row.name = name;
  row.format = format;
  row.opcode = opcode;
  row.unit = Unit::kVmem;
  row.src[0] = {Type::kRaw, 2};  // as many of them as offen and idxen ask for
  row.src[2] = {Type::kRaw, 4};
  row.src[3] = Type::kU32;
  row.effects = effects;
  row.exec = exec;
  row.access_bytes = static_cast<u8>(bytes);
  return row;
}

template <Shape S>
constexpr Row load(u16 opcode, const char* name) {
  // M0 is read by the `lds` forms only.
  Row row = base(Format::kMubuf, opcode, name, &mubuf::load<S>,
                 kLoad | (shape_d16(S) ? kD16Effects : 0u), shape_bytes(S));
  row.dst = dwords_spec(shape_dwords(S));
  return row.with(shape_traits(S));
}
template <Shape S>
constexpr Row store(u16 opcode, const char* name) {
  Row row = base(Format::kMubuf, opcode, name, &mubuf::store<S>, kStore, shape_bytes(S));
  row.src[1] = dwords_spec(shape_dwords(S));
  return row.with(shape_traits(S));
}
template <class Op, bool kTwoData = false>
constexpr Row rmw(u16 opcode, const char* name) {
  constexpr int kDwords = sizeof(typename Op::Value) / 4;
  Row row = base(Format::kMubuf, opcode, name, &mubuf::rmw<Op, kTwoData>,
                 kAtomic | (OnFloats<Op> ? kFloat : 0u), 4 * kDwords);
  row.dst = dwords_spec(kDwords);
  row.src[1] = dwords_spec(kTwoData ? 2 * kDwords : kDwords);
  if (OnFloats<Op>) {
    row.fidelity = Fidelity::kModelled;
    row.note = kL2FloatNote;
  }
  return row.with(kTraits<Op>);
}

constexpr int half_dwords(int components, Half half) {
  return half == Half::kNone ? components : (components + 1) / 2;
}
template <int kComponents, Half H>
constexpr Row typed_load(Format format, u16 opcode, const char* name) {
  const u32 keeps = H == Half::kHigh || (H == Half::kLow && kComponents % 2) ? kD16Effects : 0u;
  Row row = base(format, opcode, name, &mubuf::load_typed<kComponents, H>, kLoad | keeps,
                 4 * kComponents);
  row.dst = dwords_spec(half_dwords(kComponents, H));
  row.fidelity = Fidelity::kModelled;
  row.note = kTypedNote;
  return row.with(Trait::kConverts);
}
template <int kComponents, Half H>
constexpr Row typed_store(Format format, u16 opcode, const char* name) {
  Row row =
      base(format, opcode, name, &mubuf::store_typed<kComponents, H>, kStore, 4 * kComponents);
  row.src[1] = dwords_spec(half_dwords(kComponents, H));
  row.fidelity = Fidelity::kUnverified;
  row.note = kTypedNote;
  return row.with(Trait::kConverts);
}
constexpr Row cache(u16 opcode, const char* name, u32 effects) {
  Row row = base(Format::kMubuf, opcode, name, &mubuf::cache_control, effects, 0);
  row.src[0] = row.src[2] = row.src[3] = OperandSpec();
  row.note = "nothing to do: memory is coherent here";
  return row;
}

constexpr Format kM = Format::kMubuf, kT = Format::kMtbuf;

constexpr Row kRows[] = {
    typed_load<1, Half::kNone>(kM, 0x00, "buffer_load_format_x").with(Trait::kHasLdsForm),
    typed_load<2, Half::kNone>(kM, 0x01, "buffer_load_format_xy"),
    typed_load<3, Half::kNone>(kM, 0x02, "buffer_load_format_xyz"),
    typed_load<4, Half::kNone>(kM, 0x03, "buffer_load_format_xyzw"),
    typed_store<1, Half::kNone>(kM, 0x04, "buffer_store_format_x"),
    typed_store<2, Half::kNone>(kM, 0x05, "buffer_store_format_xy"),
    typed_store<3, Half::kNone>(kM, 0x06, "buffer_store_format_xyz"),
    typed_store<4, Half::kNone>(kM, 0x07, "buffer_store_format_xyzw"),
    typed_load<1, Half::kLow>(kM, 0x08, "buffer_load_format_d16_x"),
    typed_load<2, Half::kLow>(kM, 0x09, "buffer_load_format_d16_xy"),
    typed_load<3, Half::kLow>(kM, 0x0a, "buffer_load_format_d16_xyz"),
    typed_load<4, Half::kLow>(kM, 0x0b, "buffer_load_format_d16_xyzw"),
    typed_store<1, Half::kLow>(kM, 0x0c, "buffer_store_format_d16_x"),
    typed_store<2, Half::kLow>(kM, 0x0d, "buffer_store_format_d16_xy"),
    typed_store<3, Half::kLow>(kM, 0x0e, "buffer_store_format_d16_xyz"),
    typed_store<4, Half::kLow>(kM, 0x0f, "buffer_store_format_d16_xyzw"),
    load<Shape::kU8>(0x10, "buffer_load_ubyte").with(Trait::kHasLdsForm),
    load<Shape::kI8>(0x11, "buffer_load_sbyte").with(Trait::kHasLdsForm),
    load<Shape::kU16>(0x12, "buffer_load_ushort").with(Trait::kHasLdsForm),
    load<Shape::kI16>(0x13, "buffer_load_sshort").with(Trait::kHasLdsForm),
    load<Shape::kB32>(0x14, "buffer_load_dword").with(Trait::kHasLdsForm),
    load<Shape::kB64>(0x15, "buffer_load_dwordx2"),
    load<Shape::kB96>(0x16, "buffer_load_dwordx3").only(kCdna3),
    load<Shape::kB128>(0x17, "buffer_load_dwordx4").only(kCdna3),
    load<Shape::kB96>(0x16, "buffer_load_dwordx3").with(Trait::kHasLdsForm).only(kCdna4),
    load<Shape::kB128>(0x17, "buffer_load_dwordx4").with(Trait::kHasLdsForm).only(kCdna4),
    store<Shape::kU8>(0x18, "buffer_store_byte"),
    store<Shape::kU8D16Hi>(0x19, "buffer_store_byte_d16_hi"),
    store<Shape::kU16>(0x1a, "buffer_store_short"),
    store<Shape::kB16D16Hi>(0x1b, "buffer_store_short_d16_hi"),
    store<Shape::kB32>(0x1c, "buffer_store_dword"),
    store<Shape::kB64>(0x1d, "buffer_store_dwordx2"),
    store<Shape::kB96>(0x1e, "buffer_store_dwordx3"),
    store<Shape::kB128>(0x1f, "buffer_store_dwordx4"),
    load<Shape::kU8D16>(0x20, "buffer_load_ubyte_d16"),
    load<Shape::kU8D16Hi>(0x21, "buffer_load_ubyte_d16_hi"),
    load<Shape::kI8D16>(0x22, "buffer_load_sbyte_d16"),
    load<Shape::kI8D16Hi>(0x23, "buffer_load_sbyte_d16_hi"),
    load<Shape::kB16D16>(0x24, "buffer_load_short_d16"),
    load<Shape::kB16D16Hi>(0x25, "buffer_load_short_d16_hi"),
    typed_load<1, Half::kHigh>(kM, 0x26, "buffer_load_format_d16_hi_x"),
    typed_store<1, Half::kHigh>(kM, 0x27, "buffer_store_format_d16_hi_x"),
    cache(0x28, "buffer_wbl2", kWritesBack),
    cache(0x29, "buffer_inv", kInvalidates),
    rmw<Swap<u32>>(0x40, "buffer_atomic_swap"),
    rmw<CmpSwap<u32>, true>(0x41, "buffer_atomic_cmpswap"),
    rmw<Add<u32>>(0x42, "buffer_atomic_add"),
    rmw<Sub<u32>>(0x43, "buffer_atomic_sub"),
    rmw<Smin<u32>>(0x44, "buffer_atomic_smin"),
    rmw<Umin<u32>>(0x45, "buffer_atomic_umin"),
    rmw<Smax<u32>>(0x46, "buffer_atomic_smax"),
    rmw<Umax<u32>>(0x47, "buffer_atomic_umax"),
    rmw<And<u32>>(0x48, "buffer_atomic_and"),
    rmw<Or<u32>>(0x49, "buffer_atomic_or"),
    rmw<Xor<u32>>(0x4a, "buffer_atomic_xor"),
    rmw<Inc<u32>>(0x4b, "buffer_atomic_inc"),
    rmw<Dec<u32>>(0x4c, "buffer_atomic_dec"),
    rmw<AddF32>(0x4d, "buffer_atomic_add_f32"),
    rmw<AddPackedF16>(0x4e, "buffer_atomic_pk_add_f16"),
    rmw<AddF64>(0x4f, "buffer_atomic_add_f64"),
    rmw<FloatMin<F64>>(0x50, "buffer_atomic_min_f64"),
    rmw<FloatMax<F64>>(0x51, "buffer_atomic_max_f64"),
    rmw<AddPackedBf16>(0x52, "buffer_atomic_pk_add_bf16").only(kCdna4),
    rmw<Swap<u64>>(0x60, "buffer_atomic_swap_x2"),
    rmw<CmpSwap<u64>, true>(0x61, "buffer_atomic_cmpswap_x2"),
    rmw<Add<u64>>(0x62, "buffer_atomic_add_x2"),
    rmw<Sub<u64>>(0x63, "buffer_atomic_sub_x2"),
    rmw<Smin<u64>>(0x64, "buffer_atomic_smin_x2"),
    rmw<Umin<u64>>(0x65, "buffer_atomic_umin_x2"),
    rmw<Smax<u64>>(0x66, "buffer_atomic_smax_x2"),
    rmw<Umax<u64>>(0x67, "buffer_atomic_umax_x2"),
    rmw<And<u64>>(0x68, "buffer_atomic_and_x2"),
    rmw<Or<u64>>(0x69, "buffer_atomic_or_x2"),
    rmw<Xor<u64>>(0x6a, "buffer_atomic_xor_x2"),
    rmw<Inc<u64>>(0x6b, "buffer_atomic_inc_x2"),
    rmw<Dec<u64>>(0x6c, "buffer_atomic_dec_x2"),
    typed_load<1, Half::kNone>(kT, 0x00, "tbuffer_load_format_x"),
    typed_load<2, Half::kNone>(kT, 0x01, "tbuffer_load_format_xy"),
    typed_load<3, Half::kNone>(kT, 0x02, "tbuffer_load_format_xyz"),
    typed_load<4, Half::kNone>(kT, 0x03, "tbuffer_load_format_xyzw"),
    typed_store<1, Half::kNone>(kT, 0x04, "tbuffer_store_format_x"),
    typed_store<2, Half::kNone>(kT, 0x05, "tbuffer_store_format_xy"),
    typed_store<3, Half::kNone>(kT, 0x06, "tbuffer_store_format_xyz"),
    typed_store<4, Half::kNone>(kT, 0x07, "tbuffer_store_format_xyzw"),
    typed_load<1, Half::kLow>(kT, 0x08, "tbuffer_load_format_d16_x"),
    typed_load<2, Half::kLow>(kT, 0x09, "tbuffer_load_format_d16_xy"),
    typed_load<3, Half::kLow>(kT, 0x0a, "tbuffer_load_format_d16_xyz"),
    typed_load<4, Half::kLow>(kT, 0x0b, "tbuffer_load_format_d16_xyzw"),
    typed_store<1, Half::kLow>(kT, 0x0c, "tbuffer_store_format_d16_x"),
    typed_store<2, Half::kLow>(kT, 0x0d, "tbuffer_store_format_d16_xy"),
    typed_store<3, Half::kLow>(kT, 0x0e, "tbuffer_store_format_d16_xyz"),
    typed_store<4, Half::kLow>(kT, 0x0f, "tbuffer_store_format_d16_xyzw"),
};
static_assert(unique_opcodes(kRows));

}  // namespace

std::span<const Row> mubuf_rows() { return kRows; }

}  // namespace vdev
