// Tracks which bits of a wave's registers, of its scratch, of LDS and of device memory hold values
// that nobody wrote, and reports where such a value decides what memory is touched, where control
// goes or what reaches device memory. Moving it around is legitimate: compilers do.
//
// The shadow of a wave is a Wave whose vector registers have a bit set for every uninitialised bit.
// Instructions that only move bits are simply executed on it, and so are all modifiers, DPP and
// SDWA; the other ones have their Row::compute replaced by a rule about shadows (isa/flow.h).
// Origins are coarse, one instruction per register: they only serve reports.
#pragma once

#include <vector>

#include "check/shadow_memory.h"
#include "check/step.h"
#include "core/launch_state.h"

namespace vdev {

// The LDS of a workgroup: a bit for every bit.
struct LdsTaint {
  std::vector<u8> bits;
  void start(const Workgroup& workgroup) { bits.assign(workgroup.lds.size(), 0xff); }
};

// The host wrote the dispatch packet, the queue and the kernel's arguments, but not what lies
// between the end of the arguments and the end of the kernarg segment.
void define_arguments(const LaunchState& launch, ShadowMemory& memory);

// One wave; about 140 KiB, to be used again.
class Taint {
 public:
  Taint();
  // The wave has its initial registers. Both references must outlive it.
  void start(const Wave& wave, LdsTaint& lds, ShadowMemory& memory);
  // Before an instruction runs.
  void step(const Step& step);

  // For tests: the uninitialised bits of a register (scalars by SgprIndex, kSccIndex bit 0).
  u32 vector_bits(u32 reg, int lane) const { return shadow_.v[reg].lane[lane]; }
  u32 scalar_bits(u32 index) const { return scalar_[index]; }
  void set_vector_bits(u32 reg, const u32* lanes);
  void set_scalar_bits(u32 index, u32 bits) { set_scalar(index, bits, nullptr); }
  std::vector<u8>& scratch_bits() { return scratch_; }

 private:
  static constexpr u32 kScalars = kSccIndex + 1;
  struct Pair {  // shadow and value of a scalar operand
    u64 taint, value;
  };

  // ---- taint.cc: which registers are touched, and control flow
  void run(const Step& step);
  void special(const Step& step);
  void control(const Step& step);
  static u32 bit(RegisterFile file, u32 index) {
    return file == RegisterFile::kVector ? index : 512 + index;
  }
  // Whether any of `count` (up to 64) registers has a tainted bit.
  bool any(u32 first_bit, u32 count) const {
    const u32 shift = first_bit % 64;
    u64 word = any_[first_bit / 64] >> shift;
    if (shift + count > 64) word |= any_[first_bit / 64 + 1] << (64 - shift);
    return (word & (count < 64 ? (u64{1} << count) - 1 : ~u64{0})) != 0;
  }
  bool any(const RegisterRange& r) const { return any(bit(r.file, r.first), r.count); }
  bool any_vector(u32 first, u32 count) const { return any(first, count); }
  void mark(u32 index, bool tainted) {
    const u64 mask = u64{1} << index % 64;
    any_[index / 64] = tainted ? any_[index / 64] | mask : any_[index / 64] & ~mask;
  }
  u64 exec_taint() const { return scalar_[kExec] | u64{scalar_[kExec + 1]} << 32; }
  // Lanes of which is not known whether the instruction writes them, or what.
  u64 unsure(const Step& step) const {
    if (!step.use.masked_by_exec && !(step.inst.row->effects & kReadsExec)) return 0;
    const u64 lanes = exec_taint();
    const bool across = step.inst.suffix == Suffix::kDpp || step.inst.row->is(Trait::kSwapsRows);
    return lanes && across ? ~u64{0} : lanes;
  }
  u64 pair(u32 index) const { return scalar_[index] | u64{scalar_[index + 1]} << 32; }
  void set_scalar(u32 index, u32 bits, const Inst* origin);
  void set_scalars(const Operand& dst, u64 bits, const Inst* origin);
  // After shadow_.v[reg] was changed.
  void settle(u32 reg, const Inst* origin);
  void settle_writes(const Step& step, const Inst* origin);
  void clear(const RegisterRange& range);
  void clear_writes(const RegisterUse& use);
  // The active lanes of a vector register, every lane where EXEC does not matter.
  void clear_lanes(u32 reg, u64 mask);
  // Of the first tainted register that the instruction reads.
  const Inst* origin_of(const Step& step) const;
  // Whether a mask is zero cannot be told.
  bool zero_unknown(u64 taint, u64 value) const { return taint && !(value & ~taint); }
  u64 scalar_operand(const Wave& wave, const Operand& o) const;
  // Adds a finding about `range`, tainted in `lane` (-1: scalar), which then counts as initialised.
  void report(const Step& step, FindingKind kind, const RegisterRange& range, int lane,
              const char* what);

  // ---- taint_salu.cc
  void scalar(const Step& step);
  Pair source(const Step& step, int i) const;

  // ---- taint_valu.cc
  void vector(const Step& step);
  void vector_rest(const Step& step, const Inst& inst);
  void exchange(const Step& step);  // DS instructions that move data between lanes

  // ---- taint_mfma.cc
  void mfma(const Step& step);

  // ---- taint_memory.cc
  void memory(const Step& step);
  void check_addresses(const Step& step);
  void check_vector_address(const Step& step, const Operand& o);
  void check_scalar_address(const Step& step, const Operand& o, const char* what);
  void load(const Step& step);
  void load_transposed(const Step& step, Reg* out) const;
  void load_scalar(const Step& step);
  void load_to_lds(const Step& step);
  void store(const Step& step);
  void atomic(const Step& step);
  bool part_tainted(const Wave& wave, const FootprintPart& part) const;
  // The shadow of one lane's datum; out of bounds counts as initialised.
  bool read(const Wave& wave, const FootprintPart& part, int lane, u8* bits) const;
  void write(const Wave& wave, const FootprintPart& part, int lane, const u8* bits);
  void define_part(const Wave& wave, const FootprintPart& part);
  void datum(const FootprintPart& part, u32 first, int lane, u8* bits) const;

  Wave shadow_;  // `v`; the rest is scratch while an instruction runs on it
  u32 scalar_[kScalars];
  u64 any_[12] = {};  // registers with a tainted bit: vector, then scalar; a word to spare
  const Inst* vector_origin_[512];
  const Inst* scalar_origin_[kScalars];
  std::vector<u8> scratch_;  // byte b of lane l at l * bytes per lane + b
  LdsTaint* lds_ = nullptr;
  ShadowMemory* memory_ = nullptr;
  const Inst* place_ = nullptr;  // the instruction, where step.inst is a changed copy of it
  u32 num_vgprs_ = 0;
};

}  // namespace vdev
