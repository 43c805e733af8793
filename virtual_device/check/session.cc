#include "check/session.h"

#include "check/checker.h"
#include "check/shadow_memory.h"

namespace vdev {
namespace {

constexpr size_t kMaxCodeObjects = 4096;

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

std::shared_ptr<const std::vector<RegisterUse>> CheckSession::register_uses(
    const std::shared_ptr<CodeObject>& owner, const DecodedCode& code) {
  std::lock_guard lock(mutex_);
  const bool kept = id_of(owner).has_value();
  if (const auto known = uses_.find(&code); kept && known != uses_.end()) return known->second;
  auto uses = std::make_shared<std::vector<RegisterUse>>();
  uses->reserve(code.insts.size());
  for (const Inst& inst : code.insts)
    uses->push_back(inst.row ? register_use(inst) : RegisterUse{});
  if (kept) uses_[&code] = uses;
  return uses;
}

std::shared_ptr<Observer> CheckSession::observe(LaunchState& launch, void* session) {
  return std::make_shared<Checker>(launch, *static_cast<CheckSession*>(session));
}

std::optional<u64> CheckSession::id_of(const std::shared_ptr<CodeObject>& code) {
  const auto [place, added] = ids_.try_emplace(code.get(), code_objects_.size());
  if (!added) return place->second;
  if (code_objects_.size() == kMaxCodeObjects) {
    ids_.erase(place);
    return std::nullopt;
  }
  code_objects_.push_back(code);
  return place->second;
}
std::shared_ptr<CodeObject> CheckSession::code_object(u64 id) const {
  std::lock_guard lock(mutex_);
  return id < code_objects_.size() ? code_objects_[id] : nullptr;
}

void CheckSession::add(CheckedLaunch launch) {
  std::lock_guard lock(mutex_);
  if (const auto id = id_of(launch.code)) {
    kept_.add(*id, std::move(launch));
  } else {
    kept_.drop(launch);
  }
}
void CheckSession::add_host(Finding finding) {
  std::lock_guard lock(mutex_);
  kept_.add_host(std::move(finding));
}

std::string CheckSession::take_json() {
  std::lock_guard lock(mutex_);
  return kept_.take_json();
}

}  // namespace vdev
