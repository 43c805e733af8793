// Properties and attributes of the device. Figures come from its Machine, the rest from rocminfo,
// rocm-smi and framework logs of real ones.
#include "hip/properties.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include "hip/api.h"

namespace vdev::hip {
namespace {

constexpr int kInt32Max = std::numeric_limits<int>::max();
constexpr std::string_view kVendor = "AMD Instinct ";
constexpr char kUuid[17] = "virtual-device-0";
constexpr int kPciBus = 0x0c;

// As much of a text as fits; the rest of the field is zero.
template <size_t size>
void put(char (&field)[size], const std::string& text) {
  std::strncpy(field, text.c_str(), size - 1);
}

unsigned arch_features() {
  unsigned bits = 0;
  for (const unsigned feature :
       {kGlobalInt32Atomics, kGlobalFloatAtomicExch, kSharedInt32Atomics, kSharedFloatAtomicExch,
        kFloatAtomicAdd, kGlobalInt64Atomics, kSharedInt64Atomics, kDoubles, kWarpVote, kWarpBallot,
        kWarpShuffle, kThreadFenceSystem, k3dGrid}) {
    bits |= 1u << feature;
  }
  return bits;
}

// Everything not set here is zero: textures, surfaces, clusters, RDMA and sparse arrays do not
// exist on this device.
hipDeviceProp_t make_properties(const Machine& machine) {
  const Arch& arch = *machine.arch;
  const Product& product = *machine.product;
  const Limits& limits = arch.limits;
  hipDeviceProp_t p{};
  put(p.name, std::string(kVendor).append(product.name));
  std::memcpy(p.uuid.bytes, kUuid, sizeof p.uuid.bytes);
  put(p.gcnArchName, std::string(arch.name()).append(arch.processor.features));
  p.major = static_cast<int>(arch.major);
  p.minor = static_cast<int>(arch.minor);
  p.totalGlobalMem = machine.memory_bytes();
  p.sharedMemPerBlock = p.sharedMemPerMultiprocessor = p.sharedMemPerBlockOptin =
      p.maxSharedMemoryPerMultiProcessor = limits.lds_bytes;
  p.regsPerBlock = p.regsPerMultiprocessor =
      static_cast<int>(limits.vgprs_per_simd * limits.simds_per_cu) * kLanes;
  p.warpSize = kLanes;
  p.maxThreadsPerBlock = static_cast<int>(limits.workgroup_lanes);
  std::fill_n(p.maxThreadsDim, 3, p.maxThreadsPerBlock);
  p.maxGridSize[0] = static_cast<int>(limits.grid_x);
  p.maxGridSize[1] = p.maxGridSize[2] = static_cast<int>(limits.grid_yz);
  const int waves_per_cu = static_cast<int>(limits.waves_per_simd * limits.simds_per_cu);
  p.maxThreadsPerMultiProcessor = waves_per_cu * kLanes;
  p.maxBlocksPerMultiProcessor = waves_per_cu;
  p.multiProcessorCount = static_cast<int>(machine.num_cus());
  p.clockRate = static_cast<int>(std::lround(product.peak_clock_ghz * 1e6));
  p.memoryClockRate = static_cast<int>(product.memory_clock_khz);
  p.clockInstructionRate = 1000000;
  p.memoryBusWidth = static_cast<int>(product.memory_bus_bits);
  p.l2CacheSize = p.persistingL2CacheMaxSize =
      static_cast<int>(arch.timing.l2_bytes);  // of one XCD
  p.memPitch = p.totalConstMem = kInt32Max;
  p.textureAlignment = p.texturePitchAlignment = p.surfaceAlignment = 256;
  p.pciBusID = kPciBus;
  p.asicRevision = 1;
  p.asyncEngineCount = 8;
  p.deviceOverlap = 1;
  p.concurrentKernels = 1;
  p.canMapHostMemory = 1;
  p.unifiedAddressing = 1;
  p.managedMemory = 1;
  p.concurrentManagedAccess = 1;
  p.cooperativeLaunch = 1;
  p.hostNativeAtomicSupported = 1;  // atomics over PCIe, which ROCm needs
  p.streamPrioritiesSupported = 1;
  p.hostRegisterSupported = 1;
  p.memoryPoolsSupported = 1;
  p.memoryPoolSupportedHandleTypes = 1;  // POSIX file descriptor
  p.ipcEventSupported = 1;
  p.globalL1CacheSupported = p.localL1CacheSupported = 1;
  p.isLargeBar = 1;
  p.arch = arch_features();
  return p;
}

int clamp_to_int(u64 value) { return static_cast<int>(std::min<u64>(value, kInt32Max)); }

// Attributes without a property of their own.
int other_attribute(const Runtime& runtime, int attribute) {
  const Machine& machine = runtime.device.machine();
  switch (attribute) {
    case hipDeviceAttributePhysicalMultiProcessorCount:
      return static_cast<int>(machine.num_cus());
    case hipDeviceAttributeNumberOfXccs:
      return static_cast<int>(machine.num_xcds);
    case hipDeviceAttributeMaxAvailableVgprsPerThread:
      return static_cast<int>(machine.arch->limits.vgprs_per_simd);
    case hipDeviceAttributeWallClockRate:
      return static_cast<int>(machine.arch->counter_khz);
    case hipDeviceAttributePciChipId:
      return machine.product->pci_ids.front();
    case hipDeviceAttributeFineGrainSupport:
      return 1;
    case hipDeviceAttributeHostNumaId:
    case hipDeviceAttributeCanUseStreamWaitValue:
    case hipDeviceAttributeImageSupport:
    case hipDeviceAttributeVirtualMemoryManagementSupported:
    case hipDeviceAttributeDmaBufSupported:
    case hipDeviceAttributeGPUDirectRDMAWithHipVMMSupported:
    case hipDeviceAttributeHandleTypeFabricSupported:
    case hipDeviceAttributeExpertSchedMode:
    case hipDeviceAttributeMaxDynDataPrefetchRegions:
      return 0;
  }
  refuse(hipErrorInvalidValue);
}

int get_attribute(const Runtime& runtime, int attribute) {
  const hipDeviceProp_t& p = device_properties(runtime);
  switch (attribute) {
#define FIELD(name, field)       \
  case hipDeviceAttribute##name: \
    return static_cast<int>(p.field)
#define BYTES(name, field)       \
  case hipDeviceAttribute##name: \
    return clamp_to_int(p.field)
    FIELD(EccEnabled, ECCEnabled);
    FIELD(AccessPolicyMaxWindowSize, accessPolicyMaxWindowSize);
    FIELD(AsyncEngineCount, asyncEngineCount);
    FIELD(CanMapHostMemory, canMapHostMemory);
    FIELD(CanUseHostPointerForRegisteredMem, canUseHostPointerForRegisteredMem);
    FIELD(ClockRate, clockRate);
    FIELD(ComputeMode, computeMode);
    FIELD(ComputePreemptionSupported, computePreemptionSupported);
    FIELD(ConcurrentKernels, concurrentKernels);
    FIELD(ConcurrentManagedAccess, concurrentManagedAccess);
    FIELD(CooperativeLaunch, cooperativeLaunch);
    FIELD(CooperativeMultiDeviceLaunch, cooperativeMultiDeviceLaunch);
    FIELD(DeviceOverlap, deviceOverlap);
    FIELD(DirectManagedMemAccessFromHost, directManagedMemAccessFromHost);
    FIELD(GlobalL1CacheSupported, globalL1CacheSupported);
    FIELD(HostNativeAtomicSupported, hostNativeAtomicSupported);
    FIELD(Integrated, integrated);
    FIELD(IsMultiGpuBoard, isMultiGpuBoard);
    FIELD(KernelExecTimeout, kernelExecTimeoutEnabled);
    FIELD(L2CacheSize, l2CacheSize);
    FIELD(LocalL1CacheSupported, localL1CacheSupported);
    FIELD(LuidDeviceNodeMask, luidDeviceNodeMask);
    FIELD(ComputeCapabilityMajor, major);
    FIELD(ComputeCapabilityMinor, minor);
    FIELD(ManagedMemory, managedMemory);
    FIELD(MaxBlocksPerMultiProcessor, maxBlocksPerMultiProcessor);
    FIELD(MaxBlockDimX, maxThreadsDim[0]);
    FIELD(MaxBlockDimY, maxThreadsDim[1]);
    FIELD(MaxBlockDimZ, maxThreadsDim[2]);
    FIELD(MaxGridDimX, maxGridSize[0]);
    FIELD(MaxGridDimY, maxGridSize[1]);
    FIELD(MaxGridDimZ, maxGridSize[2]);
    FIELD(MaxSurface1D, maxSurface1D);
    FIELD(MaxTexture1DWidth, maxTexture1D);
    FIELD(MaxTexture1DLinear, maxTexture1DLinear);
    FIELD(MaxTexture1DMipmap, maxTexture1DMipmap);
    FIELD(MaxTexture2DWidth, maxTexture2D[0]);
    FIELD(MaxTexture2DHeight, maxTexture2D[1]);
    FIELD(MaxTexture3DWidth, maxTexture3D[0]);
    FIELD(MaxTexture3DHeight, maxTexture3D[1]);
    FIELD(MaxTexture3DDepth, maxTexture3D[2]);
    FIELD(MaxTextureCubemap, maxTextureCubemap);
    FIELD(MaxThreadsPerBlock, maxThreadsPerBlock);
    FIELD(MaxThreadsPerMultiProcessor, maxThreadsPerMultiProcessor);
    BYTES(MaxPitch, memPitch);
    FIELD(MemoryBusWidth, memoryBusWidth);
    FIELD(MemoryClockRate, memoryClockRate);
    FIELD(MultiGpuBoardGroupID, multiGpuBoardGroupID);
    FIELD(MultiprocessorCount, multiProcessorCount);
    FIELD(PageableMemoryAccess, pageableMemoryAccess);
    FIELD(PageableMemoryAccessUsesHostPageTables, pageableMemoryAccessUsesHostPageTables);
    FIELD(PciBusId, pciBusID);
    FIELD(PciDeviceId, pciDeviceID);
    FIELD(PciDomainId, pciDomainID);
    FIELD(PersistingL2CacheMaxSize, persistingL2CacheMaxSize);
    FIELD(MaxRegistersPerBlock, regsPerBlock);
    FIELD(MaxRegistersPerMultiprocessor, regsPerMultiprocessor);
    BYTES(ReservedSharedMemPerBlock, reservedSharedMemPerBlock);
    BYTES(MaxSharedMemoryPerBlock, sharedMemPerBlock);
    BYTES(SharedMemPerBlockOptin, sharedMemPerBlockOptin);
    BYTES(SharedMemPerMultiprocessor, sharedMemPerMultiprocessor);
    FIELD(StreamPrioritiesSupported, streamPrioritiesSupported);
    BYTES(SurfaceAlignment, surfaceAlignment);
    BYTES(TextureAlignment, textureAlignment);
    BYTES(TexturePitchAlignment, texturePitchAlignment);
    BYTES(TotalConstantMemory, totalConstMem);
    BYTES(TotalGlobalMem, totalGlobalMem);
    FIELD(UnifiedAddressing, unifiedAddressing);
    FIELD(WarpSize, warpSize);
    FIELD(MemoryPoolsSupported, memoryPoolsSupported);
    FIELD(HostRegisterSupported, hostRegisterSupported);
    FIELD(MemoryPoolSupportedHandleTypes, memoryPoolSupportedHandleTypes);
    BYTES(MaxSharedMemoryPerMultiprocessor, maxSharedMemoryPerMultiProcessor);
    FIELD(CooperativeMultiDeviceUnmatchedFunc, cooperativeMultiDeviceUnmatchedFunc);
    FIELD(CooperativeMultiDeviceUnmatchedGridDim, cooperativeMultiDeviceUnmatchedGridDim);
    FIELD(CooperativeMultiDeviceUnmatchedBlockDim, cooperativeMultiDeviceUnmatchedBlockDim);
    FIELD(CooperativeMultiDeviceUnmatchedSharedMem, cooperativeMultiDeviceUnmatchedSharedMem);
    FIELD(IsLargeBar, isLargeBar);
    FIELD(AsicRevision, asicRevision);
#undef FIELD
#undef BYTES
  }
  return other_attribute(runtime, attribute);
}

}  // namespace

const hipDeviceProp_t& device_properties(const Runtime& runtime) {
  static const hipDeviceProp_t properties = make_properties(runtime.device.machine());
  return properties;
}

HIP_API hipGetDevicePropertiesR0600(hipDeviceProp_t* properties, int device) {
  return api([&](Runtime& runtime) {
    require(writable(properties));
    check_device(device);
    *properties = device_properties(runtime);
    return hipSuccess;
  });
}

HIP_API hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device) {
  return api([&](Runtime& runtime) {
    require(writable(value));
    check_device(device);
    *value = get_attribute(runtime, attribute);
    return hipSuccess;
  });
}

// There is one device, and it is the best match for whatever is asked.
HIP_API hipChooseDeviceR0600(int* device, const hipDeviceProp_t* wanted) {
  return api([&](Runtime&) {
    require(writable(device) && readable(wanted));
    *device = 0;
    return hipSuccess;
  });
}

}  // namespace vdev::hip
