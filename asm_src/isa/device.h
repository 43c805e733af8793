// The device language without vendor headers: attributes, fixed-width types, lane and wave ids.
#pragma once

#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
// kMinWaves a SIMD fix the register budget: 512 / kMinWaves a lane, VGPRs and AGPRs together.
#define WORKGROUP(kLanes, kMinWaves) \
  __attribute__((amdgpu_flat_work_group_size(kLanes, kLanes), amdgpu_waves_per_eu(kMinWaves)))

using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned;
using uint64_t = unsigned long;

template <int kCount>
using FloatVector = float __attribute__((ext_vector_type(kCount)));
using f32x2 = FloatVector<2>;
using f32x4 = FloatVector<4>;
using f32x16 = FloatVector<16>;
using u32x2 = uint32_t __attribute__((ext_vector_type(2)));
using u32x4 = uint32_t __attribute__((ext_vector_type(4)));
using f16x2 = _Float16 __attribute__((ext_vector_type(2)));
using f16x4 = _Float16 __attribute__((ext_vector_type(4)));
// Four and eight 16-bit elements as they lie in registers, two in each: bfloat16s, or float16s
// where a kernel's element type is that.
using bf16x4 = u32x2;
using bf16x8 = u32x4;

// Address spaces are named so that the compiler emits global_* and ds_*, never flat_*, which counts
// in vmcnt and lgkmcnt both and so would make each wait for the other.
template <class T>
using Global = T __attribute__((address_space(1)));
template <class T>
using Constant = const T __attribute__((address_space(4)));
template <class T>
using Local = T __attribute__((address_space(3)));

inline constexpr int kWaveLanes = 64;
inline constexpr float kInf = __builtin_inff();

static_assert(sizeof(int64_t) == 8 && sizeof(void*) == 8, "the amdgcn data model is LP64");

struct Lane {
  static __device__ __forceinline__ int in_workgroup() { return __builtin_amdgcn_workitem_id_x(); }
  static __device__ __forceinline__ int in_wave() { return in_workgroup() % kWaveLanes; }
  // Uniform over the wave; readfirstlane tells the compiler so, and keeps what follows in SGPRs.
  static __device__ __forceinline__ int wave() {
    return __builtin_amdgcn_readfirstlane(in_workgroup() / kWaveLanes);
  }
};
