// out[m, n] = activation(x[m, n]), x[m, n] = alpha * sum_k A[m, k] * B[n, k] + bias[n], many rows
// of A; or, gated, activation(x[m, n]) * x[m, up_offset + n]; and beta * addend[m, n], before the
// activation or behind it. A launch has one product, in parts along k or not, or several
// (gemm_tiles/products.h, gemm_tiles/splits.h).
//
// One code object per member of the family: the build defines KERNEL (its name), TILES_M, TILES_N
// (fragments of a wave), WAVES_M (along m), STAGES, WAVES (a SIMD), ELEMENT, LAST (its last
// accumulation register), A_BY_K and B_BY_K (whether they are stored as A[k, m] and B[k, n]), and
// from the struct of the arguments PARAMETERS and ARGUMENTS. Grid: x = tiles of m times tiles of n,
// of all products; which one a workgroup makes is in gemm_tiles/place.h. Of groups x is what there
// may be.
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
