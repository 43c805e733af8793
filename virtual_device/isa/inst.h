// A decoded instruction, and the row of the instruction table that it came from.
#pragma once

#include "arch/instruction_sets.h"
#include "arch/unit.h"
#include "core/types.h"
#include "isa/flow.h"
#include "isa/traits.h"

namespace vdev {

struct Wave;
struct Inst;
struct MfmaShape;
struct ScaledShape;
struct Row;

// Encodings of gfx9. A row belongs to the shortest one; VOP1, VOP2 and VOPC rows are reached
// through VOP3 as well (the assembler's _e64 form), and through the DPP and SDWA suffix words.
enum class Format : u8 {
  kSop2,
  kSopk,
  kSop1,
  kSopc,
  kSopp,
  kSmem,
  kVop2,
  kVop1,
  kVopc,
  kVop3,
  kVop3p,
  kDs,
  kFlat,
  kScratch,
  kGlobal,
  kMubuf,
  kMtbuf,
};
inline constexpr int kNumFormats = 17;

// What an operand holds: fixes its width, how inline constants expand and what modifiers mean.
enum class Type : u8 {
  kNone,
  kB16,
  kF16,
  kBf16,
  kI16,
  kU16,
  kB32,
  kF32,
  kI32,
  kU32,
  // Two halves in one dword.
  kPkF16,
  kPkBf16,
  kPkI16,
  kPkU16,
  kPkB16,
  kB64,
  kF64,
  kI64,
  kU64,
  kPkF32,  // two f32 in a register pair
  kMask,   // 64-bit lane mask in an SGPR pair (VCC included)
  kB8,     // a byte in a dword (fp8 sources, d8 stores)
  kRaw,    // `dwords` dwords without an arithmetic meaning
  kImm,    // SIMM16, SIMM32 and the like
};
constexpr u8 type_dwords(Type type) {
  switch (type) {
    case Type::kNone:
      return 0;
    case Type::kB64:
    case Type::kF64:
    case Type::kI64:
    case Type::kU64:
    case Type::kPkF32:
    case Type::kMask:
      return 2;
    default:
      return 1;
  }
}

struct OperandSpec {
  Type type = Type::kNone;
  u8 dwords = 0;
  constexpr OperandSpec() = default;
  constexpr OperandSpec(Type t) : type(t), dwords(type_dwords(t)) {}  // NOLINT: table brevity
  constexpr OperandSpec(Type t, int n) : type(t), dwords(static_cast<u8>(n)) {}
  constexpr bool used() const { return type != Type::kNone; }
};

enum class OperandKind : u8 {
  kNone,
  kVgpr,     // index 0..255
  kAgpr,     // index 0..255
  kSgpr,     // index 0..127: SGPRs, FLAT_SCRATCH 102, XNACK_MASK 104, VCC 106, TTMP 108, M0 124,
             // EXEC 126
  kConst,    // inline constant or literal, already expanded to the operand's type: lo, hi
  kSpecial,  // index = the 9-bit source code: 235..238 apertures, 251 vccz, 252 execz, 253 scc
  kOff,      // "off": an address operand that is absent
};

struct Operand {
  OperandKind kind = OperandKind::kNone;
  u8 dwords = 0;
  u16 index = 0;       // register, or source code for kSpecial
  u32 lo = 0, hi = 0;  // kConst
  u16 code = 0;        // the field as encoded (9-bit source code; 255 = literal), for the printer
  u16 base = 0;        // kAgpr: where a0 lies in Wave::v

  bool is_vector() const { return kind == OperandKind::kVgpr || kind == OperandKind::kAgpr; }
  u32 reg() const { return index + u32{base}; }  // index into Wave::v
};

enum class Suffix : u8 { kPlain, kDpp, kSdwa };

// Everything that any format needs, flat. Conventions by format (absent = OperandKind::kNone):
//   SOP2  dst src0 src1          SOP1 dst src0        SOPC src0 src1      SOPK dst imm   SOPP imm
//   SMEM  dst (loads, returning atomics: also read) src0=sbase src1=soffset src2=sdata (stores,
//         atomics) offset
//   VOP*  dst src0 src1 src2; sdst = mask written (carry out, compares; VCC in the short forms);
//         carry in is src2 (VCC in the short forms)
//   MFMA  dst src0=A src1=B src2=C; of block-scaled ones src3, src4 = scales of A, B
//   DS  dst src0=addr src1=data0 src2=data1 offset0 offset1
//   FLAT, GLOBAL, SCRATCH  dst src0=vaddr src1=vdata src2=saddr offset
//   MUBUF, MTBUF  dst src0=vaddr src1=vdata src2=srsrc src3=soffset offset
struct Inst {
  using Exec = void (*)(Wave&, const Inst&);

  Exec exec = nullptr;
  const Row* row = nullptr;
  u8 size = 1;                      // dwords, literal and suffix words included
  Format encoding = Format::kSopp;  // as found in the code: kVop3 for an _e64 form
  Suffix suffix = Suffix::kPlain;
  bool plain = true;  // VALU: no input or output modifier of any kind
  Operand dst, sdst, src[5];

