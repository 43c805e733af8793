// Device memory that one workgroup, or one wave of it, writes and another touches in one launch
// without the order that LLVM's AMDGPU memory model asks for on gfx942 ("Memory Model GFX942" of
// AMDGPUUsage). Every XCD has an L2, and they are not coherent with each other.
//
// What counts as order, as instruction sequences:
//   between workgroups: release (a) ... (d) in one wave, acquire (e) ... (g) in another
//     a  the stores of the wave itself; those of its workgroup's other waves before an s_barrier
//     b  buffer_wbl2 sc1 (or sc0 sc1); not needed for atomics and for stores with sc1
//     c  s_waitcnt vmcnt that covers (b). Without (b): that covers (a), in each wave that stored,
//        before the s_barrier of (a)
//     d  an atomic, or a store with sc1: of at most 8 bytes a lane
//     e  an atomic with return, or a load with sc1, of the same dword, that comes after (d)
//     f  s_waitcnt that covers (e)
//     g  buffer_inv sc1 (or sc0 sc1); not needed for loads with sc1, for stores and for atomics.
//        Waves of one workgroup share what they know by (e), (f) and (g) at an s_barrier
//   within a workgroup, whose waves share an L1 that keeps the order of their accesses:
//     s_barrier; or a store with sc0 or sc1, or an atomic, that a load with sc0 or sc1, or an
//     atomic with return, sees and is waited for. No s_waitcnt vmcnt before: LLVM puts none there
//   scalar loads: (e), (f) as above, or within the workgroup s_waitcnt vmcnt and s_barrier; then
//     s_dcache_inv. LLVM uses them only for what no wave writes
//   accesses that are both coherent (atomics, sc1; within a workgroup also sc0) never race.
// A plain load that only guesses what a compare-and-swap of the same dword will find, as in LLVM's
// loops for atomics that the hardware lacks, does not race with atomics.
// An atomic without sc1 counts as one of agent scope: LLVM's code for smaller scopes is the same.
//
// Two stores without order that write the same value have a finding of their own that is no error:
// kSameValueRace. Loads of it are judged as any other.
//
// A load that lacks order returns what memory held before the stores that it may not see yet: up to
// kStaleReads times for one store and wave, since caches do not keep a line for ever. So does,
// once, a load with sc1 of a store with sc1 that precedes a release which was seen, but was not
// waited for: no race, yet if the wave does not look again it is reported.
#pragma once

#include <map>

#include "check/coherence_shadow.h"
#include "check/step.h"
#include "core/launch_state.h"

namespace vdev {

// One per launch, shared by the worker threads.
class Coherence {
 public:
  explicit Coherence(LaunchState& launch) : launch_(launch) {}

  void started(Workgroup& workgroup);
  void finished(Workgroup& workgroup);
  // Around the execution of any instruction; waits that it asks for are applied in step.order.
  // after() replaces what a load returned where it is stale.
  void before(const Step& step);
  void after(const Step& step);
  // Every wave that is alive has arrived.
  void barrier(Workgroup& workgroup);

 private:
  // A synchronising load that may be under way.
  struct Observation {
    u32 number;
    bool scalar;
    ClockRef clock;
    bool local;  // `known` is of waves of the own workgroup
    WaveNumbers known;
  };
  struct WriteBack {
    u32 number;
    WaveNumbers covers;
  };
  struct ReadSite {
    const Inst* inst = nullptr;
    u64 epoch = 0;
    bool crowded = false;
    u32 id = 0;
  };
  struct Conflict {
    u64 address;   // of a dword
    u32 mask;      // its bytes that are in conflict
    u32 before;    // the dword without the store
    u32 id;        // event
    bool delayed;  // no race: both are coherent, but nothing makes the store visible by now
  };
  // A delayed value that a load has returned. If the wave does not look again, it took it for new.
  struct Doubt {
    const Inst* inst;
    u32 id;
    int lane;
    u64 address;
    bool again;
  };
  // What a wave knows. Numbers are of VMEM operations, by wave of its workgroup.
  struct View {
    u32 number = 0;  // of the instruction at hand
    u32 issued = 0, smem_completed = 0, smem_number = 0;
    u32 merge_floor = 0;      // operations up to here may be ordered otherwise than later ones
    u32 through = 0;          // last store with sc1
    WaveNumbers known{};      // ordered before what this wave does, within the workgroup
    WaveNumbers completed{};  // ... and complete
    WaveNumbers written{};    // ... and written back
    ClockRef latest;          // the clock seen last: polling sees it again and again
    ClockRef observed;        // releases that this wave has seen
    ClockRef acquired;        // ... before a buffer_inv: what plain loads may rely on
    ClockRef scalar_acquired;
    WaveNumbers scalar_completed{};
    std::vector<Observation> observations;
    std::vector<WriteBack> write_backs;
    std::vector<std::pair<u32, u32>> stale_reads;  // event, how often
    std::vector<Doubt> doubts;
    ReadSite read_sites[16];
  };
  struct Group {
    u32 id = 0;
    u32 releases = 0;
    u64 epoch = 1;           // grows with releases and barriers
    bool publishes = false;  // has written back, or waited for stores with sc1
    u32 next_id = 0, ids_left = 0;
    u32 read_events = 0;
    std::vector<View> views;
    std::unordered_map<u64, WaveNumbers> local_sync;  // by dword: within the workgroup
    std::vector<Conflict> conflicts;
  };
  // Who is at it, and how.
  struct Accessor {
    const Step& step;
    Group& group;
    View& view;
    Scope scope;
    bool load, scalar, atomic;
    u32 id = 0;  // event; 0: not recorded
  };
  struct Span;

