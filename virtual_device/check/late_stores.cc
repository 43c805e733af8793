#include "check/late_stores.h"

#include <algorithm>

namespace vdev {
namespace {

bool writes_back(const Inst& inst) { return inst.row->effects & kWritesBack && inst.sc1; }

// Coherent, and without a result that registers would have to wait for.
bool may_be_late(const Step& step) {
  const u32 effects = step.inst.row->effects;
  if (!(effects & (kAtomic | kStore)) || step.wave.special || step.memory->num_parts != 1)
    return false;
  const FootprintPart& part = step.memory->parts[0];
  if (part.space != Space::kGlobal || part.scalar || !part.mask) return false;
  if (part.access == Access::kAtomic) return part.data == FootprintPart::kNoRegister;
  return part.access == Access::kWrite && step.inst.sc1;
}

// Whether it would fault: then it has to do so at once, where it stands.
bool faults(const Step& step, u64 low, u64 high) {
  const FootprintPart& part = step.memory->parts[0];
  bool misaligned = false;
  if (part.access == Access::kAtomic)
    for_lanes(part.mask,
              [&](int lane) { misaligned |= part.address.lane[lane] % part.bytes != 0; });
  return misaligned || !step.wave.workgroup->try_global(low, high - low);
}

struct Extent {
  u64 low = ~u64{0}, high = 0;
  explicit Extent(const FootprintPart& part) {
    for_lanes(part.mask, [&](int lane) {
      low = std::min(low, part.address.lane[lane]);
      high = std::max(high, part.address.lane[lane] + part.bytes);
    });
  }
};

}  // namespace

void LateStores::start(u64 seed, u64 workgroup, bool on) {
  seed_ = seed;
  workgroup_ = workgroup;
  on_ = on;
  age_ = 0;
  pending_.clear();
}

bool LateStores::before(const Step& step) {
  if (!pending_.empty() && ++age_ > kPatience) finish();
  if (!on_) return false;
  if (!step.memory) {
    if (!pending_.empty() && writes_back(step.inst))
      pending_.push_back({&step.wave, nullptr, step.order.vmem_issued + 1, 0, 0, nullptr, {}});
    return false;
  }
  if (!pending_.empty())
    for (int i = 0; i < step.memory->num_parts; ++i) {
      const FootprintPart& part = step.memory->parts[i];
      if (part.space != Space::kGlobal || !part.mask) continue;
      const Extent extent(part);
      perform_overlapping(extent.low, extent.high);
    }
  if (!may_be_late(step)) return false;
  const Extent extent(step.memory->parts[0]);
  if (!chosen(step, extent.high - extent.low) || faults(step, extent.low, extent.high))
    return false;
  if (pending_.empty()) age_ = 0;
  pending_.push_back({&step.wave, &step.inst, step.order.vmem_issued + 1, extent.low, extent.high,
                      &step.use, Registers(step.wave, step.use)});
  return true;
}

// Signals that come before data, everything late, some of it.
bool LateStores::chosen(const Step& step, u64 bytes) const {
  switch (seed_ / 3 % 3) {
    case 0:
      return bytes > kSignalBytes;
    case 1:
      return true;
    default:
      u64 hash = (seed_ ^ workgroup_ << 32 ^ step.pc() << 8) * 0x9e3779b97f4a7c15;
      hash = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9;
      return hash >> 63;
  }
}

LateStores::Registers::Registers(const Wave& wave, const RegisterUse& use) : exec(wave.exec()) {
  for (int i = 0; i < use.num_reads; ++i) {
    const RegisterRange& r = use.reads[i];
    if (r.file == RegisterFile::kVector)
      vectors.insert(vectors.end(), &wave.v[r.first], &wave.v[r.first] + r.count);
    else
      scalars.insert(scalars.end(), &wave.s[r.first], &wave.s[r.first] + r.count);
  }
}

void LateStores::Registers::write_to(Wave& wave, const RegisterUse& use) const {
  auto vector = vectors.begin();
  auto scalar = scalars.begin();
  for (int i = 0; i < use.num_reads; ++i) {
    const RegisterRange& r = use.reads[i];
    if (r.file == RegisterFile::kVector)
      for (u32 d = 0; d < r.count; ++d) wave.v[r.first + d] = *vector++;
    else
      for (u32 d = 0; d < r.count; ++d) wave.s[r.first + d] = *scalar++;
  }
  wave.set_pair(kExec, exec);
}

// Executes the instruction on the registers that it was issued with.
void LateStores::perform(const Pending& late) {
  if (!late.inst) return;
  const Registers now(*late.wave, *late.use);
  late.registers.write_to(*late.wave, *late.use);
  late.inst->exec(*late.wave, *late.inst);
  now.write_to(*late.wave, *late.use);
}

template <class Which>
void LateStores::perform_if(Which which) {
  std::erase_if(pending_, [&](const Pending& late) {
    if (!which(late)) return false;
    perform(late);
    return true;
  });
}

void LateStores::perform_waited(const Wave& wave, u32 completed) {
  const auto waited = [&](const Pending& late) {
    return late.wave == &wave && late.number <= completed;
  };
  for (size_t i = pending_.size(); i-- > 0;)
    if (!pending_[i].inst && waited(pending_[i])) {
      perform_through(i + 1);
      break;
    }
  perform_if(waited);
}

void LateStores::perform_overlapping(u64 low, u64 high) {
  perform_if([&](const Pending& late) { return late.low < high && low < late.high; });
}

void LateStores::perform_through(size_t count) {
  for (size_t i = 0; i < count; ++i) perform(pending_[i]);
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace vdev
