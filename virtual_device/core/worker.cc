#include "core/worker.h"

#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <new>

#include "isa/decode.h"
#include "isa/gpr_index.h"

namespace vdev {
namespace {

constexpr u64 kSliceInstructions = 1u << 20;  // of a workgroup before another one may run
constexpr u32 kLoopsPerSlice = 1024;          // passes through one loop's head: it may be waiting
constexpr u32 kLoopsOfStarving = 256;         // the same where everybody's waiting comes first
constexpr u32 kMaxProofInterval = 1024;       // slices between attempts to prove that it waits
constexpr u32 kGreedyQuantum = 4096;          // of a wave that an adversarial schedule favours
constexpr u32 kIdleSlices = 64;               // without an end, of each: they wait
// Of a thread's own time, as others have had about as much, however busy the machine is: a host
// thread or another stream may still write.
constexpr u64 kSpinGraceNs = 1'000'000'000;
// As many times that where the kernel asks the host itself, which prints for it: whoever reads what
// is printed may be slow.
constexpr u64 kHostPatience = 32;

constexpr const char* kNoHostMemory = "not enough resources: no host memory for the launch";

u64 next_random(u64& state) {  // xorshift64*
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545f4914f6cdd1d;
}

// That this thread has run for.
u64 thread_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<u64>(time.tv_sec) * 1'000'000'000 + static_cast<u64>(time.tv_nsec);
}

u64 hash_words(u64 hash, const u32* words, size_t count) {
  for (size_t i = 0; i < count; ++i) hash = (hash ^ words[i]) * 0x100000001b3;
  return hash;
}

// Everything that a wave's future depends on, other waves and memory apart.
u64 hash_state(const Wave& wave, const Kernel& kernel) {
  u64 hash = 0xcbf29ce484222325 ^ (wave.mode | u64{wave.scc} << 32);
  hash = hash_words(hash, wave.s, 128);
  return hash_words(hash, wave.v[0].lane, size_t{kernel.num_vgprs + kernel.num_agprs} * kLanes);
}

}  // namespace

Worker::~Worker() {
  residents_.clear();
  for (Wave* wave : free_waves_) ::operator delete(wave, std::align_val_t{alignof(Wave)});
}

std::byte* Worker::translate(u64 address, u64 bytes) {
  const u64 epoch = device_.memory().epoch();
  if (epoch == cache_epoch_) [[likely]] {
    for (const Allocation& a : cache_)
      if (a.contains(address, bytes)) return a.host(address);
  } else {
    for (Allocation& a : cache_) a = Allocation{};
    cache_epoch_ = epoch;
  }
  const auto found = device_.memory().find(address);
  if (!found || !found->contains(address, bytes) || !found->is_seen_by(gpu_)) return nullptr;
  cache_[cache_next_++ % kCacheSize] = *found;
  return found->host(address);
}

// What another GPU sees was looked up for that one.
void Worker::become(u32 gpu) {
  if (gpu == gpu_) return;
  gpu_ = gpu;
  for (Allocation& a : cache_) a = Allocation{};
}

Wave* Worker::take_wave() {
  if (!free_waves_.empty()) {
    Wave* wave = free_waves_.back();
    free_waves_.pop_back();
    return wave;
  }
  free_waves_.reserve(++num_waves_);  // giving one back must not fail
  // Default-initialised: 128 KiB of registers are written only as far as they are allocated.
  return new (::operator new(sizeof(Wave), std::align_val_t{alignof(Wave)})) Wave;
}

bool Worker::start(const std::shared_ptr<LaunchState>& launch) {
  if (launch->faulted) return false;
  if (launch->resident.fetch_add(1) >= launch->resident_limit) {
    launch->resident.fetch_sub(1);
    return false;
  }
  const u64 position = launch->next.fetch_add(1);
  if (position >= launch->num_workgroups) {
    launch->resident.fetch_sub(1);
    return false;
  }
  try {
    residents_.push_back(make(launch, position));
  } catch (const std::bad_alloc&) {
    launch->fault(FaultKind::kResources, kNoHostMemory);
    launch->resident.fetch_sub(1);
    return false;
  }
  return true;
}

Worker::Resident::~Resident() {
  for (Wave* wave : workgroup.waves) {
    std::free(wave->scratch);
    worker.free_waves_.push_back(wave);
  }
}

