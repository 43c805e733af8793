// Agents: one CPU, as many GPUs as were asked for, and their instruction sets.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "hsa/api.h"

namespace vdev::hsa {
namespace {

constexpr u32 kQueueMinPackets = 64, kQueueMaxPackets = 131072, kQueues = 128;
constexpr u32 kCachelineBytes = 128, kSdmaEngines = 16, kXgmiEngines = 14;
constexpr u64 kScratchLimit = u64{4} << 30;
constexpr u32 kPciBus = 5;  // of the first GPU; the others have those behind it
constexpr u64 kFirstUuid = 0x6d64617474767275;

// Answers with a text in a buffer of a fixed size.
Status answer_text(void* to, const std::string& text, size_t size) {
  require(to != nullptr);
  std::memset(to, 0, size);
  std::memcpy(to, text.data(), std::min(text.size(), size - 1));
  return kSuccess;
}

std::string isa_name(const Machine& machine) {
  const Processor& processor = machine.arch->processor;
  std::string features(processor.features);
  return "amdgcn-amd-amdhsa--" + std::string(processor.name) +
         (features.empty() || features.front() == ':' ? features : ":" + features);
}

Status cpu_info(u32 attribute, void* value) {
  using namespace agent_info;
  switch (attribute) {
    case kName:
    case kProductName:
      return answer_text(value, "CPU", 64);
    case kVendorName:
      return answer_text(value, "CPU", 64);
    case kFeature:
      return answer(value, u32{0});
    case kMachineModel:
    case kProfile:
      return answer(value, u32{1});
    case kNode:
    case kDriverNodeId:
    case kDevice:
    case kMaxClockFrequency:
    case kChipId:
    case kBdfId:
    case kDomain:
      return answer(value, u32{0});
    case kQueuesMax:
    case kQueueMinSize:
    case kQueueMaxSize:
      return answer(value, u32{0});
    case kCacheSize:
      std::memset(value, 0, 4 * sizeof(u32));
      return kSuccess;
    case kComputeUnitCount:
      return answer(value, static_cast<u32>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))));
    case kCachelineSize:
      return answer(value, u32{64});
  }
  return kInvalidArgument;
}

Status gpu_info(System& system, u32 gpu, u32 attribute, void* value) {
  using namespace agent_info;
  const Machine& machine = system.device.machine();
  const Arch& arch = *machine.arch;
  const Product& product = *machine.product;
  const Limits& limits = arch.limits;
  const auto whole = [&](auto number) { return answer(value, static_cast<u32>(number)); };
  switch (attribute) {
    case kName:
      return answer_text(value, std::string(arch.name()), 64);
    case kProductName:
      return answer_text(value, "AMD Instinct " + std::string(product.name), 64);
    case kVendorName:
      return answer_text(value, "AMD", 64);
    case kUuid: {
      char uuid[21];
      std::snprintf(uuid, sizeof uuid, "GPU-%016llx",
                    static_cast<unsigned long long>(kFirstUuid + gpu));
      return answer_text(value, uuid, sizeof uuid);
    }
    case kExtensions:
      std::memset(value, 0, 128);
      *static_cast<u8*>(value) = 1u << kImageExtension;
      return kSuccess;
    // As on every CDNA: the extension is there, no image is. Rows of pitched memory go by it.
    case kImage1dMax:
    case kImage1daMax:
    case kImage1dbMax:
    case kImageArrayMax:
    case kImageReadHandles:
    case kImageReadWriteHandles:
    case kSamplerHandles:
      return whole(0);
    case kImage2dMax:
    case kImage2daMax:
    case kImage2dDepthMax:
    case kImage2daDepthMax:
      std::memset(value, 0, 2 * sizeof(u32));
      return kSuccess;
    case kImage3dMax:
      std::memset(value, 0, 3 * sizeof(u32));
      return kSuccess;
    case kImagePitchAlignment:
      return whole(256);
    case kFeature:
    case kMachineModel:
    case kDevice:
    case kAsicRevision:
      return whole(1);
    case kNode:
    case kDriverNodeId:
    case kDriverUid:
      return whole(1 + gpu);
    case kProfile:
    case kDomain:
    case kQueueType:
    case kIommuSupport:
    case kNumShaderArraysPerSe:
      return whole(attribute == kNumShaderArraysPerSe);
    case kDefaultFloatRoundingMode:
      return whole(2);
    case kWavefrontSize:
      return whole(kLanes);
    case kWorkgroupMaxDim: {
      const auto lanes = static_cast<u16>(limits.workgroup_lanes);
      const u16 dims[3] = {lanes, lanes, lanes};
      std::memcpy(value, dims, sizeof dims);
      return kSuccess;
    }
    case kWorkgroupMaxSize:
      return whole(limits.workgroup_lanes);
    case kGridMaxDim: {
      const u32 dims[3] = {limits.grid_x, limits.grid_yz, limits.grid_yz};
      std::memcpy(value, dims, sizeof dims);
      return kSuccess;
    }
    case kGridMaxSize:
      return whole(~u32{0});
    case kFbarrierMaxSize:
      return whole(32);
    case kQueuesMax:
      return whole(kQueues);
    case kQueueMinSize:
      return whole(kQueueMinPackets);
    case kQueueMaxSize:
      return whole(kQueueMaxPackets);
    case kCacheSize: {
      const u32 bytes[4] = {32 * 1024, static_cast<u32>(arch.timing.l2_bytes), product.mall_bytes,
                            0};
      std::memcpy(value, bytes, sizeof bytes);
      return kSuccess;
    }
    case kIsa:
      return answer(value, Isa{kGpuIsa});
    case kVersionMajor:
      return answer(value, static_cast<u16>(arch.major));
    case kVersionMinor:
      return answer(value, static_cast<u16>(arch.minor));
    case kFastF16:
    case kCooperativeQueues:
      return answer(value, true);
    case kSvmDirectHostAccess:
      return answer(value, false);
    case kChipId:
      return whole(product.pci_ids.front());
    case kCachelineSize:
      return whole(kCachelineBytes);
    case kComputeUnitCount:
    case kCooperativeComputeUnitCount:
      return whole(machine.num_cus());
    case kMaxClockFrequency:
      return whole(std::lround(product.peak_clock_ghz * 1000));
    case kMaxAddressWatchPoints:
      return whole(4);
    case kBdfId:
      return whole((kPciBus + gpu) << 8);
    case kMemoryWidth:
      return whole(product.memory_bus_bits);
    case kMemoryMaxFrequency:
      return whole(product.memory_clock_khz / 1000);
    case kMaxWavesPerCu:
      return whole(limits.waves_per_simd * limits.simds_per_cu);
    case kNumSimdsPerCu:
      return whole(limits.simds_per_cu);
    case kNumShaderEngines:
      return whole(machine.num_xcds * product.shader_engines_of_xcd);
    case kHdpFlush:
      std::memset(value, 0, 2 * sizeof(void*));
      return kSuccess;
    case kMemoryAvail:
      return answer(value, system.capacity_of_gpu() - system.used_by(gpu));
    case kTimestampFrequency:
      return answer(value, u64{arch.counter_khz} * 1000);
    case kAsicFamilyId:
      return whole(0);
    case kUcodeVersion:
    case kSdmaUcodeVersion:
      return whole(0);
    case kNumSdmaEngines:
      return whole(kSdmaEngines - kXgmiEngines);
    case kNumSdmaXgmiEngines:
      return whole(kXgmiEngines);
    case kNumXcc:
      return whole(machine.num_xcds);
    case kNearestCpu:
      return answer(value, Agent{kCpuAgent});
    case kMemoryProperties:
      std::memset(value, 0, 8);
      return kSuccess;
    case kScratchLimitMax:
    case kScratchLimitCurrent:
      return answer(value, kScratchLimit);
  }
  return kInvalidArgument;
}

}  // namespace

