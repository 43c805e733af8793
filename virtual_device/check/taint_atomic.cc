// Atomics: they read, compute with and write memory at once.
#include <cstdio>

#include "check/taint_memory.h"
#include "isa/operand.h"

namespace vdev {
namespace {

using namespace taint_memory;

}  // namespace

void Taint::atomic(const Step& step) {
  const Inst& inst = step.inst;
  const Row& row = *inst.row;
  const Footprint& memory = *step.memory;
  const bool scalar = row.format == Format::kSmem;
  const bool replacing = row.is(Trait::kReplaces);
  const Operand& operand = scalar ? inst.src[2] : inst.src[1];
  const RegisterFile file = scalar ? RegisterFile::kScalar : RegisterFile::kVector;
  const u16 first = scalar ? operand.index : static_cast<u16>(operand.reg());
  // Everything is read before what is returned replaces an operand.
  const Operand& returned = scalar ? operand : inst.dst;
  const bool returns = scalar ? inst.sc0 : returned.is_vector() && step.use.num_writes != 0;
  Reg out[4];
  std::memset(out, 0, sizeof out);
  u64 lanes = 0;
  for (int i = 0; i < memory.num_parts; ++i) lanes |= memory.parts[i].mask;
  u64 bad_operand[Footprint::kMaxParts] = {}, bad_memory[Footprint::kMaxParts] = {};
  for_lanes(lanes, [&](int lane) {  // lane by lane, as they are executed
    for (int i = 0; i < memory.num_parts; ++i) {
      const FootprintPart& part = memory.parts[i];
      if (!(part.mask >> lane & 1)) continue;
      const u32 at = returns && part.data != kNone && i ? part.data - memory.parts[0].data : 0;
      u8 old[kMaxDatum], bits[kMaxDatum] = {};
      const bool unwritten = read(step.wave, part, lane, old);
      bool unknown = false;
      if (part.operand != kNone) {
        if (replacing) {
          datum(part, part.operand, lane, bits);
          unknown = nonzero(bits, part.bytes);
        } else {
          const u32 words = i && row.format == Format::kDs ? inst.src[2].dwords : operand.dwords;
          for (u32 d = 0; d < words; ++d)
            unknown |= scalar ? scalar_[part.operand + d] != 0
                              : shadow_.v[part.operand + d].lane[lane] != 0;
          if (row.format == Format::kDs && inst.src[2].is_vector() && i == 0)
            for (u32 d = 0; d < inst.src[2].dwords; ++d)
              unknown |= shadow_.v[inst.src[2].reg() + d].lane[lane] != 0;
        }
      }
      if (unknown) bad_operand[i] |= u64{1} << lane;
      if (unwritten && !replacing) bad_memory[i] |= u64{1} << lane;
      if (!replacing) std::memset(bits, unknown || unwritten ? 0xff : 0, part.bytes);
      write(step.wave, part, lane, bits);
      for (u32 b = 0; b < part.bytes && returns; b += 4)
        std::memcpy(&out[at + b / 4].lane[lane], old + b, 4);
    }
  });
  for (int i = 0; i < memory.num_parts; ++i) {
    const FootprintPart& part = memory.parts[i];
    if (part.space != Space::kGlobal) continue;
    if (bad_operand[i])
      report(step, FindingKind::kUninitialisedStore, {file, first, operand.dwords},
             scalar ? -1 : std::countr_zero(bad_operand[i]), "an atomic's operand");
    if (bad_memory[i]) {
      const int lane = std::countr_zero(bad_memory[i]);
      step.report.add(step.wave, *place_, FindingKind::kUninitialisedStore, kNoPc, [&](Finding& f) {
        char text[32];
        std::snprintf(text, sizeof text, "0x%llx",
                      static_cast<unsigned long long>(part.address.lane[lane]));
        f.lane = scalar ? -1 : lane;
        f.where = text;
        f.message = "an atomic updates memory that nothing has written";
      });
    }
  }
  if (!returns) return;
  if (scalar) {
    const u32 dwords = memory.parts[0].bytes / 4;
    for (u32 d = 0; d < dwords; ++d) set_scalar((first + d) & 127, out[d].lane[0], place_);
    return;
  }
  u64 exec = step.wave.exec();
  const FootprintPart& part = memory.parts[0];
  if (row.is(Trait::kOneForWave))
    for_lanes(exec & ~part.mask, [&](int lane) {
      out[0].lane[lane] = part.mask ? out[0].lane[std::countr_zero(part.mask)] : 0;
    });
  merge(&shadow_.v[returned.reg()], out, returned.dwords, exec);
  settle_writes(step, place_);
}

}  // namespace vdev
