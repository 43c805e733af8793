// Memory instructions: addresses and stored values are where uninitialised bits do harm; between
// registers, LDS and scratch they are carried along.
#include "check/taint_memory.h"

#include "isa/ds_transpose.h"
#include "isa/operand.h"

namespace vdev {
namespace {

using namespace taint_memory;

// Calls f with the width as a constant, so that copies of it become single moves.
template <class F>
void with_width(u32 bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(std::integral_constant<u32, 1>());
    case 2:
      return f(std::integral_constant<u32, 2>());
    case 4:
      return f(std::integral_constant<u32, 4>());
    case 8:
      return f(std::integral_constant<u32, 8>());
    case 16:
      return f(std::integral_constant<u32, 16>());
    default:
      return f(bytes);
  }
}

// Device addresses from the lowest to the end of the highest datum; false when they lie too far
// apart for that to say much.
bool span(const FootprintPart& part, u64& first, u64& bytes) {
  u64 low = ~u64{0}, high = 0;
  if (part.mask == ~u64{0}) {
    i64 least = INT64_MAX, most = INT64_MIN;
    for (const u64 address : part.address.lane) {
      least = std::min(least, static_cast<i64>(address));
      most = std::max(most, static_cast<i64>(address));
    }
    low = static_cast<u64>(least);
    high = static_cast<u64>(most);
  } else {
    for_lanes(part.mask, [&](int lane) {
      low = std::min(low, part.address.lane[lane]);
      high = std::max(high, part.address.lane[lane]);
    });
  }
  if (high < low || high - low > 1024 * kMemoryPage) return false;
  first = low;
  bytes = high - low + part.bytes;
  return true;
}

}  // namespace

bool Taint::read(const Wave& wave, const FootprintPart& part, int lane, u8* bits) const {
  const u64 address = part.address.lane[lane];
  const u32 bytes = part.bytes;
  const u8* from = nullptr;
  if (part.space == Space::kGlobal) return memory_->read(address, bits, bytes);
  if (part.space == Space::kLds) {
    if (address + bytes <= lds_->bits.size()) from = &lds_->bits[address];
  } else if (address <= wave.scratch_bytes && bytes <= wave.scratch_bytes - address) {
    from = &scratch_[static_cast<size_t>(lane) * wave.scratch_bytes + address];
  }
  if (!from) {
    std::memset(bits, 0, bytes);
    return false;
  }
  std::memcpy(bits, from, bytes);
  return nonzero(bits, bytes);
}

void Taint::write(const Wave& wave, const FootprintPart& part, int lane, const u8* bits) {
  const u64 address = part.address.lane[lane];
  const u32 bytes = part.bytes;
  if (part.space == Space::kGlobal) {
    memory_->define(address, bytes);
  } else if (part.space == Space::kLds) {
    if (address + bytes <= lds_->bits.size()) std::memcpy(&lds_->bits[address], bits, bytes);
  } else if (address <= wave.scratch_bytes && bytes <= wave.scratch_bytes - address) {
    std::memcpy(&scratch_[static_cast<size_t>(lane) * wave.scratch_bytes + address], bits, bytes);
  }
}

bool Taint::part_tainted(const Wave& wave, const FootprintPart& part) const {
  if (!part.mask) return false;
  bool tainted = false;
  if (part.space == Space::kLds) {
    const u8* const lds = lds_->bits.data();
    const u64 size = lds_->bits.size();
    with_width(part.bytes, [&](auto width) {
      u8 all[kMaxDatum] = {};
      for_lanes(part.mask, [&](int lane) {
        const u64 address = part.address.lane[lane];
        if (address + width > size) return;
        u8 bits[kMaxDatum];
        std::memcpy(bits, lds + address, width);
        for (u32 i = 0; i < width; ++i) all[i] |= bits[i];
      });
      tainted = nonzero(all, width);
    });
    return tainted;
  }
  if (part.space == Space::kGlobal) {
    u64 first, bytes;
    if (span(part, first, bytes) && memory_->whole_pages(first, bytes)) return false;
    for_lanes(part.mask,
              [&](int lane) { tainted |= !memory_->defined(part.address.lane[lane], part.bytes); });
    return tainted;
  }
  u8 bits[kMaxDatum];
  for_lanes(part.mask, [&](int lane) { tainted |= read(wave, part, lane, bits); });
  return tainted;
}

