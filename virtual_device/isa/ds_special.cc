// DS instructions that exchange data between lanes, and the odd ones.
#include "isa/ds_semantics.h"

namespace vdev::ds {

namespace {

// And, or and xor masks on the lane within its half of the wave.
int masked_source(u32 offset, int i) {
  const u32 lane = static_cast<u32>(i), in_half = lane & 31;
  return static_cast<int>((lane & 32) |
                          (((in_half & offset) | (offset >> 5 & 31)) ^ (offset >> 10 & 31)));
}

}  // namespace

int swizzle_source(u32 offset, int i) {
  const u32 lane = static_cast<u32>(i), in_half = lane & 31, half = lane & 32;
  const u32 low = offset & 31, middle = offset >> 5 & 31;
  u32 source;
  if (offset >= 0xe000) {  // FFT: bit reversal of the lanes outside the mask
    u32 reversed = 0;
    for (u32 bit = 0; bit < 5; ++bit) reversed |= (in_half >> bit & 1) << (4 - bit);
    source = reversed >> std::popcount(low) | (in_half & low);
  } else if (offset >= 0xc000) {  // rotation of the lane bits outside the mask
    const u32 rotation = offset >> 10 & 1 ? 32 - middle : middle;
    source = ((in_half & low) | ((in_half + rotation) & ~low)) & 31;
  } else if (offset >> 15) {  // two bits per lane of a quad
    source = (in_half & 28) | (offset >> 2 * (lane & 3) & 3);
  } else {
    return masked_source(offset, i);
  }
  return static_cast<int>(source | half);
}

namespace {

void write(Wave& w, const Operand& dst, const Reg& value) {
  const u64 exec = w.exec();
  if (exec == ~u64{0})
    *vector(w, dst) = value;
  else
    merge(vector(w, dst), &value, 1, exec);
}

// dst[i] = src[source(i)], 0 where EXEC disables the source.
template <class Source>
void gather(Wave& w, const Operand& dst, const Reg& src, Source source) {
  const u64 exec = w.exec();
  Reg visible = src, result;
  if (exec != ~u64{0})
    for (int i = 0; i < kLanes; ++i) visible.lane[i] = exec >> i & 1 ? src.lane[i] : 0;
  for (int i = 0; i < kLanes; ++i) result.lane[i] = visible.lane[source(i)];
  write(w, dst, result);
}

// Addresses of permutes are bytes, four to a lane, and wrap around.
int lane_of(u32 address) { return static_cast<int>(address / 4 % kLanes); }

Reg addtid_addresses(const Wave& w, const Inst& inst) {
  const u32 base = static_cast<u32>(inst.offset) + (w.s[kM0] & 0xffff);
  Reg address;
  for (int i = 0; i < kLanes; ++i) address.lane[i] = base + 4 * static_cast<u32>(i);
  return address;
}

// One counter for the wave: adds `sign` times the number of active lanes, returns the old value.
void count(Wave& w, const Inst& inst, bool subtract) {
  // The manual adds M0 for GDS alone; LLVM puts the LDS address into M0 on every target, and no
  // compiler emits these with another M0.
  const u32 at = static_cast<u32>(inst.offset) + (w.s[kM0] & 0xffff);
  const u64 exec = w.exec();
  if (!exec) return;
  atomic::check_alignment<u32>(at, -1);
  std::byte* const memory = w.workgroup->local(at, 4, Access::kAtomic, -1);
  const u32 old = read_as<u32>(memory), lanes = static_cast<u32>(std::popcount(exec));
  const u32 result = subtract ? old - lanes : old + lanes;
  std::memcpy(memory, &result, 4);
  Reg* const dst = vector(w, inst.dst);
  for_lanes(exec, [&](int lane) { dst->lane[lane] = old; });
}

}  // namespace

void swizzle(Wave& w, const Inst& inst) {
  const u32 offset = static_cast<u32>(inst.offset);
  const Reg& src = *vector(w, inst.src[0]);
  // Spelled out for the common mode, so that the mode is not decided per lane.
  if (offset >> 15)
    gather(w, inst.dst, src, [=](int i) { return swizzle_source(offset, i); });
  else
    gather(w, inst.dst, src, [=](int i) { return masked_source(offset, i); });
}

void permute(Wave& w, const Inst& inst) {
  const Reg address = addresses(w, inst, static_cast<u32>(inst.offset));
  const Reg& data = *vector(w, inst.src[1]);
  Reg result = {};
  // Of several lanes that send to one, the highest wins.
  for_lanes(w.exec(),
            [&](int lane) { result.lane[lane_of(address.lane[lane])] = data.lane[lane]; });
  write(w, inst.dst, result);
}

void bpermute(Wave& w, const Inst& inst) {
  const Reg address = addresses(w, inst, static_cast<u32>(inst.offset));
  gather(w, inst.dst, *vector(w, inst.src[1]), [&](int i) { return lane_of(address.lane[i]); });
}

// Two exchanges of a dword each, where the new dword's top bit says whether to store the rest.
void condxchg32(Wave& w, const Inst& inst) {
  const Reg address = addresses(w, inst, static_cast<u32>(inst.offset));
  const Reg* const data = vector(w, inst.src[1]);
  Reg* const dst = vector(w, inst.dst);
  for_lanes(w.exec(), [&](int lane) {
    std::byte* const memory =
        w.workgroup->local(address.lane[lane] & 0xfff8, 8, Access::kAtomic, lane);
    const u64 old = read_as<u64>(memory), value = atomic::read_lane<u64>(data, lane);
    for (int d = 0; d < 2; ++d) {
      const u32 word = static_cast<u32>(value >> 32 * d), rest = word & 0x7fffffff;
      if (word >> 31) std::memcpy(memory + 4 * d, &rest, 4);
    }
    atomic::write_lane<u64>(dst, lane, old);
  });
}

void read_addtid(Wave& w, const Inst& inst) {
  lds_load<Shape::kB32>(w, addtid_addresses(w, inst), w.exec(), vector(w, inst.dst));
}
void write_addtid(Wave& w, const Inst& inst) {
  lds_store<Shape::kB32>(w, addtid_addresses(w, inst), w.exec(), vector(w, inst.src[1]));
}

void append(Wave& w, const Inst& inst) { count(w, inst, false); }
void consume(Wave& w, const Inst& inst) { count(w, inst, true); }

void nop(Wave&, const Inst&) {}

void wave_sync(Wave&, const Inst& inst) {
  raise(FaultKind::kIllegalInstruction,
        std::string(inst.row->name) + ": global wave sync (GWS) and GDS do not exist here");
}

}  // namespace vdev::ds
