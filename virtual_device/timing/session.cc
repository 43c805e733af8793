#include "timing/session.h"

#include <cstdio>

#include "core/launch_state.h"
#include "isa/decode.h"

namespace vdev::timing {

const char* stall_name(Stall stall) {
  static constexpr const char* kNames[kNumStalls] = {"none",   "waitcnt", "barrier", "matrix",
                                                     "vector", "lds",     "vmem",    "arbitration",
                                                     "fetch",  "branch"};
  return kNames[static_cast<int>(stall)];
}

namespace {

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

// Ratio of busy to available clk, of a unit of which each CU has `count`.
double share(u64 busy, const Profile& p, u32 count) {
  const double available = double(p.cycles) * p.cus * count;
  return available > 0 ? static_cast<double>(busy) / available : 0;
}

std::string json(const LaunchState& launch, const Arch& arch, const Profile& p, double clock,
                 const Options& options) {
  std::string out = "{\"kernel\": \"" + launch.kernel().name + "\", \"arch\": \"" +
                    std::string(arch.name()) + "\", \"readings\": {";
  for (const ReadingOption& option : kReadingOptions)
    if (const u32 value = options.readings.*option.value)
      out += std::string(out.back() == '{' ? "\"" : ", \"") + option.key +
             "\": " + std::to_string(value);
  out += '}';
  const auto add = [&out](const char* name, double value) {
    out += std::string(", \"") + name + "\": " + number(value);
  };
  add("cycles", static_cast<double>(p.cycles));
  add("write_back_clk", static_cast<double>(p.write_back));
  add("clock_ghz", clock);
  add("workgroups", static_cast<double>(p.workgroups));
  add("simulated_workgroups", static_cast<double>(p.simulated_workgroups));
  add("simulated_cus", p.cus);
  add("instructions", static_cast<double>(p.instructions));
  add("mfma_use", share(p.use.mfma, p, arch.limits.simds_per_cu));
  add("valu_use", share(p.use.valu, p, arch.limits.simds_per_cu));
  add("lds_use", share(p.use.lds, p, arch.timing.lds_ports));
  add("resident_per_cu", p.resident_per_cu);
  add("lds_address_clk", static_cast<double>(p.use.lds_address));
  add("salu_clk", static_cast<double>(p.use.salu));
  add("l1_clk", p.l1_clk);
  add("l2_clk", p.l2_clk);
  add("hbm_clk", p.hbm_clk);
  add("lds_clk", static_cast<double>(p.use.lds));
  add("lds_conflict_clk", static_cast<double>(p.use.lds_conflict));
  add("mfma_clk", static_cast<double>(p.use.mfma));
  add("valu_clk", static_cast<double>(p.use.valu));
  add("wave_clk", static_cast<double>(p.wave_clk));
  add("l1_bytes", static_cast<double>(p.traffic.l1));
  add("l2_bytes", static_cast<double>(p.traffic.l2));
  add("l2_write_bytes", static_cast<double>(p.traffic.l2_writes));
  add("mall_bytes", static_cast<double>(p.traffic.mall));
  add("hbm_bytes", static_cast<double>(p.traffic.hbm));
  add("mall_write_bytes", static_cast<double>(p.traffic.mall_writes));
  add("hbm_write_bytes", static_cast<double>(p.traffic.hbm_writes));
  out += ", \"sites\": [";
  bool first = true;
  for (const auto& [inst, site] : p.sites) {
    const u64 pc = launch.code.pc(inst) - launch.kernel().entry_address;
    out += first ? "" : ",\n";
    first = false;
    out += "{\"offset\": " + std::to_string(pc) + ", \"text\": \"" + disassemble(*inst) +
           "\", \"issued\": " + std::to_string(site.issued);
    for (int s = 1; s < kNumStalls; ++s)
      if (site.stalled[s])
        out += std::string(", \"") + stall_name(static_cast<Stall>(s)) +
               "\": " + std::to_string(site.stalled[s]);
    out += '}';
  }
  out += "], \"times\": [";
  for (size_t i = 0; i < p.times.size(); ++i) {
    const WorkgroupTime& t = p.times[i];
    out += (i ? ", [" : "[") + std::to_string(t.flat_id) + ", " + std::to_string(t.cu) + ", " +
           std::to_string(t.start) + ", " + std::to_string(t.end) + ']';
  }
  out += "], \"events\": [";
  for (size_t i = 0; i < p.events.size(); ++i) {
    const TraceEvent& e = p.events[i];
    out += (i ? ", [" : "[") + std::to_string(e.start) + ", " + std::to_string(e.end) + ", " +
           std::to_string(e.simd) + ", " + std::to_string(e.wave) + ", " +
           std::to_string(static_cast<int>(e.track)) + ", " +
           std::to_string(launch.code.pc(e.inst) - launch.kernel().entry_address) + ']';
  }
  return out + "]}";
}

}  // namespace

Session::Session(const Machine& machine, const Options& options)
    : options_(options), caches_(machine) {}

void Session::execute(const std::shared_ptr<LaunchState>& launch, Device& device, void* session) {
  Session& self = *static_cast<Session*>(session);
  const Machine& machine = device.machine();
  Profile profile;
  {
    std::lock_guard lock(self.simulating_);
    Simulator simulator(launch, device, self.options_, self.caches_);
    if (simulator.run(profile) && self.options_.complete) simulator.run_rest();
  }
  const double clock =
      self.options_.clock_ghz ? self.options_.clock_ghz : machine.product->sustained_clock_ghz;
  self.now_ns_ += static_cast<i64>(static_cast<double>(profile.cycles) / clock +
                                   machine.arch->timing.launch_us * 1000);
  std::lock_guard lock(self.mutex_);
  self.launches_.push_back(json(*launch, *machine.arch, profile, clock, self.options_));
}

std::string Session::take_json() {
  std::lock_guard lock(mutex_);
  std::string out = "[";
  for (const std::string& launch : launches_) out += (out.size() > 1 ? ",\n" : "") + launch;
  launches_.clear();
  return out + ']';
}

}  // namespace vdev::timing
