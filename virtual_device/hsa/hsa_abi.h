// The HSA runtime's ABI, as far as AMD's HIP runtime uses it: types, numbers and the structs that
// it and device code read past the API. Sources: the HSA Runtime Programmer's Reference 1.2, the
// HSA Platform System Architecture 1.2 (packets), and AMD's documented extensions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/launch_state.h"
#include "core/types.h"

namespace vdev::hsa {

using Status = uint32_t;
inline constexpr Status kSuccess = 0, kInfoBreak = 1, kError = 0x1000, kInvalidArgument = 0x1001,
                        kInvalidQueueCreation = 0x1002, kInvalidAllocation = 0x1003,
                        kInvalidAgent = 0x1004, kInvalidSignal = 0x1006, kInvalidQueue = 0x1007,
                        kOutOfResources = 0x1008, kInvalidPacketFormat = 0x1009,
                        kResourceFree = 0x100a, kNotInitialized = 0x100b, kInvalidIsa = 0x100f,
                        kInvalidCodeObject = 0x1010, kInvalidExecutable = 0x1011,
                        kFrozenExecutable = 0x1012, kInvalidSymbolName = 0x1013,
                        kVariableAlreadyDefined = 0x1014, kException = 0x1016,
                        kInvalidExecutableSymbol = 0x1019, kInvalidCodeObjectReader = 0x1021,
                        kInvalidMemoryPool = 40, kMemoryApertureViolation = 41,
                        kIllegalInstruction = 42, kMemoryFault = 43, kNotSupported = 47;

// Opaque handles.
struct Agent {
  u64 handle;
};
struct Signal {
  u64 handle;
};
struct Isa {
  u64 handle;
};
struct Pool {
  u64 handle;
};
struct Reader {
  u64 handle;
};
struct Executable {
  u64 handle;
};
struct Symbol {
  u64 handle;
};
struct LoadedCodeObject {
  u64 handle;
};

// ---- signals ----------------------------------------------------------------------------------
using SignalValue = int64_t;
enum Condition : uint32_t { kEqual = 0, kNotEqual = 1, kLess = 2, kGreaterOrEqual = 3 };

// amd_signal_t: device code adds to `value` through a signal's handle, which is its address.
struct alignas(64) SignalBlock {
  int64_t kind;
  SignalValue value;
  u64 event_mailbox_ptr;
  u32 event_id, reserved1;
  u64 start_ts, end_ts;
  u64 queue_ptr;
  u32 reserved2[2];
};
static_assert(sizeof(SignalBlock) == 64);
inline constexpr int64_t kUserSignal = 1, kDoorbell = -1;

// ---- queues -----------------------------------------------------------------------------------
struct QueueHeader {  // hsa_queue_t
  u32 type, features;
  void* base_address;
  Signal doorbell_signal;
  u32 size, reserved1;
  u64 id;
};
static_assert(sizeof(QueueHeader) == 40);

// amd_queue_v2_t, as far as others than the firmware read it.
struct alignas(64) QueueBlock {
  QueueHeader queue;
  u32 caps, reserved1[3];
  u64 write_dispatch_id;
  u32 group_segment_aperture_base_hi, private_segment_aperture_base_hi;
  u32 max_cu_id, max_wave_id;
  u64 max_legacy_doorbell_dispatch_id_plus_1;
  u32 legacy_doorbell_lock, reserved2[9];
  u64 read_dispatch_id;
  u32 rest[30 + 4 * 128];
};
static_assert(offsetof(QueueBlock, write_dispatch_id) == 56);
static_assert(offsetof(QueueBlock, group_segment_aperture_base_hi) == 64);
static_assert(offsetof(QueueBlock, read_dispatch_id) == 128);
static_assert(sizeof(QueueBlock) == 2304);

enum PacketType : u32 {
  kVendorSpecific = 0,
  kInvalid = 1,
  kKernelDispatch = 2,
  kBarrierAnd = 3,
  kBarrierOr = 5,
};
inline constexpr u32 kQueueCooperative = 2;
inline constexpr u8 kBarrierValueFormat = 2;  // of vendor packets

struct DispatchPacket {  // hsa_kernel_dispatch_packet_t
  u16 header, setup, workgroup_size_x, workgroup_size_y, workgroup_size_z, reserved0;
  u32 grid_size_x, grid_size_y, grid_size_z, private_segment_size, group_segment_size;
  u64 kernel_object, kernarg_address, reserved2;
  Signal completion_signal;
};
struct BarrierPacket {  // hsa_barrier_and_packet_t and hsa_barrier_or_packet_t
  u16 header, reserved0;
  u32 reserved1;
  Signal dep_signal[5];
  u64 reserved2;
  Signal completion_signal;
};
struct BarrierValuePacket {  // hsa_amd_barrier_value_packet_t
  u16 header;
  u8 format, reserved0;
  u32 reserved1;
  Signal signal;
  SignalValue value, mask;
  u32 condition, reserved2;
  u64 reserved3, reserved4;
  Signal completion_signal;
};
static_assert(sizeof(DispatchPacket) == kPacketBytes && sizeof(BarrierPacket) == kPacketBytes &&
              sizeof(BarrierValuePacket) == kPacketBytes);

// ---- memory -----------------------------------------------------------------------------------
inline constexpr u32 kSegmentGlobal = 0, kSegmentGroup = 3;
inline constexpr u32 kKernargInit = 1, kFineGrained = 2, kCoarseGrained = 4,
                     kExtendedFineGrained = 8;
enum PoolAccess : u32 { kNeverAllowed = 0, kAllowedByDefault = 1, kDisallowedByDefault = 2 };

struct LinkInfo {  // hsa_amd_memory_pool_link_info_t
  u32 min_latency, max_latency, min_bandwidth, max_bandwidth;
  bool atomic_support_32bit, atomic_support_64bit, coherent_support;
  u32 link_type, numa_distance;
};
inline constexpr u32 kLinkPcie = 2, kLinkXgmi = 4;

enum PointerType : u32 {
  kPointerUnknown = 0,
  kPointerHsa = 1,
  kPointerLocked = 2,
  kPointerReserved = 5,
  kPointerVmem = 6,
};
struct PointerInfo {  // hsa_amd_pointer_info_t
  u32 size, type;
  void *agent_base, *host_base;
  size_t bytes;
  void* user_data;
  Agent owner;
  u32 global_flags;
  bool registered;
};

struct PitchedPointer {
  void* base;
  size_t pitch, slice;
};
struct Dim3Of {
  u32 x, y, z;
};
struct CopyTime {
  u64 start, end;
};

// ---- events -----------------------------------------------------------------------------------
struct MemoryFaultEvent {  // hsa_amd_event_t with hsa_amd_gpu_memory_fault_info_t
  u32 event_type;          // 0
  Agent agent;
  u64 virtual_address;
  u32 reason_mask;
};

// ---- attributes -------------------------------------------------------------------------------
namespace system_info {
enum : u32 {
  kVersionMajor = 0,
  kVersionMinor = 1,
  kTimestamp = 2,
  kTimestampFrequency = 3,
  kSignalMaxWait = 4,
  kEndianness = 5,
  kMachineModel = 6,
  kExtensions = 7,
  kBuildVersion = 0x200,
  kSvmSupported = 0x201,
  kSvmAccessibleByDefault = 0x202,
  kMwaitxEnabled = 0x203,
  kDmabufSupported = 0x204,
  kVirtualMemoryApi = 0x205,
  kXnackEnabled = 0x206,
  kExtVersionMajor = 0x207,
  kExtVersionMinor = 0x208,
};
}  // namespace system_info

namespace agent_info {
enum : u32 {
  kName = 0,
  kVendorName = 1,
  kFeature = 2,
  kMachineModel = 3,
  kProfile = 4,
  kDefaultFloatRoundingMode = 5,
  kWavefrontSize = 6,
  kWorkgroupMaxDim = 7,
  kWorkgroupMaxSize = 8,
  kGridMaxDim = 9,
  kGridMaxSize = 10,
  kFbarrierMaxSize = 11,
  kQueuesMax = 12,
  kQueueMinSize = 13,
  kQueueMaxSize = 14,
  kQueueType = 15,
  kNode = 16,
  kDevice = 17,
  kCacheSize = 18,
  kIsa = 19,
  kExtensions = 20,
  kVersionMajor = 21,
  kVersionMinor = 22,
  kFastF16 = 24,
  kImage1dMax = 0x3000,
  kImage1daMax = 0x3001,
  kImage1dbMax = 0x3002,
  kImage2dMax = 0x3003,
  kImage2daMax = 0x3004,
  kImage2dDepthMax = 0x3005,
  kImage2daDepthMax = 0x3006,
  kImage3dMax = 0x3007,
  kImageArrayMax = 0x3008,
  kImageReadHandles = 0x3009,
  kImageReadWriteHandles = 0x300a,
  kSamplerHandles = 0x300b,
  kImagePitchAlignment = 0x300c,
  kChipId = 0xa000,
  kCachelineSize = 0xa001,
  kComputeUnitCount = 0xa002,
  kMaxClockFrequency = 0xa003,
  kDriverNodeId = 0xa004,
  kMaxAddressWatchPoints = 0xa005,
  kBdfId = 0xa006,
  kMemoryWidth = 0xa007,
  kMemoryMaxFrequency = 0xa008,
  kProductName = 0xa009,
  kMaxWavesPerCu = 0xa00a,
  kNumSimdsPerCu = 0xa00b,
  kNumShaderEngines = 0xa00c,
  kNumShaderArraysPerSe = 0xa00d,
  kHdpFlush = 0xa00e,
  kDomain = 0xa00f,
  kCooperativeQueues = 0xa010,
  kUuid = 0xa011,
  kAsicRevision = 0xa012,
  kSvmDirectHostAccess = 0xa013,
  kCooperativeComputeUnitCount = 0xa014,
  kMemoryAvail = 0xa015,
  kTimestampFrequency = 0xa016,
  kAsicFamilyId = 0xa107,
  kUcodeVersion = 0xa108,
  kSdmaUcodeVersion = 0xa109,
  kNumSdmaEngines = 0xa10a,
  kNumSdmaXgmiEngines = 0xa10b,
  kIommuSupport = 0xa110,
  kNumXcc = 0xa111,
  kDriverUid = 0xa112,
  kNearestCpu = 0xa113,
  kMemoryProperties = 0xa114,
  kScratchLimitMax = 0xa116,
  kScratchLimitCurrent = 0xa117,
};
}  // namespace agent_info

inline constexpr u32 kImageExtension = 1;

namespace isa_info {
enum : u32 { kNameLength = 0, kName = 1 };
}  // namespace isa_info

namespace pool_info {
enum : u32 {
  kSegment = 0,
  kGlobalFlags = 1,
  kSize = 2,
  kAllocAllowed = 5,
  kAllocGranule = 6,
  kAllocAlignment = 7,
  kAccessibleByAll = 15,
  kAllocMaxSize = 16,
  kLocation = 17,
  kRecommendedGranule = 18,
};
enum : u32 { kAccess = 0, kNumLinkHops = 1, kLinkInfo = 2 };  // of an agent and a pool
}  // namespace pool_info

namespace symbol_info {
enum : u32 {
  kType = 0,
  kNameLength = 1,
  kName = 2,
  kModuleNameLength = 3,
  kLinkage = 5,
  kVariableAllocation = 6,
  kVariableSegment = 7,
  kVariableAlignment = 8,
  kVariableSize = 9,
  kVariableIsConst = 10,
  kKernargSize = 11,
  kKernargAlignment = 12,
  kGroupSegmentSize = 13,
  kPrivateSegmentSize = 14,
  kDynamicCallstack = 15,
  kIsDefinition = 17,
  kAgent = 20,
  kVariableAddress = 21,
  kKernelObject = 22,
};
}  // namespace symbol_info

}  // namespace vdev::hsa
