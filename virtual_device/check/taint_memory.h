// What the files about memory instructions share.
#pragma once

#include <cstring>

#include "check/taint.h"

namespace vdev::taint_memory {

inline constexpr u16 kNone = FootprintPart::kNoRegister;
inline constexpr u32 kMaxDatum = 64;  // s_load_dwordx16

inline bool nonzero(const u8* bytes, u32 count) {
  u8 all = 0;
  for (u32 i = 0; i < count; ++i) all |= bytes[i];
  return all != 0;
}

}  // namespace vdev::taint_memory