// Initialised data were stored.
void Taint::define_part(const Wave& wave, const FootprintPart& part) {
  if (!part.mask) return;
  if (part.space == Space::kLds) {
    u8* const lds = lds_->bits.data();
    const u64 size = lds_->bits.size();
    with_width(part.bytes, [&](auto width) {
      for_lanes(part.mask, [&](int lane) {
        const u64 address = part.address.lane[lane];
        if (address + width <= size) std::memset(lds + address, 0, width);
      });
    });
    return;
  }
  u64 first, bytes;
  if (part.space == Space::kGlobal && span(part, first, bytes) &&
      memory_->whole_pages(first, bytes))
    return;
  const u8 bits[kMaxDatum] = {};
  for_lanes(part.mask, [&](int lane) { write(wave, part, lane, bits); });
}

// Shadow of a lane's datum in registers from `first` on.
void Taint::datum(const FootprintPart& part, u32 first, int lane, u8* bits) const {
  for (u32 at = 0; at < part.bytes; at += 4) {
    const u32 word = part.scalar
                         ? scalar_[first + at / 4]
                         : shadow_.v[first + at / 4].lane[lane] >> (at ? 0 : part.data_shift);
    std::memcpy(bits + at, &word, std::min<u32>(4, part.bytes - at));
  }
}

void Taint::check_vector_address(const Step& step, const Operand& o) {
  if (!o.is_vector() || !any_vector(o.reg(), o.dwords)) return;
  u64 lanes = 0;
  for (u32 d = 0; d < o.dwords; ++d)
    for_lanes(step.wave.exec(), [&](int lane) {
      if (shadow_.v[o.reg() + d].lane[lane]) lanes |= u64{1} << lane;
    });
  if (lanes)
    report(step, FindingKind::kUninitialisedAddress,
           {RegisterFile::kVector, static_cast<u16>(o.reg()), o.dwords}, std::countr_zero(lanes),
           "an address");
}

void Taint::check_scalar_address(const Step& step, const Operand& o, const char* what) {
  if (o.kind == OperandKind::kSgpr && any(512 + o.index, o.dwords))
    report(step, FindingKind::kUninitialisedAddress, {RegisterFile::kScalar, o.index, o.dwords}, -1,
           what);
}

void Taint::check_addresses(const Step& step) {
  const Inst& inst = step.inst;
  const Row& row = *inst.row;
  const bool buffer = row.src[row.format == Format::kSmem ? 0 : 2].dwords == 4;
  switch (row.format) {
    case Format::kSmem:
      check_scalar_address(step, inst.src[0], buffer ? "a buffer resource" : "an address");
      check_scalar_address(step, inst.src[1], "an address offset");
      break;
    case Format::kDs:
      check_vector_address(step, inst.src[0]);
      break;
    default:
      check_vector_address(step, inst.src[0]);
      check_scalar_address(step, inst.src[2], buffer ? "a buffer resource" : "an address");
      check_scalar_address(step, inst.src[3], "an address offset");
  }
  if ((row.effects & kReadsM0 || inst.lds) && scalar_[kM0])
    report(step, FindingKind::kUninitialisedAddress, {RegisterFile::kScalar, kM0, 1}, -1,
           "an LDS address");
}

void Taint::memory(const Step& step) {
  const Row& row = *step.inst.row;
  check_addresses(step);
  const bool scalar = row.format == Format::kSmem;
  const bool lds_dma = !scalar && !(row.effects & kAtomic) &&
                       (step.inst.lds || (row.effects & (kLoad | kStore)) == (kLoad | kStore));
  if (!scalar && exec_taint() && row.effects & (kStore | kAtomic))
    report(step, FindingKind::kUninitialisedBranch, {RegisterFile::kScalar, kExec, 2}, -1,
           "which lanes store");
  if (lds_dma)
    load_to_lds(step);
  else if (row.effects & kAtomic)
    atomic(step);
  else if (row.effects & kStore)
    store(step);
  else if (scalar)
    load_scalar(step);
  else
    load(step);
}

void Taint::load_scalar(const Step& step) {
  const FootprintPart& part = step.memory->parts[0];
  const Operand& dst = step.inst.dst;
  u8 bits[kMaxDatum] = {};
  if (part.mask && part.bytes) read(step.wave, part, 0, bits);
  for (u32 d = 0; d < dst.dwords; ++d) {
    u32 word;
    std::memcpy(&word, bits + 4 * d, 4);
    set_scalar((dst.index + d) & 127, word, place_);
  }
}

// The shadow of what lanes read, exchanged as the data are.
void Taint::load_transposed(const Step& step, Reg* out) const {
  const FootprintPart& part = step.memory->parts[0];
  u8 bits[kLanes * kMaxDatum] = {};
  for_lanes(part.mask, [&](int lane) { read(step.wave, part, lane, &bits[lane * part.bytes]); });
  ds::transpose(step.inst.row->element_bits, reinterpret_cast<const std::byte*>(bits), out);
}

