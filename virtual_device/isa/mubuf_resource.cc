#include "isa/mubuf_resource.h"

namespace vdev::mubuf {

BufferResource read_resource(const Wave& w, const Operand& srsrc, bool typed) {
  const u32* const word = &w.s[srsrc.index];
  auto field = [&](int i, int low, int width) { return word[i] >> low & ((1u << width) - 1); };
  if (field(3, 30, 2) != 0)
    raise(FaultKind::kIllegalInstruction, "the resource is not a buffer: its type field is not 0");
  BufferResource r;
  r.base = word[0] | u64{field(1, 0, 16)} << 32;
  r.stride = field(1, 16, 14);
  r.swizzle = field(1, 31, 1) != 0;
  r.num_records = word[2];
  for (int i = 0; i < 4; ++i) r.select[i] = static_cast<u8>(field(3, 3 * i, 3));
  r.nfmt = static_cast<u8>(field(3, 12, 3));
  r.dfmt = static_cast<u8>(field(3, 15, 4));
  r.index_stride = 8u << field(3, 21, 2);
  r.add_tid = field(3, 23, 1) != 0;
  if (r.add_tid && !typed)
    r.stride |= r.dfmt << 14;
  else if (r.dfmt == 0)
    r.num_records = 0;  // unbound: every access is out of range
  return r;
}

BufferAccess::BufferAccess(const Wave& w, const Inst& inst, const BufferResource& r, u32 bytes) {
  const Reg* const vaddr = inst.offen || inst.idxen ? vector(w, inst.src[0]) : nullptr;
  const Reg* const index_reg = inst.idxen ? vaddr : nullptr;
  const Reg* const offset_reg = inst.offen ? vaddr + (inst.idxen ? 1 : 0) : nullptr;
  const u64 soffset = read_scalar(w, inst.src[3]);
  const u64 base = r.base + soffset;
  const u64 exec = w.exec();
  const bool unchecked = r.add_tid && !inst.idxen;
  const bool structured = inst.idxen && r.stride != 0;

  for (int i = 0; i < kLanes; ++i) {
    const u64 offset = (offset_reg ? offset_reg->lane[i] : 0) + static_cast<u64>(inst.offset);
    const u64 record = index_reg ? index_reg->lane[i] : 0;
    const u64 index = record + (r.add_tid ? static_cast<u64>(i) : 0);
    if (r.swizzle) {
      const u64 row = index / r.index_stride * r.stride + offset / kElementBytes * kElementBytes;
      address.lane[i] = base + row * r.index_stride + index % r.index_stride * kElementBytes +
                        offset % kElementBytes;
    } else {
      address.lane[i] = base + index * r.stride + offset;
    }
    const u64 end = offset + soffset;
    room.lane[i] = unchecked    ? kUnlimited
                   : structured ? (record < r.num_records ? kUnlimited : 0)
                                : (end < r.num_records ? r.num_records - end : 0);
  }
  inside = 0;
  for (int i = 0; i < kLanes; ++i) inside |= static_cast<u64>(room.lane[i] >= bytes) << i;
  inside &= exec;
  // The manual: a single fetch cannot be larger than an element. What silicon does then is unknown.
  if (r.swizzle && inside) {
    for_lanes(inside, [&](int lane) {
      const u64 offset =
          (offset_reg ? offset_reg->lane[lane] : 0) + static_cast<u64>(inst.offset);
      if (offset % kElementBytes + bytes > kElementBytes)
        raise(FaultKind::kIllegalInstruction,
              "access to a swizzled buffer crosses its elements of 4 bytes", lane,
              address.lane[lane]);
    });
  }
}

}  // namespace vdev::mubuf
