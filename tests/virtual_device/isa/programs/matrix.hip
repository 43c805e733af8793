// MFMA with operands in VGPRs and AGPRs, conversions to and from 8-bit floats, dot products.
#define KERNEL extern "C" __attribute__((global))
typedef unsigned u32;
typedef float float4 __attribute__((ext_vector_type(4)));
typedef float float2 __attribute__((ext_vector_type(2)));
typedef float float16 __attribute__((ext_vector_type(16)));
typedef float float32 __attribute__((ext_vector_type(32)));
typedef double double4 __attribute__((ext_vector_type(4)));
typedef int int4v __attribute__((ext_vector_type(4)));
typedef int int16v __attribute__((ext_vector_type(16)));
typedef short short4v __attribute__((ext_vector_type(4)));
typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef _Float16 half2 __attribute__((ext_vector_type(2)));
typedef short short2v __attribute__((ext_vector_type(2)));

__attribute__((device)) u32 lane() { return __builtin_amdgcn_workitem_id_x(); }

KERNEL void halves(half4* a, short4v* b, float4* c, float16* d) {
  const u32 i = lane();
  float4 x = __builtin_amdgcn_mfma_f32_16x16x16f16(a[i], a[i + 64], float4{0, 0, 0, 0}, 0, 0, 0);
  x = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(b[i], b[i + 64], x, 0, 0, 0);
  c[i] = __builtin_amdgcn_mfma_f32_4x4x4f16(a[i], a[i + 1], x, 2, 1, 4);
  d[i] = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(b[i], b[i + 2], d[i], 0, 0, 0);
}

KERNEL void others(long* a, double* b, int4v* c, double4* d, float4* e, int16v* f) {
  const u32 i = lane();
  c[i] = __builtin_amdgcn_mfma_i32_16x16x32_i8(a[i], a[i + 1], c[i], 0, 0, 0);
  f[i] = __builtin_amdgcn_mfma_i32_32x32x16_i8(a[i], a[i + 3], f[i], 0, 0, 0);
  d[i] = __builtin_amdgcn_mfma_f64_16x16x4f64(b[i], b[i + 1], d[i], 0, 0, 3);
  e[i] = __builtin_amdgcn_mfma_f32_16x16x32_fp8_bf8(a[i], a[i + 2], e[i], 0, 0, 0);
}

// More accumulators than VGPRs: AGPRs, and moves between the two.
#define ONE_WAVE_PER_SIMD amdgpu_flat_work_group_size(256, 256), amdgpu_waves_per_eu(1, 1)
KERNEL __attribute__((ONE_WAVE_PER_SIMD)) void many_accumulators(float* a, float32* c, int n) {
  const u32 i = lane();
  float32 x[12];
#pragma unroll
  for (int k = 0; k < 12; ++k) x[k] = c[i + static_cast<u32>(k) * 64];
  for (int j = 0; j < n; ++j) {
#pragma unroll
    for (int k = 0; k < 12; ++k)
      x[k] = __builtin_amdgcn_mfma_f32_32x32x1f32(a[j], a[j + k], x[k], 0, 0, 0);
  }
#pragma unroll
  for (int k = 0; k < 12; ++k) c[i + static_cast<u32>(k) * 64] = x[k] * x[(k + 1) % 12];
}

KERNEL void conversions(float* x, u32* y, half2* h) {
  const u32 i = lane();
  int packed = __builtin_amdgcn_cvt_pk_fp8_f32(x[i], x[i + 1], 0, false);
  packed = __builtin_amdgcn_cvt_pk_bf8_f32(x[i + 2], x[i + 3], packed, true);
  y[i] = static_cast<u32>(__builtin_amdgcn_cvt_sr_fp8_f32(x[i], 77, packed, 2));
  x[i] = __builtin_amdgcn_cvt_f32_fp8(static_cast<int>(y[i + 1]), 1) +
         __builtin_amdgcn_cvt_f32_bf8(static_cast<int>(y[i + 2]), 3);
  const float2 pair = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(y[i + 3]), true);
  x[i + 64] = pair.x * pair.y;
  h[i] = __builtin_bit_cast(half2, __builtin_amdgcn_cvt_pkrtz(x[i], x[i + 5]));
  x[i + 128] = __builtin_amdgcn_fdot2(h[i], h[i + 1], x[i], false);
  y[i + 64] = static_cast<u32>(
      __builtin_amdgcn_sdot4(static_cast<int>(y[i]), static_cast<int>(y[i + 1]), 3, false));
}
