// GEMM with many rows of A: out[m, n] = activation(x[m, n]) with x[m, n] = alpha * sum_k A[m, k] *
// B[n, k] + bias[n]; gated: activation(x[m, n]) * x[m, up_offset + n]. beta * addend[m, n] is added
// before or after the activation. One product, whole or split along k, a batch, or groups
// (products.h).
//
// Workgroup: 4 waves, WAVES_M of them along m, one tile of the result; a wave has TILES_M x TILES_N
// fragments of 32 x 32. A step is 128 bytes of each row along k. Grid: x = tiles of m * tiles of n.
//
//   phase, file        memory                LDS                              matrix unit
//   start   loop.h     first step or steps   first operands to registers      clears the sums
//   step n  loop.h     later steps: loads.h  operands of the next part read;  one MFMA per slot
//                                            gfx942: step n + 1 written
//                      barriers: LDS was read (kRead, gfx942), is written (kWritten)
//   splits  splits.h   partials, counter     the count, in arrive()
//   end     epilogue.h out, bias, addend     sums, 32 rows at a time          (vector: convert)
//
//   registers  gemm_nt_bf16_t256x256 of gfx942: 164 vector, 256 accumulation (512 available)
//   A, B       loop.a, loop.b [set][fragment]; on gfx942 loads wait in loads.staged_a, staged_b
//   sums       accumulation registers 16 f to 16 f + 15 of fragment f, up to LAST
//   LDS        A from S::kA, B from S::kB of each stage (shape.h); at the end the sums
//
// Schedule: order.h names the slot of every read, load, wait and barrier; TileLoop::between() in
// loop.h issues them. The build defines KERNEL (its name), TILES_M, TILES_N, WAVES_M, STAGES, WAVES
// (per SIMD), ELEMENT, ELEMENT_B, LAST, A_BY_K, B_BY_K (stored by k), PARAMETERS, ARGUMENTS.
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
