#include "check/kept.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "isa/decode.h"

namespace vdev {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (const auto byte = static_cast<unsigned char>(c); byte < 0x20 || byte > 0x7e) {
      char escape[8];  // names of hostile code objects need not be UTF-8
      std::snprintf(escape, sizeof escape, "\\u%04x", unsigned{byte});
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string triple(const Dim3& d) {
  return '[' + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ']';
}

constexpr const char* kSeverities[] = {"error", "counted", "advice"};

// `launch` is null for findings of host calls.
std::string json(const Finding& f, const CheckedLaunch* launch) {
  const auto text = [&](u64 pc) {
    if (!launch || pc == kNoPc) return std::string();
    const u64 index = (pc - launch->code->text_address()) / 4;
    const auto words = launch->code->text();
    if (index >= words.size()) return std::string();
    const Decoded decoded = decode(words.subspan(index), launch->code->instructions());
    return decoded.inst.row ? disassemble(decoded.inst) : std::string();
  };
  const auto number = [&](u64 pc, u64 base) {
    return pc == kNoPc || !launch ? std::string("null")
                                  : std::to_string(static_cast<i64>(pc - base));
  };
  const u64 base = launch ? launch->code->load_base() : 0, entry = launch ? launch->entry : 0;
  std::string out = "{\"kind\": " + quoted(finding_kind_name(f.kind));
  out += ", \"severity\": " + quoted(kSeverities[static_cast<int>(severity_of(f.kind))]);
  out += ", \"pc\": " + number(f.pc, base) + ", \"offset\": " + number(f.pc, entry);
  out += ", \"text\": " + quoted(text(f.pc));
  out += ", \"producer_pc\": " + number(f.producer_pc, base);
  out += ", \"producer_text\": " + quoted(text(f.producer_pc));
  out += ", \"other_producers\": [";
  for (const u64 pc : f.other_producers)
    out += (pc == f.other_producers.front() ? "" : ", ") + number(pc, base);
  out += ']';
  out += ", \"workgroup\": " + triple(f.workgroup) + ", \"wave\": " + std::to_string(f.wave);
  out += ", \"lane\": " + std::to_string(f.lane) + ", \"where\": " + quoted(f.where);
  out += ", \"message\": " + quoted(f.message) + ", \"count\": " + std::to_string(f.count);
  return out + '}';
}

std::string json(const std::vector<Finding>& findings, const CheckedLaunch* launch) {
  std::string out = "[";
  for (const Finding& f : findings) out += (out.size() > 1 ? ",\n" : "") + json(f, launch);
  return out + ']';
}

}  // namespace

KeptFindings::Place KeptFindings::place_of(const Finding& f) {
  const bool is_hazard = f.kind == FindingKind::kHazard || f.kind == FindingKind::kHazardAdvice;
  const bool is_wait = f.kind == FindingKind::kOverWait;  // a wait has two counters
  return {f.kind, f.pc, is_hazard ? f.producer_pc : kNoPc,
          f.pc == kNoPc ? f.message
          : is_wait     ? f.where
                        : std::string()};
}

void KeptFindings::merge(std::vector<Finding>& all, std::map<Place, size_t>& places,
                         Finding finding) {
  const Place place = place_of(finding);
  const auto known = places.find(place);
  if (known != places.end()) {
    all[known->second].see_again(finding);
  } else if (num_findings_ == kMaxFindings) {
    ++dropped_findings_;
  } else {
    ++num_findings_;
    places.emplace(place, all.size());
    all.push_back(std::move(finding));
  }
}

void KeptFindings::add(u64 code_object, CheckedLaunch launch) {
  const Dim3 &grid = launch.grid, &group = launch.workgroup_size;
  const Shape shape{code_object, launch.kernel, grid.x, grid.y, grid.z, group.x, group.y, group.z};
  auto known = shapes_.find(shape);
  if (known == shapes_.end()) {
    if (entries_.size() == kMaxLaunches) return drop(launch);
    known = shapes_.emplace(shape, entries_.size()).first;
    entries_.push_back({code_object, launch, 0});
    entries_.back().launch.findings.clear();
  }
  ++entries_[known->second].times;
  Kernel& kernel =
      kernels_.try_emplace({code_object, launch.kernel}, Kernel{known->second, {}}).first->second;
  for (Finding& finding : launch.findings) {
    merge(entries_[kernel.entry].launch.findings, kernel.places, std::move(finding));
  }
}

void KeptFindings::add_host(Finding finding) { merge(host_, host_places_, std::move(finding)); }

void KeptFindings::drop(const CheckedLaunch& launch) {
  ++dropped_launches_;
  dropped_findings_ += launch.findings.size();
}

std::string KeptFindings::take_json() {
  std::string out = "{\"launches\": [";
  for (const Entry& entry : entries_) {
    const CheckedLaunch& launch = entry.launch;
    out += &entry == entries_.data() ? "" : ",\n";
    out += "{\"kernel\": " + quoted(launch.kernel);
    out += ", \"code_object\": " + std::to_string(entry.code_object);
    out += ", \"grid\": " + triple(launch.grid);
    out += ", \"workgroup_size\": " + triple(launch.workgroup_size);
    out += ", \"times\": " + std::to_string(entry.times);
    out += ", \"findings\": " + json(launch.findings, &launch) + '}';
  }
  out += "], \"host_findings\": " + json(host_, nullptr);
  out += ", \"dropped_launches\": " + std::to_string(dropped_launches_);
  out += ", \"dropped_findings\": " + std::to_string(dropped_findings_) + '}';
  *this = {};
  return out;
}

}  // namespace vdev
