#include "isa/control.h"

#include <string>

#include "core/apertures.h"
#include "core/launch_state.h"
#include "isa/operand.h"
#include "numerics/float_rules_mxcsr.h"

namespace vdev {
namespace {

const DecodedCode& code_of(const Wave& w) { return w.workgroup->launch->code; }

void jump(Wave& w, u64 pc) {
  const Inst* target = code_of(w).at(pc);
  if (!target)
    raise(FaultKind::kOutsideCode, "jump to an address that is not in the code object", -1, pc);
  if (target < w.ip)
    w.jump_back(target);
  else
    w.ip = target;
}

// w.ip already points behind the branch.
void branch_if(Wave& w, const Inst& in, bool taken) {
  if (!taken) return;
  const Inst* target = w.ip + in.imm;
  const std::vector<Inst>& insts = code_of(w).insts;
  if (target < insts.data() || target >= insts.data() + insts.size())
    raise(FaultKind::kOutsideCode, "branch leaves the code object");
  if (in.imm < 0)
    w.jump_back(target);
  else
    w.ip = target;
}

// hwreg(id, offset, width) in SIMM16.
struct Field {
  u32 id, offset, mask;
  explicit Field(i32 imm)
      : id(imm & 63),
        offset(imm >> 6 & 31),
        mask(static_cast<u32>((u64{1} << ((imm >> 11 & 31) + 1)) - 1)) {}
};

enum HwReg : u32 {
  kMode = 1,
  kStatus = 2,
  kTrapStatus = 3,
  kHwId = 4,
  kGprAlloc = 5,
  kLdsAlloc = 6,
  kIbStatus = 7,
  kShMemBases = 15,
  kXccId = 20,
};

// WAVE_ID[3:0] SIMD_ID[5:4] CU_ID[11:8] SE_ID[14:13], of a wave whose workgroup has a CU for
// itself: workgroups go round the XCDs, round the shader engines of each, then round the CUs of
// those.
u32 hw_id(const Wave& w) {
  const Machine& machine = w.workgroup->launch->machine;
  const u32 simds = machine.arch->limits.simds_per_cu;
  const u32 engines = machine.product->shader_engines_of_xcd;
  const u32 cu = static_cast<u32>(w.workgroup->flat_id / machine.num_xcds % machine.cus_of_xcd());
  return w.wave_idx / simds | (w.wave_idx % simds) << 4 | cu / engines << 8 | cu % engines << 13;
}

u32 read_hwreg(const Wave& w, u32 id) {
  const Workgroup& wg = *w.workgroup;
  const Machine& machine = wg.launch->machine;
  const Limits& limits = machine.arch->limits;
  switch (id) {
    case kMode:
      return w.mode;
    case kStatus:
      return (w.scc ? 1u : 0u) | (w.exec() == 0 ? 1u << 9 : 0u) | (w.vcc() == 0 ? 1u << 10 : 0u);
    case kTrapStatus:
      return 0;
    case kHwId:
      return hw_id(w);
    case kGprAlloc:
      return (wg.launch->kernel().num_vgprs / limits.vgpr_granule) << 8;
    case kLdsAlloc:
      return static_cast<u32>((wg.lds.size() + limits.lds_granule - 1) / limits.lds_granule) << 12;
    case kIbStatus:
      return 0;
    case kShMemBases:  // private base in the low half, shared base in the high half
      return static_cast<u32>(kPrivateBase >> 48) | static_cast<u32>(kSharedBase >> 48) << 16;
    case kXccId:
      return static_cast<u32>(wg.flat_id % machine.num_xcds);
    default:
      raise(FaultKind::kIllegalInstruction, "s_getreg of hardware register " + std::to_string(id) +
                                                ", which the virtual device does not have");
  }
}

void write_hwreg(Wave& w, i32 imm, u32 value) {
  const Field field(imm);
  if (field.id != kMode)
    raise(FaultKind::kIllegalInstruction,
          "s_setreg of hardware register " + std::to_string(field.id) + "; only MODE is writable");
  const u32 mask = field.mask << field.offset;
  w.set_mode((w.mode & ~mask) | (value << field.offset & mask));
  MxcsrScope::write(w.mxcsr);  // the very next instruction rounds by the new MODE
}

constexpr u32 kIdxModeShift = 12;

}  // namespace

u64 read_special(const Wave& w, u16 code) {
  switch (code) {
    case 235:
      return kSharedBase;
    case 236:
      return kSharedBase + kApertureBytes - 1;
    case 237:
      return kPrivateBase;
    case 238:
      return kPrivateBase + kApertureBytes - 1;
    case 251:
      return w.vcc() == 0;
    case 252:
      return w.exec() == 0;
    case 253:
      return w.scc;
    default:
      raise(FaultKind::kIllegalInstruction,
            "source code " + std::to_string(code) + " is not readable");
  }
}

void exec_unsupported(Wave&, const Inst& in) {
  raise(FaultKind::kIllegalInstruction,
        std::string(in.row->name) + " is not supported: " + in.row->note);
}
void exec_nothing(Wave&, const Inst&) {}

void exec_setvskip(Wave& w, const Inst& in) {
  const bool on = read_scalar(w, in.src[0]) >> (read_scalar(w, in.src[1]) & 31) & 1;
  w.set_mode(on ? w.mode | kModeVskip : w.mode & ~kModeVskip);
}
void exec_set_gpr_idx_on(Wave& w, const Inst& in) {
  w.s[kM0] = (w.s[kM0] & ~0xf0ffu) | (read_scalar(w, in.src[0]) & 0xff) |
             static_cast<u32>(in.imm & 15) << kIdxModeShift;
  w.set_mode(w.mode | kModeGprIdxEnable);
}
void exec_set_gpr_idx_off(Wave& w, const Inst&) { w.set_mode(w.mode & ~kModeGprIdxEnable); }
void exec_set_gpr_idx_idx(Wave& w, const Inst& in) {
  w.s[kM0] = (w.s[kM0] & ~0xffu) | (read_scalar(w, in.src[0]) & 0xff);
}
void exec_set_gpr_idx_mode(Wave& w, const Inst& in) {
  w.s[kM0] = (w.s[kM0] & ~0xf000u) | static_cast<u32>(in.imm & 15) << kIdxModeShift;
}

void exec_getreg(Wave& w, const Inst& in) {
  const Field field(in.imm);
  write_scalar(w, in.dst, read_hwreg(w, field.id) >> field.offset & field.mask);
}
void exec_setreg(Wave& w, const Inst& in) { write_hwreg(w, in.imm, read_scalar(w, in.dst)); }
void exec_setreg_imm32(Wave& w, const Inst& in) { write_hwreg(w, in.imm, in.src[1].lo); }

void exec_branch(Wave& w, const Inst& in) { branch_if(w, in, true); }
void exec_cbranch_scc0(Wave& w, const Inst& in) { branch_if(w, in, !w.scc); }
void exec_cbranch_scc1(Wave& w, const Inst& in) { branch_if(w, in, w.scc); }
void exec_cbranch_vccz(Wave& w, const Inst& in) { branch_if(w, in, w.vcc() == 0); }
void exec_cbranch_vccnz(Wave& w, const Inst& in) { branch_if(w, in, w.vcc() != 0); }
void exec_cbranch_execz(Wave& w, const Inst& in) { branch_if(w, in, w.exec() == 0); }
void exec_cbranch_execnz(Wave& w, const Inst& in) { branch_if(w, in, w.exec() != 0); }
void exec_call(Wave& w, const Inst& in) {
  write_scalar64(w, in.dst, code_of(w).pc(w.ip));
  branch_if(w, in, true);
}
void exec_getpc(Wave& w, const Inst& in) { write_scalar64(w, in.dst, code_of(w).pc(w.ip)); }
void exec_setpc(Wave& w, const Inst& in) { jump(w, read_scalar64(w, in.src[0])); }
void exec_swappc(Wave& w, const Inst& in) {
  const u64 target = read_scalar64(w, in.src[0]);
  write_scalar64(w, in.dst, code_of(w).pc(w.ip));
  jump(w, target);
}

void exec_endpgm(Wave& w, const Inst&) { w.workgroup->finish(w); }
void exec_barrier(Wave& w, const Inst&) { w.workgroup->arrive(w); }
void exec_sleep(Wave& w, const Inst&) { w.sleeping = true; }
void exec_setprio(Wave& w, const Inst& in) { w.priority = in.imm & 3; }
// The handler of the AMDGPU ABI returns from the debugger's trap where there is no debugger.
void exec_trap(Wave&, const Inst& in) {
  if (is_debug_trap(in)) return;
  raise(FaultKind::kTrap, "s_trap " + std::to_string(in.imm & 0xff));
}

}  // namespace vdev
