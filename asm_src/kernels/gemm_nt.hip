// out[m, n] = activation(x[m, n]), x[m, n] = alpha * sum_k A[m, k] * B[n, k] + bias[n], few rows of
// A; or activation(x[m, n]) * x[m, up + n].
//
// One code object per member of the family: the build defines KERNEL (its name), TILES_M, TILES_N,
// WAVES_M, WAVES_K, DEPTH, ELEMENT, LAST (its last accumulation register) and STREAM.
// Grid: x = ceil(n / rows of n), to a multiple of the XCDs; y = ceil(m / rows of m); z = splits.
// All rows of m and parts of a tile of n thus go to one XCD, whose L2 then holds B and the parts.
#include "gemm/element_stream.h"
#include "gemm/finish.h"

namespace {

using S = Shape<TILES_M, TILES_N, WAVES_M, WAVES_K, DEPTH, Element::ELEMENT>;
static_assert(LAST == 4 * S::kFragments - 1);

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(S::kLanes, 1)
    KERNEL(uint64_t a, uint64_t b, uint64_t bias, int a_stride, int b_stride, int m, int n, int k,
           int split_lines, int splits, int up, uint64_t, int64_t, float, int8_t, int8_t, int16_t,
           uint64_t, uint64_t, uint64_t) {
  __shared__ u32x4 lds[S::kLdsBytes / 16];
  const int tile_n = __builtin_amdgcn_workgroup_id_x(), tile_m = __builtin_amdgcn_workgroup_id_y();
  const int split = __builtin_amdgcn_workgroup_id_z();
  const Rows rows{up};
  const int columns = S::kTilesN * rows.each();
  const int first_m = tile_m * S::kRowsM, first_n = tile_n * columns;
  if (first_n >= n) return;
  RESERVE_ACC_TO(LAST);
  LateArgs late;
  late.load();

  const int wave = Lane::wave(), wave_k = wave % S::kWavesK, wave_m = wave / S::kWavesK;
  const int lane = Lane::in_wave(), row = lane % kTile, group = lane / kTile;
  const int lines = uint32_t(k + kLine - 1) / kLine, begin = split * split_lines + wave_k;
  const int end = lines < (split + 1) * split_lines ? lines : (split + 1) * split_lines;
  const int steps = uint32_t(end - begin + S::kWavesK - 1) / S::kWavesK;
  STREAM<S> stream;
  stream.start({a, a_stride, m, first_m}, {b, b_stride, n, first_n}, rows, wave_m, row, group,
               begin, steps, k);
  late.wait();
  const int tiles_n =
      rows.up ? (n + S::kRowsN / 2 - 1) / (S::kRowsN / 2) : (n + S::kRowsN - 1) / S::kRowsN;
  const int tile = tile_m * tiles_n + tile_n;
  Claim<S> claim;
  if (late.adding) claim.issue(late, Splits<S>::counter(late, tile), wave, lane);
  Bias<S> bias_n;
  bias_n.load(bias, first_n, n, rows, wave_k, group);
  const Place<S> place(late, m, n, rows, first_m, first_n, wave_m, row, group);
  stream.run(steps);
  bias_n.wait();
  const Splits<S> parts{late, splits, tile, split, wave, lane, (Local<int>*)lds};
  const Finish<S, STREAM<S>> finish{stream, late,   parts, place, rows, (Local<u32x4>*)lds,
                                    lane,   wave_m, wave_k};
  finish(claim, bias_n);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {S::kRowsM, S::kRowsN};
