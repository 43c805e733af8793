#include "check/taint.h"

#include <algorithm>

#include "isa/gpr_index.h"
#include "isa/operand.h"

namespace vdev {

void define_arguments(const LaunchState& launch, ShadowMemory& memory) {
  memory.define(launch.dispatch_packet_address, kPacketBytes);
  memory.define(launch.queue_address, kQueueBytes);
  memory.define(launch.kernarg_address, launch.kernel().kernarg_bytes);
}

Taint::Taint() { std::memset(shadow_.v, 0, sizeof shadow_.v); }

void Taint::start(const Wave& wave, LdsTaint& lds, ShadowMemory& memory) {
  const Kernel& k = wave.workgroup->launch->kernel();
  lds_ = &lds;
  memory_ = &memory;
  num_vgprs_ = k.num_vgprs;
  scratch_.assign(size_t{wave.scratch_bytes} * kLanes, 0xff);
  std::fill(std::begin(any_), std::end(any_), 0);
  std::fill(std::begin(vector_origin_), std::end(vector_origin_), nullptr);
  std::fill(std::begin(scalar_origin_), std::end(scalar_origin_), nullptr);
  std::memset(shadow_.v, 0xff, sizeof(Reg) * (k.num_vgprs + k.num_agprs));
  for (u32 reg = 0; reg < k.num_vgprs + k.num_agprs; ++reg) mark(reg, true);
  for (u32 index = 0; index < kScalars; ++index) set_scalar(index, ~0u, nullptr);
  set_scalar(kSccIndex, 1, nullptr);

  // What the ABI sets, in the order of initialise_wave.
  u32 index = 0;
  const auto defined = [&](u32 count) {
    for (; count; --count) set_scalar(index++, 0, nullptr);
  };
  if (k.user_private_segment_buffer) defined(4);
  if (k.user_dispatch_ptr) defined(2);
  if (k.user_queue_ptr) defined(2);
  if (k.user_kernarg_ptr) defined(2);
  if (k.user_dispatch_id) defined(2);
  if (k.user_flat_scratch) defined(2);
  if (k.user_private_segment_size) defined(1);
  for (u32 i = 0; i < k.kernarg_preload_dwords; ++i, ++index)
    if (4 * (k.kernarg_preload_offset + i) < k.kernarg_bytes) set_scalar(index, 0, nullptr);
  index = std::max(index, k.user_sgpr_count);
  if (k.workgroup_id_x) defined(1);
  if (k.workgroup_id_y) defined(1);
  if (k.workgroup_id_z) defined(1);
  if (k.workgroup_info) defined(1);
  for (const u32 pair : {u32{kFlatScratch}, u32{kExec}})
    for (u32 i = 0; i < 2; ++i) set_scalar(pair + i, 0, nullptr);
  clear_lanes(0, ~u64{0});
}

void Taint::step(const Step& step) {
  place_ = &step.inst;
  if (step.wave.special) [[unlikely]]
    special(step);
  else
    run(step);
}

// MODE.GPR_IDX_EN and MODE.VSKIP, as in Worker::step_special.
void Taint::special(const Step& step) {
  const Wave& w = step.wave;
  const Format format = step.inst.row->format;
  if (format < Format::kVop2) return run(step);
  if (w.mode & kModeVskip) return;
  if (format > Format::kVop3p || !(w.mode & kModeGprIdxEnable)) return run(step);
  Inst moved = step.inst;
  if (!index_registers(w, moved).empty()) return;  // the instruction faults
  if (scalar_[kM0] & 0xf0ff)
    report(step, FindingKind::kUninitialisedAddress, {RegisterFile::kScalar, kM0, 1}, -1,
           "the register index");
  const RegisterUse use = register_use(moved);
  run({step.wave, moved, use, step.memory, step.order, step.report});
}

void Taint::run(const Step& step) {
  if (step.memory) return memory(step);
  const RegisterUse& use = step.use;
  const Inst& inst = step.inst;
  const Row& row = *inst.row;
  bool reads = false, writes = false;
  for (u32 i = 0; i < use.num_reads; ++i) reads |= any(use.reads[i]);
  for (u32 i = 0; i < use.num_writes; ++i) writes |= any(use.writes[i]);
  const bool exec = any(512 + kExec, 2);
  const bool moved = row.format == Format::kSop1 && row.effects & kReadsM0;  // s_movrel*
  if (!reads && !writes && !exec && !moved) [[likely]]
    return;
  if (!reads && !exec && !moved && inst.plain && !(row.effects & (kReadsDst | kD16))) {
    if (!use.masked_by_exec) return clear_writes(use);
    for (u32 i = 0; i < use.num_writes; ++i) {
      const RegisterRange& r = use.writes[i];
      if (r.file == RegisterFile::kScalar) clear(r);
      for (u32 reg = r.first; r.file == RegisterFile::kVector && reg < r.first + u32{r.count};
           ++reg)
        clear_lanes(reg, step.wave.exec());
    }
    return;
  }
  switch (row.format) {
    case Format::kSop1:
    case Format::kSop2:
    case Format::kSopc:
    case Format::kSopk:
      return scalar(step);
    case Format::kSopp:
      return control(step);
    case Format::kVop1:
    case Format::kVop2:
    case Format::kVopc:
    case Format::kVop3:
    case Format::kVop3p:
      return is_matrix(row.unit) ? mfma(step) : vector(step);
    case Format::kDs:
      return exchange(step);
    default:
      return clear_writes(use);  // s_memtime; cache control writes nothing
  }
}

void Taint::control(const Step& step) {
  const u32 effects = step.inst.row->effects;
  if (!(effects & kBranch)) {
    // s_sendmsg and the like: nothing depends on M0. s_set_gpr_idx_mode sets a field of it.
    if (effects & kWritesM0) set_scalar(kM0, scalar_[kM0] & ~0xf000u, nullptr);
    return;
  }
  const auto branch = [&](RegisterRange range, const char* what) {
    report(step, FindingKind::kUninitialisedBranch, range, -1, what);
  };
  if (effects & kReadsScc && scalar_[kSccIndex])
    branch({RegisterFile::kScalar, kSccIndex, 1}, "the condition of a branch");
  if (effects & kReadsVcc && zero_unknown(pair(kVcc), step.wave.vcc()))
    branch({RegisterFile::kScalar, kVcc, 2}, "the condition of a branch");
  if (effects & kReadsExec && zero_unknown(exec_taint(), step.wave.exec()))
    branch({RegisterFile::kScalar, kExec, 2}, "the condition of a branch");
}

void Taint::set_vector_bits(u32 reg, const u32* lanes) {
  std::memcpy(shadow_.v[reg].lane, lanes, sizeof(Reg));
  settle(reg, nullptr);
}

void Taint::set_scalar(u32 index, u32 bits, const Inst* origin) {
  scalar_[index] = bits;
  scalar_origin_[index] = origin;
  mark(512 + index, bits != 0);
}

void Taint::set_scalars(const Operand& dst, u64 bits, const Inst* origin) {
  if (dst.kind != OperandKind::kSgpr) return;
  for (u32 i = 0; i < dst.dwords && i < 2; ++i)
    set_scalar(dst.index + i, static_cast<u32>(bits >> 32 * i), origin);
}

void Taint::settle(u32 reg, const Inst* origin) {
  u32 all = 0;
  for (const u32 lane : shadow_.v[reg].lane) all |= lane;
  // Where a part of the register was tainted already, an unknown origin says less than that.
  if (origin || !any_vector(reg, 1)) vector_origin_[reg] = origin;
  mark(reg, all != 0);
}

void Taint::settle_writes(const Step& step, const Inst* origin) {
  const u64 lanes = unsure(step);
  for (u32 i = 0; i < step.use.num_writes; ++i) {
    const RegisterRange& r = step.use.writes[i];
    if (r.file != RegisterFile::kVector) continue;
    for (u32 reg = r.first; reg < r.first + u32{r.count}; ++reg) {
      if (lanes) for_lanes(lanes, [&](int lane) { shadow_.v[reg].lane[lane] = ~0u; });
      settle(reg, origin);
    }
  }
}

void Taint::clear(const RegisterRange& range) {
  for (u32 i = range.first; i < range.first + u32{range.count}; ++i) {
    if (!any(bit(range.file, i), 1)) continue;
    if (range.file == RegisterFile::kVector)
      std::memset(&shadow_.v[i], 0, sizeof(Reg));
    else
      scalar_[i] = 0;
    mark(bit(range.file, i), false);
  }
}

void Taint::clear_writes(const RegisterUse& use) {
  for (u32 i = 0; i < use.num_writes; ++i) clear(use.writes[i]);
}

void Taint::clear_lanes(u32 reg, u64 mask) {
  if (!any_vector(reg, 1)) return;
  if (mask == ~u64{0}) return clear({RegisterFile::kVector, static_cast<u16>(reg), 1});
  for_lanes(mask, [&](int lane) { shadow_.v[reg].lane[lane] = 0; });
  settle(reg, vector_origin_[reg]);
}

const Inst* Taint::origin_of(const Step& step) const {
  for (u32 i = 0; i < step.use.num_reads; ++i) {
    const RegisterRange& r = step.use.reads[i];
    for (u32 index = r.first; index < r.first + u32{r.count}; ++index)
      if (any(bit(r.file, index), 1))
        return r.file == RegisterFile::kVector ? vector_origin_[index] : scalar_origin_[index];
  }
  return nullptr;
}

u64 Taint::scalar_operand(const Wave& wave, const Operand& o) const {
  if (o.kind == OperandKind::kSgpr) return o.dwords > 1 ? pair(o.index) : scalar_[o.index];
  if (o.kind != OperandKind::kSpecial) return 0;
  switch (o.code) {
    case 251:
      return zero_unknown(pair(kVcc), wave.vcc());
    case 252:
      return zero_unknown(exec_taint(), wave.exec());
    case 253:
      return scalar_[kSccIndex];
    default:
      return 0;
  }
}

void Taint::report(const Step& step, FindingKind kind, const RegisterRange& range, int lane,
                   const char* what) {
  u32 index = range.first;
  for (u32 i = range.first; i < range.first + u32{range.count}; ++i) {
    const bool hit = range.file == RegisterFile::kVector ? lane >= 0 && shadow_.v[i].lane[lane]
                                                         : scalar_[i] != 0;
    if (!hit) continue;
    index = i;
    break;
  }
  const Inst* origin =
      range.file == RegisterFile::kVector ? vector_origin_[index] : scalar_origin_[index];
  const u64 producer = origin ? step.report.pc(*origin) : kNoPc;
  step.report.add(step.wave, *place_, kind, producer, [&](Finding& f) {
    f.lane = lane;
    const bool pair = range.file == RegisterFile::kScalar && range.count == 2;
    f.where = register_name(pair ? range : RegisterRange{range.file, static_cast<u16>(index), 1},
                            num_vgprs_);
    f.message = std::string(what) + " depends on " + f.where +
                (origin ? ", whose value was read from memory that nothing has written"
                        : ", whose value nothing has written");
  });
  clear(range);
}

}  // namespace vdev
