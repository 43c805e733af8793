// Buffer resources (SRD, V#) and the addresses that buffer instructions make of them.
//
// Sources: ISA manual 9.1.5 and 9.1.8. That SOFFSET counts in the range check of raw buffers,
// which the manual leaves out, is what kernels rely on (numerics of padded tiles show it); other
// readings are published, and checked mode reports what depends on it.
#pragma once

#include "isa/access.h"

namespace vdev::mubuf {

struct BufferResource {
  u64 base;    // 48 bits
  u32 stride;  // bytes of a record
  bool swizzle;
  u32 num_records;  // bytes of a raw buffer, records of a structured one
  u8 select[4];     // destination component: 0 zero, 1 one, 4..7 X Y Z W of the datum
  u8 nfmt, dfmt;
  u32 index_stride;  // records that lie together in a swizzled buffer
  bool add_tid;      // the lane's index is added to the record's
};
// `typed`: MTBUF and the format instructions of MUBUF, which use the format field as such; others
// take four more stride bits from it with add_tid.
BufferResource read_resource(const Wave& w, const Operand& srsrc, bool typed);

// gfx9 has no element size field: swizzled buffers interleave dwords.
inline constexpr u32 kElementBytes = 4;

// Lane addresses, and how many bytes from there the range check lets through. Everything is known
// before any register is written, so that destinations may overlap address registers.
class BufferAccess {
 public:
  Addresses address;
  u64 inside;  // active lanes whose `bytes` bytes all pass

  BufferAccess(const Wave& w, const Inst& inst, const BufferResource& resource, u32 bytes);
  // Active lanes of a raw buffer that pass or not, in part or whole, by how SOFFSET counts.
  // Readings besides that of `inside`: it does not count (LLVM's manual), or it is taken off
  // num_records, in 32 bits.
  u64 ambiguous(u64 active, u32 bytes) const;
  // Bytes of a lane that pass.
  u64 room(int lane) const {
    const u64 at = compared_.lane[lane] + fixed_;
    if (check_ == Check::kNone) return kUnlimited;
    if (at >= limit_) return 0;
    return check_ == Check::kRaw ? limit_ - at : kUnlimited;
  }

 private:
  static constexpr u64 kUnlimited = u64{1} << 62;
  enum class Check : u8 { kNone, kRaw, kStructured };
  void swizzle(const BufferResource& r, u64 base, const Reg& record, const Reg& offset,
               u64 inst_offset, u32 bytes);

  Check check_;
  u64 limit_;     // num_records
  u64 fixed_;     // raw: what is added to the lane's offset
  u32 soffset_;   // of it
  Reg compared_;  // raw: offset from the VGPR; structured: record
};

inline bool is_typed(const Row& row) { return row.format == Format::kMtbuf; }

}  // namespace vdev::mubuf
