// out[m, n] = activation(x[m, n]), x[m, n] = alpha * sum_k A[m, k] * B[n, k] + bias[n], many rows
// of A; or, gated, activation(x[m, n]) * x[m, up_offset + n]; and beta * addend[m, n], before the
// activation or behind it. One product, in parts along k or not, or several (products.h).
//
// Workgroup: 4 waves, WAVES_M of them along m, one tile; a wave has TILES_M x TILES_N fragments of
// 32 x 32. A step is 128 bytes along k of each row.
//
//   phase     memory                      LDS                            matrix unit
//   start     the first step or steps     the first part of operands     sums = 0
//   step n    steps ahead: loads.h        step n + 1 written (gfx942),   step n, a slot each
//                                         parts of n and n + 1 read
//                                         two barriers; gfx950 one
//   splits    partials, counters          the vote of arrive(): splits.h
//   end       out; bias, scales, addend   sums, 32 rows at a time        none: epilogue.h
//
//   registers  gemm_nt_bf16_t256x256 of gfx942: 164 vector, 256 accumulation
//   A, B       loop.a, loop.b [set of a part][fragment]; on their way on gfx942: staged_a, staged_b
//   sums       accumulation registers 16 f on of fragment f, to LAST
//   LDS        A from S::kA, B from S::kB, of each stage: shape.h; then sums, a quarter a wave
//
// Schedule: gemm_tiles/order.h has the slot, a matrix instruction, behind which each read, load,
// wait and barrier is; between() of gemm_tiles/loop.h issues them. Grid: x = tiles of m times n of
// all products. The build defines KERNEL (its name), TILES_M, TILES_N, WAVES_M, STAGES, WAVES (a
// SIMD), ELEMENT, ELEMENT_B, LAST, A_BY_K, B_BY_K (stored by k), PARAMETERS and ARGUMENTS.
#include "gemm_tiles/epilogue.h"
#include "gemm_tiles/splits.h"

namespace {

using S = TileShape<TILES_M, TILES_N, WAVES_M, STAGES,
                    TileElements<TileElement::ELEMENT, TileElement::ELEMENT_B>, A_BY_K, B_BY_K>;
static_assert(LAST == 16 * S::kFragments - 1);

__device__ __forceinline__ void gemm_tile(GemmTilesArgs args) {
  __shared__ u32x4 lds[S::kLdsBytes / 16];
  RESERVE_ACC_TO(LAST);
  const int wave = Lane::wave(), lane = Lane::in_wave();
  TilePlace place;
  Product product;
  if (!find_tile<S, true, true>(args, place, product)) return;
  product.begin<S, true>(args);
  const uint32_t base = (uint32_t)(Local<u32x4>*)lds;
  TileLoop<S> loop;
  loop.begin(base, wave, lane);
  loop.loads.begin({args.a, args.a_stride, args.m, place.m, 0},
                   {args.b, args.b_stride, args.n, place.n, args.up_offset}, base, wave, lane,
                   args.k);
  loop.run((args.k + S::kStep - 1) / S::kStep, [&] { product.end<S>(args); });
  end_of_sums();
  if (args.batches < 0 &&
      !TileSplits<S>{args, product.tile, product.part, wave, lane, (Local<int>*)lds}.reduce())
    return;
  unroll<S::kGroups>([&]<int nth>() { TileEpilogue<S, nth>(args, place, base, wave, lane)(lane); });
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(S::kLanes, WAVES) KERNEL(PARAMETERS) {
  gemm_tile({ARGUMENTS});
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {S::kRowsM, S::kRowsN};
