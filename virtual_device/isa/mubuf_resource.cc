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

BufferAccess::BufferAccess(const Wave& w, const Inst& inst, const BufferResource& r, u32 bytes)
    : inside(w.exec()), limit_(r.num_records) {
  const Reg* const vaddr = inst.offen || inst.idxen ? vector(w, inst.src[0]) : nullptr;
  const Reg zero = {};
  const Reg& record = inst.idxen ? vaddr[0] : zero;
  const Reg& offset = inst.offen ? vaddr[inst.idxen ? 1 : 0] : zero;
  const u64 soffset = read_scalar(w, inst.src[3]), inst_offset = static_cast<u64>(inst.offset);
  check_ = r.add_tid && !inst.idxen      ? Check::kNone
           : inst.idxen && r.stride != 0 ? Check::kStructured
                                         : Check::kRaw;
  compared_ = check_ == Check::kStructured ? record : offset;
  fixed_ = check_ == Check::kRaw ? soffset + inst_offset : 0;
  soffset_ = static_cast<u32>(soffset);

  u32 highest = 0;
  for (int i = 0; i < kLanes; ++i) highest = std::max(highest, compared_.lane[i]);
  const u64 needed = fixed_ + (check_ == Check::kRaw ? bytes : 1);
  if (check_ != Check::kNone && highest + needed > limit_)
    for (int i = 0; i < kLanes; ++i)
      inside &= ~(static_cast<u64>(compared_.lane[i] + needed > limit_) << i);

  // Without an index there is nothing to swizzle by. HipKittens' kernels set the bit, with a row's
  // length as the stride, and load 16 bytes at offsets alone: they are right on an MI355X.
  if (r.swizzle && (inst.idxen || r.add_tid)) {
    swizzle(r, r.base + soffset, record, offset, inst_offset, bytes);
    return;
  }
  const u64 base = r.base + soffset + inst_offset;
  for (int i = 0; i < kLanes; ++i) address.lane[i] = base + offset.lane[i];
  if (inst.idxen)
    for (int i = 0; i < kLanes; ++i) address.lane[i] += u64{record.lane[i]} * r.stride;
  if (r.add_tid)
    for (int i = 0; i < kLanes; ++i) address.lane[i] += static_cast<u64>(i) * r.stride;
}

u64 BufferAccess::ambiguous(u64 active, u32 bytes) const {
  if (check_ != Check::kRaw || soffset_ == 0) return 0;
  const u64 without = fixed_ - soffset_;
  const u64 reduced = static_cast<u32>(limit_ - soffset_);
  const auto passing = [bytes](u64 at, u64 limit) {
    return at >= limit ? 0 : std::min<u64>(limit - at, bytes);
  };
  u64 lanes = 0;
  for (int i = 0; i < kLanes; ++i) {
    const u64 counted = passing(compared_.lane[i] + fixed_, limit_);
    const u64 at = compared_.lane[i] + without;
    lanes |= static_cast<u64>(counted != passing(at, limit_) || counted != passing(at, reduced))
             << i;
  }
  return lanes & active;
}

void BufferAccess::swizzle(const BufferResource& r, u64 base, const Reg& record, const Reg& offset,
                           u64 inst_offset, u32 bytes) {
  for (int i = 0; i < kLanes; ++i) {
    const u64 index = record.lane[i] + (r.add_tid ? static_cast<u64>(i) : 0);
    const u64 at = offset.lane[i] + inst_offset, in_element = at % kElementBytes;
    const u64 row = index / r.index_stride * r.stride + (at - in_element);
    address.lane[i] =
        base + row * r.index_stride + index % r.index_stride * kElementBytes + in_element;
    // The manual: a single fetch cannot be larger than an element. What silicon does is unknown.
    if (in_element + bytes > kElementBytes && (inside >> i & 1))
      raise(FaultKind::kIllegalInstruction,
            "access to a swizzled buffer crosses its elements of 4 bytes", i, address.lane[i]);
  }
}

}  // namespace vdev::mubuf
