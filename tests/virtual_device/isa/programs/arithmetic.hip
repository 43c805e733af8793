// Arithmetic of many types: what a compiler makes of it reaches most VALU and SALU encodings.
#define KERNEL extern "C" __attribute__((global))
typedef _Float16 half2 __attribute__((ext_vector_type(2)));
typedef float float2 __attribute__((ext_vector_type(2)));
typedef unsigned u32;
typedef unsigned long long u64;

__attribute__((device)) u32 lane() { return __builtin_amdgcn_workitem_id_x(); }

KERNEL void float32(float* x, float a, float b) {
  const u32 i = lane();
  const float v = x[i];
  float r = v * a + b;
  r += __builtin_amdgcn_exp2f(v) - __builtin_amdgcn_logf(v) * __builtin_amdgcn_rcpf(b);
  r = __builtin_fmaxf(-__builtin_fabsf(r), __builtin_fminf(v, 2.0f));
  r = r > a ? __builtin_sqrtf(r) : v / (r + 0.5f);
  r = __builtin_amdgcn_fmed3f(r, 0.0f, 1.0f);
  x[i] = __builtin_ldexpf(r, 3) + __builtin_floorf(v) + __builtin_truncf(a * v);
}

KERNEL void float64(double* x, double a, int n) {
  const u32 i = lane();
  double r = x[i];
  for (int k = 0; k < n; ++k) r = __builtin_fma(r, a, 1.0 / (r - 0.15915494309189532));
  x[i] = __builtin_fabs(r) + static_cast<double>(static_cast<int>(r)) + __builtin_sqrt(r) * -4.0;
}

KERNEL void float16(half2* x, _Float16* y, half2 a) {
  const u32 i = lane();
  half2 v = x[i] * a + x[i + 64];
  v = __builtin_elementwise_max(v, -a);
  x[i] = v;
  _Float16 s = y[i];
  s = s * v.x + v.y;
  s = s > v.y ? s / v.x : static_cast<_Float16>(static_cast<float>(s) + 1.5f);
  y[i] = s;
}

KERNEL void packed(float2* x, float2 a, float2 b) {
  const u32 i = lane();
  float2 v = x[i];
  v = v * a + b;
  v = v * v.yx - a;
  x[i] = v + x[i + 64] * 0.5f;
}

KERNEL void integer32(u32* x, int* y, u32 a, int b) {
  const u32 i = lane();
  u32 v = x[i];
  v = (v << 3 | a) + (v >> 7 & 0x1234567);
  v ^= __builtin_rotateleft32(v, 11) + (v & 0xff) * (a & 0xffffff);
  v = __builtin_popcount(v) + __builtin_clz(v | 1) + __builtin_bitreverse32(v);
  x[i] = v / (a | 3) + v % 10 + __builtin_amdgcn_sad_u8(v, a, 1) +
         __builtin_amdgcn_perm(v, a, 0x07060302);
  int w = y[i];
  w = w > b ? w - b : b * w;
  y[i] = w / 7 + (w >> 5) + static_cast<signed char>(w) + static_cast<short>(w >> 16);
}

KERNEL void integer64(u64* x, long long* y, u64 a) {
  const u32 i = lane();
  u64 v = x[i] * a + (x[i + 1] >> (a & 63));
  x[i] = v > a ? v / a : v << 9 ^ ~a;
  long long w = y[i];
  y[i] = w < static_cast<long long>(a) ? w * 3 - 1 : w >> 17;
}

KERNEL void bytes_and_halves(unsigned char* x, short* y, unsigned short* z, float* out) {
  const u32 i = lane();
  const u32 word = reinterpret_cast<u32*>(x)[i];
  out[i] = static_cast<float>(word & 0xff) + static_cast<float>(word >> 8 & 0xff) +
           static_cast<float>(word >> 16 & 0xff) * static_cast<float>(word >> 24);
  y[i] = static_cast<short>(y[i] * 3 + (y[i + 1] >> 2));
  z[i] = static_cast<unsigned short>((z[i] << 4) + (z[i + 2] > 9 ? z[i + 3] : 17));
  x[i] = static_cast<unsigned char>(x[i + 4] + (word >> 24));
  z[i + 64] = static_cast<unsigned short>((word >> 16) * (word & 0xffff));
}

KERNEL void scalar(u32* x, u64 a, u64 b, int n) {
  u64 s = a;
  u32 t = static_cast<u32>(b);
  for (int k = 0; k < n; ++k) {
    s = ((s & b) ^ (s << (k & 31))) | ~(a >> 5);
    t = t > static_cast<u32>(k) ? t * 5 + static_cast<u32>(s)
                                : static_cast<u32>(__builtin_popcountll(s));
    if (s == 17) t += static_cast<u32>(__builtin_ctzll(b | 1));
    t = t < 100 ? t + 0x12345 : t - 9;
  }
  x[0] = t + static_cast<u32>(__builtin_amdgcn_s_getreg(0xf804)) + static_cast<u32>(s >> 32);
  __builtin_amdgcn_s_setreg(0x0841, 2);
  __builtin_amdgcn_s_sleep(3);
  x[1] = static_cast<u32>(__builtin_amdgcn_s_memtime());
}
