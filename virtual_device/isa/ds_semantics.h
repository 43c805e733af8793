// Semantics of DS instructions, one template per kind.
#pragma once

#include "isa/atomic.h"

namespace vdev::ds {

// M0 bounds nothing here: gfx9 checks the workgroup's allocation alone.
inline Reg addresses(const Wave& w, const Inst& inst, u32 offset) {
  const Reg& base = *vector(w, inst.src[0]);
  Reg address;
  for (int i = 0; i < kLanes; ++i) address.lane[i] = base.lane[i] + offset;
  return address;
}

template <Shape S>
void read(Wave& w, const Inst& inst) {
  const Reg address = addresses(w, inst, static_cast<u32>(inst.offset));
  lds_load<S>(w, address, w.exec(), vector(w, inst.dst));
}

template <Shape S>
void write(Wave& w, const Inst& inst) {
  const Reg address = addresses(w, inst, static_cast<u32>(inst.offset));
  lds_store<S>(w, address, w.exec(), vector(w, inst.src[1]));
}

// The two addresses of read2, write2 and wrxchg2: offsets count elements, or 64 of them.
template <Shape S, u32 kStride>
struct Pair {
  Reg first, second;
  Pair(const Wave& w, const Inst& inst)
      : first(addresses(w, inst, inst.offset0 * shape_bytes(S) * kStride)),
        second(addresses(w, inst, inst.offset1 * shape_bytes(S) * kStride)) {}
};

template <Shape S, u32 kStride>
void read2(Wave& w, const Inst& inst) {
  const Pair<S, kStride> address(w, inst);
  Reg* const dst = vector(w, inst.dst);
  lds_load<S>(w, address.first, w.exec(), dst);
  lds_load<S>(w, address.second, w.exec(), dst + shape_dwords(S));
}

template <Shape S, u32 kStride>
void write2(Wave& w, const Inst& inst) {
  const Pair<S, kStride> address(w, inst);
  lds_store<S>(w, address.first, w.exec(), vector(w, inst.src[1]));
  // Equal offsets are one write, of the first datum.
  if (inst.offset0 != inst.offset1)
    lds_store<S>(w, address.second, w.exec(), vector(w, inst.src[2]));
}

template <class Op, bool kReturns>
void rmw(Wave& w, const Inst& inst) {
  const Reg address = addresses(w, inst, static_cast<u32>(inst.offset));
  const Reg* const data1 = inst.src[2].is_vector() ? vector(w, inst.src[2]) : nullptr;
  lds_atomic<Op>(w, address, w.exec(), vector(w, inst.src[1]), data1,
                 kReturns ? vector(w, inst.dst) : nullptr);
}

template <Shape S, u32 kStride>
void exchange2(Wave& w, const Inst& inst) {
  using T = std::conditional_t<S == Shape::kB64, u64, u32>;
  const Pair<S, kStride> address(w, inst);
  const Reg* const data0 = vector(w, inst.src[1]);
  const Reg* const data1 = vector(w, inst.src[2]);
  Reg* const dst = vector(w, inst.dst);
  for_lanes(w.exec(), [&](int lane) {
    const u32 at0 = address.first.lane[lane], at1 = address.second.lane[lane];
    atomic::check_alignment<T>(at0, lane);
    atomic::check_alignment<T>(at1, lane);
    std::byte* const memory0 = w.workgroup->local(at0, sizeof(T), Access::kAtomic, lane);
    std::byte* const memory1 = w.workgroup->local(at1, sizeof(T), Access::kAtomic, lane);
    const T old0 = read_as<T>(memory0), old1 = read_as<T>(memory1);
    // Everything is read before the destination, which may overlap the data, is written.
    const T new0 = atomic::read_lane<T>(data0, lane), new1 = atomic::read_lane<T>(data1, lane);
    std::memcpy(memory0, &new0, sizeof(T));
    if (at1 != at0) std::memcpy(memory1, &new1, sizeof(T));
    atomic::write_lane<T>(dst, lane, old0);
    atomic::write_lane<T>(dst + shape_dwords(S), lane, old1);
  });
}

// The ones that are not a plain access per lane; see ds_special.cc.
void condxchg32(Wave& w, const Inst& inst);
void swizzle(Wave& w, const Inst& inst);
void permute(Wave& w, const Inst& inst);
void bpermute(Wave& w, const Inst& inst);
void read_addtid(Wave& w, const Inst& inst);
void write_addtid(Wave& w, const Inst& inst);
void append(Wave& w, const Inst& inst);
void consume(Wave& w, const Inst& inst);
void nop(Wave& w, const Inst& inst);
void wave_sync(Wave& w, const Inst& inst);  // ds_gws_*

// Lane that lane `i` reads under ds_swizzle_b32's 16-bit offset.
int swizzle_source(u32 offset, int i);

}  // namespace vdev::ds
