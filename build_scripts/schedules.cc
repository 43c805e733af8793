// Prints the schedules of the attention forward family: of each member, behind its name.
#include <cstdio>
#include <string>
#include <utility>

#include "attn/schedule.h"

namespace {

// The column of a unit in the table.
int column(Unit unit) {
  switch (unit) {
    case Unit::kMatrix:
      return 0;
    case Unit::kVector:
    case Unit::kTrans:
      return 1;
    default:
      return 2;
  }
}

// A step as it is placed; of a wait what may be left under way.
template <class S>
std::string text_of(const Placed& p) {
  using Plan = Schedule<S>;
  const auto counter = [](const char* name, int n) {
    return std::string(" ") + name + '(' + std::to_string(n) + ')';
  };
  const std::string name = traits(p.step).name;
  switch (p.step) {
    case Step::kWaitK:
    case Step::kWaitV:
      return name + counter("lgkmcnt", p.n);
    case Step::kWaitStaged:
      return name + counter("vmcnt", S::kLoadsK + Plan::kPrefetches);
    case Step::kWaitBlock:
      return name + counter("vmcnt", Plan::kLoadsBehind) +
             (Plan::kLone ? "" : counter("lgkmcnt", 0));
    default:
      return name + ' ' + std::to_string(p.n);
  }
}

template <class S, int unit>
void print_unit() {
  using Plan = Schedule<S>;
  constexpr const auto& table = Plan::template kTable<unit>;
  std::printf("\nUnit of tile %d", S::tile_of(unit));
  if (S::kUnits > S::kTilesQ) std::printf(" and key %d on", S::first_key(unit));
  std::printf(": %d slots, %d for its matrix instructions\n", table.slots,
              Plan::kSlots * Plan::kWindows);
  std::printf("%5s  %-12s %-36s %s\n", "slot", "matrix", "vector", "memory, scalar, waits");
  std::string cells[3];
  int window = -1;
  const auto flush = [&] {
    if (window < 0) return;
    std::printf("%5d  %-12s %-36s %s\n", window, cells[0].c_str(), cells[1].c_str(),
                cells[2].c_str());
    for (std::string& cell : cells) cell.clear();
  };
  for (int i = 0; i < table.count; ++i) {
    const Placed& p = table.at[i];
    const StepTraits t = traits(p.step);
    if (t.unit == Unit::kMatrix) {
      flush();
      window = p.slot;
    }
    std::string& cell = cells[column(t.unit)];
    cell += (cell.empty() ? "" : ", ") + text_of<S>(p);
  }
  flush();
}

template <int kHeadDim, int kHeadDimV, int kWaveRows, bool kCapped, class Target = Cdna3,
          int kKeys = kUnitKeys>
void print(const char* name) {
  using S = Shape<kHeadDim, kHeadDimV, kWaveRows, Element::kBf16, Rounding::kNearestEven, kCapped,
                  Target, kKeys>;
  std::printf("== %s\n", name);
  std::printf("Main loop of attn_fwd_*_%s: %d tiles of %d rows a wave, blocks of %d keys.\n", name,
              S::kTilesQ, S::kTile, S::kKeys);
  std::printf("A row is a matrix instruction and what is issued before the next one.\n");
  [&]<int... kUnits>(std::integer_sequence<int, kUnits...>) {
    (print_unit<S, kUnits>(), ...);
  }(std::make_integer_sequence<int, S::kUnits>());
}

}  // namespace

int main() {
  print<128, 128, 96, false>("d128");
  print<128, 128, 64, false>("d128_q256");
  print<128, 128, 32, false>("d128_q128");
  print<64, 64, 128, false>("d64");
  print<64, 64, 64, false>("d64_q256");
  print<192, 128, 64, false>("d192x128");
  print<256, 128, 64, false>("d256x128");
  print<128, 128, 96, true>("d128_softcap");
  print<64, 64, 128, true>("d64_softcap");
  print<128, 128, 96, false, Cdna4, 64>("d128_cdna4");
  print<128, 128, 64, false, Cdna4, 64>("d128_q256_cdna4");
  print<128, 128, 32, false, Cdna4, 64>("d128_q128_cdna4");
  print<64, 64, 32, false, Cdna4, 64>("d64_q128_cdna4");
  print<64, 64, 128, false, Cdna4, 64>("d64_cdna4");
  print<64, 64, 64, false, Cdna4, 64>("d64_q256_cdna4");
  print<192, 128, 64, false, Cdna4>("d192x128_cdna4");
  print<256, 128, 64, false, Cdna4>("d256x128_cdna4");
  print<128, 128, 96, true, Cdna4, 64>("d128_softcap_cdna4");
  print<64, 64, 128, true, Cdna4, 64>("d64_softcap_cdna4");
}
