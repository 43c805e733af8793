#include "check/session.h"

#include <algorithm>
#include <cstdio>

#include "check/checker.h"
#include "check/shadow_memory.h"
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

CheckSession::CheckSession(Memory& memory, const CheckOptions& options)
    : memory_(memory), options_(options) {
  shadow_ = std::make_unique<ShadowMemory>(memory, [this](Finding f) { add_host(std::move(f)); });
}
CheckSession::~CheckSession() = default;
void CheckSession::stop() { shadow_.reset(); }

void CheckSession::declare(Contract contract) {
  std::lock_guard lock(mutex_);
  contracts_.push_back(std::move(contract));
}
std::vector<Contract> CheckSession::contracts() const {
  std::lock_guard lock(mutex_);
  return contracts_;
}

const std::vector<RegisterUse>& CheckSession::register_uses(const DecodedCode& code) {
  std::lock_guard lock(mutex_);
  const auto [place, added] = uses_.try_emplace(&code);
  if (added) {
    place->second.reserve(code.insts.size());
    for (const Inst& inst : code.insts)
      place->second.push_back(inst.row ? register_use(inst) : RegisterUse{});
  }
  return place->second;
}

std::shared_ptr<Observer> CheckSession::observe(LaunchState& launch, void* session) {
  return std::make_shared<Checker>(launch, *static_cast<CheckSession*>(session));
}

u64 CheckSession::id_of(const std::shared_ptr<CodeObject>& code) {
  const auto found = std::find(code_objects_.begin(), code_objects_.end(), code);
  if (found != code_objects_.end()) return static_cast<u64>(found - code_objects_.begin());
  code_objects_.push_back(code);
  return code_objects_.size() - 1;
}
std::shared_ptr<CodeObject> CheckSession::code_object(u64 id) const {
  std::lock_guard lock(mutex_);
  return id < code_objects_.size() ? code_objects_[id] : nullptr;
}

void CheckSession::add(CheckedLaunch launch) {
  std::lock_guard lock(mutex_);
  id_of(launch.code);  // keeps the code, and so its addresses, while findings may name it
  launches_.push_back(std::move(launch));
}
void CheckSession::add_host(Finding finding) {
  std::lock_guard lock(mutex_);
  host_findings_.push_back(std::move(finding));
}

std::string CheckSession::take_json() {
  std::lock_guard lock(mutex_);
  std::string out = "{\"launches\": [";
  bool first = true;
  for (const CheckedLaunch& launch : launches_) {
    out += first ? "" : ",\n";
    first = false;
    out += "{\"kernel\": " + quoted(launch.kernel);
    out += ", \"code_object\": " + std::to_string(id_of(launch.code));
    out += ", \"grid\": " + triple(launch.grid);
    out += ", \"workgroup_size\": " + triple(launch.workgroup_size);
    out += ", \"findings\": " + json(launch.findings, &launch) + '}';
  }
  out += "], \"host_findings\": " + json(host_findings_, nullptr) + '}';
  launches_.clear();
  host_findings_.clear();
  return out;
}

}  // namespace vdev