std::unique_ptr<Worker::Resident> Worker::make(const std::shared_ptr<LaunchState>& launch,
                                               u64 position) {
  const u64 flat = launch->workgroup_at(position);
  const Dim3& groups = launch->launch.num_workgroups;
  const Dim3 id = {static_cast<u32>(flat % groups.x), static_cast<u32>(flat / groups.x % groups.y),
                   static_cast<u32>(flat / groups.x / groups.y)};
  const u32 num_waves =  // a partial workgroup has fewer
      static_cast<u32>((launch->launch.size_of(id).count() + kLanes - 1) / kLanes);
  auto resident = std::make_unique<Resident>(*this);
  resident->launch = launch;
  resident->random = launch->options.seed * 0x9e3779b97f4a7c15 ^ (flat + 1) * 0xd1b54a32d192ed03;
  if (launch->starves)
    resident->starvation = Starvation(next_random(resident->random) >> 16, num_waves);
  Workgroup& wg = resident->workgroup;
  wg.launch = launch.get();
  wg.worker = this;
  wg.flat_id = flat;
  wg.id = id;
  wg.num_waves = num_waves;
  wg.waves.reserve(wg.num_waves);
  wg.lds.assign(launch->lds_bytes, 0xff);  // NaN in every float format
  const u32 scratch = launch->kernel().scratch_bytes;
  const size_t scratch_of_wave = scratch_bytes_of_wave(scratch);
  for (u32 i = 0; i < wg.num_waves; ++i) {
    Wave* wave = take_wave();
    wave->wave_idx = i;
    wave->workgroup = &wg;
    wave->instructions = 0;
    wave->mfmas = 0;
    wave->scratch_bytes = scratch;
    wave->scratch = nullptr;
    wg.waves.push_back(wave);
    if (scratch) {
      wave->scratch = static_cast<std::byte*>(std::malloc(scratch_of_wave));
      if (!wave->scratch) throw std::bad_alloc();
      std::memset(wave->scratch, 0xff, scratch_of_wave);
    }
    initialise_wave(*launch, wg, *wave);
  }
  if (launch->observer) launch->observer->workgroup_started(wg);
  return resident;
}

bool Worker::holds(const LaunchState* launch) const {
  for (const auto& r : residents_)
    if (r->launch.get() == launch) return true;
  return false;
}

void Worker::retire(Resident& resident, bool finished) {
  LaunchState& launch = *resident.launch;
  try {
    if (launch.observer) launch.observer->workgroup_finished(resident.workgroup);
  } catch (const std::bad_alloc&) {
    launch.fault(FaultKind::kResources, kNoHostMemory);
  }
  u64 instructions = 0, mfmas = 0;
  for (Wave* wave : resident.workgroup.waves) {
    instructions += wave->instructions;
    mfmas += wave->mfmas;
    split_.erase(wave);
  }
  device_.counters().instructions.fetch_add(instructions, std::memory_order_relaxed);
  device_.counters().mfma.fetch_add(mfmas, std::memory_order_relaxed);
  if (finished) device_.counters().workgroups.fetch_add(1, std::memory_order_relaxed);
  launch.progress.fetch_add(1);
  launch.done.fetch_add(1);
  launch.resident.fetch_sub(1);
}

Workgroup* Worker::admit(const std::shared_ptr<LaunchState>& launch, u64 position) {
  launch->resident.fetch_add(1);
  residents_.push_back(make(launch, position));
  return &residents_.back()->workgroup;
}

bool Worker::step(Wave& wave) {
  become(wave.workgroup->launch->launch.gpu);
  try {
    run_wave(wave, 1);
    return true;
  } catch (const Fault& fault) {
    for (const auto& resident : residents_)
      if (&resident->workgroup == wave.workgroup) report_fault(*resident, fault);
    return false;
  }
}

void Worker::leave(Workgroup& workgroup) {
  const auto found = std::find_if(residents_.begin(), residents_.end(), [&](const auto& resident) {
    return &resident->workgroup == &workgroup;
  });
  retire(**found, workgroup.waves_done == workgroup.num_waves);
  residents_.erase(found);
}

void Worker::run_until_waiting() {
  for (size_t idle = 0; idle < kIdleSlices * residents_.size();) {
    const size_t held = residents_.size();
    run_slice();
    idle = residents_.size() < held ? 0 : idle + 1;
  }
}

Worker::HostModes::HostModes(Worker& worker) : saved(_mm_getcsr()) { worker.mxcsr_ = saved; }
Worker::HostModes::~HostModes() { _mm_setcsr(saved); }