  // VALU modifiers: bit i belongs to source i; op_sel bit 3 selects the destination's half.
  u8 neg = 0, abs = 0, op_sel = 0, op_sel_hi = 0, neg_hi = 0, omod = 0;
  bool clamp = false;
  // DPP
  u16 dpp_ctrl = 0;
  u8 row_mask = 0xf, bank_mask = 0xf;
  bool bound_ctrl = false;
  // SDWA: selects 0..3 BYTE_n, 4 WORD_0, 5 WORD_1, 6 DWORD; dst_unused 0 pad 1 sext 2 preserve
  u8 dst_sel = 6, dst_unused = 0, src_sel[2] = {6, 6};
  u8 sext = 0;  // bit i: source i
  // MFMA. f8f6f4: cbsz and blgp are the formats of A and B; op_sel and op_sel_hi have the bits of
  // the scales' bytes.
  u8 cbsz = 0, abid = 0, blgp = 0;
  u8 passes = 0;  // how long it takes
  // Memory. Cache policy bits under their gfx940 names: glc = sc0, slc = nt, scc = sc1.
  bool sc0 = false, sc1 = false, nt = false;
  bool offen = false, idxen = false, lds = false, tfe = false, gds = false;
  u8 dfmt = 0, nfmt = 0;        // MTBUF
  i32 offset = 0;               // bytes; SMEM, FLAT family, MUBUF
  u8 offset0 = 0, offset1 = 0;  // DS (single-offset forms use `offset`)
  i32 imm = 0;                  // SIMM16 sign-extended as encoded, or SIMM32
  u32 words[4] = {0, 0, 0, 0};  // the encoding, for reports and the printer
};

// What one lane-wise computation sees: 64 lanes of every source, expanded to full registers.
// A 64-bit operand is two Regs: low dwords, then high dwords.
struct LaneArgs {
  const Reg* src[3];
  Reg* dst;
  u64 mask_in;   // carry in / condition (0 where the instruction has none)
  u64 mask_out;  // carry out / compare result, over all lanes; EXEC is applied by the caller
  const Wave* wave;
  const Inst* inst;
};
using Compute = void (*)(LaneArgs&);

// Effects that no operand shows.
enum Effect : u32 {
  kReadsDst = 1u << 0,  // accumulates: v_fmac, v_mac, s_addk, writelane, d16 loads, ...
  kReadsScc = 1u << 1,
  kWritesScc = 1u << 2,
  kReadsVcc = 1u << 3,  // beyond an operand (v_div_fmas, s_cbranch_vccz)
  kWritesVcc = 1u << 4,
  kReadsExec = 1u << 5,  // beyond lane masking (s_cbranch_execz; v_readfirstlane)
  kWritesExec = 1u << 6,
  kReadsM0 = 1u << 7,
  kWritesM0 = 1u << 8,
  kIgnoresExec = 1u << 9,  // MFMA, v_readlane, v_writelane
  kLoad = 1u << 10,
  kStore = 1u << 11,
  kAtomic = 1u << 12,
  kBranch = 1u << 13,
  kEndsProgram = 1u << 14,
  kBarrier = 1u << 15,
  kReadsMode = 1u << 16,
  kWritesMode = 1u << 17,
  kFloat = 1u << 18,  // honours MODE rounding and denormals
  kD16 = 1u << 19,    // writes one half of dst and keeps the other
  kNoSdwa = 1u << 20,
  kNoDpp = 1u << 21,
  kWritesBack = 1u << 22,   // buffer_wbl2
  kInvalidates = 1u << 23,  // buffer_inv
};

// How far the behaviour is known to equal silicon; printed in docs/generated/fidelity.md.
enum class Fidelity : u8 { kExact, kModelled, kUnverified };

// One instruction: name as the assembler prints it without _e32/_e64/_dpp/_sdwa, who has it,
// encoding, unit, operands, semantics. Everything else (decoder, printer, read and write sets,
// documentation) is derived from the rows.
struct Row {
  const char* name = nullptr;
  Format format = Format::kSopp;
  u16 opcode = 0;
  InstructionSets sets = kCdna;
  Unit unit = Unit::kSalu;
  OperandSpec dst, sdst, src[5];
  u32 effects = 0;
  Inst::Exec exec = nullptr;        // any form of the instruction
  Inst::Exec exec_plain = nullptr;  // VALU: faster, for Inst::plain
  Compute compute = nullptr;        // VALU: the lanes alone, used by the modifier path
  u8 access_bytes = 0;              // memory: bytes per lane (or per wave for SMEM)
  u8 element_bits = 0;              // LDS reads that transpose: of the matrix's elements
  Fidelity fidelity = Fidelity::kExact;
  Traits traits;
  Flow flow;
  u8 op_sel_bits = 0;  // VOP3: op_sel of the three sources and the result; 3: of two and the result
  u8 op_sel_mask = 0;  // those of them that mean something; bit 3 is the result's
  u8 slots = 0;        // VALU: issue slots that it takes, where they are not those of its unit
  const char* note = "";              // source or limit of the claim
  const MfmaShape* matrix = nullptr;  // matrix instructions: what they multiply
  // ... and how long, f8f6f4 without an 8-bit operand the latter: completed by the InstructionSet.
  u8 passes = 0, narrow_passes = 0;
  const ScaledShape* scaled = nullptr;  // conversions with a scale: of which elements to which

  constexpr bool is(Traits any) const { return traits.any(any); }
  // The row, and what else there is to say of it.
  constexpr Row with(Traits more) const {
    Row row = *this;
    row.traits = row.traits | more;
    return row;
  }
  constexpr Row flows(Flow how) const {
    Row row = *this;
    row.flow = how;
    return row;
  }
  constexpr Row only(InstructionSets of) const {
    Row row = *this;
    row.sets = of;
    return row;
  }
  constexpr Row halves(int bits) const { return selects(bits, bits == 3 ? 0xb : 0xf); }
  constexpr Row selects(int bits, int mask) const {
    Row row = *this;
    row.op_sel_bits = static_cast<u8>(bits);
    row.op_sel_mask = static_cast<u8>(mask);
    return row;
  }
  constexpr Row takes(int issue_slots) const {
    Row row = *this;
    row.slots = static_cast<u8>(issue_slots);
    return row;
  }
};

}  // namespace vdev
