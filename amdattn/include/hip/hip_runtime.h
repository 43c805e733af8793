// What a kernel in HIP needs of <hip/hip_runtime.h>, on clang's builtins alone, so that
// `amdattn build` compiles one where no ROCm is installed. Device code only: no <<<...>>>, no host
// API, and of libm what the hardware has. hipcc compiles the same sources with its own header.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
// As hipcc's: lanes of a workgroup at most, and waves of a SIMD at least. The compiler's own
// attribute of this name is not for AMD GPUs.
#define AMDATTN_BOUNDS_1(lanes) __attribute__((amdgpu_flat_work_group_size(1, lanes)))
#define AMDATTN_BOUNDS_2(lanes, waves) \
  __attribute__((amdgpu_flat_work_group_size(1, lanes), amdgpu_waves_per_eu(waves)))
#define AMDATTN_BOUNDS(first, second, chosen, ...) chosen
#define __launch_bounds__(...) \
  AMDATTN_BOUNDS(__VA_ARGS__, AMDATTN_BOUNDS_2, AMDATTN_BOUNDS_1, )(__VA_ARGS__)
#define HIP_DYNAMIC_SHARED(type, name) extern __shared__ type name[];

#define AMDATTN_DEVICE static inline __attribute__((device, always_inline))

// -- places in the grid ---------------------------------------------------------------------------

#define AMDATTN_AXIS(axis, value)                       \
  __declspec(property(get = get_##axis)) unsigned axis; \
  AMDATTN_DEVICE unsigned get_##axis() { return value; }

// Workgroups of the grid stand at the beginning of the implicit arguments.
#define AMDATTN_WORKGROUPS(i) \
  (((const __attribute__((address_space(4))) unsigned*)__builtin_amdgcn_implicitarg_ptr())[i])

struct AmdattnThreadIdx {
  AMDATTN_AXIS(x, __builtin_amdgcn_workitem_id_x())
  AMDATTN_AXIS(y, __builtin_amdgcn_workitem_id_y())
  AMDATTN_AXIS(z, __builtin_amdgcn_workitem_id_z())
};
struct AmdattnBlockIdx {
  AMDATTN_AXIS(x, __builtin_amdgcn_workgroup_id_x())
  AMDATTN_AXIS(y, __builtin_amdgcn_workgroup_id_y())
  AMDATTN_AXIS(z, __builtin_amdgcn_workgroup_id_z())
};
struct AmdattnBlockDim {
  AMDATTN_AXIS(x, __builtin_amdgcn_workgroup_size_x())
  AMDATTN_AXIS(y, __builtin_amdgcn_workgroup_size_y())
  AMDATTN_AXIS(z, __builtin_amdgcn_workgroup_size_z())
};
struct AmdattnGridDim {
  AMDATTN_AXIS(x, AMDATTN_WORKGROUPS(0))
  AMDATTN_AXIS(y, AMDATTN_WORKGROUPS(1))
  AMDATTN_AXIS(z, AMDATTN_WORKGROUPS(2))
};
extern const __attribute__((device, weak)) AmdattnThreadIdx threadIdx;
extern const __attribute__((device, weak)) AmdattnBlockIdx blockIdx;
extern const __attribute__((device, weak)) AmdattnBlockDim blockDim;
extern const __attribute__((device, weak)) AmdattnGridDim gridDim;
static constexpr int warpSize = 64;

// -- vectors --------------------------------------------------------------------------------------

#define AMDATTN_VECTORS(name, type)                                                \
  typedef type name##2 __attribute__((ext_vector_type(2)));                        \
  typedef type name##4 __attribute__((ext_vector_type(4)));                        \
  AMDATTN_DEVICE name##2 make_##name##2(type x, type y) { return name##2 {x, y}; } \
  AMDATTN_DEVICE name##4 make_##name##4(type x, type y, type z, type w) {          \
    return name##4 {x, y, z, w};                                                   \
  }
AMDATTN_VECTORS(float, float)
AMDATTN_VECTORS(int, int)
AMDATTN_VECTORS(uint, unsigned)

// -- order ----------------------------------------------------------------------------------------

AMDATTN_DEVICE void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
AMDATTN_DEVICE void __threadfence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
AMDATTN_DEVICE void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
AMDATTN_DEVICE void __threadfence_system() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, ""); }

// Of a value that is converted to what its address is of, as in atomicAdd(&a_float, 1).
template <class T>
struct AmdattnAs {
  using Type = T;
};
#define AMDATTN_ATOMIC(name, builtin)                                           \
  template <class T>                                                            \
  AMDATTN_DEVICE T name(T* address, typename AmdattnAs<T>::Type value) {        \
    return builtin(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); \
  }
