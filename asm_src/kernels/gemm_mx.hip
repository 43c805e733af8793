// GEMM of MX formats: out[m, n] = activation(alpha * sum_kb 2^(scale_a[m, kb] + scale_b[n, kb] -
// 254) * sum_k A[m, k] * B[n, k] + bias[n]), kb = k / 32, 8-, 6- or 4-bit A and B, many rows
// of A; gated as in gemm_tiles.hip.
//
// Workgroup, grid, phases and LDS: as in gemm_tiles.hip on gfx950. The MFMA applies the scales;
// scales of 16 blocks of each row are loaded at once and taken one word after the other.
//
// Registers: sums in accumulation registers up to LAST, 16 for each fragment; operands loop.a and
// loop.b, 6-bit ones loop.operand; scales in use loop.scales.scale, on their way loop.scales.loaded
// (mx_scales.h); 272 to 476 registers.
//
// Schedule: gemm_tiles/order.h, for scales mx_loop.h; 6-bit formats: SixBitOrder of mx_six_loop.h.
// Arguments as for gemm_tiles.hip, except that scales are bytes whose rows are scale_a_step and
// scale_b_step apart, k is a multiple of 128 and strides of A and B count bytes. The build defines
// KERNEL (its name), TILES_M, TILES_N, WAVES_M, STAGES, WAVES (per SIMD), FORMAT, LAST, PARAMETERS
// and ARGUMENTS.
#include "gemm_tiles/epilogue.h"
#include "gemm_tiles/mx_loop.h"
#include "gemm_tiles/mx_six_loop.h"

namespace {

using Elements = MxElements<ordered::MxFormat::FORMAT>;
template <bool kOf6Bits>
struct Chosen {
  using S = TileShape<TILES_M, TILES_N, WAVES_M, STAGES, Elements, false, false>;
  using Loop = MxLoop<S>;
};
template <>
struct Chosen<true> {
  using S = SixBitShape<TILES_M, TILES_N, WAVES_M, Elements>;
  using Loop = SixBitLoop<S>;
};
using S = Chosen<Elements::kBits == 6>::S;
using Loop = Chosen<Elements::kBits == 6>::Loop;
static_assert(LAST == 16 * S::kFragments - 1);

__device__ __forceinline__ void gemm_mx(GemmTilesArgs args) {
  __shared__ u32x4 lds[S::kLdsBytes / 16];
  RESERVE_ACC_TO(LAST);
  const int wave = Lane::wave(), lane = Lane::in_wave();
  TilePlace place;
  Product product;
  // Of 6 bits without runs of tiles by XCD: the compiler finds no registers for both.
  if (!find_tile<S, Elements::kBits != 6>(args, place, product)) return;
  product.begin<S>(args);
  const uint32_t base = (uint32_t)(Local<u32x4>*)lds;
  Loop loop;
  loop.begin(base, wave, lane);
  const int bytes = args.k / 8 * Elements::kBits;
  const int steps = (bytes + S::kRowBytes - 1) / S::kRowBytes;
  loop.loads.begin({args.a, args.a_stride, args.m, place.m, 0},
                   {args.b, args.b_stride, args.n, place.n, args.up_offset}, base, wave, lane,
                   Elements::kBits == 6 ? steps : bytes);
  loop.scales.begin(
      {args.scale_a + product.nth * args.scale_a_batch + product.row * int64_t(args.scale_a_step),
       args.scale_a_step, args.m, place.m, 0},
      {args.scale_b + product.nth * args.scale_b_batch, args.scale_b_step, args.n, place.n,
       args.up_offset},
      wave, lane, args.k / MxScales<S>::kBlock);
  loop.run(steps, [&] {
    args.scale_a = args.scale_b = 0;  // sums are scaled already
    product.end<S>(args);
  });
  end_of_sums();
  unroll<S::kGroups>([&]<int nth>() { TileEpilogue<S, nth>(args, place, base, wave, lane)(lane); });
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(S::kLanes, WAVES) KERNEL(PARAMETERS) { gemm_mx({ARGUMENTS}); }

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {S::kRowsM, S::kRowsN};
