// Gradients of attention sinks: for each head the sum over rows of exp(sink - lse) * -delta.
//
// Workgroup: 4 waves, one head; a lane takes every 256th row of each sequence. Grid: x = num_heads.
//
//   phase    memory, LDS                                    vector unit
//   rows     lse and -delta from attn_bwd_rows.hip          sum += exp2(sink - lse) * -delta
//   reduce   of_waves: the sum of each wave, one barrier    over the lanes of a wave by DPP
//   store    dsinks, lane 0
//
// Registers: sum; 12 vector registers, 16 bytes of LDS. The build defines KERNEL (its name).
#include "attn_bwd/log2.h"
#include "isa/dpp.h"
#include "isa/global.h"
#include "isa/valu.h"
#include "isa/wait.h"
// clang-format off
#include "args/attn_bwd_sinks.h"
// clang-format on

namespace {
constexpr int kLanes = 256, kWaves = kLanes / kWaveLanes;
}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, 8) KERNEL(AttnBwdSinksArgs args) {
  __shared__ float of_waves[kWaves];
  const int64_t head = __builtin_amdgcn_workgroup_id_x();
  const float sink =
      to_log2(((const Global<float>*)args.sinks)[head], args.log2_factor, args.log2_rest);
  const uint32_t padded = uint32_t(args.row_tiles) * args.tile_rows;
  float sum = 0;
  for (int64_t batch = 0; batch < args.batch; ++batch) {
    const auto* from =
        (const Global<float>*)args.rows + (batch * args.num_heads + head) * padded * 2;
    for (uint32_t row = Lane::in_workgroup(); row < padded; row += kLanes) {
      const uint32_t place = row + row / args.tile_rows * args.tile_rows;
      sum = __builtin_fmaf(v_exp_f32(sink - from[place]), from[place + args.tile_rows], sum);
    }
  }
  sum += v_mov_b32_dpp<kQuad<1, 0, 3, 2>>(sum);
  sum += v_mov_b32_dpp<kQuad<2, 3, 0, 1>>(sum);
  sum += v_mov_b32_dpp<kRowHalfMirror>(sum);
  sum += v_mov_b32_dpp<kRowMirror>(sum);
  sum = (v_readlane_b32(sum, 0) + v_readlane_b32(sum, 16)) +
        (v_readlane_b32(sum, 32) + v_readlane_b32(sum, 48));
  auto* const sums = (Local<float>*)of_waves;
  if (Lane::in_wave() == 0) sums[Lane::wave()] = sum;
  s_barrier();
  if (Lane::in_workgroup() == 0)
    ((Global<float>*)args.dsinks)[head] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {0, 0};