AMDATTN_ATOMIC(atomicAdd, __hip_atomic_fetch_add)
AMDATTN_ATOMIC(atomicMin, __hip_atomic_fetch_min)
AMDATTN_ATOMIC(atomicMax, __hip_atomic_fetch_max)
AMDATTN_ATOMIC(atomicAnd, __hip_atomic_fetch_and)
AMDATTN_ATOMIC(atomicOr, __hip_atomic_fetch_or)
AMDATTN_ATOMIC(atomicXor, __hip_atomic_fetch_xor)
AMDATTN_ATOMIC(atomicExch, __hip_atomic_exchange)
template <class T>
AMDATTN_DEVICE T atomicCAS(T* address, typename AmdattnAs<T>::Type expected,
                           typename AmdattnAs<T>::Type value) {
  __hip_atomic_compare_exchange_strong(address, &expected, value, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  return expected;
}

// -- lanes of a wave ------------------------------------------------------------------------------

AMDATTN_DEVICE unsigned __lane_id() {
  return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
}
AMDATTN_DEVICE unsigned long __ballot(int predicate) {
  return __builtin_amdgcn_ballot_w64(predicate != 0);
}
AMDATTN_DEVICE int __any(int predicate) { return __ballot(predicate) != 0; }
AMDATTN_DEVICE int __all(int predicate) { return __ballot(!predicate) == 0; }
AMDATTN_DEVICE int __popc(unsigned bits) { return __builtin_popcount(bits); }
AMDATTN_DEVICE int __popcll(unsigned long bits) { return __builtin_popcountl(bits); }

// `width` lanes, a power of two, exchange among themselves.
template <class T>
AMDATTN_DEVICE T AmdattnFromLane(T value, unsigned lane) {
  static_assert(sizeof(T) == 4, "lanes exchange 32 bits");
  const int bits = __builtin_bit_cast(int, value);
  return __builtin_bit_cast(T, __builtin_amdgcn_ds_bpermute(static_cast<int>(4 * lane), bits));
}
template <class T>
AMDATTN_DEVICE T __shfl(T value, int lane, int width = warpSize) {
  const unsigned first = __lane_id() & ~(width - 1);
  return AmdattnFromLane(value, first + (lane & (width - 1)));
}
template <class T>
AMDATTN_DEVICE T __shfl_xor(T value, int mask, int width = warpSize) {
  const unsigned self = __lane_id(), from = self ^ mask;
  return AmdattnFromLane(value, from >= ((self + width) & ~(width - 1)) ? self : from);
}
template <class T>
AMDATTN_DEVICE T __shfl_down(T value, unsigned delta, int width = warpSize) {
  const unsigned self = __lane_id();
  const bool inside = (self & (width - 1)) + delta < static_cast<unsigned>(width);
  return AmdattnFromLane(value, inside ? self + delta : self);
}
template <class T>
AMDATTN_DEVICE T __shfl_up(T value, unsigned delta, int width = warpSize) {
  const unsigned self = __lane_id();
  return AmdattnFromLane(value, (self & (width - 1)) >= delta ? self - delta : self);
}

// -- arithmetic -----------------------------------------------------------------------------------

#define AMDATTN_UNARY(name, builtin) \
  AMDATTN_DEVICE float name(float x) { return builtin(x); }
AMDATTN_UNARY(fabsf, __builtin_elementwise_abs)
AMDATTN_UNARY(floorf, __builtin_elementwise_floor)
AMDATTN_UNARY(ceilf, __builtin_elementwise_ceil)
AMDATTN_UNARY(truncf, __builtin_elementwise_trunc)
AMDATTN_UNARY(rintf, __builtin_elementwise_rint)
AMDATTN_UNARY(sqrtf, __builtin_elementwise_sqrt)
AMDATTN_UNARY(expf, __builtin_elementwise_exp)
AMDATTN_UNARY(exp2f, __builtin_elementwise_exp2)
AMDATTN_UNARY(logf, __builtin_elementwise_log)
AMDATTN_UNARY(log2f, __builtin_elementwise_log2)
AMDATTN_UNARY(__expf, __builtin_elementwise_exp)
AMDATTN_DEVICE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
AMDATTN_DEVICE float fmaf(float x, float y, float z) { return __builtin_elementwise_fma(x, y, z); }
AMDATTN_DEVICE float fminf(float x, float y) { return __builtin_fminf(x, y); }
AMDATTN_DEVICE float fmaxf(float x, float y) { return __builtin_fmaxf(x, y); }
template <class T>
AMDATTN_DEVICE T min(T x, T y) {
  return y < x ? y : x;
}
template <class T>
AMDATTN_DEVICE T max(T x, T y) {
  return x < y ? y : x;
}
