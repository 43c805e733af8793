// C entry point through which the tests run instructions on a bare wave.
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "core/launch_state.h"
#include "core/test_machine.h"
#include "core/worker.h"
#include "isa/decode.h"
#include "isa/footprint.h"
#include "isa/register_use.h"
#include "numerics/float_rules_mxcsr.h"

namespace vdev {
namespace {

// Mirrored by tests/support/isa/machine.py.
struct TestState {
  u32* vgprs;  // [512][64]: v0..v255, a0..a255; in and out
  u32* sgprs;  // [128] by SgprIndex (EXEC, VCC and M0 included); in and out
  u8* lds;     // in and out
  u64 lds_bytes;
  u8* scratch;  // as in Wave::scratch; in and out
  u64 scratch_lane_bytes;
  u8* memory;  // host memory, visible to the wave at its host address
  u64 memory_bytes;
  u64 max_instructions;
  u32 mode, scc;  // in and out
  // out
  u32 fault;  // FaultKind
  i32 fault_lane;
  u64 fault_address;
  u64 instructions;
  u64 pc;        // dword index of the next instruction, or of the one at fault
  u64 progress;  // how often the wave reported a change of memory
  char message[512];
};

// Registers [memory, memory + bytes) for a scope.
class HostMemory {
 public:
  HostMemory(void* memory, u64 bytes) : memory_(memory) {
    registered_ = bytes && test_device().memory().register_host(memory, bytes, 0);
  }
  ~HostMemory() {
    if (registered_) test_device().memory().unregister_host(memory_);
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

 private:
  void* memory_;
  bool registered_;
};

DecodedCode decode_all(std::span<const u32> words, std::vector<const char*>& why) {
  DecodedCode code;
  code.set = &instruction_set(test_processor());
  for (size_t i = 0; i < words.size(); ++i) {
    Decoded decoded = decode(words.subspan(i), *code.set);
    code.insts.push_back(decoded.inst);
    why.push_back(decoded.why);
  }
  return code;
}

void report(TestState& state, FaultKind kind, int lane, u64 address, const std::string& message) {
  state.fault = static_cast<u32>(kind);
  state.fault_lane = lane;
  state.fault_address = address;
  std::snprintf(state.message, sizeof state.message, "%s", message.c_str());
}

void run(TestState& state, Wave& wave, const DecodedCode& code,
         const std::vector<const char*>& why) {
  const Inst* const begin = code.insts.data();
  const Inst* const end = begin + code.insts.size();
  wave.ip = begin;
  const Inst* current = begin;
  // As a worker does: from here on, instructions that change MODE change MXCSR.
  const u32 host = MxcsrScope::read();
  MxcsrScope::write(wave.mxcsr);
  try {
    while (wave.ip >= begin && wave.ip < end && wave.state != WaveState::kDone) {
      current = wave.ip;
      if (wave.instructions >= state.max_instructions)
        raise(FaultKind::kRunaway, "instruction limit reached");
      if (current->row == nullptr)
        raise(FaultKind::kIllegalInstruction, why[static_cast<size_t>(current - begin)]);
      wave.ip = current + current->size;
      if (wave.special)
        wave.workgroup->worker->step_special(wave, *current);
      else
        current->exec(wave, *current);
      ++wave.instructions;
    }
    current = wave.ip;
  } catch (const Fault& fault) {
    report(state, fault.kind, fault.lane, fault.address, fault.message);
  }
  MxcsrScope::write(host);
  state.pc = static_cast<u64>(current - begin);
}

// A wave in a workgroup of its own, with the registers and memory of a TestState.
struct TestWave {
  TestWave(TestState& state, const DecodedCode& code)
      : memory(state.memory, state.memory_bytes),
        launch_state(launch, code, test_device().machine()),
        worker(test_device()) {
    group.launch = &launch_state;
    group.worker = &worker;
    group.num_waves = 1;
    group.lds.assign(state.lds, state.lds + state.lds_bytes);
    group.waves.push_back(wave.get());
    wave->workgroup = &group;
    std::memcpy(wave->v, state.vgprs, sizeof wave->v);
    std::memcpy(wave->s, state.sgprs, sizeof wave->s);
    wave->scratch = reinterpret_cast<std::byte*>(state.scratch);
    wave->scratch_bytes = static_cast<u32>(state.scratch_lane_bytes);
    wave->set_mode(state.mode);
    wave->scc = state.scc != 0;
  }
  const HostMemory memory;
  const Launch launch;
  LaunchState launch_state;
  Worker worker;
  Workgroup group;
  std::unique_ptr<Wave> wave = std::make_unique<Wave>();
};

void append(std::string& text, const char* what, const RegisterRange& r) {
  text += std::string(what) + (r.file == RegisterFile::kVector ? " v " : " s ") +
          std::to_string(r.first) + ' ' + std::to_string(r.count) + '\n';
}

void append(std::string& text, const FootprintPart& part) {
  constexpr const char* kSpaces[] = {"global", "lds", "scratch"};
  constexpr const char* kAccesses[] = {"read", "write", "atomic"};
  text += std::string("memory ") + kSpaces[static_cast<int>(part.space)] + ' ' +
          kAccesses[static_cast<int>(part.access)] + ' ' + std::to_string(part.bytes) + ' ' +
          (part.data == FootprintPart::kNoRegister ? "-1" : std::to_string(part.data)) + ' ' +
          std::to_string(part.data_shift) + ' ' + (part.plain_data ? "1" : "0");
  for_lanes(part.mask, [&](int lane) {
    text += ' ' + std::to_string(lane) + ':' + std::to_string(part.address.lane[lane]);
  });
  text += '\n';
}

}  // namespace
}  // namespace vdev

#define VDEV_TEST_API extern "C" __attribute__((visibility("default")))

// Runs the code from its first dword until it falls off the end, s_endpgm, a fault, or
// max_instructions. Returns the FaultKind.
VDEV_TEST_API int vdev_test_run(const vdev::u32* words, size_t num_words, vdev::TestState* state) {
  using namespace vdev;
  std::vector<const char*> why;
  const DecodedCode code = decode_all({words, num_words}, why);
  TestWave test(*state, code);
  Wave* const wave = test.wave.get();
  const Workgroup& group = test.group;

  state->fault = 0;
  state->fault_lane = -1;
  state->fault_address = 0;
  state->message[0] = 0;
  run(*state, *wave, code, why);

  std::memcpy(state->vgprs, wave->v, sizeof wave->v);
  std::memcpy(state->sgprs, wave->s, sizeof wave->s);
  if (!group.lds.empty()) std::memcpy(state->lds, group.lds.data(), group.lds.size());
  state->mode = wave->mode;
  state->scc = wave->scc;
  state->instructions = wave->instructions;
  state->progress = test.launch_state.progress.load();
  return static_cast<int>(state->fault);
}

// What the first instruction is about to read, write and touch, a line each: "read|write v|s first
// count", "memory space access bytes data shift plain lane:address ...". "" where it does not
// decode, "fault" where its addresses cannot be formed. Returns the bytes needed.
VDEV_TEST_API size_t vdev_test_inspect(const vdev::u32* words, size_t num_words,
                                       vdev::TestState* state, char* out, size_t size) {
  using namespace vdev;
  std::vector<const char*> why;
  const DecodedCode code = decode_all({words, num_words}, why);
  std::string text;
  if (!code.insts.empty() && code.insts[0].row) {
    TestWave test(*state, code);
    const RegisterUse use = register_use(code.insts[0]);
    for (int i = 0; i < use.num_reads; ++i) append(text, "read", use.reads[i]);
    for (int i = 0; i < use.num_writes; ++i) append(text, "write", use.writes[i]);
    try {
      Footprint touched;
      if (footprint(*test.wave, code.insts[0], touched))
        for (int i = 0; i < touched.num_parts; ++i) append(text, touched.parts[i]);
    } catch (const Fault&) {
      text = "fault";
    }
  }
  if (size) std::snprintf(out, size, "%s", text.c_str());
  return text.size() + 1;
}
