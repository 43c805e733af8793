#include "check/lds_races.h"

#include <algorithm>
#include <cstdio>

namespace vdev {

void LdsRaces::start(const Workgroup& workgroup) {
  num_waves_ = workgroup.num_waves;
  num_bytes_ = static_cast<u32>(workgroup.lds.size());
  writers_.assign(num_bytes_, Tag{});
  loaded_.assign(num_bytes_, 0);
  readers_.resize(num_waves_);
  for (auto& bytes : readers_) bytes.assign(num_bytes_, 0);
  arrived_.assign(num_waves_, Order{});
  ordered_.assign(num_waves_, Order{});
  raced_.clear();
  lds_history_.assign(num_bytes_ ? num_waves_ * kHistory : 0, nullptr);
  vmem_history_ = lds_history_;
}

void LdsRaces::arrived(const Wave& wave, const MemoryOrder& order) {
  arrived_[wave.wave_idx] = {order.lds_completed, order.vmem_completed};
}
void LdsRaces::released() { ordered_ = arrived_; }

void LdsRaces::note(const Step& step, const Tag& tag) {
  auto& history = tag.dma ? vmem_history_ : lds_history_;
  history[tag.wave * kHistory + tag.number % kHistory] = &step.inst;
}
u64 LdsRaces::producer(const Report& report, const Tag& tag) const {
  const auto& history = tag.dma ? vmem_history_ : lds_history_;
  const Inst* inst = history[tag.wave * kHistory + tag.number % kHistory];
  return inst ? report.pc(*inst) : kNoPc;
}

// What a byte holds once its last write has arrived, which may be a load that is under way.
u8 LdsRaces::written(const Workgroup& workgroup, u64 byte) const {
  return writers_[byte].dma ? loaded_[byte] : workgroup.lds[byte];
}

// Whether a store leaves the datum from `byte` on as it is.
bool LdsRaces::stores_same(const Wave& wave, const FootprintPart& part, u32 byte, int lane) const {
  if (part.access != Access::kWrite || part.data == FootprintPart::kNoRegister) return false;
  const u64 first = part.address.lane[lane];
  for (u64 at = byte; at < first + part.bytes; ++at) {
    const u32 bit = 8 * static_cast<u32>(at - first) + part.data_shift;
    const u32 word = wave.v[part.data + bit / 32].lane[lane];
    if (written(*wave.workgroup, at) != static_cast<u8>(word >> bit % 32)) return false;
  }
  return true;
}

namespace {

bool is_ds(const Step& step) {
  return step.inst.row->format == Format::kDs || step.inst.row->format == Format::kFlat;
}

std::string place(u32 byte) {
  char text[24];
  std::snprintf(text, sizeof text, "lds 0x%x", byte);
  return text;
}

}  // namespace

// An access of `byte` against its last write.
void LdsRaces::check_write(const Step& step, const FootprintPart& part, u32 byte, int lane,
                           const Tag& by) {
  const Tag& last = writers_[byte];
  const bool is_write = part.access != Access::kRead;
  if (last.atomic && by.atomic) return;
  if (last.wave == by.wave) {
    // One queue is in order; a load to LDS and a DS instruction of the same wave are not.
    const Order now{step.order.lds_completed, step.order.vmem_completed};
    if (last.dma == by.dma || now.covers(last)) return;
    const FindingKind kind =
        is_write ? FindingKind::kOverwriteBeforeWait : FindingKind::kUseBeforeWait;
    step.report.add(step.wave, step.inst, kind, producer(step.report, last), [&](Finding& f) {
      f.lane = lane;
      f.where = place(byte);
      f.message = f.where + (is_write ? " is written" : " is read") +
                  " while this wave's own write of it may be under way: no wait on " +
                  (last.dma ? "vmcnt" : "lgkmcnt") + " has covered it";
    });
    return;
  }
  if (ordered_[last.wave].covers(last)) return;
  if (is_write && by.dma) {
    Raced& raced = raced_.emplace_back(Raced{last, byte, lane, {}});
    for (u64 at = byte; at < part.address.lane[lane] + part.bytes; ++at)
      raced.before.push_back(written(*step.wave.workgroup, at));
    return;
  }
  report_race(step, last, byte, lane, is_write,
              is_write && !last.atomic && stores_same(step.wave, part, byte, lane));
}

void LdsRaces::after(const Step& step) {
  const auto& lds = step.wave.workgroup->lds;
  for (const Raced& raced : raced_)
    report_race(step, raced.last, raced.byte, raced.lane, true,
                !raced.last.atomic &&
                    std::equal(raced.before.begin(), raced.before.end(), lds.begin() + raced.byte));
  raced_.clear();
  if (is_ds(step)) return;
  for (int i = 0; i < step.memory->num_parts; ++i) {
    const FootprintPart& part = step.memory->parts[i];
    if (part.space != Space::kLds) continue;
    for_lanes(part.mask, [&](int lane) {
      const auto first = lds.begin() + static_cast<i64>(part.address.lane[lane]);
      std::copy(first, first + part.bytes, loaded_.begin() + (first - lds.begin()));
    });
  }
}

void LdsRaces::report_race(const Step& step, const Tag& last, u32 byte, int lane, bool is_write,
                           bool same) {
  step.report.add(
      step.wave, step.inst, same ? FindingKind::kSameValueRace : FindingKind::kLdsRace,
      producer(step.report, last), [&](Finding& f) {
        f.lane = lane;
        f.where = place(byte);
        if (same) {
          f.message = f.where + " is given the value that wave " + std::to_string(last.wave) +
                      ", too, writes, without a barrier between";
          return;
        }
        f.message = f.where + (is_write ? " is overwritten" : " is read") + " although wave " +
                    std::to_string(last.wave) + " writes it without a completed wait (" +
                    (last.dma ? "vmcnt" : "lgkmcnt") + ") and a barrier between";
      });
}

// A write of `byte` against the reads by any wave.
void LdsRaces::check_readers(const Step& step, u32 byte, int lane, const Tag& by) {
  for (u32 wave = 0; wave < num_waves_; ++wave) {
    const u32 number = readers_[wave][byte];
    if (number == 0) continue;
    const Tag last{number, static_cast<u16>(wave), false, false};
    if (wave == by.wave) {
      if (!by.dma || number <= step.order.lds_completed) continue;
      step.report.add(step.wave, step.inst, FindingKind::kOverwriteBeforeWait,
                      producer(step.report, last), [&](Finding& f) {
                        f.lane = lane;
                        f.where = place(byte);
                        f.message = f.where +
                                    " is overwritten by a load to LDS while this wave's read of "
                                    "it may be under way: no wait on lgkmcnt has covered it";
                      });
      continue;
    }
    if (ordered_[wave].covers(last)) continue;
    step.report.add(
        step.wave, step.inst, FindingKind::kLdsRace, producer(step.report, last), [&](Finding& f) {
          f.lane = lane;
          f.where = place(byte);
          f.message = f.where + " is overwritten although wave " + std::to_string(wave) +
                      " reads it without a completed wait (lgkmcnt) and a barrier "
                      "between";
        });
  }
}

void LdsRaces::access(const Step& step, const FootprintPart& part) {
  const bool dma = !is_ds(step);
  Tag by;
  by.wave = static_cast<u16>(step.wave.wave_idx);
  by.dma = dma;
  by.atomic = part.access == Access::kAtomic;
  by.number = (dma ? step.order.vmem_issued : step.order.lds_issued) + 1;
  bool noted = false;
  std::vector<u32>& reads = readers_[by.wave];
  for_lanes(part.mask, [&](int lane) {
    const u64 first = part.address.lane[lane];
    if (first + part.bytes > num_bytes_) return;  // the execution reports it
    if (!noted) note(step, by);
    noted = true;
    const u32 at = static_cast<u32>(first), end = at + part.bytes;
    const bool writes = part.access != Access::kRead;
    const Tag* seen = &by;  // lanes of one instruction may overlap
    for (u32 byte = at; byte < end; ++byte) {
      const Tag& last = writers_[byte];
      if (last.number && !(*seen == last) && !(last == by)) check_write(step, part, byte, lane, by);
      seen = &last;
    }
    if (!writes) {
      std::fill(reads.begin() + at, reads.begin() + end, by.number);
      return;
    }
    for (u32 wave = 0; wave < num_waves_; ++wave) {
      const std::vector<u32>& numbers = readers_[wave];
      const u32 limit =
          wave == by.wave ? (dma ? step.order.lds_completed : ~u32{0}) : ordered_[wave].lds;
      u32 late = 0;
      for (u32 byte = at; byte < end; ++byte) late |= numbers[byte] > limit;
      if (late)
        for (u32 byte = at; byte < end; ++byte)
          if (numbers[byte] > limit) {
            check_readers(step, byte, lane, by);
            break;
          }
    }
    std::fill(writers_.begin() + at, writers_.begin() + end, by);
  });
}

}  // namespace vdev
