// buffer_load_format_*, buffer_store_format_* and MTBUF.
#include <cstdio>

#include "isa/mubuf_format.h"
#include "isa/mubuf_semantics.h"

namespace vdev::mubuf {
namespace {

// Where the format comes from: the resource (MUBUF) or the instruction (MTBUF), which does not
// select components either.
struct Typed {
  BufferResource resource;
  const DataFormat* data;
  NumFormat format;

  Typed(const Wave& w, const Inst& inst) : resource(read_resource(w, inst.src[2], true)) {
    u32 dfmt = resource.dfmt, nfmt = resource.nfmt;
    if (is_typed(*inst.row)) {
      dfmt = inst.dfmt;
      nfmt = inst.nfmt;
      for (int i = 0; i < 4; ++i) resource.select[i] = static_cast<u8>(4 + i);
    }
    data = data_format(dfmt);
    format = static_cast<NumFormat>(nfmt);
    if (data == nullptr && (is_typed(*inst.row) || dfmt != 0)) refuse("data format", dfmt);
    if (format == NumFormat::kReserved6) refuse("number format", nfmt);
    if (data == nullptr) data = data_format(1);  // unbound: nothing is in range
    for (const u8 bits : data->bits)
      if (format == NumFormat::kFloat && (bits == 2 || bits == 8)) refuse("float in", dfmt);
  }

  [[noreturn]] static void refuse(const char* what, u32 code) {
    char text[64];
    std::snprintf(text, sizeof text, "typed buffer access: invalid %s %u", what, code);
    raise(FaultKind::kIllegalInstruction, text);
  }
  u32 one() const { return is_integer(format) ? 1 : 0x3f800000; }
  u32 selected(int component, const u32 (&datum)[4]) const {
    const u8 select = resource.select[component];
    return select == 1 ? one() : select >= 4 ? datum[select - 4] : 0;
  }
};

void put(Reg* dst, int lane, int component, Half half, u32 value, NumFormat format) {
  if (half == Half::kNone) {
    dst[component].lane[lane] = value;
    return;
  }
  u32& word = dst[component / 2].lane[lane];
  const u32 bits = to_half(value, format);
  if (half == Half::kHigh)
    word = kD16KeepsOtherHalf ? (word & 0xffff) | bits << 16 : bits << 16;
  else if (component % 2)
    word = (word & 0xffff) | bits << 16;
  else
    word = kD16KeepsOtherHalf ? (word & 0xffff0000) | bits : bits;
}

u32 get(const Reg* src, int lane, int component, Half half, NumFormat format) {
  if (half == Half::kNone) return src[component].lane[lane];
  const bool high = half == Half::kHigh || component % 2;
  return from_half(static_cast<u16>(src[component / 2].lane[lane] >> (high ? 16 : 0)), format);
}

}  // namespace

void load_format(Wave& w, const Inst& inst, int components, Half half) {
  const MxcsrScope nearest_even(kMxcsrModeMask, 0);
  const Typed typed(w, inst);
  const BufferAccess access(w, inst, typed.resource, typed.data->bytes);
  Reg* const dst = inst.lds ? w.tmp : vector(w, inst.dst);
  for_lanes(w.exec(), [&](int lane) {
    u32 datum[4] = {};
    if (access.inside >> lane & 1)
      decode_datum(
          *typed.data, typed.format,
          w.workgroup->global(access.address.lane[lane], typed.data->bytes, Access::kRead, lane),
          datum);
    for (int c = 0; c < components; ++c)
      put(dst, lane, c, half, typed.selected(c, datum), typed.format);
  });
  if (inst.lds) deposit(w, inst, dst, 1);
}

void store_format(Wave& w, const Inst& inst, int components, Half half) {
  const MxcsrScope nearest_even(kMxcsrModeMask, 0);
  const Typed typed(w, inst);
  const BufferAccess access(w, inst, typed.resource, typed.data->bytes);
  const Reg* const src = vector(w, inst.src[1]);
  bool changed = false;
  for_lanes(access.inside, [&](int lane) {
    // The selects read backwards: the memory component that a register would be loaded from.
    u32 datum[4] = {};
    for (int c = components - 1; c >= 0; --c)
      if (typed.resource.select[c] >= 4)
        datum[typed.resource.select[c] - 4] = get(src, lane, c, half, typed.format);
    std::byte encoded[16];
    encode_datum(*typed.data, typed.format, datum, encoded);
    std::byte* const to =
        w.workgroup->global(access.address.lane[lane], typed.data->bytes, Access::kWrite, lane);
    changed |= std::memcmp(to, encoded, typed.data->bytes) != 0;
    std::memcpy(to, encoded, typed.data->bytes);
  });
  if (changed) w.workgroup->progress();
}

}  // namespace vdev::mubuf