HSA_API hsa_iterate_agents(Status (*visit)(Agent agent, void* data), void* data) {
  return api([&](System& system) {
    require(visit != nullptr);
    Status status = visit({kCpuAgent}, data);
    for (u32 gpu = 0; gpu < system.device.num_gpus() && status == kSuccess; ++gpu) {
      status = visit(gpu_agent(gpu), data);
    }
    return status;
  });
}

HSA_API hsa_agent_get_info(Agent agent, u32 attribute, void* value) {
  return api([&](System& system) {
    require(value != nullptr);
    if (agent.handle == kCpuAgent) return cpu_info(attribute, value);
    const auto gpu = system.gpu_of(agent);
    require(gpu.has_value(), kInvalidAgent);
    return gpu_info(system, *gpu, attribute, value);
  });
}

HSA_API hsa_agent_extension_supported(u16, Agent agent, u16, u16, bool* supported) {
  return api([&](System& system) {
    require(agent.handle == kCpuAgent || system.gpu_of(agent), kInvalidAgent);
    return answer(supported, false);
  });
}

HSA_API hsa_agent_iterate_isas(Agent agent, Status (*visit)(Isa isa, void* data), void* data) {
  return api([&](System& system) {
    const bool is_gpu = system.gpu_of(agent).has_value();
    require(agent.handle == kCpuAgent || is_gpu, kInvalidAgent);
    require(visit != nullptr);
    return is_gpu ? visit({kGpuIsa}, data) : kSuccess;
  });
}

HSA_API hsa_isa_get_info_alt(Isa isa, u32 attribute, void* value) {
  return api([&](System& system) {
    require(isa.handle == kGpuIsa, kInvalidIsa);
    const std::string name = isa_name(system.device.machine());
    if (attribute == isa_info::kNameLength) return answer(value, static_cast<u32>(name.size()) + 1);
    require(attribute == isa_info::kName && value != nullptr);
    std::memcpy(value, name.c_str(), name.size() + 1);
    return kSuccess;
  });
}

// Scratch is as large as the kernels that run ask for.
HSA_API hsa_amd_agent_set_async_scratch_limit(Agent, size_t) { return kSuccess; }

// All of the device's memory is coherent for itself.
HSA_API hsa_amd_coherency_set_type(Agent, u32) { return kSuccess; }

}  // namespace vdev::hsa
