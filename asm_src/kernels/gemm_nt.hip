// out[m, n] = activation(x[m, n]), x[m, n] = alpha * sum_k A[m, k] * B[n, k] + bias[n], few rows of
// A; or activation(x[m, n]) * x[m, up + n].
//
// One code object per member of the family: the build defines KERNEL (its name), TILE, TILES_M,
// TILES_N, WAVES_M, WAVES_K, DEPTH, ELEMENT, LAST (its last accumulation register) and STREAM.
// Grid: x = 8 times the splits, y = ceil(m / rows of m), z = ceil(n / (8 columns)). Workgroups go
// round robin over the 8 XCDs, so that what works on a tile of n, all rows of m and all parts, is
// started together on one XCD: its L2 fetches B once and holds the parts. A tile has as many
// columns as it can hold or fewer, so that each XCD gets as many as the others.
#include "gemm/element_stream.h"
#include "gemm/finish.h"

namespace {

using S = Shape<TILE, TILES_M, TILES_N, WAVES_M, WAVES_K, DEPTH, Element::ELEMENT>;
static_assert(LAST == 4 * S::kFragments - 1);

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(S::kLanes, 1)
    KERNEL(uint64_t a, uint64_t b, uint64_t bias, int a_stride, int b_stride, int m, int n, int k,
           int split_steps, int16_t splits, int16_t columns, int up, uint64_t, int64_t, float,
           int8_t, int8_t, int16_t, uint64_t, uint64_t, uint64_t) {
  __shared__ u32x4 lds[S::kLdsBytes / 16];
  const uint32_t x = __builtin_amdgcn_workgroup_id_x();
  const int split = x / 8;
  const int tile_m = __builtin_amdgcn_workgroup_id_y();
  const int tile_n = 8 * __builtin_amdgcn_workgroup_id_z() + x % 8;
  const Rows<S::kTile> rows{up};
  const int first_m = tile_m * S::kRowsM, first_n = tile_n * columns;
  if (first_n >= n) return;
  RESERVE_ACC_TO(LAST);
  const int wave = Lane::wave(), wave_k = wave % S::kWavesK, wave_m = wave / S::kWavesK;
  const int lane = Lane::in_wave(), row = lane % S::kTile, group = lane / S::kTile;
  const int all = uint32_t(k + S::kStep - 1) / S::kStep, begin = split * split_steps + wave_k;
  const int end = all < (split + 1) * split_steps ? all : (split + 1) * split_steps;
  const int steps = uint32_t(end - begin + S::kWavesK - 1) / S::kWavesK;
  LateArgs late;
  STREAM<S> stream;
  const int end_n = first_n + columns < n ? first_n + columns : n;  // of the tile
  stream.start({a, a_stride, m, first_m}, {b, b_stride, end_n, first_n}, rows, wave_m, row, group,
               begin, steps, k, [&] { late.load(); });
  Bias<S> bias_n;
  bias_n.load(bias, first_n, n, rows, wave_k, lane);
  late.wait();
  const int tiles_m = uint32_t(m + S::kRowsM - 1) / S::kRowsM, tile = tile_n * tiles_m + tile_m;
  Claim<S> claim;
  if (late.adding) claim.issue(late, Splits<S>::counter(late, tile), wave, lane);
  const Place<S> place(late, m, end_n, rows, first_m, first_n, wave_m, lane, splits);
  stream.run(steps);
  bias_n.wait();
  const Splits<S> parts{late, splits, tile, split, wave, lane, (Local<int>*)lds};
  const Finish<S, STREAM<S>> finish{stream, late,   parts, place, rows, (Local<u32x4>*)lds,
                                    lane,   wave_m, wave_k};
  finish(claim, bias_n);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {S::kRowsM, S::kRowsN};
