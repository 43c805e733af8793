#include "isa/register_use.h"

#include "core/wave.h"

namespace vdev {
namespace {

class Builder {
 public:
  explicit Builder(const Inst& inst) : inst_(inst), row_(*inst.row) {}

  RegisterUse build() {
    const bool memory_atomic = row_.effects & kAtomic && row_.format != Format::kDs;
    for (i8 i = 0; i < 5; ++i) read(inst_.src[i], i);
    if (row_.effects & kReadsDst) read(inst_.dst, kDstSource);
    // Atomics return something with sc0 only; the `lds` forms return to LDS.
    const bool writes_dst = !inst_.lds && !(memory_atomic && !inst_.sc0);
    if (writes_dst && !row_.is(Trait::kDstIsSource)) write(inst_.dst, kDstSource);
    write(inst_.sdst, kSdstSource);
    // Scalar atomics return to their data operand.
    if (row_.format == Format::kSmem && memory_atomic && inst_.sc0) write(inst_.src[2], 2);
    if (row_.is(Trait::kSwaps)) {
      read(inst_.dst, kDstSource);
      write(inst_.src[0], 0);
    }
    implicit();
    use_.masked_by_exec = is_vector() && !(row_.effects & kIgnoresExec);
    return use_;
  }

 private:
  bool is_vector() const { return row_.format >= Format::kVop2; }

  static bool range(const Operand& o, RegisterRange& out) {
    if (o.is_vector()) {
      out = {RegisterFile::kVector, static_cast<u16>(o.reg()), o.dwords};
      return o.dwords > 0;
    }
    if (o.kind == OperandKind::kSgpr) {
      out = {RegisterFile::kScalar, o.index, o.dwords};
      return o.dwords > 0;
    }
    if (o.kind == OperandKind::kSpecial) {
      if (o.code == 251) out = {RegisterFile::kScalar, kVcc, 2};
      if (o.code == 252) out = {RegisterFile::kScalar, kExec, 2};
      if (o.code == 253) out = {RegisterFile::kScalar, kSccIndex, 1};
      return o.code >= 251 && o.code <= 253;
    }
    return false;
  }
  void read(const Operand& o, i8 source) {
    RegisterRange r;
    if (!range(o, r)) return;
    r.source = source;
    use_.reads[use_.num_reads++] = r;
  }
  void write(const Operand& o, i8 source) {
    RegisterRange r;
    if (!range(o, r) || o.kind == OperandKind::kSpecial) return;
    r.source = source;
    use_.writes[use_.num_writes++] = r;
  }
  void implicit() {
    const auto add = [this](u32 reads, u32 writes, u16 first, u16 count) {
      const RegisterRange r{RegisterFile::kScalar, first, count, kImplicit};
      if (row_.effects & reads && !has(use_.reads, use_.num_reads, r))
        use_.reads[use_.num_reads++] = r;
      if (row_.effects & writes && !has(use_.writes, use_.num_writes, r))
        use_.writes[use_.num_writes++] = r;
    };
    add(kReadsScc, kWritesScc, kSccIndex, 1);
    add(kReadsVcc, kWritesVcc, kVcc, 2);
    add(kReadsExec, kWritesExec, kExec, 2);
    const bool lds_form = row_.format == Format::kMubuf && inst_.lds;
    add(kReadsM0 | (lds_form ? ~0u : 0u), kWritesM0, kM0, 1);
  }
  static bool has(const RegisterRange* ranges, u8 count, const RegisterRange& r) {
    for (u8 i = 0; i < count; ++i)
      if (ranges[i].file == r.file && ranges[i].first == r.first && ranges[i].count >= r.count)
        return true;
    return false;
  }

  const Inst& inst_;
  const Row& row_;
  RegisterUse use_;
};

}  // namespace

RegisterUse register_use(const Inst& inst) { return Builder(inst).build(); }

std::string register_name(const RegisterRange& r, u32 num_vgprs) {
  const auto tuple = [&](const char* prefix, u32 first) {
    if (r.count == 1) return prefix + std::to_string(first);
    return std::string(prefix) + '[' + std::to_string(first) + ':' +
           std::to_string(first + r.count - 1) + ']';
  };
  if (r.file == RegisterFile::kVector)
    return r.first < num_vgprs ? tuple("v", r.first) : tuple("a", r.first - num_vgprs);
  switch (r.first) {
    case kFlatScratch:
      return "flat_scratch";
    case kXnackMask:
      return "xnack_mask";
    case kVcc:
      return r.count == 1 ? "vcc_lo" : "vcc";
    case kVcc + 1:
      return "vcc_hi";
    case kM0:
      return "m0";
    case kExec:
      return r.count == 1 ? "exec_lo" : "exec";
    case kExec + 1:
      return "exec_hi";
    case kSccIndex:
      return "scc";
  }
  return r.first >= kTtmp0 && r.first < kM0 ? tuple("ttmp", r.first - kTtmp0) : tuple("s", r.first);
}

}  // namespace vdev
