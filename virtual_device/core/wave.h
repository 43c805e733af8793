// Architectural state of a wave and of its workgroup.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/types.h"
#include "isa/inst.h"
#include "numerics/float_rules.h"

namespace vdev {

struct Workgroup;
struct Worker;

// Thrown by semantics; caught by the worker, which completes the report with the place.
struct Fault {
  FaultKind kind;
  std::string message;
  int lane = -1;
  u64 address = 0;
};
[[noreturn]] void raise(FaultKind kind, std::string message, int lane = -1, u64 address = 0);

enum class WaveState : u8 { kRunning, kAtBarrier, kDone };

enum SgprIndex : u16 {
  kFlatScratch = 102,
  kXnackMask = 104,
  kVcc = 106,
  kTtmp0 = 108,
  kM0 = 124,
  kExec = 126,
};

// MODE register (s_getreg/s_setreg hwreg 1).
enum ModeBit : u32 {
  // First bits of 2-bit fields, then masks of single bits.
  kModeRound32 = 0,
  kModeRound64 = 2,
  kModeDenorm32 = 4,
  kModeDenorm64 = 6,
  kModeDx10Clamp = 1u << 8,
  kModeIeee = 1u << 9,
  kModeFp16Overflow = 1u << 23,
  kModeGprIdxEnable = 1u << 27,
  kModeVskip = 1u << 28,
};

struct Wave {
  // The unified vector register file: v[i] is register i and a[i] is register accum_offset + i, so
  // that a VGPR from accum_offset on is an AGPR under another name. Only the allocated registers
  // are initialised (to poison); programs that name others trap.
  Reg v[512];
  // Operands broadcast or modified on their way into a computation, and results on their way out.
  Reg tmp[12];

  alignas(64) u32 s[128];  // by SgprIndex; VCC, M0 and EXEC live here
  // Allocated: a register index that is computed stays below.
  u32 num_vector_registers = 512, num_sgprs = kMaxSgprs;
  const Inst* ip = nullptr;
  bool scc = false;
  bool special = false;  // MODE asks for GPR indexing or VSKIP: the slow step
  WaveState state = WaveState::kRunning;
  u32 mode = 0;
  // Host rounding and denormals, kept equal to MODE: of f32 (in force while the wave runs), and
  // of f64 and f16 arithmetic.
  u32 mxcsr = 0x1f80, mxcsr64 = 0x1f80;
  FpMode fp;         // MODE's float fields, decoded
  u32 wave_idx = 0;  // within the workgroup
  u8 priority = 0;
  bool sleeping = false;  // s_sleep: gives up the rest of its turn
  Workgroup* workgroup = nullptr;
  std::byte* scratch = nullptr;     // per wave: lanes interleaved by dword
  u32 scratch_bytes = 0;            // per lane
  u64 instructions = 0, mfmas = 0;  // executed
  u64 lanes = ~u64{0};     // lanes that exist (the last wave of a workgroup may be partial)
  void* shadow = nullptr;  // an observer's state of the wave

  // The loop the wave is in, by its head, and passes through it: see Worker::proved_spinning.
  const Inst* loop_target = nullptr;
  u32 loop_count = 0;

  u64 exec() const { return pair(kExec); }
  u64 vcc() const { return pair(kVcc); }
  u64 pair(u32 index) const {
    u64 value;
    std::memcpy(&value, &s[index], 8);
    return value;
  }
  void set_pair(u32 index, u64 value) { std::memcpy(&s[index], &value, 8); }
  void set_mode(u32 value);  // also updates mxcsr, mxcsr64, fp and special
  // A branch to an earlier instruction (all backward branches pass here).
  void jump_back(const Inst* target) {
    if (target != loop_target) {
      loop_target = target;
      loop_count = 0;
    } else {
      ++loop_count;
    }
    ip = target;
  }
};

// How an instruction touches memory, for checks and reports.
enum class Access : u8 { kRead, kWrite, kAtomic };

struct LaunchState;

struct Workgroup {
  LaunchState* launch = nullptr;
  Worker* worker = nullptr;  // the thread that runs it
  Dim3 id;
  u64 flat_id = 0;
  u32 num_waves = 0;
  std::vector<Wave*> waves;
  std::vector<u8> lds;  // exactly the bytes allocated: static + dynamic
  u32 waves_at_barrier = 0, waves_done = 0;
  u64 instructions = 0;  // executed by all waves
  u64 instructions_at_progress = 0, progress_seen = 0, spinning_since_ns = 0;  // watchdog
  void* shadow = nullptr;  // an observer's state of the workgroup

  // Host pointer of [address, address + bytes) in device memory. Throws kIllegalAddress for what
  // no allocation holds, naming the nearest one.
  std::byte* global(u64 address, u64 bytes, Access access, int lane) {
    if (std::byte* host = try_global(address, bytes)) [[likely]]
      return host;
    global_fault(address, bytes, access, lane);
  }
  // As above without the throw: nullptr.
  std::byte* try_global(u64 address, u64 bytes);
  [[noreturn]] void global_fault(u64 address, u64 bytes, Access access, int lane);
  // Host pointer into LDS; throws when beyond the allocation.
  std::byte* local(u32 address, u32 bytes, Access access, int lane) {
    if (static_cast<u64>(address) + bytes > lds.size()) [[unlikely]]
      local_fault(address, bytes, access, lane);
    return reinterpret_cast<std::byte*>(lds.data()) + address;
  }
  [[noreturn]] void local_fault(u32 address, u32 bytes, Access access, int lane);
  // A store or atomic changed device memory: the watchdog's idea of progress.
  void progress();
  // s_barrier and s_endpgm.
  void arrive(Wave& wave);
  void finish(Wave& wave);
  void release_barrier();
};

}  // namespace vdev
