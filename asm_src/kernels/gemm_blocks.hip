// out[m, n] = activation(alpha * sum_kb scale_a[m, kb] * scale_b[n / 128, kb] * sum_k A[m, k] *
// B[n, k] + bias[n]), kb = k / 128, 8-bit A and B, many rows of A; gated as gemm_tiles.hip.
//
// Workgroup and grid: as of gemm_tiles.hip, TILES_M x 2 fragments a wave, a step 128 of k.
//
//   matrix instructions   of a fragment along k, then of the next one
//   vector unit           the fragment before: sums += partial sums * (scale_a * scale_b)
//   LDS                   operands of the next step to registers; the one behind it to LDS
//   memory                that, or the one behind it; scales of the next two or four steps
//   barriers              through registers two a step, straight to LDS one: barriers()
//
// Registers: 128 or 64 sums and 32 partial ones are in vector registers: accumulation registers,
// which the vector unit cannot read, have the operands of two steps, what is on its way and scales
// (BlockRegisters). At the end sums go there, from where the epilogue takes them. 288 to 464
// registers in all. LDS: stages of A and B as gemm_tiles.hip has them.
//
// Schedule: gemm_tiles/blocks_order.h and blocks_loop.h. The arguments are those of gemm_tiles.hip,
// but that scale_a and scale_b are of blocks, with scale_a_step and scale_b_step from a row of them
// to the next one, and up_offset is a multiple of 32. The build defines KERNEL (its name), TILES_M,
// TILES_N, WAVES_M, STAGES, LAST (of BlockRegisters), PARAMETERS and ARGUMENTS.
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
