// What a code object says about its kernels: the metadata note and the kernel descriptors.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/code_object.h"
#include "core/types.h"

namespace vdev {

inline constexpr u64 kDescriptorBytes = 64;

struct KernelMetadata {
  Kernel kernel;       // the fields that metadata defines
  std::string symbol;  // of the kernel descriptor
};

// Reads the descriptor of an NT_AMDGPU_METADATA note. On failure returns nothing and says why.
std::optional<std::vector<KernelMetadata>> parse_metadata(std::span<const u8> note,
                                                          std::string& error);

// Which size its 64-byte descriptor and the metadata in `kernel` do not agree on; "" if none. The
// hardware and its runtime take some from here and some from there.
std::string sizes_differ(std::span<const u8, kDescriptorBytes> bytes, const Kernel& kernel);

// Adds to `kernel` what its 64-byte descriptor defines and returns the distance in bytes from the
// descriptor to the entry point.
i64 decode_descriptor(std::span<const u8, kDescriptorBytes> bytes, Kernel& kernel);

// The metadata spelling of an argument kind, e.g. "global_buffer".
std::string_view arg_kind_name(ArgKind kind);

}  // namespace vdev
