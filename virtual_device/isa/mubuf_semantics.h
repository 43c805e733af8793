// Semantics of MUBUF and MTBUF instructions, one template per kind.
#pragma once

#include "isa/atomic.h"
#include "isa/mubuf_resource.h"

namespace vdev::mubuf {

// One lane that the range check lets through in part: dword by dword, zeros elsewhere.
template <Shape S>
inline void load_partly(Wave& w, const BufferAccess& access, int lane, Reg* dst) {
  std::byte datum[16] = {};
  if constexpr (shape_bytes(S) >= 4)
    for (u32 at = 0; at < shape_bytes(S) && access.room(lane) >= at + 4; at += 4)
      std::memcpy(datum + at,
                  w.workgroup->global(access.address.lane[lane] + at, 4, Access::kRead, lane), 4);
  load_lane<S>(dst, lane, datum);
}

template <Shape S>
inline void store_partly(Wave& w, const BufferAccess& access, int lane, const Reg* src) {
  if constexpr (shape_bytes(S) >= 4) {
    for (int d = 0; d < shape_dwords(S) && access.room(lane) >= 4 * static_cast<u32>(d) + 4; ++d) {
      std::byte* const to = w.workgroup->global(access.address.lane[lane] + 4 * static_cast<u32>(d),
                                                4, Access::kWrite, lane);
      const bool changed = differs<Shape::kB32>(src + d, lane, to);
      store_lane<Shape::kB32>(src + d, lane, to);
      if (changed) w.workgroup->progress();
    }
  }
}

// LDS address of the `lds` forms: M0[17:0] + offset + the lane's place.
inline void deposit(Wave& w, const Inst& inst, const Reg* value, u32 dwords) {
  lds_deposit(w, (w.s[kM0] & 0x3ffff) + static_cast<u32>(inst.offset), w.exec(), value, dwords);
}

template <Shape S>
void load(Wave& w, const Inst& inst) {
  const BufferAccess access(w, inst, read_resource(w, inst.src[2], false), shape_bytes(S));
  Reg* const dst = inst.lds ? w.tmp : vector(w, inst.dst);
  global_load<S>(w, access.address, access.inside, dst);
  for_lanes(w.exec() & ~access.inside, [&](int lane) { load_partly<S>(w, access, lane, dst); });
  if (inst.lds) deposit(w, inst, dst, deposit_dwords(shape_bytes(S)));
}

template <Shape S>
void store(Wave& w, const Inst& inst) {
  const BufferAccess access(w, inst, read_resource(w, inst.src[2], false), shape_bytes(S));
  const Reg* const src = vector(w, inst.src[1]);
  global_store<S>(w, access.address, access.inside, src);
  for_lanes(w.exec() & ~access.inside, [&](int lane) { store_partly<S>(w, access, lane, src); });
}

// The data operand of cmpswap is the new value followed by the value to compare with; what was in
// memory is returned in its place.
template <class Op, bool kTwoData>
void rmw(Wave& w, const Inst& inst) {
  using T = typename Op::Value;
  const BufferAccess access(w, inst, read_resource(w, inst.src[2], false), sizeof(T));
  const Reg* const data0 = vector(w, inst.src[1]);
  const Reg* const data1 = kTwoData ? data0 + sizeof(T) / 4 : nullptr;
  Reg* const dst = inst.sc0 ? vector(w, inst.dst) : nullptr;
  global_atomic<Op>(w, access.address, access.inside, data0, data1, dst);
  if (dst)
    for_lanes(w.exec() & ~access.inside, [&](int lane) { atomic::write_lane<T>(dst, lane, 0); });
}

// Typed data: `components` registers, or halves of registers. See mubuf_typed.cc.
enum class Half : u8 { kNone, kLow /* packed, from the low half of the first register */, kHigh };
void load_format(Wave& w, const Inst& inst, int components, Half half);
void store_format(Wave& w, const Inst& inst, int components, Half half);

template <int kComponents, Half H>
void load_typed(Wave& w, const Inst& inst) {
  load_format(w, inst, kComponents, H);
}
template <int kComponents, Half H>
void store_typed(Wave& w, const Inst& inst) {
  store_format(w, inst, kComponents, H);
}

// buffer_wbl2, buffer_inv: there are no caches to write back or to invalidate.
inline void cache_control(Wave&, const Inst&) {}

}  // namespace vdev::mubuf
