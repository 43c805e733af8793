#include "check/bounds.h"

#include <algorithm>
#include <cstdio>

namespace vdev {
namespace {

// The segment is padded up to this; scalar loads may fetch beyond the last argument within it.
constexpr u64 kKernargLine = 64;

std::string hex(u64 value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

// Of a formatted buffer access, the only kind of load and store that does not take every address
// (isa/access.h). Atomics fault in execution; scalar accesses drop the two low bits.
void Bounds::check_alignment(const Step& step, const FootprintPart& part) const {
  const u64 unit = std::min<u64>(part.bytes, 4);
  u64 low_bits = 0;
  if (part.mask == ~u64{0})
    for (const u64 address : part.address.lane) low_bits |= address;
  else
    for_lanes(part.mask, [&](int lane) { low_bits |= part.address.lane[lane]; });
  if (low_bits % unit == 0) return;
  step.report.add(step.wave, step.inst, FindingKind::kMisaligned, kNoPc, [&](Finding& f) {
    for_lanes(part.mask, [&](int lane) {
      if (f.lane < 0 && part.address.lane[lane] % unit) f.lane = lane;
    });
    f.where = hex(part.address.lane[f.lane]);
    f.message = "a formatted access of " + std::to_string(part.bytes) + " bytes at " + f.where +
                ", which is not a multiple of " + std::to_string(unit);
  });
}

// Of global and scratch loads to LDS the two low bits of M0 do not count, whatever the
// architecture: what they bring lies elsewhere than it says. Buffer loads fault in execution.
void Bounds::check_lds_base(const Step& step) const {
  const Row& row = *step.inst.row;
  const u32 m0 = step.wave.s[kM0];
  if (row.format != Format::kGlobal && row.format != Format::kScratch) return;
  if (!(row.effects & kReadsM0) || m0 % 4 == 0) return;
  step.report.add(step.wave, step.inst, FindingKind::kMisaligned, kNoPc, [&](Finding& f) {
    f.where = "m0";
    f.message = "M0 is " + hex(m0) + ", which is not a multiple of 4: the load to LDS goes to " +
                hex(m0 & 0x3fffc) + " and its offset";
  });
}

void Bounds::check_contracts(const Step& step, const FootprintPart& part) const {
  for (const Contract& contract : contracts_) {
    if (contract.kind != Contract::Kind::kReadOnly) continue;
    int hit = -1;
    for_lanes(part.mask, [&](int lane) {
      const u64 address = part.address.lane[lane];
      if (hit < 0 && address < contract.address + contract.bytes &&
          address + part.bytes > contract.address)
        hit = lane;
    });
    if (hit < 0) continue;
    step.report.add(step.wave, step.inst, FindingKind::kReadOnlyWrite, kNoPc, [&](Finding& f) {
      f.lane = hit;
      f.where = hex(part.address.lane[hit]);
      f.message = "writes to " + contract.name + " (+" +
                  std::to_string(part.address.lane[hit] - contract.address) +
                  " bytes), which was declared read-only";
    });
  }
}

void Bounds::check_kernarg(const Step& step, const FootprintPart& part) const {
  const u64 end = kernarg_address_ + kernarg_bytes_;
  const u64 padded =
      kernarg_address_ + (kernarg_bytes_ + kKernargLine - 1) / kKernargLine * kKernargLine;
  for_lanes(part.mask, [&](int lane) {
    const u64 address = part.address.lane[lane];
    const bool reads_padding = address >= end && address < padded + kKernargLine;
    const bool crosses =
        address >= kernarg_address_ && address < end && address + part.bytes > padded;
    if (!reads_padding && !crosses) return;
    step.report.add(step.wave, step.inst, FindingKind::kKernargOverread, kNoPc, [&](Finding& f) {
      f.lane = part.scalar ? -1 : lane;
      f.where = "kernarg+" + std::to_string(address - kernarg_address_);
      f.message = "reads " + std::to_string(part.bytes) + " bytes at " + f.where +
                  " of a segment of " + std::to_string(kernarg_bytes_) + " bytes";
    });
  });
}

// Lanes of one store that leave different bytes in one place: which one wins is not specified.
void Bounds::check_overlap(const Step& step, const FootprintPart& part) const {
  if (part.space == Space::kScratch || part.scalar || !part.plain_data ||
      part.data == FootprintPart::kNoRegister)
    return;
  // Almost always lanes ascend, or else are all apart.
  u64 previous_end = 0;
  bool ascends = true;
  for_lanes(part.mask, [&](int lane) {
    ascends &= part.address.lane[lane] >= previous_end;
    previous_end = part.address.lane[lane] + part.bytes;
  });
  if (ascends) return;
  std::pair<u64, int> lanes[kLanes];
  int count = 0;
  for_lanes(part.mask, [&](int lane) { lanes[count++] = {part.address.lane[lane], lane}; });
  std::sort(lanes, lanes + count);
  const auto byte_of = [&](int lane, u64 address) {
    const u32 bit = 8 * static_cast<u32>(address - part.address.lane[lane]) + part.data_shift;
    return static_cast<u8>(step.wave.v[part.data + bit / 32].lane[lane] >> bit % 32);
  };
  for (int i = 1; i < count; ++i) {
    const auto [address, lane] = lanes[i];
    const auto [other_address, other] = lanes[i - 1];
    for (u64 at = address; at < other_address + part.bytes; ++at) {
      if (byte_of(lane, at) == byte_of(other, at)) continue;
      const bool lds = part.space == Space::kLds;
      step.report.add(step.wave, step.inst, lds ? FindingKind::kLdsRace : FindingKind::kGlobalRace,
                      step.pc(), [&, lane = lane, other = other](Finding& f) {
                        f.lane = lane;
                        f.where = (lds ? "lds " : "") + hex(at);
                        f.message = "lanes " + std::to_string(std::min(lane, other)) + " and " +
                                    std::to_string(std::max(lane, other)) +
                                    " of one store write different values to " + f.where +
                                    ": which one stays is not specified";
                      });
      return;
    }
  }
}

void Bounds::step(const Step& step) const {
  const Footprint& memory = *step.memory;
  check_lds_base(step);
  if (memory.swallowed)
    step.report.add(step.wave, step.inst, FindingKind::kRangeSwallowed, kNoPc, [&](Finding& f) {
      f.lane = std::countr_zero(memory.swallowed);
      f.message = std::to_string(std::popcount(memory.swallowed)) +
                  " lanes are outside the buffer: loads return 0, stores are dropped";
    });
  if (memory.ambiguous)
    step.report.add(step.wave, step.inst, FindingKind::kAmbiguousRange, kNoPc, [&](Finding& f) {
      f.lane = std::countr_zero(memory.ambiguous);
      f.where = "soffset";
      f.message = std::to_string(std::popcount(memory.ambiguous)) +
                  " lanes are inside the buffer or outside by whether soffset counts in the range "
                  "check, which is told in several ways: soffset 0, or a num_records far above";
    });
  for (int i = 0; i < memory.num_parts; ++i) {
    const FootprintPart& part = memory.parts[i];
    if (!part.mask) continue;
    if (!part.plain_data) check_alignment(step, part);  // formatted
    if (part.access == Access::kWrite) check_overlap(step, part);
    if (part.space != Space::kGlobal) continue;
    if (part.access != Access::kRead)
      check_contracts(step, part);
    else if (part.scalar || part.address.lane[0] - kernarg_address_ < 65536)
      check_kernarg(step, part);
  }
}

void Bounds::finish(Memory& memory, Report& report) const {
  for (const Contract& contract : contracts_) {
    if (contract.kind != Contract::Kind::kZeroAtEnd) continue;
    const auto allocation = memory.find(contract.address);
    if (!allocation || !allocation->contains(contract.address, contract.bytes)) continue;
    const std::byte* host = allocation->host(contract.address);
    const std::byte* end = host + contract.bytes;
    const std::byte* dirty = std::find_if(host, end, [](std::byte b) { return b != std::byte{}; });
    if (dirty == end) continue;
    Finding f;
    f.kind = FindingKind::kDirtyMemory;
    f.where = hex(contract.address + static_cast<u64>(dirty - host));
    f.message = contract.name + " is not zero after the launch, from byte " +
                std::to_string(dirty - host) + " of " + std::to_string(contract.bytes) + " on";
    report.insert(std::move(f));
  }
}

}  // namespace vdev