bool Worker::run_slice() {
  if (residents_.empty()) return false;
  std::unique_ptr<Resident> resident = std::move(residents_.front());
  residents_.pop_front();
  const std::shared_ptr<LaunchState> launch = resident->launch;
  const Slice slice = launch->faulted ? Slice::kFaulted : run(*resident);
  if (slice == Slice::kExpired)
    residents_.push_back(std::move(resident));
  else
    retire(*resident, slice == Slice::kFinished);
  if (launch->starves) end_a_starvation(*launch);
  return true;
}

Worker::Slice Worker::run(Resident& resident) {
  Workgroup& wg = resident.workgroup;
  const DeviceOptions& options = resident.launch->options;
  Starvation& starvation = resident.starvation;
  const u32 n = wg.num_waves;
  const u32 loops = resident.launch->starves ? kLoopsOfStarving : kLoopsPerSlice;
  u64 used = 0;
  bool looping = false, slept = false;
  for (Wave* wave : wg.waves) wave->loop_count = 0;
  mxcsr_ = _mm_getcsr();
  const u32 host_mxcsr = mxcsr_;
  Slice result = Slice::kExpired;
  become(resident.launch->launch.gpu);
  try {
    const std::atomic<bool>& faulted = resident.launch->faulted;  // elsewhere, or aborted
    while (used < kSliceInstructions && !looping && !slept &&
           !faulted.load(std::memory_order_relaxed)) {
      const Turn turn = next_turn(resident);
      const u64 used_before = used;
      for (u32 i = 0; i < n; ++i) {
        const u32 at = turn.first + (turn.reverse ? n - 1 - i : i);
        Wave& wave = *wg.waves[at < n ? at : at - n];
        if (wave.state != WaveState::kRunning || starvation.stands_still(wave)) continue;
        u32 quantum = turn.quantum;
        if (options.seed) quantum = 1 + static_cast<u32>(next_random(resident.random) % quantum);
        const u64 before = wave.instructions;
        if (starvation.starves(wave)) [[unlikely]]
          run_until_starved(starvation, wave, quantum);
        else
          run_wave(wave, quantum);
        used += wave.instructions - before;
        // A loop that goes on and on may wait for a workgroup that has not run yet.
        looping |= wave.loop_count >= loops;
        slept |= wave.sleeping;
        wave.sleeping = false;
      }
      if (wg.waves_done == n) {
        result = Slice::kFinished;
        break;
      }
      if (used == used_before) break;  // only a wave that stands still could go on
    }
    starvation.slice_ended();
    wg.instructions += used;
    if (result == Slice::kExpired) check_watchdog(resident, looping || slept);
  } catch (const Fault& fault) {
    if (resident.launch->observer)
      resident.launch->observer->faulted(*current_, *current_inst_, fault);
    report_fault(resident, fault);
    result = Slice::kFaulted;
  } catch (const std::bad_alloc&) {
    resident.launch->fault(FaultKind::kResources, kNoHostMemory);
    result = Slice::kFaulted;
  }
  _mm_setcsr(host_mxcsr);
  return result;
}

Worker::Turn Worker::next_turn(Resident& resident) const {
  const DeviceOptions& options = resident.launch->options;
  if (!options.seed) return {0, options.quantum, false};
  const u32 n = resident.workgroup.num_waves;
  const u32 first = static_cast<u32>(next_random(resident.random) % n);
  if (!resident.launch->observer) return {first, options.quantum, false};
  // Adversaries: at random, the first wave as far as it gets, the last one, all in lockstep.
  switch (options.seed % 4) {
    case 0:
      return {0, kGreedyQuantum, false};
    case 2:
      return {0, kGreedyQuantum, true};
    case 3:
      return {first, 1, false};
    default:
      return {first, options.quantum, false};
  }
}

void Worker::run_wave(Wave& wave, u32 quantum) {
  if (wave.mxcsr != mxcsr_) _mm_setcsr(mxcsr_ = wave.mxcsr);
  current_ = &wave;
  u32 executed = 0;
  if (Observer* observer = wave.workgroup->launch->observer.get())
    execute_observed(*observer, wave, quantum, executed);
  else if (stores_) [[unlikely]]
    execute_telling(wave, quantum, executed);
  else
    execute(wave, quantum, executed);
  wave.instructions += executed;
  if (wave.mxcsr != mxcsr_) _mm_setcsr(mxcsr_ = wave.mxcsr);  // s_setreg changed MODE
}