  static constexpr u32 kStaleReads = 64;
  static constexpr u32 kMaxSyncBytes = 8;
  // Of a workgroup; after that, executions of one load share an event over its barriers.
  static constexpr u32 kMaxReadEvents = 2048;
  // An instruction that touches more dwords is data rather than a signal, as long as its workgroup
  // has nothing to make known: floating-point reductions need no clock for each element.
  static constexpr int kSignalDwords = 4;

  Group& group(const Workgroup& workgroup);
  void settle(Group& group, View& view, u32 wave, const MemoryOrder& order);
  void cache_control(const Step& step, Group& group, View& view);
  u32 new_event(const Accessor& by);
  u32 read_event(const Accessor& by);

  // coherence_access.cc
  void store(Accessor& by, const FootprintPart& part);
  void load(Accessor& by, const FootprintPart& part);
  void write_span(const Accessor& by, const Span& span, const FootprintPart& part);
  bool write_alike(const Accessor& by, const Span& span, const FootprintPart& part);
  bool keeps_before(const Accessor& by, Slot last) const;
  void write_dword(const Accessor& by, ShadowPage& page, u32 dword, u32 mask, u32 memory,
                   const FootprintPart& part, u64 address);
  void read_span(const Accessor& by, const Span& span);
  void check_read(const Accessor& by, ShadowPage& page, ShadowPage::Writes& writes, u32 dword,
                  u32 mask, u64 address);
  void record_read(const Accessor& by, ShadowPage& page, u32 dword, u32 mask);
  bool may_merge(const Accessor& by, const Event& last) const;

  // coherence_sync.cc
  bool synchronises(const Accessor& by, const FootprintPart& part) const;
  void release(Accessor& by, const FootprintPart& part);
  void observe(Accessor& by, const FootprintPart& part);

  // coherence_order.cc
  bool same_wave(const Accessor& by, const Event& e) const {
    return e.workgroup == by.group.id && e.wave == by.step.wave.wave_idx;
  }
  bool coherent(const Accessor& by, const Event& e) const;
  bool guesses(const Inst& load) const;
  bool write_is_ordered(const Accessor& by, const Event& e) const;
  bool read_is_ordered(const Accessor& by, const Event& e) const;
  void report_race(const Accessor& by, const FootprintPart& part, u64 address, u32 bytes,
                   const Event& e, bool other_reads);
  bool leaves_as_is(const Step& step, const FootprintPart& part, u64 address, u32 bytes) const;
  void report_stale(Accessor& by, const FootprintPart& part);
  void replace(const Step& step, const FootprintPart& part, int lane, const Conflict& conflict);
  bool is_delayed(const Accessor& by, const Event& e) const;
  bool delays_again(Accessor& by, const FootprintPart& part, const Conflict& conflict);
  bool worn_out(Accessor& by, u32 id);
  void report_read(const Step& step, const Inst& inst, FindingKind kind, const Event& e, int lane,
                   u64 address, const std::string& reason);
  void report_doubts(const Step& step, View& view);
  std::string why(const Accessor& by, const Event& e) const;
  std::string name(const Event& e) const;

  LaunchState& launch_;
  Arena arena_;
  EventTable events_{arena_};
  PageTable pages_{arena_};
  SyncLocations sync_;
  std::atomic<bool> full_{false};
  std::mutex mutex_;  // guards groups_
  std::unordered_map<const Workgroup*, std::unique_ptr<Group>> groups_;
};

}  // namespace vdev
