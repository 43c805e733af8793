// The registers that a decoded instruction reads and writes, from its row.
#pragma once

#include <string>

#include "isa/inst.h"

namespace vdev {

enum class RegisterFile : u8 {
  kVector,  // index into Wave::v: AGPRs follow the VGPRs
  kScalar,  // SgprIndex: VCC 106, M0 124, EXEC 126; kSccIndex
};
inline constexpr u16 kSccIndex = 128;

struct RegisterRange {
  RegisterFile file = RegisterFile::kVector;
  u16 first = 0, count = 0;
  i8 source = -1;  // which Inst::src, kDstSource, or kImplicit
  bool contains(u32 index) const { return index - first < count; }
  bool overlaps(const RegisterRange& o) const {
    return file == o.file && first < o.first + o.count && o.first < first + count;
  }
};
inline constexpr i8 kDstSource = 8, kSdstSource = 9, kImplicit = 10;

struct RegisterUse {
  RegisterRange reads[10], writes[5];
  u8 num_reads = 0, num_writes = 0;
  // EXEC selects lanes (vector instructions); it is in `reads` only where it is data.
  bool masked_by_exec = false;
};

// Registers are placed (Operand::base is set). GPR indexing through M0 is not followed.
RegisterUse register_use(const Inst& inst);

// "v12", "a[0:3]", "s[4:5]", "vcc", "m0", "exec", "scc"; `num_vgprs` tells where AGPRs begin.
std::string register_name(const RegisterRange& range, u32 num_vgprs);

}  // namespace vdev