void Worker::execute(Wave& wave, u32 quantum, u32& executed) {
  u32 i = 0;
  for (; i < quantum && wave.state == WaveState::kRunning && !wave.sleeping; ++i) {
    const Inst& inst = *wave.ip;
    current_inst_ = &inst;
    wave.ip = &inst + inst.size;
    if (wave.special) [[unlikely]]
      step_special(wave, inst);
    else
      inst.exec(wave, inst);
  }
  executed = i;
}

void Worker::execute_telling(Wave& wave, u32 quantum, u32& executed) {
  while (executed < quantum && wave.state == WaveState::kRunning && !wave.sleeping) {
    const Inst& inst = *wave.ip;
    if (inst.row && inst.row->effects & (kStore | kAtomic)) stores_(wave, inst);
    u32 one = 0;
    execute(wave, 1, one);
    executed += one;
  }
}

namespace {

// Under some seeds other workgroups have their turn right after an atomic on device memory, and,
// since nothing promises that its lanes act as one, between its first lane and the rest.
bool gives_way(const Wave& wave, const Inst& inst) {
  if (wave.workgroup->launch->options.seed % 4 != 1 || !inst.row) return false;
  const Format format = inst.row->format;
  return inst.row->effects & kAtomic && format != Format::kDs && format != Format::kSmem;
}

}  // namespace

void Worker::step_observed(Observer& observer, Wave& wave, const Inst& inst) {
  const bool now = !inst.row || !has_registers(inst) || observer.before(wave, inst);
  wave.ip = &inst + inst.size;
  if (wave.special) [[unlikely]]
    step_special(wave, inst);
  else if (now) [[likely]]
    inst.exec(wave, inst);
  observer.after(wave, inst);
}

void Worker::execute_observed(Observer& observer, Wave& wave, u32 quantum, u32& executed) {
  for (; executed < quantum && wave.state == WaveState::kRunning && !wave.sleeping; ++executed) {
    const Inst& inst = *wave.ip;
    current_inst_ = &inst;
    if (!gives_way(wave, inst)) [[likely]] {
      step_observed(observer, wave, inst);
      continue;
    }
    const u64 exec = wave.exec();
    const auto rest = split_.find(&wave);
    const bool first = rest == split_.end();
    const u64 lanes = first ? exec & (~exec + 1) : rest->second;
    if (!first) split_.erase(rest);
    wave.set_pair(kExec, lanes);
    step_observed(observer, wave, inst);
    wave.set_pair(kExec, exec);
    if (first && lanes != exec) {
      split_[&wave] = exec & ~lanes;
      wave.ip = &inst;
    }
    wave.sleeping = true;
  }
}

// MODE.GPR_IDX_EN: see index_registers. MODE.VSKIP: vector instructions are not executed.
void Worker::step_special(Wave& wave, const Inst& inst) {
  const bool vector = inst.row && inst.row->format >= Format::kVop2;
  if (!vector) return inst.exec(wave, inst);
  if (wave.mode & kModeVskip) return;
  const bool valu = inst.row->format <= Format::kVop3p;
  if (!valu) return inst.exec(wave, inst);
  Inst moved = inst;
  if (std::string why = index_registers(wave, moved); !why.empty())
    raise(FaultKind::kIllegalInstruction, std::move(why));
  inst.exec(wave, moved);
}

// True when every wave that is not waiting at a barrier repeats one state for ever: its registers
// were the same at two passes through the head of a loop and no memory changed in between.
bool Worker::proved_spinning(Resident& resident) {
  LaunchState& launch = *resident.launch;
  Workgroup& wg = resident.workgroup;
  const u64 progress = launch.progress.load();
  for (Wave* wave : wg.waves) {
    if (wave->state != WaveState::kRunning) continue;
    if (wave->loop_target == nullptr) return false;
    // Run to the loop's head twice, comparing there. Waves are independent between barriers except
    // through LDS and memory, and a change of either shows in the second pass or in `progress`.
    u64 hashes[2];
    for (u64& hash : hashes) {
      const u32 count = wave->loop_count;
      for (u32 step = 0; step < 4096 && wave->loop_count == count; ++step) {
        if (wave->state != WaveState::kRunning) return false;
        run_wave(*wave, 1);
        wave->sleeping = false;
      }
      if (wave->loop_count != count + 1) return false;
      hash = hash_state(*wave, launch.kernel());
    }
    if (hashes[0] != hashes[1]) return false;
  }
  return launch.progress.load() == progress;
}

