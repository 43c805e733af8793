// Every kind of memory access, cross-lane moves, and a real function call.
#define KERNEL extern "C" __attribute__((global))
#define SHARED __attribute__((shared))
#define GLOBAL __attribute__((address_space(1)))
typedef unsigned u32;
typedef unsigned long long u64;
typedef float float4 __attribute__((ext_vector_type(4)));
typedef float float3 __attribute__((ext_vector_type(3)));
typedef u32 u32x4 __attribute__((ext_vector_type(4)));
typedef _Float16 half2 __attribute__((ext_vector_type(2)));

__attribute__((device)) u32 lane() { return __builtin_amdgcn_workitem_id_x(); }

KERNEL void global_access(float4* x, float3* y, unsigned char* b, short* h, u64* q, int n) {
  const u32 i = lane();
  x[i] = x[i + 1] + x[n];
  y[i] = y[i + 3];
  b[i] = b[i + 100];
  h[i] = static_cast<short>(h[i - 1] + h[i + 1]);
  q[i] = __builtin_nontemporal_load(&q[i + 8]);
  __builtin_nontemporal_store(q[i], &q[i + 64]);
}

KERNEL void atomics(u32* x, int* s, float* f, double* d, u64* q, half2* h) {
  const u32 i = lane();
  const u32 old = __hip_atomic_fetch_add(&x[i], 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  __hip_atomic_fetch_or(&x[old], 6, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_SYSTEM);
  __hip_atomic_fetch_min(&s[i], -3, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  u32 expected = 5;
  __hip_atomic_compare_exchange_strong(&x[i + 1], &expected, old, __ATOMIC_SEQ_CST,
                                       __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  q[i] = __hip_atomic_exchange(&q[i + 1], static_cast<u64>(expected), __ATOMIC_RELAXED,
                               __HIP_MEMORY_SCOPE_AGENT);
  __builtin_amdgcn_global_atomic_fadd_f64((GLOBAL double*)d, 1.5);
  __builtin_amdgcn_global_atomic_fadd_f32((GLOBAL float*)f, 0.5f);
  __builtin_amdgcn_global_atomic_fadd_v2f16((GLOBAL half2*)h, half2{1, 2});
}

KERNEL void lds(float* x, float4* y, u32* z) {
  SHARED float tile[64][33];
  SHARED float4 wide[64];
  SHARED u32 counters[16];
  const u32 i = lane();
  tile[i][0] = x[i];
  tile[i][16] = x[i + 64];
  wide[i] = y[i];
  __hip_atomic_fetch_add(&counters[i & 15], 2, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  __builtin_amdgcn_s_barrier();
  x[i] = tile[63 - i][16] + tile[0][i & 31];
  y[i] = wide[i ^ 5] + wide[63 - i];
  z[i] = __hip_atomic_fetch_max(&counters[3], i, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  reinterpret_cast<unsigned char*>(counters)[i] = static_cast<unsigned char>(i);
  __builtin_amdgcn_s_barrier();
  z[i + 64] = reinterpret_cast<unsigned short*>(counters)[i & 31];
}

KERNEL void scratch(int* x, int n) {
  volatile int local[40];
  for (int k = 0; k < n; ++k) local[k * 7 % 40] = x[k];
  x[lane()] = local[x[n] & 31] + local[3];
}

KERNEL void buffer(u32* base, u32* out, int offset) {
  const u32 i = lane();
  __amdgpu_buffer_rsrc_t r = __builtin_amdgcn_make_buffer_rsrc(base, 0, 4096, 0x00020000);
  u32x4 v = __builtin_amdgcn_raw_buffer_load_b128(r, static_cast<int>(i * 16), offset, 0);
  u32 w = __builtin_amdgcn_raw_buffer_load_b32(r, static_cast<int>(i * 4) + 20, 0, 1);
  unsigned short h = __builtin_amdgcn_raw_buffer_load_b16(r, static_cast<int>(i * 2), offset, 2);
  __builtin_amdgcn_raw_buffer_store_b32(w + h, r, static_cast<int>(i * 4), 0, 0);
  __builtin_amdgcn_raw_buffer_store_b128(v, r, 64, offset, 3);
  out[i] = v.x + v.w;
}

KERNEL void cross_lane(u32* x, float* f) {
  const u32 i = lane();
  u32 v = x[i];
  v += static_cast<u32>(__builtin_amdgcn_update_dpp(0, static_cast<int>(v), 0x111, 0xf, 0xf, true));
  v += static_cast<u32>(__builtin_amdgcn_update_dpp(0, static_cast<int>(v), 0x1b, 0xf, 0xf, false));
  v ^= static_cast<u32>(__builtin_amdgcn_mov_dpp(static_cast<int>(v), 0x142, 0xa, 0xf, false));
  v += static_cast<u32>(__builtin_amdgcn_ds_bpermute(static_cast<int>(i * 4), static_cast<int>(v)));
  v ^= static_cast<u32>(__builtin_amdgcn_ds_swizzle(static_cast<int>(v), 0x401f));
  v += static_cast<u32>(__builtin_amdgcn_readlane(static_cast<int>(v), 5));
  x[i] = v + static_cast<u32>(__builtin_amdgcn_readfirstlane(static_cast<int>(v)));
  const u64 active = __builtin_amdgcn_ballot_w64(f[i] > 1.0f);
  f[i] = static_cast<float>(__builtin_amdgcn_mbcnt_hi(
      static_cast<u32>(active >> 32), __builtin_amdgcn_mbcnt_lo(static_cast<u32>(active), 0)));
}

__attribute__((device, noinline)) float called(float x, int n) {
  float r = x;
  while (n-- > 0) r = r * x + static_cast<float>(n);
  return r;
}
KERNEL void calls(float* x, int n) {
  const u32 i = lane();
  if (x[i] > 0.0f) x[i] = called(x[i], n) + called(x[i + 1], n + 2);
}
