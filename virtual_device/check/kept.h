// What checked mode keeps between two times that it is asked: the findings of any number of
// launches, in memory that does not grow with them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "check/finding.h"
#include "core/code_object.h"

namespace vdev {

struct CheckedLaunch {
  std::shared_ptr<CodeObject> code;
  std::string kernel;
  Dim3 grid, workgroup_size;
  u64 entry = 0;  // device address
  std::vector<Finding> findings;
};

// Launches of the same kernel and shape are one entry with a count, and the same finding of several
// launches of a kernel is one with a count: amdattn/checking/findings.py has the same rule. Of
// what exceeds the limits there is the number.
class KeptFindings {
 public:
  static constexpr size_t kMaxLaunches = 1 << 14, kMaxFindings = 1 << 15;

  void add(u64 code_object, CheckedLaunch launch);
  void add_host(Finding finding);
  // A launch whose code object is one too many.
  void drop(const CheckedLaunch& launch);
  // All of it as JSON (docs/checked-mode.md), and forgets it.
  std::string take_json();

 private:
  using Shape = std::tuple<u64, std::string, u32, u32, u32, u32, u32, u32>;
  using Place = std::tuple<FindingKind, u64, u64, std::string>;
  struct Entry {
    u64 code_object = 0;
    CheckedLaunch launch;  // with the findings of all launches of the kernel, if it was the first
    u64 times = 0;
  };
  struct Kernel {
    size_t entry = 0;  // that has its findings
    std::map<Place, size_t> places;
  };
  static Place place_of(const Finding& finding);
  void merge(std::vector<Finding>& all, std::map<Place, size_t>& places, Finding finding);

  std::vector<Entry> entries_;
  std::map<Shape, size_t> shapes_;
  std::map<std::pair<u64, std::string>, Kernel> kernels_;
  std::vector<Finding> host_;
  std::map<Place, size_t> host_places_;
  size_t num_findings_ = 0;
  u64 dropped_launches_ = 0, dropped_findings_ = 0;
};

}  // namespace vdev