void Taint::load(const Step& step) {
  const Inst& inst = step.inst;
  const Footprint& memory = *step.memory;
  const u64 exec = step.wave.exec();
  bool tainted = false;
  for (int i = 0; i < memory.num_parts; ++i) tainted |= part_tainted(step.wave, memory.parts[i]);
  const u32 first = inst.dst.reg(), dwords = inst.dst.dwords;
  if (!tainted && !exec_taint()) {
    for (u32 d = 0; d < dwords; ++d) clear_lanes(first + d, exec);
    return;
  }
  Reg out[kMaxDatum / 4];
  std::memset(out, 0, sizeof(Reg) * dwords);
  const bool extends = inst.row->is(Trait::kSignExtends), transposes = inst.row->element_bits != 0;
  if (transposes) load_transposed(step, out);
  for (int i = 0; i < memory.num_parts && !transposes; ++i) {
    const FootprintPart& part = memory.parts[i];
    const u32 at = part.data - first;
    for_lanes(part.mask, [&](int lane) {
      u8 bits[kMaxDatum];
      if (!read(step.wave, part, lane, bits)) return;
      if (!part.plain_data) {
        for (u32 d = 0; d < dwords; ++d) out[d].lane[lane] = ~0u;
        return;
      }
      for (u32 b = 0; b < part.bytes; b += 4) {
        u32 word = 0;
        std::memcpy(&word, bits + b, std::min<u32>(4, part.bytes - b));
        if (part.bytes < 4) {
          const u32 width = 8u * part.bytes;
          if (extends && word >> (width - 1) & 1) word |= ~0u << width;
          if (inst.row->is(Trait::kHalfDatum)) word &= 0xffff;
          word <<= part.data_shift;
        }
        out[at + b / 4].lane[lane] = word;
      }
    });
  }
  merge(&shadow_.v[first], out, static_cast<int>(dwords), exec);
  settle_writes(step, place_);
}

void Taint::load_to_lds(const Step& step) {
  const Footprint& memory = *step.memory;
  const FootprintPart& deposit = memory.parts[memory.num_parts - 1];
  const bool extends = step.inst.row->is(Trait::kSignExtends);
  u32 data[kLanes][4] = {};
  for (int i = 0; i + 1 < memory.num_parts; ++i) {
    const FootprintPart& part = memory.parts[i];
    for_lanes(part.mask, [&](int lane) {
      u32* const word =
          &data[lane][(part.address.lane[lane] - memory.parts[0].address.lane[lane]) / 4];
      read(step.wave, part, lane, reinterpret_cast<u8*>(word));
      const u32 width = 8u * part.bytes;
      if (width < 32 && extends && *word >> (width - 1) & 1) *word |= ~0u << width;
    });
  }
  for_lanes(deposit.mask, [&](int lane) {
    write(step.wave, deposit, lane, reinterpret_cast<const u8*>(data[lane]));
  });
}

void Taint::store(const Step& step) {
  const Inst& inst = step.inst;
  const Footprint& memory = *step.memory;
  const bool scalar = inst.row->format == Format::kSmem;
  const Operand& data = scalar ? inst.src[2] : inst.src[1];
  bool tainted = scalar ? any(512 + data.index, data.dwords)
                        : data.is_vector() && any_vector(data.reg(), data.dwords);
  const Operand& second = inst.src[2];  // of ds_write2_*
  if (inst.row->format == Format::kDs && second.is_vector())
    tainted |= any_vector(second.reg(), second.dwords);
  for (int i = 0; i < memory.num_parts; ++i) {
    const FootprintPart& part = memory.parts[i];
    if (!tainted) {
      define_part(step.wave, part);
      continue;
    }
    u64 bad = 0;
    for_lanes(part.mask, [&](int lane) {
      u8 bits[kMaxDatum];
      if (part.plain_data) {
        datum(part, part.data, lane, bits);
      } else {  // converted: every byte depends on every register
        u32 all = 0;
        for (u32 d = 0; d < data.dwords; ++d) all |= shadow_.v[data.reg() + d].lane[lane];
        std::memset(bits, all ? 0xff : 0, part.bytes);
      }
      if (part.space == Space::kGlobal && nonzero(bits, part.bytes)) bad |= u64{1} << lane;
      write(step.wave, part, lane, bits);
    });
    if (!bad) continue;
    const u32 whole = scalar ? data.index : data.reg();
    const u32 first = part.plain_data ? part.data : whole;
    const u32 dwords = part.plain_data ? (part.bytes + 3u) / 4 : data.dwords;
    report(step, FindingKind::kUninitialisedStore,
           {scalar ? RegisterFile::kScalar : RegisterFile::kVector, static_cast<u16>(first),
            static_cast<u16>(dwords)},
           scalar ? -1 : std::countr_zero(bad), "a stored value");
  }
}

}  // namespace vdev
