// GEMM with block scales: out[m, n] = activation(alpha * sum_kb scale_a[m, kb] *
// scale_b[n / 128, kb] * sum_k A[m, k] * B[n, k] + bias[n]), kb = k / 128, 8-bit A and B,
// many rows of A; gated as in gemm_tiles.hip.
//
// Workgroup and grid: as in gemm_tiles.hip; a wave has TILES_M x 2 fragments, a step is 128 of k.
//
//   unit          in step n
//   matrix        one fragment along k, then the next fragment
//   vector        the fragment before: sums += partial sums * (scale_a * scale_b)
//   LDS           operands of step n + 1 to registers; gfx942: step n + 2 written
//   memory        step n + 2 or n + 3; scales of the next two or four steps
//   barriers      gfx942: two, LDS was read, and is written; gfx950: one. barriers()
//
// Registers: the vector unit cannot read accumulation registers, so loop.total (128 or 64 sums) and
// loop.partial (32) are vector registers, while accumulation registers hold the operands of two
// steps, data on its way and scales (BlockRegisters); 288 to 464 registers. At the end the sums go
// there, where the epilogue expects them. LDS: stages of A and B as in gemm_tiles.hip.
//
// Schedule: blocks_order.h, issued by blocks_loop.h. Arguments as for gemm_tiles.hip, except that
// scale_a and scale_b have rows of blocks, scale_a_step and scale_b_step apart, and up_offset is a
// multiple of 32. The build defines KERNEL (its name), TILES_M, TILES_N, WAVES_M, STAGES, LAST (of
// BlockRegisters), PARAMETERS and ARGUMENTS.
#include "gemm_tiles/blocks_loop.h"
#include "gemm_tiles/epilogue.h"

namespace {

using S = TileShape<TILES_M, TILES_N, WAVES_M, STAGES,
                    TileElements<TileElement::kE4m3, TileElement::kE4m3>, false, false>;
using Registers = BlockRegisters<S>;
static_assert(LAST == Registers::kLast);

__device__ __forceinline__ void gemm_blocks(GemmTilesArgs args) {
  __shared__ u32x4 lds[S::kLdsBytes / 16];
  RESERVE_ACC_TO(LAST);
  const int wave = Lane::wave(), lane = Lane::in_wave();
  const bool gated = args.up_offset != 0;
  TilePlace place;
  Product product;
  if (!find_tile<S>(args, place, product)) return;
  product.begin<S>(args);
  product.end<S>(args);
  const uint32_t base = (uint32_t)(Local<u32x4>*)lds;
  BlockLoop<S> loop;
  loop.begin(base, wave, lane);
  loop.loads.begin({args.a, args.a_stride, args.m, place.m, 0},
                   {args.b, args.b_stride, args.n, place.n, args.up_offset}, base, wave, lane,
                   args.k);
  const int of_wave_m = wave / S::kWavesN * S::kM * S::kFragment;
  const int of_wave_n = wave % S::kWavesN * S::kN * (gated ? S::kFragment / 2 : S::kFragment);
  const int first_b = place.n + of_wave_n;
  loop.scales.begin({args.scale_a, args.scale_a_step}, {args.scale_b, args.scale_b_step},
                    place.m + of_wave_m, args.m, {first_b, first_b + args.up_offset},
                    args.n + args.up_offset, lane, args.k);
  loop.run((args.k + S::kStep - 1) / S::kStep);
  GemmTilesArgs of_end = args;  // sums are scaled already
  of_end.scale_a = of_end.scale_b = 0;
  unroll<S::kGroups>(
      [&]<int nth>() { TileEpilogue<S, nth>(of_end, place, base, wave, lane)(lane); });
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(S::kLanes, 1) KERNEL(PARAMETERS) { gemm_blocks({ARGUMENTS}); }

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {S::kRowsM, S::kRowsN};
