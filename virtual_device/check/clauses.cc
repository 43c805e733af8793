#include "check/clauses.h"

#include <algorithm>

namespace vdev {
namespace {

size_t bit(const RegisterRange& r, u32 i) {
  return (r.file == RegisterFile::kVector ? 0 : 512) + r.first + i;
}

// What an instruction names: not what it takes besides, as EXEC.
bool is_named(const RegisterRange& r) { return r.source != kImplicit; }

}  // namespace

Clauses::Unit Clauses::unit_of(const Row& row) {
  if (!(row.effects & (kLoad | kStore | kAtomic))) return Unit::kNone;
  switch (row.format) {
    case Format::kSmem:
      return Unit::kScalar;
    case Format::kMubuf:
    case Format::kMtbuf:
    case Format::kFlat:
    case Format::kGlobal:
    case Format::kScratch:
      return Unit::kVector;
    default:
      return Unit::kNone;
  }
}

void Clauses::end() {
  unit_ = Unit::kNone;
  if (clause_.empty()) return;
  clause_.clear();
  reads_.reset();
  writes_.reset();
  reported_ = false;
}

bool Clauses::conflict(const Step& step, const Access& writer, const Access& reader) {
  for (int w = 0; w < writer.use->num_writes; ++w)
    for (int r = 0; r < reader.use->num_reads; ++r) {
      const RegisterRange &written = writer.use->writes[w], &read = reader.use->reads[r];
      if (!is_named(written) || !is_named(read) || !written.overlaps(read)) continue;
      step.report.add(
          step.wave, *writer.inst, FindingKind::kClauseOverwrite, step.report.pc(*reader.inst),
          [&](Finding& f) {
            RegisterRange both = read;
            both.first = std::max(read.first, written.first);
            both.count = static_cast<u16>(
                std::min(read.first + read.count, written.first + written.count) - both.first);
            f.where = register_name(both, num_vgprs_);
            const bool own = writer.inst == reader.inst;
            f.message = f.where + ", which " + (own ? "the load itself" : reader.inst->row->name) +
                        " reads, is overwritten in the same clause of memory instructions, which "
                        "may be issued again where page faults are retried (XNACK)";
          });
      return true;
    }
  return false;
}

void Clauses::step(const Step& step) {
  const Unit unit = may_retry_ ? unit_of(*step.inst.row) : Unit::kNone;
  if (unit != unit_ || unit == Unit::kNone) end();
  if (unit == Unit::kNone) return;
  unit_ = unit;
  // An atomic whose lanes act one after the other comes here more than once.
  if (!clause_.empty() && clause_.back().inst == &step.inst) return;
  clause_.push_back({&step.inst, &step.use});
  for (int i = 0; i < step.use.num_reads; ++i)
    for (u32 n = 0; is_named(step.use.reads[i]) && n < step.use.reads[i].count; ++n)
      reads_.set(bit(step.use.reads[i], n));
  for (int i = 0; i < step.use.num_writes; ++i)
    for (u32 n = 0; is_named(step.use.writes[i]) && n < step.use.writes[i].count; ++n)
      writes_.set(bit(step.use.writes[i], n));
  if (clause_.size() < 2 || reported_ || (reads_ & writes_).none()) return;
  reported_ = true;
  for (const Access& writer : clause_)
    for (const Access& reader : clause_)
      if (conflict(step, writer, reader)) return;
}

}  // namespace vdev