void Worker::check_watchdog(Resident& resident, bool looping) {
  LaunchState& launch = *resident.launch;
  Workgroup& wg = resident.workgroup;
  const u64 total = launch.options.max_total_instructions;
  if (total && wg.instructions > total)
    raise(FaultKind::kRunaway, "ran more than max_total_instructions = " + std::to_string(total));
  const u64 progress = launch.progress.load();
  if (progress != wg.progress_seen) {
    wg.progress_seen = progress;
    wg.instructions_at_progress = wg.instructions;
    wg.spinning_since_ns = 0;
    resident.slices_to_proof = resident.proof_interval = 1;
    return;
  }
  const u64 idle = wg.instructions - wg.instructions_at_progress;
  const u64 most = launch.options.max_instructions;
  if (idle > most && (hostcall_buffer(launch) == 0 || idle / kHostPatience > most)) {
    char text[160];
    std::snprintf(text, sizeof text,
                  "ran %llu instructions while no memory changed and no wave ended",
                  static_cast<unsigned long long>(idle));
    raise(FaultKind::kRunaway, text);
  }
  if (!looping || --resident.slices_to_proof > 0) return;
  if (!proved_spinning(resident)) {  // hashing registers is costly: ask less and less often
    wg.spinning_since_ns = 0;
    resident.proof_interval = std::min(2 * resident.proof_interval, kMaxProofInterval);
    resident.slices_to_proof = resident.proof_interval;
    return;
  }
  resident.slices_to_proof = 1;
  if (wg.spinning_since_ns == 0) wg.spinning_since_ns = thread_ns();
  // Nobody can release it: every workgroup that could run has had its turns, and so has the host.
  const u64 started = std::min(launch.next.load(), launch.num_workgroups);
  const bool room =
      launch.resident.load() < launch.resident_limit && started < launch.num_workgroups;
  const u64 spun_ns = thread_ns() - wg.spinning_since_ns;
  if (!room && spun_ns > kSpinGraceNs * (hostcall_buffer(launch) ? kHostPatience : 1)) {
    u32 waiting = 0;
    for (Wave* wave : wg.waves) waiting += wave->state == WaveState::kAtBarrier;
    char text[200];
    std::snprintf(text, sizeof text,
                  "deadlock: the wave repeats one state and no memory changes (%u of its "
                  "workgroup's %u waves wait at a barrier, %llu workgroups resident, %llu not "
                  "started)",
                  waiting, wg.num_waves, static_cast<unsigned long long>(launch.resident.load()),
                  static_cast<unsigned long long>(launch.num_workgroups - started));
    raise(FaultKind::kDeadlock, text);
  }
}

void Worker::report_fault(Resident& resident, const Fault& fault) {
  static constexpr const char* kNames[] = {"no fault",
                                           "illegal address",
                                           "illegal instruction",
                                           "misaligned access",
                                           "deadlock",
                                           "runaway kernel",
                                           "trap",
                                           "not enough resources",
                                           "aborted",
                                           "scratch out of bounds",
                                           "LDS out of bounds",
                                           "outside the code"};
  LaunchState& launch = *resident.launch;
  const Workgroup& wg = resident.workgroup;
  const u64 pc = launch.code.pc(current_inst_);
  char text[512];
  std::snprintf(text, sizeof text,
                "%s: %s\n  kernel %s, pc 0x%llx (%s)\n  instruction %s\n  workgroup (%u, %u, %u), "
                "wave %u",
                kNames[static_cast<int>(fault.kind)], fault.message.c_str(),
                launch.kernel().name.c_str(), static_cast<unsigned long long>(pc),
                launch.launch.code->describe(pc).c_str(),
                current_inst_->row ? disassemble(*current_inst_).c_str() : "(not decodable)",
                wg.id.x, wg.id.y, wg.id.z, current_->wave_idx);
  std::string report = text;
  if (fault.lane >= 0) report += ", lane " + std::to_string(fault.lane);
  if (fault.address) {
    std::snprintf(text, sizeof text, ", address 0x%llx",
                  static_cast<unsigned long long>(fault.address));
    report += text;
  }
  launch.fault(fault.kind, std::move(report));
}

}  // namespace vdev
