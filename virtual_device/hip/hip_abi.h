// The C ABI of the HIP runtime, as far as the virtual device implements it: handles, enumerations
// and structures. Layouts and values are facts of HIP 7 (ROCm 7.2 and 10); test_abi.py
// compares them with those that two independent sets of bindings were compiled with.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hip/error_codes.h"

// Opaque handles. The pointed-to types have no definition: a handle is only a name.
typedef struct ihipStream_t* hipStream_t;
typedef struct ihipEvent_t* hipEvent_t;
typedef struct ihipModule_t* hipModule_t;
typedef struct ihipModuleSymbol_t* hipFunction_t;
typedef struct ihipLibrary_t* hipLibrary_t;
typedef struct ihipKernel_t* hipKernel_t;
typedef struct ihipMemPoolHandle_t* hipMemPool_t;
typedef struct ihipCtx_t* hipCtx_t;
typedef struct ihipGraph* hipGraph_t;
typedef struct hipGraphNode* hipGraphNode_t;
typedef struct hipGraphExec* hipGraphExec_t;
typedef struct hipArray* hipArray_t;
typedef void* hipDeviceptr_t;
typedef int hipDevice_t;

typedef void (*hipHostFn_t)(void* user_data);
typedef void (*hipStreamCallback_t)(hipStream_t stream, hipError_t status, void* user_data);

// Named streams that are no objects.
inline constexpr std::uintptr_t kStreamNull = 0, kStreamLegacy = 1, kStreamPerThread = 2;

enum hipMemcpyKind : int {
  hipMemcpyHostToHost = 0,
  hipMemcpyHostToDevice = 1,
  hipMemcpyDeviceToHost = 2,
  hipMemcpyDeviceToDevice = 3,
  hipMemcpyDefault = 4,
  hipMemcpyDeviceToDeviceNoCU = 1024,
};

enum hipMemoryType : int {
  hipMemoryTypeUnregistered = 0,
  hipMemoryTypeHost = 1,
  hipMemoryTypeDevice = 2,
  hipMemoryTypeManaged = 3,
  hipMemoryTypeArray = 10,
  hipMemoryTypeUnified = 11,
};

enum hipFunction_attribute : int {
  HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
  HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
  HIP_FUNC_ATTRIBUTE_CONST_SIZE_BYTES = 2,
  HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
  HIP_FUNC_ATTRIBUTE_NUM_REGS = 4,
  HIP_FUNC_ATTRIBUTE_PTX_VERSION = 5,
  HIP_FUNC_ATTRIBUTE_BINARY_VERSION = 6,
  HIP_FUNC_ATTRIBUTE_CACHE_MODE_CA = 7,
  HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  HIP_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
};

enum hipFuncAttribute : int {
  hipFuncAttributeMaxDynamicSharedMemorySize = 8,
  hipFuncAttributePreferredSharedMemoryCarveout = 9,
};

enum hipPointer_attribute : int {
  HIP_POINTER_ATTRIBUTE_CONTEXT = 1,
  HIP_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  HIP_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
  HIP_POINTER_ATTRIBUTE_HOST_POINTER = 4,
  HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,
  HIP_POINTER_ATTRIBUTE_BUFFER_ID = 7,
  HIP_POINTER_ATTRIBUTE_IS_MANAGED = 8,
  HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
  HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
  HIP_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
  HIP_POINTER_ATTRIBUTE_MAPPED = 13,
};

enum hipMemPoolAttr : int {
  hipMemPoolReuseFollowEventDependencies = 1,
  hipMemPoolReuseAllowOpportunistic = 2,
  hipMemPoolReuseAllowInternalDependencies = 3,
  hipMemPoolAttrReleaseThreshold = 4,
  hipMemPoolAttrReservedMemCurrent = 5,
  hipMemPoolAttrReservedMemHigh = 6,
  hipMemPoolAttrUsedMemCurrent = 7,
  hipMemPoolAttrUsedMemHigh = 8,
};

enum hipMemAccessFlags : int {
  hipMemAccessFlagsProtNone = 0,
  hipMemAccessFlagsProtRead = 1,
  hipMemAccessFlagsProtReadWrite = 3,
};

