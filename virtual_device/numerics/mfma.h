// Matrix arithmetic: every V_MFMA_* and V_SMFMAC_* on whole registers.
//
// The dense instructions of CDNA3 are bit-exact to its published model (MMA-Sim, arXiv 2511.10909).
// V_SMFMAC_* and everything of CDNA4 have no published arithmetic and are modelled (see
// mfma_exact.h). EXEC does not matter: the hardware computes and writes all 64 lanes.
#pragma once

#include <span>

#include "arch/fp8.h"
#include "core/types.h"

namespace vdev {

enum class MfmaSrc : u8 { kF64, kF32, kXf32, kF16, kBf16, kI8, kFp8, kBf8, kFp6, kBf6, kFp4 };
enum class MfmaDst : u8 { kF64, kF32, kI32 };

struct MfmaControl {
  // Dense: 2^cbsz neighbouring blocks share one block of A; smfmac: see abid; f8f6f4: A's format.
  u8 cbsz = 0;
  u8 abid = 0;  // dense: which of those blocks; smfmac with cbsz 0: which set of indices
  // Permutes groups of 16 lanes of B; f64: negates A (bit 0), B (bit 1), C (bit 2); f8f6f4: B's
  // format.
  u8 blgp = 0;
  // MODE flushes denormal f32 inputs. Only A and B of the f32 forms follow it; C and D never do.
  bool flush_f32_ab = false;
  // Block-scaled: registers with the scales of A and B, of which each lane has four, and which of
  // them counts. A scale is 2^(byte - 127), 0xff NaN, of 32 k of a row of A or a column of B: lane
  // m * block + row. Null: no scale.
  const Reg* scale[2] = {nullptr, nullptr};
  u8 scale_byte[2] = {0, 0};
};

// What CBSZ and BLGP of f8f6f4 select.
inline constexpr MfmaSrc kF8f6f4[] = {MfmaSrc::kFp8, MfmaSrc::kBf8, MfmaSrc::kFp6, MfmaSrc::kBf6,
                                      MfmaSrc::kFp4};
constexpr u8 f8f6f4_regs(u32 format) { return format < 2 ? 8 : format < 4 ? 6 : 4; }
// In opcodes of rows: block-scaled, behind v_mfma_ld_scale_b32.
inline constexpr u16 kScaledMatrix = 0x80;

// a, b, d (and c) point at the first Reg of each operand, registers contiguous. Dense: c is the
// addend. Smfmac: c is the index register, the addend is d itself. All inputs are read before d is
// written, so that d may overlap any of them in any way. The result does not depend on MXCSR.
using MfmaFn = void (*)(const Reg* a, const Reg* b, const Reg* c, Reg* d,
                        const MfmaControl& control);

// The part of a shape that fixes arithmetic and register layout. k counts columns of the full A,
// also when only half of them are stored (sparse).
struct MfmaGeometry {
  int m, n, k, blocks;
  MfmaSrc a, b;
  MfmaDst d;
  bool sparse;
  Fp8Kind fp8;  // what kFp8 and kBf8 are
};

struct MfmaShape {
  const char* name;  // as the assembler prints it
  u16 opcode;        // VOP3P opcode, bits 22:16 of the first dword, and kScaledMatrix
  InstructionSets sets;
  MfmaGeometry geometry;
  u8 a_regs, b_regs, c_regs, d_regs;  // c_regs is 1 (the index) for smfmac
  bool has_cbsz_abid, has_blgp;       // other shapes ignore these fields
  bool chooses_formats;               // f8f6f4: geometry and a_regs, b_regs are those of fp8
  MfmaFn fn;
  MfmaFn exact;  // the same function in plain integer arithmetic; slow, for tests
};

std::span<const MfmaShape> mfma_shapes();

// Null if the control fields mean something for this shape, else which field does not and why.
// fn stays inside its operands' registers either way.
const char* mfma_control_error(const MfmaShape& shape, const MfmaControl& control);

}  // namespace vdev
