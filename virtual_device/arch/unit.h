// Which hardware unit takes an instruction: the class by which timing is looked up.
#pragma once

#include "core/types.h"

namespace vdev {

enum class Unit : u8 {
  kSalu,
  kBranch,
  kInternal,  // s_nop, s_waitcnt, s_setprio, s_barrier, s_sleep
  kSmem,
  kValu,
  kValu64,        // 64-bit data
  kValuConvert,   // v_cvt_* between f32 and 32-bit integers, f16 or f8
  kValuPacked32,  // v_pk_*_f32, v_pk_mov_b32
  kValuPacked16,  // v_pk_*_{f16,i16,u16,b16}
  kValuDot,       // v_dot*
  kValuSad4,      // v_qsad_*, v_mqsad_*
  kValuPackFp8,   // v_cvt_pk_{fp8,bf8}_f32
  kTrans,
  kTrans64,
  kMfma,
  kMfmaAlone,  // f32 and f64 inputs
  kLds,
  kVmem,
  kFlat,
  kScratch,
  kMessage,
};
inline constexpr int kNumUnits = static_cast<int>(Unit::kMessage) + 1;
// Vector ALU, without matrix instructions.
constexpr bool is_valu(Unit unit) { return unit >= Unit::kValu && unit <= Unit::kTrans64; }
constexpr bool is_matrix(Unit unit) { return unit == Unit::kMfma || unit == Unit::kMfmaAlone; }

}  // namespace vdev