enum hipMemoryAdvise : int { hipMemAdviseFirst = 1, hipMemAdviseLast = 6 };  // and 100, 101
enum hipMemLocationType : int { hipMemLocationTypeDevice = 1, hipMemLocationTypeHost = 2 };
enum hipMemAllocationType : int { hipMemAllocationTypePinned = 1 };
enum hipMemAllocationHandleType : int { hipMemHandleTypeNone = 0 };

enum hipLimit_t : int {
  hipLimitStackSize = 0,
  hipLimitPrintfFifoSize = 1,
  hipLimitMallocHeapSize = 2,
  hipExtLimitScratchMin = 4096,
  hipExtLimitScratchMax = 4097,
  hipExtLimitScratchCurrent = 4098,
  hipLimitRange = 4099,
};

enum hipFuncCache_t : int { hipFuncCachePreferNone = 0, hipFuncCachePreferEqual = 3 };
enum hipSharedMemConfig : int {
  hipSharedMemBankSizeDefault = 0,
  hipSharedMemBankSizeEightByte = 2
};
enum hipDeviceP2PAttr : int { hipDevP2PAttrPerformanceRank = 0 };
enum hipJitOption : int { hipJitOptionMaxRegisters = 0 };
enum hipLibraryOption : int { hipLibraryHostUniversalFunctionAndDataTable = 0 };
enum hipChannelFormatKind : int { hipChannelFormatKindSigned = 0 };

enum hipDriverProcAddressQueryResult : int {
  HIP_GET_PROC_ADDRESS_SUCCESS = 0,
  HIP_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
};

enum hipLaunchAttributeID : int {
  hipLaunchAttributeIgnore = 0,
  hipLaunchAttributeAccessPolicyWindow = 1,
  hipLaunchAttributeCooperative = 2,
  hipLaunchAttributeSynchronizationPolicy = 3,
  hipLaunchAttributePriority = 8,
};

enum hipStreamCaptureMode : int {
  hipStreamCaptureModeGlobal = 0,
  hipStreamCaptureModeThreadLocal = 1,
  hipStreamCaptureModeRelaxed = 2,
};

enum hipStreamCaptureStatus : int {
  hipStreamCaptureStatusNone = 0,
  hipStreamCaptureStatusActive = 1,
  hipStreamCaptureStatusInvalidated = 2,
};

enum hipStreamUpdateCaptureDependenciesFlags : int {
  hipStreamAddCaptureDependencies = 0,
  hipStreamSetCaptureDependencies = 1,
};

enum hipGraphNodeType : int {
  hipGraphNodeTypeKernel = 0,
  hipGraphNodeTypeMemcpy = 1,
  hipGraphNodeTypeMemset = 2,
  hipGraphNodeTypeHost = 3,
  hipGraphNodeTypeGraph = 4,
  hipGraphNodeTypeEmpty = 5,
  hipGraphNodeTypeWaitEvent = 6,
  hipGraphNodeTypeEventRecord = 7,
};

enum hipGraphExecUpdateResult : int {
  hipGraphExecUpdateSuccess = 0,
  hipGraphExecUpdateError = 1,
  hipGraphExecUpdateErrorTopologyChanged = 2,
  hipGraphExecUpdateErrorNodeTypeChanged = 3,
};

enum hipGraphInstantiateResult : int {
  hipGraphInstantiateSuccess = 0,
  hipGraphInstantiateError = 1,
  hipGraphInstantiateInvalidStructure = 2,
};

// Flags.
inline constexpr unsigned hipStreamNonBlocking = 1;
inline constexpr unsigned hipEventBlockingSync = 1, hipEventDisableTiming = 2,
                          hipEventInterprocess = 4, hipEventDisableSystemFence = 0x20000000,
                          hipEventReleaseToDevice = 0x40000000,
                          hipEventReleaseToSystem = 0x80000000;
inline constexpr unsigned hipHostMallocCoherent = 0x40000000, hipHostMallocNonCoherent = 0x80000000;
inline constexpr unsigned hipMemAttachGlobal = 1, hipMemAttachHost = 2;
inline constexpr unsigned hipDeviceMallocFinegrained = 1, hipMallocSignalMemory = 2,
                          hipDeviceMallocUncached = 3, hipDeviceMallocContiguous = 4;
inline constexpr unsigned hipDeviceScheduleMask = 7, hipDeviceMapHost = 8,
                          hipDeviceLmemResizeToMax = 16;
