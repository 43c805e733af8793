#include "core/code_object_metadata.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/elf.h"
#include "core/msgpack.h"

namespace vdev {
namespace {

using msgpack::Reader;

constexpr std::pair<std::string_view, ArgKind> kArgKinds[] = {
    {"by_value", ArgKind::kByValue},
    {"global_buffer", ArgKind::kGlobalBuffer},
    {"dynamic_shared_pointer", ArgKind::kDynamicSharedPointer},
    {"sampler", ArgKind::kSampler},
    {"image", ArgKind::kImage},
    {"pipe", ArgKind::kPipe},
    {"queue", ArgKind::kQueue},
    {"hidden_global_offset_x", ArgKind::kHiddenGlobalOffsetX},
    {"hidden_global_offset_y", ArgKind::kHiddenGlobalOffsetY},
    {"hidden_global_offset_z", ArgKind::kHiddenGlobalOffsetZ},
    {"hidden_none", ArgKind::kHiddenNone},
    {"hidden_printf_buffer", ArgKind::kHiddenPrintfBuffer},
    {"hidden_hostcall_buffer", ArgKind::kHiddenHostcallBuffer},
    {"hidden_default_queue", ArgKind::kHiddenDefaultQueue},
    {"hidden_completion_action", ArgKind::kHiddenCompletionAction},
    {"hidden_multigrid_sync_arg", ArgKind::kHiddenMultigridSyncArg},
    {"hidden_block_count_x", ArgKind::kHiddenBlockCountX},
    {"hidden_block_count_y", ArgKind::kHiddenBlockCountY},
    {"hidden_block_count_z", ArgKind::kHiddenBlockCountZ},
    {"hidden_group_size_x", ArgKind::kHiddenGroupSizeX},
    {"hidden_group_size_y", ArgKind::kHiddenGroupSizeY},
    {"hidden_group_size_z", ArgKind::kHiddenGroupSizeZ},
    {"hidden_remainder_x", ArgKind::kHiddenRemainderX},
    {"hidden_remainder_y", ArgKind::kHiddenRemainderY},
    {"hidden_remainder_z", ArgKind::kHiddenRemainderZ},
    {"hidden_grid_dims", ArgKind::kHiddenGridDims},
    {"hidden_heap_v1", ArgKind::kHiddenHeapV1},
    {"hidden_dynamic_lds_size", ArgKind::kHiddenDynamicLdsSize},
    {"hidden_private_base", ArgKind::kHiddenPrivateBase},
    {"hidden_shared_base", ArgKind::kHiddenSharedBase},
    {"hidden_queue_ptr", ArgKind::kHiddenQueuePtr},
};

static_assert(
    [] {
      for (u32 i = 0; i < std::size(kArgKinds); ++i) {
        if (kArgKinds[i].second != static_cast<ArgKind>(i)) return false;
      }
      return true;
    }(),
    "arg_kind_name() indexes the table by kind");

u32 number32(Reader& reader) {
  const u64 value = reader.number();
  if (value > std::numeric_limits<u32>::max()) reader.fail("the number exceeds 32 bits");
  return static_cast<u32>(value);
}

ArgKind arg_kind(Reader& reader) {
  const std::string_view name = reader.string();
  const auto* found = std::find_if(std::begin(kArgKinds), std::end(kArgKinds),
                                   [&](const auto& row) { return row.first == name; });
  if (found != std::end(kArgKinds)) return found->second;
  reader.fail("unknown .value_kind " + elf::quoted(name));
  return ArgKind::kByValue;
}

// The keys of an argument and of a kernel that every writer gives: without them a byte of metadata
// would cost a hundred of memory.
KernelArg parse_arg(Reader& reader) {
  KernelArg arg;
  bool has_offset = false, has_size = false, has_kind = false;
  for (u64 left = reader.map(); left > 0 && reader.ok(); --left) {
    const std::string_view key = reader.string();
    if (key == ".name") {
      arg.name = reader.string();
    } else if (key == ".offset") {
      arg.offset = number32(reader);
      has_offset = true;
    } else if (key == ".size") {
      arg.size = number32(reader);
      has_size = true;
    } else if (key == ".value_kind") {
      arg.kind = arg_kind(reader);
      has_kind = true;
    } else {
      reader.skip();
    }
  }
  if (!has_offset || !has_size || !has_kind) {
    reader.fail("an argument lacks .offset, .size or .value_kind");
  }
  return arg;
}

KernelMetadata parse_kernel(Reader& reader) {
  KernelMetadata metadata;
  Kernel& kernel = metadata.kernel;
  for (u64 left = reader.map(); left > 0 && reader.ok(); --left) {
    const std::string_view key = reader.string();
    if (key == ".name") {
      kernel.name = reader.string();
    } else if (key == ".symbol") {
      metadata.symbol = reader.string();
    } else if (key == ".args") {
      for (u64 args = reader.array(); args > 0 && reader.ok(); --args) {
        kernel.args.push_back(parse_arg(reader));
      }
    } else if (key == ".kernarg_segment_size") {
      kernel.kernarg_bytes = number32(reader);
    } else if (key == ".kernarg_segment_align") {
      kernel.kernarg_align = number32(reader);
    } else if (key == ".group_segment_fixed_size") {
      kernel.lds_bytes = number32(reader);
    } else if (key == ".private_segment_fixed_size") {
      kernel.scratch_bytes = number32(reader);
    } else if (key == ".uses_dynamic_stack") {
      kernel.dynamic_stack = reader.boolean();
    } else if (key == ".max_flat_workgroup_size") {
      kernel.max_workgroup_size = number32(reader);
    } else if (key == ".uniform_work_group_size") {
      kernel.uniform_workgroup_size = reader.number() != 0;
    } else if (key == ".wavefront_size") {
      kernel.wavefront_size = number32(reader);
    } else if (key == ".sgpr_count") {
      kernel.num_sgprs = number32(reader);
    } else if (key == ".vgpr_spill_count") {
      kernel.vgpr_spills = number32(reader);
    } else if (key == ".sgpr_spill_count") {
      kernel.sgpr_spills = number32(reader);
    } else {
      reader.skip();
    }
  }
  if (kernel.name.empty() || metadata.symbol.empty())
    reader.fail("a kernel lacks .name or .symbol");
  return metadata;
}

// amdhsa.version is [major, minor]: [1, 0] to [1, 2] in code objects of version 3 to 6.
void parse_version(Reader& reader) {
  u64 left = reader.array();
  if (left == 0) return reader.fail("amdhsa.version is empty");
  const u64 major = reader.number();
  if (major != 1) reader.fail("amdhsa.version is " + std::to_string(major) + ".x, expected 1.x");
  while (--left > 0 && reader.ok()) reader.skip();
}

// Bits [first + count - 1 : first].
u32 bits(u32 word, u32 first, u32 count) { return word >> first & ((1u << count) - 1); }

}  // namespace

std::string_view arg_kind_name(ArgKind kind) { return kArgKinds[static_cast<u32>(kind)].first; }

std::optional<std::vector<KernelMetadata>> parse_metadata(std::span<const u8> note,
                                                          std::string& error) {
  Reader reader(note);
  std::vector<KernelMetadata> kernels;
  for (u64 left = reader.map(); left > 0 && reader.ok(); --left) {
    const std::string_view key = reader.string();
    if (key == "amdhsa.version") {
      parse_version(reader);
    } else if (key == "amdhsa.kernels") {
      for (u64 count = reader.array(); count > 0 && reader.ok(); --count) {
        kernels.push_back(parse_kernel(reader));
      }
    } else {
      reader.skip();
    }
  }
  if (!reader.ok()) {
    error = reader.error();
    return std::nullopt;
  }
  return kernels;
}

std::string sizes_differ(std::span<const u8, kDescriptorBytes> bytes, const Kernel& kernel) {
  struct Size {
    const char* name;
    u64 offset;
    u32 metadata;
    bool may_be_absent;  // older assemblers leave the descriptor's at 0
  };
  const Size sizes[] = {{".group_segment_fixed_size", 0, kernel.lds_bytes, false},
                        {".private_segment_fixed_size", 4, kernel.scratch_bytes, false},
                        {".kernarg_segment_size", 8, kernel.kernarg_bytes, true}};
  for (const Size& size : sizes) {
    u32 value;
    std::memcpy(&value, bytes.data() + size.offset, sizeof(value));
    if (value == size.metadata || (size.may_be_absent && value == 0)) continue;
    return std::string(size.name) + " is " + std::to_string(size.metadata) +
           " in the metadata and " + std::to_string(value) + " in the kernel descriptor";
  }
  return {};
}

i64 decode_descriptor(std::span<const u8, kDescriptorBytes> bytes, Kernel& kernel) {
  const auto word = [&](u64 offset) {
    u32 value;
    std::memcpy(&value, bytes.data() + offset, sizeof(value));
    return value;
  };
  const u32 rsrc3 = word(44), rsrc1 = word(48), rsrc2 = word(52);
  const u32 properties = word(56) & 0xffff, preload = word(56) >> 16;

  // gfx90a and later: one unified file in granules of 8, of which accum_offset (in granules of 4)
  // are arch VGPRs and the rest AGPRs. The allocation may end below accum_offset.
  const u32 total = (bits(rsrc1, 0, 6) + 1) * 8;
  kernel.num_vgprs = std::min((bits(rsrc3, 0, 6) + 1) * 4, total);
  kernel.num_agprs = total - kernel.num_vgprs;
  kernel.tg_split = bits(rsrc3, 16, 1);
  // SGPRs are counted in granules of 8 and allocated in granules of 16.
  kernel.addressable_sgprs = std::min(kMaxSgprs, (bits(rsrc1, 6, 4) / 2 + 1) * 16);

  kernel.float_mode = bits(rsrc1, 12, 8);
  kernel.dx10_clamp = bits(rsrc1, 21, 1);
  kernel.ieee_mode = bits(rsrc1, 23, 1);
  kernel.fp16_overflow = bits(rsrc1, 26, 1);

  kernel.enable_private_segment = bits(rsrc2, 0, 1);
  kernel.user_sgpr_count = bits(rsrc2, 1, 5);
  kernel.trap_handler = bits(rsrc2, 6, 1);
  kernel.workgroup_id_x = bits(rsrc2, 7, 1);
  kernel.workgroup_id_y = bits(rsrc2, 8, 1);
  kernel.workgroup_id_z = bits(rsrc2, 9, 1);
  kernel.workgroup_info = bits(rsrc2, 10, 1);
  kernel.workitem_id_dims = bits(rsrc2, 11, 2);
  kernel.exception_mask = bits(rsrc2, 24, 7);

  kernel.user_private_segment_buffer = bits(properties, 0, 1);
  kernel.user_dispatch_ptr = bits(properties, 1, 1);
  kernel.user_queue_ptr = bits(properties, 2, 1);
  kernel.user_kernarg_ptr = bits(properties, 3, 1);
  kernel.user_dispatch_id = bits(properties, 4, 1);
  kernel.user_flat_scratch = bits(properties, 5, 1);
  kernel.user_private_segment_size = bits(properties, 6, 1);
  if (bits(properties, 10, 1)) kernel.wavefront_size = 32;
  if (bits(properties, 11, 1)) kernel.dynamic_stack = true;

  kernel.kernarg_preload_dwords = bits(preload, 0, 7);
  kernel.kernarg_preload_offset = bits(preload, 7, 9);

  i64 entry;
  std::memcpy(&entry, bytes.data() + 16, sizeof(entry));
  return entry;
}

}  // namespace vdev
