// C entry point through which the tests follow uninitialised bits through instructions on a bare
// wave. Mirrored by tests/support/check/taint_machine.py.
#include <cstdio>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "check/taint.h"
#include "core/test_machine.h"
#include "core/worker.h"
#include "isa/decode.h"
#include "numerics/float_rules_mxcsr.h"

namespace vdev {
namespace {

// Registers as in vdev_test_run, and the uninitialised bits of each; all in and out.
struct TaintState {
  u32 *vgprs, *vector_bits;  // [512][64]
  u32 *sgprs, *scalar_bits;  // [128], [129]: SCC last
  u8 *lds, *lds_bits;
  u64 lds_bytes;
  u8 *scratch, *scratch_bits;  // as in Wave::scratch; by lane, then byte
  u64 scratch_lane_bytes;
  u8* memory;  // host memory, visible to the wave at its address; initialised
  u64 memory_bytes;
  u32 mode, scc;
  // out
  u32 num_findings;  // whose text is in `findings`, a line each: kind, lane, where, message
  char findings[4096];
};

ShadowMemory& shadow_memory() {
  static auto& all = *new std::map<const Device*, std::unique_ptr<ShadowMemory>>;
  auto& memory = all[&test_device()];
  if (!memory) memory = std::make_unique<ShadowMemory>(test_device().memory(), [](Finding) {});
  return *memory;
}

}  // namespace
}  // namespace vdev

// Runs straight-line code. Returns the FaultKind.
extern "C" __attribute__((visibility("default"))) int vdev_test_taint(const vdev::u32* words,
                                                                      size_t num_words,
                                                                      vdev::TaintState* state) {
  using namespace vdev;
  const bool registered = state->memory_bytes && test_device().memory().register_host(
                                                     state->memory, state->memory_bytes, 0);
  DecodedCode code;
  code.set = &instruction_set(test_processor());
  for (size_t i = 0; i < num_words; ++i)
    code.insts.push_back(decode(std::span(words, num_words).subspan(i), *code.set).inst);
  Kernel kernel;
  kernel.num_vgprs = kernel.num_agprs = 256;
  Launch launch;
  launch.kernel = &kernel;
  LaunchState launch_state(launch, code, test_device().machine());
  Worker worker(test_device());
  Workgroup group;
  group.launch = &launch_state;
  group.worker = &worker;
  group.num_waves = 1;
  group.lds.assign(state->lds, state->lds + state->lds_bytes);
  auto wave = std::make_unique<Wave>();
  group.waves.push_back(wave.get());
  wave->workgroup = &group;
  std::memcpy(wave->v, state->vgprs, sizeof wave->v);
  std::memcpy(wave->s, state->sgprs, sizeof wave->s);
  wave->scratch = reinterpret_cast<std::byte*>(state->scratch);
  wave->scratch_bytes = static_cast<u32>(state->scratch_lane_bytes);
  wave->set_mode(state->mode);
  wave->scc = state->scc != 0;

  LdsTaint lds;
  auto taint = std::make_unique<Taint>();
  taint->start(*wave, lds, shadow_memory());
  lds.bits.assign(state->lds_bits, state->lds_bits + state->lds_bytes);
  taint->scratch_bits().assign(state->scratch_bits,
                               state->scratch_bits + kLanes * state->scratch_lane_bytes);
  for (u32 reg = 0; reg < 512; ++reg) taint->set_vector_bits(reg, state->vector_bits + 64 * reg);
  for (u32 index = 0; index <= kSccIndex; ++index)
    taint->set_scalar_bits(index, state->scalar_bits[index]);

  Report report(code, 0);
  const MemoryOrder order;
  Footprint memory;
  int result = 0;
  const u32 host = MxcsrScope::read();
  MxcsrScope::write(wave->mxcsr);
  const Inst* const begin = code.insts.data();
  wave->ip = begin;
  try {
    while (wave->ip >= begin && wave->ip < begin + num_words && wave->state != WaveState::kDone) {
      const Inst& inst = *wave->ip;
      if (!inst.row) raise(FaultKind::kIllegalInstruction, "undefined");
      const RegisterUse use = register_use(inst);
      const bool touches = footprint(*wave, inst, memory);
      taint->step({*wave, inst, use, touches ? &memory : nullptr, order, report});
      MxcsrScope::write(wave->mxcsr);
      wave->ip = &inst + inst.size;
      if (wave->special)
        worker.step_special(*wave, inst);
      else
        inst.exec(*wave, inst);
    }
  } catch (const Fault& fault) {
    result = static_cast<int>(fault.kind);
  }
  MxcsrScope::write(host);
  if (registered) test_device().memory().unregister_host(state->memory);

  std::memcpy(state->vgprs, wave->v, sizeof wave->v);
  std::memcpy(state->sgprs, wave->s, sizeof wave->s);
  if (!group.lds.empty()) std::memcpy(state->lds, group.lds.data(), group.lds.size());
  if (!group.lds.empty()) std::memcpy(state->lds_bits, lds.bits.data(), lds.bits.size());
  if (state->scratch_lane_bytes)
    std::memcpy(state->scratch_bits, taint->scratch_bits().data(), taint->scratch_bits().size());
  for (u32 reg = 0; reg < 512; ++reg)
    for (int lane = 0; lane < kLanes; ++lane)
      state->vector_bits[64 * reg + static_cast<u32>(lane)] = taint->vector_bits(reg, lane);
  for (u32 index = 0; index <= kSccIndex; ++index)
    state->scalar_bits[index] = taint->scalar_bits(index);
  state->mode = wave->mode;
  state->scc = wave->scc;
  std::string text;
  const std::vector<Finding> findings = report.take();
  for (const Finding& f : findings)
    text += std::string(finding_kind_name(f.kind)) + '\t' + std::to_string(f.lane) + '\t' +
            f.where + '\t' + f.message + '\n';
  state->num_findings = static_cast<u32>(findings.size());
  std::snprintf(state->findings, sizeof state->findings, "%s", text.c_str());
  return result;
}
