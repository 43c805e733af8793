#include "isa/footprint.h"

#include "isa/ds_semantics.h"
#include "isa/flat_semantics.h"
#include "isa/mubuf_format.h"
#include "isa/mubuf_resource.h"

namespace vdev {
namespace {

constexpr u16 kNone = FootprintPart::kNoRegister;

Access access_of(const Row& row) {
  return row.effects & kAtomic  ? Access::kAtomic
         : row.effects & kStore ? Access::kWrite
                                : Access::kRead;
}
u16 register_of(const Operand& operand) {
  return operand.is_vector() ? static_cast<u16>(operand.reg()) : kNone;
}

// Data registers of a part that holds the whole datum of an instruction with the operands
// dst, src[1] = data.
void set_data(const Inst& inst, bool returns, FootprintPart& part) {
  part.access = access_of(*inst.row);
  part.data_shift = inst.row->is(Trait::kHighHalf) ? 16 : 0;
  if (part.access == Access::kRead) {
    part.data = register_of(inst.dst);
  } else if (part.access == Access::kWrite) {
    part.data = register_of(inst.src[1]);
  } else {
    part.data = returns ? register_of(inst.dst) : kNone;
    part.operand = register_of(inst.src[1]);
  }
}

// The LDS side of a load to LDS.
void add_lds_deposit(const Row& row, u32 base, u64 mask, Footprint& out) {
  const u32 dwords = deposit_dwords(row.access_bytes);
  FootprintPart& part = out.add();
  part.space = Space::kLds;
  part.access = Access::kWrite;
  part.bytes = static_cast<u8>(4 * dwords);
  part.mask = mask;
  for (int i = 0; i < kLanes; ++i)
    part.address.lane[i] = base + u64{deposit_stride(dwords)} * static_cast<u64>(i);
}

// ---- DS

void widen(const Reg& from, Addresses& to) {
  for (int i = 0; i < kLanes; ++i) to.lane[i] = from.lane[i];
}

void ds_footprint(const Wave& w, const Inst& inst, Footprint& out) {
  const Row& row = *inst.row;
  FootprintPart& part = out.add();
  set_data(inst, row.dst.used(), part);
  part.space = Space::kLds;
  part.bytes = row.access_bytes;
  part.plain_data = row.element_bits == 0;
  part.mask = w.exec();
  if (row.is(Trait::kAddsLane | Trait::kOneForWave)) {
    const u32 base = static_cast<u32>(inst.offset) + (w.s[kM0] & 0xffff);
    const u64 step = row.is(Trait::kAddsLane) ? 4 : 0;
    for (int i = 0; i < kLanes; ++i) part.address.lane[i] = base + step * static_cast<u64>(i);
    if (row.is(Trait::kOneForWave)) part.mask &= ~part.mask + 1;
    return;
  }
  if (!row.is(Trait::kTwoOffsets)) {
    widen(ds::addresses(w, inst, static_cast<u32>(inst.offset)), part.address);
    if (row.is(Trait::kAligns8))
      for (u64& address : part.address.lane) address &= 0xfff8;
    return;
  }
  const u8 bytes = row.access_bytes / 2;
  const u32 unit = bytes * (row.is(Trait::kStride64) ? 64u : 1u);
  part.bytes = bytes;
  widen(ds::addresses(w, inst, inst.offset0 * unit), part.address);
  if (part.access != Access::kRead && inst.offset0 == inst.offset1) return;
  FootprintPart& second = out.add();
  second.space = Space::kLds;
  second.access = part.access;
  second.bytes = bytes;
  second.mask = part.mask;
  widen(ds::addresses(w, inst, inst.offset1 * unit), second.address);
  const u16 dwords = bytes / 4;
  if (part.access == Access::kWrite) {
    second.data = register_of(inst.src[2]);
  } else {
    second.data = static_cast<u16>(part.data + dwords);
    second.operand = register_of(inst.src[2]);
  }
}

// ---- FLAT, GLOBAL, SCRATCH

void flat_footprint(const Wave& w, const Inst& inst, Footprint& out) {
  const Row& row = *inst.row;
  const bool to_lds = (row.effects & (kLoad | kStore)) == (kLoad | kStore);
  FootprintPart& part = out.add();
  part.bytes = row.access_bytes;
  part.mask = w.exec();
  set_data(inst, inst.sc0, part);
  if (to_lds) part.access = Access::kRead;
  if (to_lds) part.data = kNone;
  if (row.format == Format::kScratch) {
    part.space = Space::kScratch;
    part.address = flat::scratch_offsets(w, inst);
  } else {
    part.address = flat::global_addresses(w, inst);
  }
  if (row.format == Format::kFlat) {
    const flat::Windows windows(w, inst);
    if (!windows.only_global()) {
      part.mask = windows.global;
      FootprintPart& local = out.add();
      local = part;
      local.space = Space::kLds;
      local.mask = windows.local;
      widen(flat::window_lds(part.address), local.address);
      FootprintPart& scratch = out.add();
      scratch = part;
      scratch.space = Space::kScratch;
      scratch.mask = windows.scratch;
      scratch.address = flat::window_scratch(part.address);
    }
  }
  if (to_lds)
    add_lds_deposit(row, (w.s[kM0] & 0x3fffc) + static_cast<u32>(inst.offset), w.exec(), out);
}

// ---- MUBUF, MTBUF

void mubuf_footprint(const Wave& w, const Inst& inst, Footprint& out) {
  const Row& row = *inst.row;
  const bool typed = row.is(Trait::kConverts);
  const mubuf::BufferResource resource = mubuf::read_resource(w, inst.src[2], typed);
  u32 bytes = row.access_bytes;
  if (typed) {
    const auto* format = mubuf::data_format(mubuf::is_typed(row) ? inst.dfmt : resource.dfmt);
    bytes = format ? format->bytes : 1;
  }
  const mubuf::BufferAccess access(w, inst, resource, bytes);
  const u64 active = w.exec();
  FootprintPart& part = out.add();
  part.bytes = static_cast<u8>(bytes);
  part.mask = access.inside;
  part.address = access.address;
  set_data(inst, inst.sc0, part);
  part.plain_data = !typed;
  if (inst.lds) part.data = kNone;
  out.swallowed = active & ~access.inside;
  out.ambiguous = access.ambiguous(active, bytes);
  // Lanes that pass in part do so dword by dword, but for atomics and converted data.
  if (out.swallowed && !typed && bytes > 4 && part.access != Access::kAtomic) {
    for (u32 at = 0; at + 4 <= bytes; at += 4) {
      u64 mask = 0;
      for_lanes(out.swallowed, [&](int lane) {
        if (access.room(lane) >= at + 4) mask |= u64{1} << lane;
      });
      if (!mask) break;
      FootprintPart& dword = out.add();
      dword.access = part.access;
      dword.bytes = 4;
      dword.mask = mask;
      dword.data = part.data == kNone ? kNone : static_cast<u16>(part.data + at / 4);
      for (int i = 0; i < kLanes; ++i) dword.address.lane[i] = part.address.lane[i] + at;
    }
  }
  if (inst.lds)
    add_lds_deposit(row, (w.s[kM0] & 0x3ffff) + static_cast<u32>(inst.offset), active, out);
}

// ---- SMEM

void smem_footprint(const Wave& w, const Inst& inst, Footprint& out) {
  const Row& row = *inst.row;
  FootprintPart& part = out.add();
  part.scalar = true;
  part.access = access_of(row);
  part.bytes = row.access_bytes;
  part.mask = 1;
  const Operand& data = row.dst.used() ? inst.dst : inst.src[2];
  part.data = part.access == Access::kAtomic && !inst.sc0 ? kNone : data.index;
  if (part.access == Access::kAtomic) part.operand = data.index;
  const Operand& s = inst.src[1];
  const u64 offset = (s.kind == OperandKind::kSgpr ? w.s[s.index] : 0) +
                     static_cast<u64>(static_cast<i64>(inst.offset));
  const u32 base = inst.src[0].index;
  if (row.src[0].dwords == 4) {
    const u64 low = w.pair(base), limit = [&] {
      const u64 stride = low >> 48 & 0x3fff;
      return stride ? stride * w.s[base + 2] : w.s[base + 2];
    }();
    const u64 at = offset & ~u64{3};
    part.address.lane[0] = ((low & 0xffffffffffff) + at) & ~u64{3};
    const u64 room = at < limit ? (limit - at) / 4 * 4 : 0;
    if (room < part.bytes) {
      out.swallowed = 1;
      part.bytes = part.access == Access::kAtomic ? 0 : static_cast<u8>(room);
      if (part.bytes == 0) part.mask = 0;
    }
  } else {
    part.address.lane[0] = ((w.pair(base) & ~u64{3}) + offset) & ~u64{3};
  }
}

}  // namespace

bool footprint(const Wave& wave, const Inst& inst, Footprint& out) {
  const Row& row = *inst.row;
  out.num_parts = 0;
  out.swallowed = out.ambiguous = 0;
  if (!(row.effects & (kLoad | kStore | kAtomic)) || row.access_bytes == 0) return false;
  switch (row.format) {
    case Format::kDs:
      ds_footprint(wave, inst, out);
      return true;
    case Format::kFlat:
    case Format::kGlobal:
    case Format::kScratch:
      flat_footprint(wave, inst, out);
      return true;
    case Format::kMubuf:
    case Format::kMtbuf:
      mubuf_footprint(wave, inst, out);
      return true;
    case Format::kSmem:
      smem_footprint(wave, inst, out);
      return true;
    default:
      return false;
  }
}

}  // namespace vdev
