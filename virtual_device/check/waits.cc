#include "check/waits.h"

#include <algorithm>
#include <cstring>

#include "isa/operand.h"
#include "isa/waitcnt.h"

namespace vdev {
namespace {

// Not a value that computes anything sensible: a NaN, and no address.
constexpr u32 kNotArrived = 0xffb7ffb7;

bool is_wbl2(const Row& row) { return row.effects & kWritesBack; }

}  // namespace

void Waits::start(const Kernel& kernel, bool late) {
  late_ = late;
  num_vgprs_ = kernel.num_vgprs;
  order = {};
  pending_.clear();
  num_vmem_ = num_lds_ = 0;
  pending_bits_.reset();
  fresh_bits_.reset();
  fresh_.clear();
  sites.clear();
}

void Waits::before(const Step& step) {
  if (is_waitcnt(step.inst)) return wait(step);
  check_registers(step);
  // What other waves or workgroups may rely on from here on.
  if (step.inst.row->effects & (kBarrier | kAtomic) ||
      (step.inst.row->effects & kStore && step.inst.sc1) || is_wbl2(*step.inst.row))
    need_all();
}

// Whether a wait for (vm, lgkm) proves that `p` is done; called from the newest operation to the
// oldest, counting those of each queue on the way.
bool Waits::complete(Pending& p, u32 vm, u32 lgkm, u32& vm_seen, u32& lds_seen, u32& position,
                     Counter& counter) const {
  switch (p.queue) {
    case Queue::kVmem:
      counter = Counter::kVm;
      position = vm_seen++;
      return position >= vm;
    case Queue::kLds:
      counter = Counter::kLgkm;
      position = lds_seen++;
      return position >= lgkm;
    case Queue::kSmem:
      counter = Counter::kLgkm;
      position = 0;
      return lgkm == 0;
    case Queue::kFlat:
      counter = lgkm == 0 ? Counter::kLgkm : Counter::kVm;
      position = 0;
      p.vm_done |= vm == 0;
      p.lgkm_done |= lgkm == 0;
      return p.vm_done && p.lgkm_done;
  }
  return false;
}

void Waits::wait(const Step& step) {
  const WaitCounts counts(step.inst);
  u32 fields[2] = {counts.vm, counts.lgkm};
  const u32 max[2] = {WaitCounts::kMaxVm, WaitCounts::kMaxLgkm};
  // What the last wait for a counter completed and nobody used since was waited for too early.
  for (int c = 0; c < 2; ++c) {
    if (fields[c] == max[c]) {
      fields[c] = ~u32{0};
      continue;
    }
    std::erase_if(fresh_, [&](const Fresh& f) { return f.counter == static_cast<Counter>(c); });
    WaitSite& site = sites[&step.inst];
    ++site.executed[c];
    site.field[c] = fields[c];
  }
  apply(step.wave, fields[0], fields[1], &step.inst);
}

void Waits::apply(Wave& wave, u32 vm, u32 lgkm, const Inst* site) {
  u32 vm_seen = 0, lds_seen = 0;
  bool changed = false;
  for (size_t i = pending_.size(); i-- > 0;) {
    Pending& p = pending_[i];
    u32 position = 0;
    Counter counter{};
    if (!complete(p, vm, lgkm, vm_seen, lds_seen, position, counter)) continue;
    if (site) fresh_.push_back({p.dst, counter, position, site});
    num_vmem_ -= p.queue == Queue::kVmem;
    num_lds_ -= p.queue == Queue::kLds;
    p.inst = nullptr;
    changed = true;
  }
  if (!changed) return;
  for (const Pending& p : pending_)  // of two loads to one register the later one stays
    if (p.inst == nullptr) deliver(wave, p);
  std::erase_if(pending_, [](const Pending& p) { return p.inst == nullptr; });
  rebuild();
}

void Waits::rebuild() {
  pending_bits_.reset();
  fresh_bits_.reset();
  const auto set = [](auto& bits, const RegisterRange& r) {
    for (u32 i = 0; i < r.count; ++i) bits.set(bit(r.file, r.first + i));
  };
  u32 vmem = order.vmem_issued, lds = order.lds_issued, smem = order.smem_issued;
  for (const Pending& p : pending_) {
    set(pending_bits_, p.dst);
    if (p.vmem_number) vmem = std::min(vmem, p.vmem_number - 1);
    if (p.lds_number) lds = std::min(lds, p.lds_number - 1);
    if (p.smem_number) smem = std::min(smem, p.smem_number - 1);
  }
  order.vmem_completed = vmem;
  order.lds_completed = lds;
  order.smem_completed = smem;
  for (const Fresh& f : fresh_) set(fresh_bits_, f.dst);
}

void Waits::deliver(Wave& wave, const Pending& p) {
  for (size_t d = 0; d < p.vector_data.size(); ++d)
    merge(&wave.v[p.dst.first + d], &p.vector_data[d], 1, p.mask);
  for (size_t d = 0; d < p.scalar_data.size(); ++d) wave.s[p.dst.first + d] = p.scalar_data[d];
  for (const auto& [address, value] : p.lds_data)
    if (address + 4 <= wave.workgroup->lds.size())
      std::memcpy(wave.workgroup->lds.data() + address, &value, 4);
}

void Waits::need(const RegisterRange& range) {
  std::erase_if(fresh_, [&](const Fresh& f) {
    if (!f.dst.count || !f.dst.overlaps(range)) return false;
    u32& needed = sites[f.site].needed[static_cast<int>(f.counter)];
    needed = std::min(needed, f.position);
    return true;
  });
  fresh_bits_.reset();
  for (const Fresh& f : fresh_)
    for (u32 i = 0; i < f.dst.count; ++i) fresh_bits_.set(bit(f.dst.file, f.dst.first + i));
}

// Stores, writes to LDS and loads to LDS have no register: others rely on them.
void Waits::need_all() {
  std::erase_if(fresh_, [&](const Fresh& f) {
    if (f.dst.count) return false;
    u32& needed = sites[f.site].needed[static_cast<int>(f.counter)];
    needed = std::min(needed, f.position);
    return true;
  });
}

void Waits::check_registers(const Step& step) {
  const RegisterUse& use = step.use;
  for (int i = 0; i < use.num_reads; ++i) {
    if (any(pending_bits_, use.reads[i])) conflict(step, use.reads[i], false);
    if (any(fresh_bits_, use.reads[i])) need(use.reads[i]);
  }
  for (int i = 0; i < use.num_writes; ++i) {
    if (any(pending_bits_, use.writes[i])) conflict(step, use.writes[i], true);
    if (any(fresh_bits_, use.writes[i])) need(use.writes[i]);
  }
}

void Waits::conflict(const Step& step, const RegisterRange& range, bool write) {
  const Row& row = *step.inst.row;
  const u64 lanes = step.use.masked_by_exec ? step.wave.exec() : ~u64{0};
  for (Pending& p : pending_) {
    if (p.reported || !p.dst.count || !p.dst.overlaps(range)) continue;
    if (range.file == RegisterFile::kVector && !(p.mask & lanes)) continue;
    if (write && range.source == kDstSource) {
      // Results of one queue arrive in order.
      const bool vmem = row.unit == Unit::kVmem || row.unit == Unit::kScratch;
      if (vmem && p.queue == Queue::kVmem) continue;
      if (row.format == Format::kDs && p.queue == Queue::kLds) continue;
    }
    p.reported = true;
    const FindingKind kind = p.saturated ? FindingKind::kCounterSaturated
                             : write     ? FindingKind::kOverwriteBeforeWait
                                         : FindingKind::kUseBeforeWait;
    step.report.add(step.wave, step.inst, kind, step.report.pc(*p.inst), [&](Finding& f) {
      RegisterRange both = range;
      both.first = std::max(range.first, p.dst.first);
      both.count = static_cast<u16>(std::min(range.first + range.count, p.dst.first + p.dst.count) -
                                    both.first);
      f.where = register_name(both, num_vgprs_);
      if (range.file == RegisterFile::kVector) f.lane = std::countr_zero(p.mask & lanes);
      const char* counter = p.queue == Queue::kVmem   ? "vmcnt"
                            : p.queue == Queue::kFlat ? "vmcnt and lgkmcnt"
                                                      : "lgkmcnt";
      f.message = f.where + (write ? " is overwritten" : " is used") + " while " +
                  p.inst->row->name + ", which writes it, may be under way: no wait on " + counter +
                  " has covered it";
      if (p.saturated)
        f.message += ", and that more have been issued than it counts is no proof: a wait for " +
                     std::string(p.queue == Queue::kVmem ? "62" : "14") + " is";
    });
  }
}

// Takes what a load has just returned out of its destination until a wait lets it arrive.
void Waits::withhold(const Step& step, Pending& p) {
  Wave& wave = step.wave;
  if (p.dst.count && p.dst.file == RegisterFile::kVector) {
    p.vector_data.assign(&wave.v[p.dst.first], &wave.v[p.dst.first] + p.dst.count);
    for (u32 d = 0; d < p.dst.count; ++d)
      for_lanes(p.mask, [&](int lane) { wave.v[p.dst.first + d].lane[lane] = kNotArrived; });
  } else if (p.dst.count) {
    p.scalar_data.assign(&wave.s[p.dst.first], &wave.s[p.dst.first] + p.dst.count);
    std::fill_n(&wave.s[p.dst.first], p.dst.count, kNotArrived);
  }
  if (!step.memory || p.queue != Queue::kVmem) return;
  for (int i = 0; i < step.memory->num_parts; ++i) {
    const FootprintPart& part = step.memory->parts[i];
    if (part.space != Space::kLds || part.access != Access::kWrite) continue;
    for_lanes(part.mask, [&](int lane) {
      const u32 first = static_cast<u32>(part.address.lane[lane]);
      for (u32 at = first; at < first + part.bytes; at += 4) {
        u32 value;
        std::byte* const host = wave.workgroup->local(at, 4, Access::kWrite, lane);
        std::memcpy(&value, host, 4);
        p.lds_data.push_back({at, value});
        std::memcpy(host, &kNotArrived, 4);
      }
    });
  }
}

void Waits::after(const Step& step) {
  const Row& row = *step.inst.row;
  Pending p{};
  switch (row.format) {
    case Format::kSmem:
      p.queue = Queue::kSmem;
      p.smem_number = ++order.smem_issued;
      break;
    case Format::kDs:
      p.queue = Queue::kLds;
      p.lds_number = ++order.lds_issued;
      break;
    case Format::kFlat:
      p.queue = Queue::kFlat;
      p.vmem_number = ++order.vmem_issued;
      p.lds_number = ++order.lds_issued;
      break;
    case Format::kGlobal:
    case Format::kScratch:
    case Format::kMubuf:
    case Format::kMtbuf:
      if (!(row.effects & (kLoad | kStore | kAtomic)) && !is_wbl2(row)) return;  // buffer_inv
      p.queue = Queue::kVmem;
      p.vmem_number = ++order.vmem_issued;
      break;
    default:
      return;
  }
  p.inst = &step.inst;
  p.mask = step.wave.exec();
  for (int i = 0; i < step.use.num_writes; ++i)
    if (step.use.writes[i].source != kImplicit) p.dst = step.use.writes[i];
  if (p.dst.count && p.dst.file == RegisterFile::kVector && !p.mask) p.dst.count = 0;
  if (late_) withhold(step, p);
  for (u32 i = 0; i < p.dst.count; ++i) pending_bits_.set(bit(p.dst.file, p.dst.first + i));
  if (p.dst.count)  // of two loads to one register the later one stays
    forget([&](const Pending& o) {
      return o.saturated && o.queue == p.queue && o.dst.file == p.dst.file &&
             o.dst.first == p.dst.first && o.dst.count == p.dst.count && !(o.mask & ~p.mask);
    });
  num_vmem_ += p.queue == Queue::kVmem;
  num_lds_ += p.queue == Queue::kLds;
  pending_.push_back(std::move(p));
  if (num_vmem_ > WaitCounts::kMaxVm || num_lds_ > WaitCounts::kMaxLgkm) saturate();
}

// Marks what only a counter at its maximum would prove to be done. Stores, on which no register
// depends, are taken as done, so that their number stays bounded.
void Waits::saturate() {
  u32 vm_seen = 0, lds_seen = 0;
  bool stores = false;
  for (size_t i = pending_.size(); i-- > 0;) {
    Pending& p = pending_[i];
    u32 position = 0;
    Counter counter{};
    if (p.queue != Queue::kVmem && p.queue != Queue::kLds) continue;
    if (!complete(p, WaitCounts::kMaxVm, WaitCounts::kMaxLgkm, vm_seen, lds_seen, position,
                  counter))
      continue;
    p.saturated = true;
    stores |= !(p.inst->row->effects & kLoad) && !p.dst.count;
  }
  if (!stores) return;
  forget([](const Pending& p) {
    return p.saturated && !(p.inst->row->effects & kLoad) && !p.dst.count;
  });
  rebuild();
}

void Waits::finish() {
  pending_.clear();
  fresh_.clear();
}

}  // namespace vdev
