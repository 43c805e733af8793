// Code objects: AMDGPU ELF images (COV4, 5 and 6), their metadata, kernel descriptors and segments.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "arch/arch.h"
#include "core/memory.h"
#include "core/types.h"

namespace vdev {

// How the runtime fills one kernarg entry (metadata `.value_kind`).
enum class ArgKind : u8 {
  kByValue,
  kGlobalBuffer,
  kDynamicSharedPointer,
  kSampler,
  kImage,
  kPipe,
  kQueue,
  kHiddenGlobalOffsetX,
  kHiddenGlobalOffsetY,
  kHiddenGlobalOffsetZ,
  kHiddenNone,
  kHiddenPrintfBuffer,
  kHiddenHostcallBuffer,
  kHiddenDefaultQueue,
  kHiddenCompletionAction,
  kHiddenMultigridSyncArg,
  kHiddenBlockCountX,
  kHiddenBlockCountY,
  kHiddenBlockCountZ,
  kHiddenGroupSizeX,
  kHiddenGroupSizeY,
  kHiddenGroupSizeZ,
  kHiddenRemainderX,
  kHiddenRemainderY,
  kHiddenRemainderZ,
  kHiddenGridDims,
  kHiddenHeapV1,
  kHiddenDynamicLdsSize,
  kHiddenPrivateBase,
  kHiddenSharedBase,
  kHiddenQueuePtr,
};

struct KernelArg {
  std::string name;
  u32 offset = 0;
  u32 size = 0;
  ArgKind kind = ArgKind::kByValue;
};

inline constexpr u32 kMaxSgprs = 102;
// The hardware counts a wave's scratch in KiB with 13 bits.
inline constexpr u32 kMaxScratchBytes = 0x1fff * 1024 / kLanes;  // per lane
// Far above what any compiler lets arguments have.
inline constexpr u32 kMaxKernargBytes = 64 * 1024;

// The scratch of a wave: whole dwords of every lane, interleaved.
constexpr u64 scratch_bytes_of_wave(u32 bytes_per_lane) {
  return (u64{bytes_per_lane} + 3) / 4 * 4 * kLanes;
}

// The 64-byte kernel descriptor, decoded, joined with the kernel's metadata.
struct Kernel {
  std::string name;            // symbol without ".kd"
  u64 descriptor_address = 0;  // device address of the descriptor
  // Device address of the kernel's code. The hardware starts a kernel with preloaded kernargs 256
  // bytes later, behind a prologue for firmware without preloading.
  u64 entry_address = 0;
  u32 lds_bytes = 0;      // static LDS
  u32 scratch_bytes = 0;  // private segment per lane
  bool dynamic_stack = false;
  u32 kernarg_bytes = 0;  // .kernarg_segment_size (the descriptor's may be 0)
  u32 kernarg_align = 16;
  std::vector<KernelArg> args;  // in metadata order, hidden ones included
  u32 max_workgroup_size = 1024;
  bool uniform_workgroup_size = false;
  u32 num_vgprs = 0;                  // arch VGPRs allocated (accum_offset)
  u32 num_agprs = 0;                  // AGPRs allocated (granulated total - accum_offset)
  u32 num_sgprs = 0;                  // from metadata .sgpr_count (informative)
  u32 addressable_sgprs = kMaxSgprs;  // s0 to s101 at most, as far as they are allocated
  u32 vgpr_spills = 0, sgpr_spills = 0;
  // compute_pgm_rsrc1: MODE bits
  u32 float_mode = 0xf0;  // [1:0] round32 [3:2] round16_64 [5:4] denorm32 [7:6] denorm16_64
  bool dx10_clamp = true, ieee_mode = true, fp16_overflow = false;
  // compute_pgm_rsrc2
  bool enable_private_segment = false;
  u32 user_sgpr_count = 0;
  bool workgroup_id_x = true, workgroup_id_y = false, workgroup_id_z = false;
  bool workgroup_info = false;
  u32 workitem_id_dims = 0;  // 0: x, 1: x y, 2: x y z (packed, 10 bits each, in v0)
  bool trap_handler = false;
  u32 exception_mask = 0;  // enabled floating point traps, bits [30:24] of compute_pgm_rsrc2
  // Recorded here, refused by the launch where the device lacks it.
  u32 wavefront_size = 64;
  bool tg_split = false;  // waves of a workgroup on several CUs
  // kernel_code_properties, in the order in which they fill user SGPRs
  bool user_private_segment_buffer = false, user_dispatch_ptr = false, user_queue_ptr = false,
       user_kernarg_ptr = false, user_dispatch_id = false, user_flat_scratch = false,
       user_private_segment_size = false;
  u32 kernarg_preload_dwords = 0, kernarg_preload_offset = 0;
};

struct GlobalVariable {
  std::string name;
  u64 address = 0;
  u64 size = 0;
};

// Why an image was refused; `invalid_image` maps to hipErrorInvalidImage, otherwise NoBinaryForGpu.
struct LoadError {
  bool invalid_image = true;
  std::string message;
};

class InstructionSet;
struct DecodedCode;  // filled by the interpreter, see core/program.h

// One loaded image: its segments live in device memory until the last reference goes.
class CodeObject {
 public:
  // `image` may be a raw ELF or an uncompressed clang offload bundle.
  static std::variant<std::shared_ptr<CodeObject>, LoadError> load(std::span<const u8> image,
                                                                   const Processor& processor,
                                                                   Memory& memory);
  ~CodeObject();

  std::string_view arch() const { return processor_.name; }
  // What its code is decoded by. The code of a generic processor may use what the device has.
  const InstructionSet& instructions() const;
  // Whether its target lets XNACK (retries of page faults) be on.
  bool may_have_xnack() const { return may_have_xnack_; }
  const std::vector<Kernel>& kernels() const { return kernels_; }
  const Kernel* find_kernel(std::string_view name) const;
  const std::vector<GlobalVariable>& globals() const { return globals_; }
  // Executable range, for the instruction fetch: device addresses and the host's view of them.
  u64 text_address() const { return text_address_; }
  std::span<const u32> text() const { return text_; }
  // The nearest function symbol at or below a device address, for reports ("kernel+0x1c4").
  std::string describe(u64 address) const;
  // Device addresses [first, last) of the function that holds `address`, up to the next function;
  // empty where there is none.
  std::pair<u64, u64> function_around(u64 address) const;
  // Device address minus virtual address in the ELF image.
  u64 load_base() const { return load_base_; }
  // The ELF image as it was loaded.
  const std::vector<u8>& image() const { return image_; }

  // Filled by the interpreter, by the kernels' numbers of VGPRs, AGPRs and addressable SGPRs.
  std::map<std::array<u32, 3>, std::shared_ptr<const DecodedCode>> decoded;

 private:
  struct Symbol {
    u64 address = 0;
    std::string name;
  };

  CodeObject(Memory& memory, const Processor& processor) : memory_(memory), processor_(processor) {}

  friend class CodeObjectLoader;

  Memory& memory_;
  Allocation segments_;  // all of them, at their distances in the image
  std::vector<u8> image_;
  u64 load_base_ = 0;
  const Processor& processor_;
  bool may_have_xnack_ = true;
  std::vector<Kernel> kernels_;
  std::vector<GlobalVariable> globals_;
  std::vector<Symbol> functions_;  // by address
  u64 text_address_ = 0;
  std::span<const u32> text_;
};

}  // namespace vdev
