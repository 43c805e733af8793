// GEMM with few rows of A: out[m, n] = activation(x[m, n]) with x[m, n] = alpha * sum_k A[m, k] *
// B[n, k] + bias[n]; gated: activation(x[m, n]) * x[m, up_offset + n]. beta * addend[m, n] is added
// before or after the activation. Bound by the bytes of B: operands go straight from memory
// to registers.
//
// Workgroup: WAVES_M waves along m, times WAVES_K waves that take turns along k. Each wave has
// TILES_M x TILES_N fragments of TILE x TILE results and DEPTH steps of A and B in flight.
//
//   phase, file of gemm/     memory, LDS                            matrix unit  vector unit
//   start    mainloop.h      first DEPTH steps of A, B; bias                     addresses
//   loop     mainloop.h      step n + DEPTH                         step n
//   waves    epilogue.h      sums of WAVES_K waves in LDS, barrier               add
//   splits   splits.h        split-K: partials, counter, arrive()                add
//   store    epilogue.h,     out                                                 scale, bias,
//            place.h                                                             activate, round
//
// Registers: loop.a, loop.b, DEPTH steps each; sums in accumulation registers 0 to LAST, 4 for each
// fragment; 112 to 376 registers. LDS: 1 KiB for each fragment of each further wave along k.
// Grid: x = 8 * splits along k, y = tiles of m of each product of a batch, z = tiles of n / 8.
// Workgroups go round robin over the 8 XCDs: those that share a tile of n share an L2, which then
// fetches B once. tile_n is chosen so that all XCDs get as many columns.
// The build defines KERNEL (its name), the sizes above, ELEMENTS (types), MAINLOOP, ANY_ALIGNMENT,
// HAS_SCALES (8-bit operands), NORMS_ROWS (RMS norm of A), PARAMETERS and ARGUMENTS: each field of
// the struct is a parameter of its own, so that the first ones arrive in SGPRs.
#include "gemm/batch.h"
#include "gemm/element_mainloop.h"
#include "gemm/epilogue.h"
#ifdef HAS_SCALES
#include "gemm/scales.h"
#elif defined(NORMS_ROWS)
#include "gemm/row_norm.h"
#endif

namespace {

#ifdef NORMS_ROWS
inline constexpr bool kNormsRows = true;
#else
inline constexpr bool kNormsRows = false;
#endif
using S = Shape<TILE, TILES_M, TILES_N, WAVES_M, WAVES_K, DEPTH, ELEMENTS, kNormsRows>;
static_assert(LAST == 4 * (S::kFragments + S::kSquares) - 1);
#ifdef HAS_SCALES
using Terms = Scales<S>;
#elif defined(NORMS_ROWS)
using Terms = RowNorm<S>;
#else
using Terms = Bias<S>;
#endif

__device__ __forceinline__ void gemm_nt(GemmArgs args) {
  __shared__ u32x4 lds[S::kLdsBytes / 16];
  const uint32_t x = __builtin_amdgcn_workgroup_id_x();
  const int split = x / 8;
  const Batch<S, GemmArgs> batch(args, __builtin_amdgcn_workgroup_id_y());
  const int tile_m = batch.tile_m;
  const int tile_n = 8 * __builtin_amdgcn_workgroup_id_z() + x % 8;
  const Rows<S::kTile> rows{args.up_offset};
  const int first_m = tile_m * S::kRowsM, first_n = tile_n * args.tile_n;
  if (first_n >= args.n) return;
  RESERVE_ACC_TO(LAST);
  args.k = uint32_t(args.k) / MAINLOOP::kUnit;
  if constexpr (MAINLOOP::kUnit > 1) {
    args.a_stride = uint32_t(args.a_stride) / MAINLOOP::kUnit;
    args.b_stride = uint32_t(args.b_stride) / MAINLOOP::kUnit;
  }
  const int wave = Lane::wave(), wave_k = wave % S::kWavesK, wave_m = wave / S::kWavesK;
  const int lane = Lane::in_wave(), row = lane % S::kTile, group = lane / S::kTile;
  const int all = uint32_t(args.k + S::kStep - 1) / S::kStep;
  const int begin = split * args.split_steps + wave_k, past = (split + 1) * args.split_steps;
  const int steps = uint32_t((all < past ? all : past) - begin + S::kWavesK - 1) / S::kWavesK;
  const int end_n = first_n + args.tile_n < args.n ? first_n + args.tile_n : args.n;  // of the tile
  LateArguments late;
  MAINLOOP loop;
  loop.start({args.a, args.a_stride, args.m, first_m}, {args.b, args.b_stride, end_n, first_n},
             rows, wave_m, row, group, begin, steps, args.k, [&] { late.load(); });
  Terms terms;
  terms.load(args.bias, first_n, args.n, rows, wave_k, lane);
  late.wait(args);
  batch.move_late(args);
  terms.load_late(args, first_m, first_n, rows, wave_m, lane);
  const int tiles_m = uint32_t(args.m + S::kRowsM - 1) / S::kRowsM;
  const int tile = tile_n * tiles_m + tile_m;
  Claim<S> claim;
  if (args.accumulates) claim.issue(args, Splits<S>::counter(args, tile), wave, lane);
  const Place<S> place(args, end_n, rows, first_m, first_n, wave_m, lane);
  loop.run(steps);
  terms.wait(args);
#ifdef NORMS_ROWS
  terms.square(loop, args, lane);
#endif
  const Splits<S> splits{args, tile, split, wave, lane, (Local<int>*)lds};
  const Epilogue<S, MAINLOOP, Terms> epilogue{loop, args,   splits, place, rows, (Local<u32x4>*)lds,
                                              lane, wave_m, wave_k, end_n};
  epilogue(claim, terms);
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(S::kLanes, 1) KERNEL(PARAMETERS) { gemm_nt({ARGUMENTS}); }

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {S::kRowsM, S::kRowsN};
