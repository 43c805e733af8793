// The DS table.
#include "isa/ds_semantics.h"
#include "isa/ds_transpose.h"
#include "isa/tables.h"

namespace vdev {
namespace {

using namespace atomic;  // operation names, as in the table

constexpr OperandSpec data_spec(Shape s) {
  return shape_bytes(s) == 1   ? OperandSpec(Type::kB8)
         : shape_bytes(s) == 2 ? OperandSpec(Type::kB16)
                               : dwords_spec(shape_dwords(s));
}

constexpr Row base(u16 opcode, const char* name, Inst::Exec exec, u32 effects, u32 bytes) {
  Row row;
  row.name = name;
  row.format = Format::kDs;
  row.opcode = opcode;
  row.unit = Unit::kLds;
  row.effects = effects;
  row.exec = exec;
  row.access_bytes = static_cast<u8>(bytes);
  return row;
}

template <Shape S>
constexpr Row read(u16 opcode, const char* name) {
  Row row =
      base(opcode, name, &ds::read<S>, kLoad | (shape_d16(S) ? kD16Effects : 0u), shape_bytes(S));
  row.dst = dwords_spec(shape_dwords(S));
  row.src[0] = Type::kU32;
  return row.with(shape_traits(S));
}
template <Shape S>
constexpr Row write(u16 opcode, const char* name) {
  Row row = base(opcode, name, &ds::write<S>, kStore, shape_bytes(S));
  row.src[0] = Type::kU32;
  row.src[1] = shape_high_half(S) ? OperandSpec(Type::kB32) : data_spec(S);
  return row.with(shape_traits(S));
}
constexpr Traits two_offsets(u32 stride) {
  return stride == 64 ? Trait::kTwoOffsets | Trait::kStride64 : Traits(Trait::kTwoOffsets);
}
template <Shape S, u32 kStride>
constexpr Row read2(u16 opcode, const char* name) {
  Row row = base(opcode, name, &ds::read2<S, kStride>, kLoad, 2 * shape_bytes(S));
  row.dst = dwords_spec(2 * shape_dwords(S));
  row.src[0] = Type::kU32;
  return row.with(two_offsets(kStride));
}
template <Shape S, u32 kStride>
constexpr Row write2(u16 opcode, const char* name) {
  Row row = base(opcode, name, &ds::write2<S, kStride>, kStore, 2 * shape_bytes(S));
  row.src[0] = Type::kU32;
  row.src[1] = row.src[2] = data_spec(S);
  return row.with(two_offsets(kStride));
}
template <Shape S, u32 kStride>
constexpr Row exchange2(u16 opcode, const char* name) {
  Row row = base(opcode, name, &ds::exchange2<S, kStride>, kAtomic, 2 * shape_bytes(S));
  row.dst = dwords_spec(2 * shape_dwords(S));
  row.src[0] = Type::kU32;
  row.src[1] = row.src[2] = data_spec(S);
  return row.with(two_offsets(kStride) | Trait::kReplaces);
}

constexpr const char* kFloatNote =
    "ISA manual 9.2 (CDNA4 text): nearest even, denormals by MODE; choice among NaNs unverified";

template <class Op, bool kReturns, bool kTwoData>
constexpr Row atomic_row(u16 opcode, const char* name) {
  constexpr bool kWide = sizeof(typename Op::Value) == 8;
  Row row = base(opcode, name, &ds::rmw<Op, kReturns>,
                 kAtomic | (OnFloats<Op> ? kReadsMode | kFloat : 0u), kWide ? 8 : 4);
  const OperandSpec spec = kWide ? Type::kB64 : Type::kB32;
  if (kReturns) row.dst = spec;
  row.src[0] = Type::kU32;
  row.src[1] = spec;
  if (kTwoData) row.src[2] = spec;
  if (OnFloats<Op>) {
    row.fidelity = Fidelity::kModelled;
    row.note = kFloatNote;
  }
  return row.with(kTraits<Op>);
}
template <class Op>
constexpr Row update(u16 opcode, const char* name) {
  return atomic_row<Op, false, false>(opcode, name);
}
template <class Op>
constexpr Row fetch(u16 opcode, const char* name) {
  return atomic_row<Op, true, false>(opcode, name);
}
template <class Op>
constexpr Row update2(u16 opcode, const char* name) {
  return atomic_row<Op, false, true>(opcode, name);
}
template <class Op>
constexpr Row fetch2(u16 opcode, const char* name) {
  return atomic_row<Op, true, true>(opcode, name);
}

// Read for a matrix instruction: lanes exchange elements.
template <u32 kElementBits>
constexpr Row transposing(u16 opcode, const char* name) {
  const u32 bytes = ds::transposed_bytes(kElementBits);
  Row row = base(opcode, name, &ds::read_transposed<kElementBits>, kLoad | kReadsExec, bytes);
  row.dst = dwords_spec(static_cast<int>(bytes / 4));
  row.src[0] = Type::kU32;
  row.element_bits = kElementBits;
  row.note = "ISA manual 11.4; EXEC must be all ones";
  return row.only(kCdna4);
}

// Lanes exchange registers through the LDS crossbar; no memory.
constexpr Row cross(u16 opcode, const char* name, Inst::Exec exec, bool has_data) {
  Row row = base(opcode, name, exec, kReadsExec, 0);
  row.dst = Type::kB32;
  row.src[0] = has_data ? Type::kU32 : Type::kB32;
  if (has_data) row.src[1] = Type::kB32;
  return row;
}
constexpr Row counter(u16 opcode, const char* name, Inst::Exec exec) {
  Row row = base(opcode, name, exec, kAtomic | kReadsM0 | kReadsExec, 4);
  row.dst = Type::kU32;
  row.fidelity = Fidelity::kUnverified;
  row.note = "the LDS address includes M0, as LLVM's code for gfx9 expects";
  return row.with(Trait::kOneForWave);
}
constexpr Row addtid(u16 opcode, const char* name, Inst::Exec exec, bool store) {
  Row row = base(opcode, name, exec, (store ? kStore : kLoad) | kReadsM0, 4);
  (store ? row.src[1] : row.dst) = Type::kB32;
  return row.with(Trait::kAddsLane);
}
constexpr Row condxchg(u16 opcode, const char* name) {
  Row row = base(opcode, name, &ds::condxchg32, kAtomic, 8);
  row.dst = row.src[1] = Type::kB64;
  row.src[0] = Type::kU32;
  return row.with(Trait::kAligns8);
}
constexpr Row sync(u16 opcode, const char* name, bool has_data) {
  Row row = base(opcode, name, &ds::wave_sync, 0, 0);
  row.unit = Unit::kMessage;
  if (has_data) row.src[0] = Type::kB32;
  row.fidelity = Fidelity::kUnverified;
  row.note = "raises an illegal instruction: no GWS";
  return row.with(Trait::kGws);
}

constexpr Shape B32 = Shape::kB32, B64 = Shape::kB64;

constexpr Row kRows[] = {
    update<Add<u32>>(0x00, "ds_add_u32"),
    update<Sub<u32>>(0x01, "ds_sub_u32"),
    update<Rsub<u32>>(0x02, "ds_rsub_u32"),
    update<Inc<u32>>(0x03, "ds_inc_u32"),
    update<Dec<u32>>(0x04, "ds_dec_u32"),
    update<Smin<u32>>(0x05, "ds_min_i32"),
    update<Smax<u32>>(0x06, "ds_max_i32"),
    update<Umin<u32>>(0x07, "ds_min_u32"),
    update<Umax<u32>>(0x08, "ds_max_u32"),
    update<And<u32>>(0x09, "ds_and_b32"),
    update<Or<u32>>(0x0a, "ds_or_b32"),
    update<Xor<u32>>(0x0b, "ds_xor_b32"),
    update2<MaskOr<u32>>(0x0c, "ds_mskor_b32"),
    write<B32>(0x0d, "ds_write_b32"),
    write2<B32, 1>(0x0e, "ds_write2_b32"),
    write2<B32, 64>(0x0f, "ds_write2st64_b32"),
    update2<CmpStore<u32>>(0x10, "ds_cmpst_b32"),
    update2<FloatCmpStore<F32>>(0x11, "ds_cmpst_f32"),
    update<FloatMin<F32>>(0x12, "ds_min_f32"),
    update<FloatMax<F32>>(0x13, "ds_max_f32"),
    base(0x14, "ds_nop", &ds::nop, 0, 0).with(Trait::kNoOffset),
    update<AddF32>(0x15, "ds_add_f32"),
    update<AddPackedF16>(0x17, "ds_pk_add_f16"),
    update<AddPackedBf16>(0x18, "ds_pk_add_bf16"),
    addtid(0x1d, "ds_write_addtid_b32", &ds::write_addtid, true),
    write<Shape::kU8>(0x1e, "ds_write_b8"),
    write<Shape::kU16>(0x1f, "ds_write_b16"),
    fetch<Add<u32>>(0x20, "ds_add_rtn_u32"),
    fetch<Sub<u32>>(0x21, "ds_sub_rtn_u32"),
    fetch<Rsub<u32>>(0x22, "ds_rsub_rtn_u32"),
    fetch<Inc<u32>>(0x23, "ds_inc_rtn_u32"),
    fetch<Dec<u32>>(0x24, "ds_dec_rtn_u32"),
    fetch<Smin<u32>>(0x25, "ds_min_rtn_i32"),
    fetch<Smax<u32>>(0x26, "ds_max_rtn_i32"),
    fetch<Umin<u32>>(0x27, "ds_min_rtn_u32"),
    fetch<Umax<u32>>(0x28, "ds_max_rtn_u32"),
    fetch<And<u32>>(0x29, "ds_and_rtn_b32"),
    fetch<Or<u32>>(0x2a, "ds_or_rtn_b32"),
    fetch<Xor<u32>>(0x2b, "ds_xor_rtn_b32"),
    fetch2<MaskOr<u32>>(0x2c, "ds_mskor_rtn_b32"),
    fetch<Swap<u32>>(0x2d, "ds_wrxchg_rtn_b32"),
    exchange2<B32, 1>(0x2e, "ds_wrxchg2_rtn_b32"),
    exchange2<B32, 64>(0x2f, "ds_wrxchg2st64_rtn_b32"),
    fetch2<CmpStore<u32>>(0x30, "ds_cmpst_rtn_b32"),
    fetch2<FloatCmpStore<F32>>(0x31, "ds_cmpst_rtn_f32"),
    fetch<FloatMin<F32>>(0x32, "ds_min_rtn_f32"),
    fetch<FloatMax<F32>>(0x33, "ds_max_rtn_f32"),
    fetch2<Wrap<u32>>(0x34, "ds_wrap_rtn_b32"),
    fetch<AddF32>(0x35, "ds_add_rtn_f32"),
    read<B32>(0x36, "ds_read_b32"),
    read2<B32, 1>(0x37, "ds_read2_b32"),
    read2<B32, 64>(0x38, "ds_read2st64_b32"),
    read<Shape::kI8>(0x39, "ds_read_i8"),
    read<Shape::kU8>(0x3a, "ds_read_u8"),
    read<Shape::kI16>(0x3b, "ds_read_i16"),
    read<Shape::kU16>(0x3c, "ds_read_u16"),
    cross(0x3d, "ds_swizzle_b32", &ds::swizzle, false).with(Trait::kSwizzle),
    cross(0x3e, "ds_permute_b32", &ds::permute, true).with(Trait::kScatters),
    cross(0x3f, "ds_bpermute_b32", &ds::bpermute, true),
    update<Add<u64>>(0x40, "ds_add_u64"),
    update<Sub<u64>>(0x41, "ds_sub_u64"),
    update<Rsub<u64>>(0x42, "ds_rsub_u64"),
    update<Inc<u64>>(0x43, "ds_inc_u64"),
    update<Dec<u64>>(0x44, "ds_dec_u64"),
    update<Smin<u64>>(0x45, "ds_min_i64"),
    update<Smax<u64>>(0x46, "ds_max_i64"),
    update<Umin<u64>>(0x47, "ds_min_u64"),
    update<Umax<u64>>(0x48, "ds_max_u64"),
    update<And<u64>>(0x49, "ds_and_b64"),
    update<Or<u64>>(0x4a, "ds_or_b64"),
    update<Xor<u64>>(0x4b, "ds_xor_b64"),
    update2<MaskOr<u64>>(0x4c, "ds_mskor_b64"),
    write<B64>(0x4d, "ds_write_b64"),
    write2<B64, 1>(0x4e, "ds_write2_b64"),
    write2<B64, 64>(0x4f, "ds_write2st64_b64"),
    update2<CmpStore<u64>>(0x50, "ds_cmpst_b64"),
    update2<FloatCmpStore<F64>>(0x51, "ds_cmpst_f64"),
    update<FloatMin<F64>>(0x52, "ds_min_f64"),
    update<FloatMax<F64>>(0x53, "ds_max_f64"),
    write<Shape::kU8D16Hi>(0x54, "ds_write_b8_d16_hi"),
    write<Shape::kB16D16Hi>(0x55, "ds_write_b16_d16_hi"),
    read<Shape::kU8D16>(0x56, "ds_read_u8_d16"),
    read<Shape::kU8D16Hi>(0x57, "ds_read_u8_d16_hi"),
    read<Shape::kI8D16>(0x58, "ds_read_i8_d16"),
    read<Shape::kI8D16Hi>(0x59, "ds_read_i8_d16_hi"),
    read<Shape::kB16D16>(0x5a, "ds_read_u16_d16"),
    read<Shape::kB16D16Hi>(0x5b, "ds_read_u16_d16_hi"),
    update<AddF64>(0x5c, "ds_add_f64"),
    fetch<Add<u64>>(0x60, "ds_add_rtn_u64"),
    fetch<Sub<u64>>(0x61, "ds_sub_rtn_u64"),
    fetch<Rsub<u64>>(0x62, "ds_rsub_rtn_u64"),
    fetch<Inc<u64>>(0x63, "ds_inc_rtn_u64"),
    fetch<Dec<u64>>(0x64, "ds_dec_rtn_u64"),
    fetch<Smin<u64>>(0x65, "ds_min_rtn_i64"),
    fetch<Smax<u64>>(0x66, "ds_max_rtn_i64"),
    fetch<Umin<u64>>(0x67, "ds_min_rtn_u64"),
    fetch<Umax<u64>>(0x68, "ds_max_rtn_u64"),
    fetch<And<u64>>(0x69, "ds_and_rtn_b64"),
    fetch<Or<u64>>(0x6a, "ds_or_rtn_b64"),
    fetch<Xor<u64>>(0x6b, "ds_xor_rtn_b64"),
    fetch2<MaskOr<u64>>(0x6c, "ds_mskor_rtn_b64"),
    fetch<Swap<u64>>(0x6d, "ds_wrxchg_rtn_b64"),
    exchange2<B64, 1>(0x6e, "ds_wrxchg2_rtn_b64"),
    exchange2<B64, 64>(0x6f, "ds_wrxchg2st64_rtn_b64"),
    fetch2<CmpStore<u64>>(0x70, "ds_cmpst_rtn_b64"),
    fetch2<FloatCmpStore<F64>>(0x71, "ds_cmpst_rtn_f64"),
    fetch<FloatMin<F64>>(0x72, "ds_min_rtn_f64"),
    fetch<FloatMax<F64>>(0x73, "ds_max_rtn_f64"),
    read<B64>(0x76, "ds_read_b64"),
    read2<B64, 1>(0x77, "ds_read2_b64"),
    read2<B64, 64>(0x78, "ds_read2st64_b64"),
    fetch<AddF64>(0x7c, "ds_add_rtn_f64"),
    condxchg(0x7e, "ds_condxchg32_rtn_b64"),
    sync(0x98, "ds_gws_sema_release_all", false),
    sync(0x99, "ds_gws_init", true),
    sync(0x9a, "ds_gws_sema_v", false),
    sync(0x9b, "ds_gws_sema_br", true),
    sync(0x9c, "ds_gws_sema_p", false),
    sync(0x9d, "ds_gws_barrier", true),
    addtid(0xb6, "ds_read_addtid_b32", &ds::read_addtid, false),
    fetch<AddPackedF16>(0xb7, "ds_pk_add_rtn_f16"),
    fetch<AddPackedBf16>(0xb8, "ds_pk_add_rtn_bf16"),
    counter(0xbd, "ds_consume", &ds::consume),
    counter(0xbe, "ds_append", &ds::append),
    write<Shape::kB96>(0xde, "ds_write_b96"),
    write<Shape::kB128>(0xdf, "ds_write_b128"),
    transposing<4>(0xe0, "ds_read_b64_tr_b4"),
    transposing<6>(0xe1, "ds_read_b96_tr_b6").with(Trait::kOddResult),
    transposing<8>(0xe2, "ds_read_b64_tr_b8"),
    transposing<16>(0xe3, "ds_read_b64_tr_b16"),
    read<Shape::kB96>(0xfe, "ds_read_b96"),
    read<Shape::kB128>(0xff, "ds_read_b128"),
};
static_assert(unique_opcodes(kRows));

}  // namespace

std::span<const Row> ds_rows() { return kRows; }

}  // namespace vdev
