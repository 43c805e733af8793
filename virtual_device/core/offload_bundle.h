// Clang offload bundles: one file with an image per target.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/arch.h"

namespace vdev {

// A target as in "gfx942:sramecc+:xnack-"; a feature that is not named may be either.
struct TargetId {
  enum class Feature : u8 { kAny, kOff, kOn };
  std::string processor;
  Feature sramecc = Feature::kAny, xnack = Feature::kAny;

  static std::optional<TargetId> parse(std::string_view text);
};

bool is_offload_bundle(std::span<const u8> image);
bool is_compressed_bundle(std::span<const u8> image);
// The image of the bundle that fits a processor best: the exact processor before the generic one,
// then the one that names more features. Nothing, and `error` filled in, when none fits.
std::optional<std::span<const u8>> select_image(std::span<const u8> bundle,
                                                const Processor& processor, std::string& error);

// Whether an image built for `target` runs on the virtual device when it plays `processor`, whose
// features are SRAM-ECC on and XNACK off.
bool runs_on(const TargetId& target, const Processor& processor);

// Bytes of an image whose length the caller was not told (hipModuleLoadData), from its own headers,
// which may lie. Of what is neither an ELF image nor a bundle, the beginning: enough for the loader
// to say so. Memory that is not mapped is not touched.
u64 image_bytes(const void* image);
// Those bytes, as far as they can be read.
std::vector<u8> copy_image(const void* image);

}  // namespace vdev