inline constexpr int hipInvalidDeviceId = -2, hipCpuDeviceId = -1;
inline constexpr std::uintptr_t kLaunchParamBufferPointer = 1, kLaunchParamBufferSize = 2,
                                kLaunchParamEnd = 3;

struct dim3 {
  std::uint32_t x, y, z;
};

struct hipUUID {
  char bytes[16];
};

struct hipPointerAttribute_t {
  hipMemoryType type;
  int device;
  void* devicePointer;
  void* hostPointer;
  int isManaged;
  unsigned allocationFlags;
};

struct hipFuncAttributes {
  int binaryVersion, cacheModeCA;
  std::size_t constSizeBytes, localSizeBytes;
  int maxDynamicSharedSizeBytes, maxThreadsPerBlock, numRegs, preferredShmemCarveout, ptxVersion;
  std::size_t sharedSizeBytes;
};

struct hipChannelFormatDesc {
  int x, y, z, w;
  hipChannelFormatKind f;
};

struct hipPitchedPtr {
  void* ptr;
  std::size_t pitch, xsize, ysize;
};

struct hipExtent {
  std::size_t width, height, depth;
};

struct hipPos {
  std::size_t x, y, z;
};

struct hipMemcpy3DParms {
  hipArray_t srcArray;
  hipPos srcPos;
  hipPitchedPtr srcPtr;
  hipArray_t dstArray;
  hipPos dstPos;
  hipPitchedPtr dstPtr;
  hipExtent extent;
  hipMemcpyKind kind;
};

struct hip_Memcpy2D {
  std::size_t srcXInBytes, srcY;
  hipMemoryType srcMemoryType;
  const void* srcHost;
  hipDeviceptr_t srcDevice;
  hipArray_t srcArray;
  std::size_t srcPitch, dstXInBytes, dstY;
  hipMemoryType dstMemoryType;
  void* dstHost;
  hipDeviceptr_t dstDevice;
  hipArray_t dstArray;
  std::size_t dstPitch, WidthInBytes, Height;
};

struct hipMemLocation {
  hipMemLocationType type;
  int id;
};

struct hipMemAccessDesc {
  hipMemLocation location;
  hipMemAccessFlags flags;
};

struct hipMemPoolProps {
  hipMemAllocationType allocType;
  hipMemAllocationHandleType handleTypes;
  hipMemLocation location;
  void* win32SecurityAttributes;
  std::size_t maxSize;
  unsigned char reserved[56];
};

union hipLaunchAttributeValue {
  char pad[64];
  int cooperative;
  int priority;
};

struct hipLaunchAttribute {
  hipLaunchAttributeID id;
  char pad[4];
  hipLaunchAttributeValue val;
};

struct hipLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  hipStream_t stream;
  hipLaunchAttribute* attrs;
  unsigned numAttrs;
};

struct HIP_LAUNCH_CONFIG {
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  hipStream_t hStream;
  hipLaunchAttribute* attrs;
  unsigned numAttrs;
};

struct hipHostNodeParams {
  hipHostFn_t fn;
  void* userData;
};

struct hipKernelNodeParams {
  dim3 blockDim;
  void** extra;
  void* func;
  dim3 gridDim;
  void** kernelParams;
  unsigned sharedMemBytes;
};

struct hipMemsetParams {
  void* dst;
  unsigned elementSize;
  std::size_t height, pitch;
  unsigned value;
  std::size_t width;
};

struct hipGraphInstantiateParams {
  hipGraphNode_t errNode_out;
  unsigned long long flags;
  hipGraphInstantiateResult result_out;
  hipStream_t uploadStream;
};

static_assert(sizeof(hipPointerAttribute_t) == 32 && sizeof(hipFuncAttributes) == 56);
static_assert(sizeof(hipMemcpy3DParms) == 160 && sizeof(hip_Memcpy2D) == 128);
static_assert(sizeof(hipMemPoolProps) == 88 && sizeof(hipMemAccessDesc) == 12);
static_assert(sizeof(hipLaunchAttribute) == 72 && sizeof(hipLaunchConfig_t) == 56);
static_assert(sizeof(HIP_LAUNCH_CONFIG) == 56 && sizeof(hipKernelNodeParams) == 64);
static_assert(sizeof(hipMemsetParams) == 48 && sizeof(hipGraphInstantiateParams) == 32);
static_assert(sizeof(hipChannelFormatDesc) == 20);
