// The compute ABI: hidden kernel arguments, the dispatch packet, and initial registers.
// Source: LLVM's "User Guide for AMDGPU Backend", sections on kernel dispatch and code object V5.
#include <algorithm>

#include "core/apertures.h"
#include "core/launch_state.h"
#include "core/wave.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define VDEV_WITH_ADDRESS_SANITIZER
extern "C" void __asan_poison_memory_region(void const volatile* address, size_t bytes);
extern "C" void __asan_unpoison_memory_region(void const volatile* address, size_t bytes);
#endif
#endif

namespace vdev {
namespace {

// The registers behind the wave's allocation are memory of the wave, of which a sanitizer knows
// nothing.
void hide_unallocated(Wave& wave) {
#ifdef VDEV_WITH_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(wave.v, sizeof wave.v);
  const Reg* const end = wave.v + wave.num_vector_registers;
  const auto bytes = static_cast<size_t>(std::end(wave.v) - end) * sizeof(Reg);
  __asan_poison_memory_region(end, bytes);
#else
  (void)wave;
#endif
}

u64 hidden_value(const LaunchState& state, ArgKind kind) {
  const Dim3& groups = state.launch.num_workgroups;
  const Dim3& size = state.launch.workgroup_size;
  const Dim3& remainder = state.launch.remainder;
  switch (kind) {
    case ArgKind::kHiddenBlockCountX:  // of whole workgroups
      return groups.x - (remainder.x != 0);
    case ArgKind::kHiddenBlockCountY:
      return groups.y - (remainder.y != 0);
    case ArgKind::kHiddenBlockCountZ:
      return groups.z - (remainder.z != 0);
    case ArgKind::kHiddenRemainderX:
      return remainder.x;
    case ArgKind::kHiddenRemainderY:
      return remainder.y;
    case ArgKind::kHiddenRemainderZ:
      return remainder.z;
    case ArgKind::kHiddenGroupSizeX:
      return size.x;
    case ArgKind::kHiddenGroupSizeY:
      return size.y;
    case ArgKind::kHiddenGroupSizeZ:
      return size.z;
    case ArgKind::kHiddenGridDims:
      return groups.z * size.z > 1 ? 3 : groups.y * size.y > 1 ? 2 : 1;
    case ArgKind::kHiddenDynamicLdsSize:
      return state.launch.dynamic_lds_bytes;
    case ArgKind::kHiddenPrivateBase:
      return kPrivateBase >> 32;
    case ArgKind::kHiddenSharedBase:
      return kSharedBase >> 32;
    case ArgKind::kHiddenQueuePtr:
      return state.queue_address;
    // Offsets are zero, and the device offers no host services.
    default:
      return 0;
  }
}

bool is_hidden(ArgKind kind) { return kind >= ArgKind::kHiddenGlobalOffsetX; }

constexpr u32 kPoison = 0xffa5ffa5;  // NaN as f32 and in the upper half as bf16 and f16

}  // namespace

void fill_hidden_arguments(LaunchState& state) {
  for (const KernelArg& arg : state.kernel().args) {
    if (!is_hidden(arg.kind) || u64{arg.offset} + arg.size > state.kernarg.size()) continue;
    const u64 value = hidden_value(state, arg.kind);
    std::memcpy(&state.kernarg[arg.offset], &value, std::min<u32>(arg.size, 8));
  }
}

u64 hostcall_buffer(const LaunchState& state) {
  u64 buffer = 0;
  for (const KernelArg& arg : state.kernel().args) {
    if (arg.kind != ArgKind::kHiddenHostcallBuffer) continue;
    if (u64{arg.offset} + sizeof buffer > state.kernarg.size()) break;
    std::memcpy(&buffer, state.kernarg.data() + arg.offset, sizeof buffer);
  }
  return buffer;
}

void initialise_wave(const LaunchState& state, const Workgroup& workgroup, Wave& wave) {
  const Kernel& k = state.kernel();
  const Dim3 size = state.launch.size_of(workgroup.id);
  const u32 poison = kPoison ^ static_cast<u32>(state.options.seed);

  wave.num_vector_registers = k.num_vgprs + k.num_agprs;
  wave.num_sgprs = k.addressable_sgprs;
  hide_unallocated(wave);
  std::fill_n(wave.v[0].lane, size_t{k.num_vgprs + k.num_agprs} * kLanes, poison);
  std::fill(std::begin(wave.s), std::end(wave.s), poison);

  u32 index = 0;
  auto put = [&](u32 value) { wave.s[index++] = value; };
  auto put64 = [&](u64 value) {
    put(static_cast<u32>(value));
    put(static_cast<u32>(value >> 32));
  };
  if (k.user_private_segment_buffer) {
    for (int i = 0; i < 4; ++i) put(0);
  }
  if (k.user_dispatch_ptr) put64(state.dispatch_packet_address);
  if (k.user_queue_ptr) put64(state.queue_address);
  if (k.user_kernarg_ptr) put64(state.kernarg_address);
  if (k.user_dispatch_id) put64(0);
  if (k.user_flat_scratch) put64(0);
  if (k.user_private_segment_size) put(k.scratch_bytes);
  for (u32 i = 0; i < k.kernarg_preload_dwords; ++i) {
    u32 word = 0;
    const size_t at = 4 * (size_t{k.kernarg_preload_offset} + i);
    if (at + 4 <= state.kernarg.size()) std::memcpy(&word, &state.kernarg[at], 4);
    put(word);
  }
  // The descriptor's count includes padding that some compilers leave before the system SGPRs.
  index = std::max(index, k.user_sgpr_count);
  if (k.workgroup_id_x) put(workgroup.id.x);
  if (k.workgroup_id_y) put(workgroup.id.y);
  if (k.workgroup_id_z) put(workgroup.id.z);
  if (k.workgroup_info) put(0);

  const u32 total = size.x * size.y * size.z;
  u64 lanes = 0;
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const u32 flat = wave.wave_idx * kLanes + lane;
    if (flat < total) lanes |= u64{1} << lane;
    const u32 x = flat % size.x, y = flat / size.x % size.y, z = flat / size.x / size.y;
    wave.v[0].lane[lane] = x | y << 10 | z << 20;
  }
  wave.lanes = lanes;
  wave.set_pair(kExec, lanes);
  wave.set_pair(kVcc, 0);
  wave.s[kM0] = 0xffffffff;
  wave.set_pair(kFlatScratch, kPrivateBase);
  wave.scc = false;
  wave.set_mode((k.float_mode & 0xff) | (k.dx10_clamp ? kModeDx10Clamp : 0u) |
                (k.ieee_mode ? kModeIeee : 0u) | (k.fp16_overflow ? kModeFp16Overflow : 0u));
  wave.ip = state.entry;
  wave.state = WaveState::kRunning;
  wave.priority = 0;
  wave.sleeping = false;
  wave.loop_target = nullptr;
  wave.loop_count = 0;
}

}  // namespace vdev
