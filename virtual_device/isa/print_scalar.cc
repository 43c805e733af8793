// Text of SOPK, SOPC, SOPP and SMEM.
#include "isa/decoder.h"
#include "isa/printer.h"

namespace vdev {
namespace {

const char* hwreg_name(u32 id) {
  constexpr const char* kNames[] = {nullptr, "MODE",      "STATUS",    "TRAPSTS",
                                    "HW_ID", "GPR_ALLOC", "LDS_ALLOC", "IB_STS"};
  constexpr const char* kMoreNames[] = {"SH_MEM_BASES",
                                        "TBA_LO",
                                        "TBA_HI",
                                        "TMA_LO",
                                        "TMA_HI",
                                        "XCC_ID",
                                        "SQ_PERF_SNAPSHOT_DATA",
                                        "SQ_PERF_SNAPSHOT_DATA1",
                                        "SQ_PERF_SNAPSHOT_PC_LO",
                                        "SQ_PERF_SNAPSHOT_PC_HI"};
  if (id < 8) return kNames[id];
  return id >= 15 && id < 25 ? kMoreNames[id - 15] : nullptr;
}

constexpr const char* kMessageNames[16] = {nullptr,        "INTERRUPT",       "GS",
                                           "GS_DONE",      "SAVEWAVE",        "STALL_WAVE_GEN",
                                           "HALT_WAVES",   "ORDERED_PS_DONE", "EARLY_PRIM_DEALLOC",
                                           "GS_ALLOC_REQ", "GET_DOORBELL",    nullptr,
                                           nullptr,        nullptr,           nullptr,
                                           "SYSMSG"};
constexpr const char* kGsOps[] = {"GS_OP_NOP", "GS_OP_CUT", "GS_OP_EMIT", "GS_OP_EMIT_CUT"};
constexpr const char* kSysOps[] = {nullptr, "SYSMSG_OP_ECC_ERR_INTERRUPT", "SYSMSG_OP_REG_RD",
                                   nullptr, "SYSMSG_OP_TTRACE_PC"};

}  // namespace

void Printer::hwreg(u32 simm16) {
  const u32 id = simm16 & 0x3f, offset = simm16 >> 6 & 0x1f, size = (simm16 >> 11) + 1;
  append("hwreg(");
  if (const char* name = hwreg_name(id)) {
    append("HW_REG_");
    append(name);
  } else {
    number(id);
  }
  if (offset != 0 || size != 32) {
    append(", ");
    number(offset);
    append(", ");
    number(size);
  }
  append(")");
}

// SIMM16 holds message [3:0], operation [6:4] and stream [9:8]. Bits outside of these make an
// unknown message a plain number.
void Printer::sendmsg(u32 simm16) {
  const u32 id = simm16 & 0xf, op = simm16 >> 4 & 7, stream = simm16 >> 8 & 3;
  const bool is_gs = id == 2 || id == 3, is_sys = id == 15;
  const char* op_name = nullptr;
  if (is_gs && op < 4) op_name = kGsOps[op];
  if (is_sys && op < 5) op_name = kSysOps[op];
  const bool has_stream = is_gs && op != 0;
  const bool named = kMessageNames[id] != nullptr && (stream == 0 || has_stream) &&
                     (is_gs || is_sys ? op_name != nullptr && !(id == 2 && op == 0) : op == 0);
  if (!named && (simm16 & ~0x37fu) != 0) return number(simm16);
  append("sendmsg(");
  if (named) {
    append("MSG_");
    append(kMessageNames[id]);
    if (op_name) {
      append(", ");
      append(op_name);
    }
  } else {
    number(id);
    append(", ");
    number(op);
  }
  if (!named || has_stream) {
    append(", ");
    number(stream);
  }
  append(")");
}

// Counters at their maximum, which waits for nothing, are left out unless all are.
void Printer::waitcnt(u32 simm16) {
  const u32 vm = (simm16 & 0xf) | (simm16 >> 14 & 3) << 4;
  const u32 exp = simm16 >> 4 & 7, lgkm = simm16 >> 8 & 0xf;
  const bool all = vm == 63 && exp == 7 && lgkm == 15;
  const auto counter = [&](const char* name, u32 value, bool shown) {
    if (!shown && !all) return;
    append(" ");
    append(name);
    append("(");
    number(value);
    append(")");
  };
  counter("vmcnt", vm, vm != 63);
  counter("expcnt", exp, exp != 7);
  counter("lgkmcnt", lgkm, lgkm != 15);
}

void Printer::gpr_idx(u32 bits) {
  constexpr const char* kNames[] = {"SRC0", "SRC1", "SRC2", "DST"};
  append("gpr_idx(");
  const char* separator = "";
  for (u32 i = 0; i < 4; ++i)
    if (bits >> i & 1) {
      append(separator);
      append(kNames[i]);
      separator = ",";
    }
  append(")");
}

void Printer::sopk() {
  const u32 simm16 = static_cast<u16>(inst_.imm);
  if (row_.is(Trait::kSetreg)) {
    next();
    hwreg(simm16);
    if (!row_.is(Trait::kLiteralSource)) return listed(inst_.dst, Type::kB32);
    next();
    const i32 value = static_cast<i32>(inst_.src[1].lo);
    return value < 0 && value >= -16 ? number(value) : short_hex(inst_.src[1].lo);
  }
  listed(row_.dst.used() ? inst_.dst : inst_.src[0], Type::kB32);
  next();
  if (row_.is(Trait::kGetreg)) return hwreg(simm16);
  if (row_.effects & kBranch) return branch_target();
  hex(simm16);
}

void Printer::sopc() {
  listed(inst_.src[0], row_.src[0].type);
  if (row_.is(Trait::kIndexMask)) {
    next();
    return gpr_idx(static_cast<u32>(inst_.imm));
  }
  listed(inst_.src[1], row_.src[1].type);
}

void Printer::sopp() {
  if (!row_.src[0].used()) return;
  const u32 simm16 = static_cast<u16>(inst_.imm);
  if (row_.is(Trait::kWaitcnt)) return waitcnt(simm16);
  if (row_.is(Trait::kEndpgm) && simm16 == 0) return;
  next();
  if (row_.is(Trait::kEndpgm)) return number(simm16);
  if (row_.is(Trait::kMessage)) return sendmsg(simm16);
  if (row_.is(Trait::kIndexMask)) return gpr_idx(simm16);
  row_.effects& kBranch ? branch_target() : short_hex(simm16);
}

void Printer::smem() {
  if (inst_.dst.kind != OperandKind::kNone)
    listed(inst_.dst, Type::kB32);
  else if (inst_.src[2].kind != OperandKind::kNone)
    listed(inst_.src[2], Type::kB32);
  else if (row_.src[2].type == Type::kImm)
    next(), short_hex(static_cast<u32>(inst_.imm));
  if (inst_.src[0].kind != OperandKind::kNone) {
    listed(inst_.src[0], Type::kB32);
    const bool immediate = inst_.words[0] >> 17 & 1;
    if (inst_.src[1].kind != OperandKind::kNone) {
      listed(inst_.src[1], Type::kB32);
      if (immediate) {
        append(" offset:");
        if (inst_.offset < 0) append("-");
        hex(static_cast<u32>(inst_.offset < 0 ? -inst_.offset : inst_.offset));
      }
    } else {
      next();
      if (inst_.offset < 0) append("-");
      hex(static_cast<u32>(inst_.offset < 0 ? -inst_.offset : inst_.offset));
    }
  }
  flag(inst_.sc0, "glc");
}

}  // namespace vdev
