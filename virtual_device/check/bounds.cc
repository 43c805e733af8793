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

void Bounds::check_alignment(const Step& step, const FootprintPart& part) const {
  const u64 unit = std::min<u64>(part.bytes, 4);
  if (part.scalar || unit < 2 || part.access == Access::kAtomic) return;
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
    const u64 address = part.address.lane[f.lane];
    f.where = part.space == Space::kLds ? "lds " + hex(address) : hex(address);
    f.message = "an access of " + std::to_string(part.bytes) + " bytes at " + f.where +
                ", which is not a multiple of " + std::to_string(unit);
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
  const u64 padded = kernarg_address_ + (kernarg_bytes_ + kKernargLine - 1) / kKernargLine *
                                            kKernargLine;
  for_lanes(part.mask, [&](int lane) {
    const u64 address = part.address.lane[lane];
    const bool reads_padding = address >= end && address < padded + kKernargLine;
    const bool crosses = address >= kernarg_address_ && address < end &&
                         address + part.bytes > padded;
    if (!reads_padding && !crosses) return;
    step.report.add(step.wave, step.inst, FindingKind::kKernargOverread, kNoPc, [&](Finding& f) {
      f.lane = part.scalar ? -1 : lane;
      f.where = "kernarg+" + std::to_string(address - kernarg_address_);
      f.message = "reads " + std::to_string(part.bytes) + " bytes at " + f.where +
                  " of a segment of " + std::to_string(kernarg_bytes_) + " bytes";
    });
  });
}

void Bounds::step(const Step& step) const {
  const Footprint& memory = *step.memory;
  if (memory.swallowed)
    step.report.add(step.wave, step.inst, FindingKind::kRangeSwallowed, kNoPc, [&](Finding& f) {
      f.lane = std::countr_zero(memory.swallowed);
      f.message = std::to_string(std::popcount(memory.swallowed)) +
                  " lanes are outside the buffer: loads return 0, stores are dropped";
    });
  for (int i = 0; i < memory.num_parts; ++i) {
    const FootprintPart& part = memory.parts[i];
    if (!part.mask) continue;
    check_alignment(step, part);
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
