// Checked mode, from the moment it is switched on until it is switched off: options, what the host
// declared, what device memory holds, and the findings of every launch in between.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "check/finding.h"
#include "check/kept.h"
#include "core/code_object.h"
#include "core/memory.h"
#include "core/observer.h"
#include "core/program.h"
#include "isa/register_use.h"

namespace vdev {

struct CheckOptions {
  u32 max_errors = 0;  // different errors of a launch, then it is ended; 0: no limit
  // When a load's result arrives: at the last moment that the waits allow, or (some of them, by the
  // seed) at once.
  bool late_loads = true;
  // Whether coherent stores and atomics take effect at the last moment: see LateStores.
  bool late_stores = true;
};

// Memory about which the host said something.
struct Contract {
  enum class Kind : u8 { kReadOnly, kZeroAtEnd };
  Kind kind;
  u64 address, bytes;
  std::string name;  // for reports
};

class ShadowMemory;

class CheckSession {
 public:
  // `options` may change between launches.
  CheckSession(Memory& memory, const CheckOptions& options);
  ~CheckSession();
  // Checked mode is off: nothing is watched any more, the findings stay.
  void stop();

  Memory& memory() { return memory_; }
  const CheckOptions& options() const { return options_; }
  ShadowMemory& shadow() { return *shadow_; }
  // The registers that every instruction of a kernel's code reads and writes, by index.
  std::shared_ptr<const std::vector<RegisterUse>> register_uses(
      const std::shared_ptr<CodeObject>& owner, const DecodedCode& code);

  void declare(Contract contract);
  std::vector<Contract> contracts() const;

  // The observer of a launch; see ObserverFactory.
  static std::shared_ptr<Observer> observe(LaunchState& launch, void* session);
  void add(CheckedLaunch launch);
  // A finding of a host call, outside any launch.
  void add_host(Finding finding);
  // Everything found since the last call, as JSON (see docs/checked-mode.md), and forgets it.
  std::string take_json();
  // A code object of a checked launch, by the number that the findings give; null: unknown.
  std::shared_ptr<CodeObject> code_object(u64 id) const;

 private:
  // Its number, which keeps it, and so its addresses, while findings may name it; none if there are
  // too many. With mutex_ held.
  std::optional<u64> id_of(const std::shared_ptr<CodeObject>& code);

  Memory& memory_;
  const CheckOptions& options_;
  std::unique_ptr<ShadowMemory> shadow_;
  // Of code objects that are kept.
  std::map<const DecodedCode*, std::shared_ptr<const std::vector<RegisterUse>>> uses_;
  std::vector<std::shared_ptr<CodeObject>> code_objects_;
  std::map<const CodeObject*, u64> ids_;
  mutable std::mutex mutex_;
  std::vector<Contract> contracts_;
  KeptFindings kept_;
};

}  // namespace vdev
