// Who knows of whose accesses: what release and acquire carry from wave to wave.
//
// A clock is sparse. A wave that releases nothing is in none, and a wave that observes nothing has
// an empty one, so that workgroups that do not synchronise pay nothing.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/types.h"

namespace vdev {

inline constexpr u32 kMaxWaves = 16;             // of a workgroup
using WaveNumbers = std::array<u32, kMaxWaves>;  // by wave: numbers as in MemoryOrder, VMEM

// How far the coherence bits of an access reach: sc0 a workgroup, sc1 and atomics the agent.
enum class Scope : u8 { kNone, kWorkgroup, kAgent };

// One access by one wave: what the shadow of a dword refers to.
struct Event {
  u32 workgroup = 0;  // flat id
  u32 inst = 0;       // index into DecodedCode::insts
  u32 number = 0;     // of the operation, in its wave
  u32 releases = 0;   // that its workgroup had made before it
  u8 wave = 0;
  Scope scope = Scope::kNone;
  bool atomic = false;
};

// What a wave makes known by one release: accesses of its workgroup up to a number for each wave.
struct ReleasePoint {
  u32 workgroup = 0;
  u32 sequence = 0;  // of the workgroup's releases, from 1
  u32 own = 0;       // number of the releasing store or atomic, which itself is known as well
  u8 wave = 0;
  WaveNumbers before{};     // accesses that precede the release, complete or not
  WaveNumbers completed{};  // enough for atomics and for stores with sc1
  WaveNumbers written{};    // written back from the L2

  bool covers_write(const Event& e) const {
    if (e.number <= written[e.wave]) return true;
    if (e.scope != Scope::kAgent) return false;
    return e.number <= completed[e.wave] || (e.wave == wave && e.number == own);
  }
};

// The newest release that is known of each wave, in the order of waves. Immutable once shared.
class Clock {
 public:
  // The union; null is empty. Returns an argument where it is the result.
  static std::shared_ptr<const Clock> join(const std::shared_ptr<const Clock>& a,
                                           const std::shared_ptr<const Clock>& b);
  static std::shared_ptr<const Clock> with(const std::shared_ptr<const Clock>& clock,
                                           const ReleasePoint* point);

  bool covers_write(const Event& e) const;
  // Whether a release that is known follows the write in its workgroup, though it may not cover it.
  bool follows(const Event& e) const;
  // Reads need no write-back: any later release of the workgroup covers them.
  bool covers_read(const Event& e) const;
  // The newest known release of a workgroup; null: none.
  const ReleasePoint* newest(u32 workgroup) const;

 private:
  static u64 thread(const ReleasePoint* p) { return u64{p->workgroup} * kMaxWaves + p->wave; }
  static bool includes(const Clock& a, const Clock& b);
  // From the first entry of a workgroup on.
  std::vector<const ReleasePoint*>::const_iterator find(u32 workgroup) const;

  std::vector<const ReleasePoint*> points_;
};
using ClockRef = std::shared_ptr<const Clock>;

// The clocks of synchronisation locations, by dword address. Thread-safe.
class SyncLocations {
 public:
  void release(u64 address, const ClockRef& clock);
  ClockRef observe(u64 address) const;

 private:
  static constexpr u32 kShards = 64;
  struct Shard {
    mutable std::mutex mutex;
    std::unordered_map<u64, ClockRef> clocks;
  };
  static u32 shard(u64 address) {
    return static_cast<u32>(address / 4 * 0x9e3779b1u >> 8) % kShards;
  }
  Shard shards_[kShards];
};

}  // namespace vdev
