// What a set-associative cache holds or awaits, least recently used first out.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "core/types.h"

namespace vdev::timing {

// The set of a line. Of large caches, the number of the line modulo an irreducible polynomial over
// GF(2), so that no stride of a power of two leaves sets unused (Rau, "Pseudo-randomly interleaved
// memory", ISCA 1991): the hashes of gfx942's caches are not published [A]. Of the polynomials of
// their degree, those of the L2 and the MALL spread chunks of 128 bytes to 64 KiB that lie 1 to
// 1024 times their size apart most evenly; no kernel was looked at. Of small caches, its low bits.
class SetHash {
 public:
  SetHash(u32 bits, u32 polynomial) : bits_(bits), hashed_(polynomial != 0) {
    if (!hashed_) return;
    for (u32 byte = 0; byte < kBytes; ++byte)
      for (u32 value = 0; value < 256; ++value) {
        u64 rest = u64{value} << (bits + 8 * byte);
        for (u32 i = bits + 8 * byte + 8; i-- > bits;)
          if (rest >> i & 1) rest ^= u64{polynomial} << (i - bits);
        upper_[byte][value] = static_cast<u16>(rest);
      }
  }
  u64 operator()(u64 line) const {
    u64 set = line & ((u64{1} << bits_) - 1);
    u64 rest = hashed_ ? line >> bits_ : 0;
    for (u32 byte = 0; byte < kBytes && rest; ++byte, rest >>= 8) set ^= upper_[byte][rest & 255];
    return set;
  }

 private:
  static constexpr u32 kBytes = 5;  // addresses have 48 bits, lines 64 bytes at least
  u32 bits_;                        // at most 16
  bool hashed_;
  u16 upper_[kBytes][256];
};

class Cache {
 public:
  static constexpr u64 kNoLine = ~u64{0};

  // The number of sets, bytes / line_bytes / ways, is two to the power of the polynomial's degree.
  Cache(u64 bytes, u32 line_bytes, u32 ways, u32 polynomial = 0)
      : ways_(ways),
        hash_(static_cast<u32>(std::countr_zero(bytes / line_bytes / ways)), polynomial),
        tags_(bytes / line_bytes, kNoLine),
        used_(tags_.size()),
        there_(tags_.size()),
        dirty_(tags_.size()) {}

  struct Found {
    bool hit;
    double& there;  // clk at which the line arrives; after a miss, for the caller to set
    u8& dirty;      // which sectors of it are newer than below, for the caller to set
    u64 victim;     // the line that had to go for it, kNoLine: none
    u8 victim_dirty;
  };
  // Looks a line (address / line size) up; gives it a place when it has none.
  Found access(u64 line) {
    const u64 first = hash_(line) * ways_;
    for (u64 i = first; i < first + ways_; ++i)
      if (tags_[i] == line) {
        used_[i] = ++uses_;
        return {true, there_[i], dirty_[i], kNoLine, 0};
      }
    const auto oldest = std::min_element(used_.begin() + static_cast<i64>(first),
                                         used_.begin() + static_cast<i64>(first + ways_));
    const u64 at = static_cast<u64>(oldest - used_.begin());
    const u64 victim = tags_[at];
    const u8 victim_dirty = dirty_[at];
    tags_[at] = line;
    used_[at] = ++uses_;
    dirty_[at] = 0;
    there_[at] = 0;
    return {false, there_[at], dirty_[at], victim, victim_dirty};
  }
  // Nothing is under way any more: clk start anew.
  void settle() { std::fill(there_.begin(), there_.end(), 0.0); }
  // Holds nothing any more; what was dirty is lost.
  void clear() {
    std::fill(tags_.begin(), tags_.end(), kNoLine);
    std::fill(dirty_.begin(), dirty_.end(), u8{0});
  }
  // Calls taker(line, sectors) for each dirty line, which is clean then.
  template <class Taker>
  void clean(Taker taker) {
    for (size_t i = 0; i < tags_.size(); ++i)
      if (dirty_[i]) {
        taker(tags_[i], dirty_[i]);
        dirty_[i] = 0;
      }
  }

 private:
  u32 ways_;
  SetHash hash_;
  u64 uses_ = 0;
  std::vector<u64> tags_, used_;  // by set; when each was used last
  std::vector<double> there_;
  std::vector<u8> dirty_;
};

// A resource that serves one request after the other at a rate.
class Server {
 public:
  explicit Server(double units_per_clk) : clk_per_unit_(1 / units_per_clk) {}
  // When a request of `units` that arrives at `now` has been served.
  double serve(double now, double units) {
    const double start = now > free_ ? now : free_;
    free_ = start + units * clk_per_unit_;
    busy_ += units * clk_per_unit_;
    return free_;
  }
  double busy() const { return busy_; }
  bool busy_at(double now) const { return free_ > now; }

 private:
  double clk_per_unit_;
  double free_ = 0, busy_ = 0;
};

}  // namespace vdev::timing
