// Attention forward, bf16, head_dim 128, non-causal: O = softmax(Q K^T * softmax_scale) V.
//
// Any seqlen_q, seqlen_kv >= 1; any strides with rows on 16 bytes and head_dim contiguous; grouped
// query heads; optional log-sum-exp. Arguments: args/attn_fwd.h. Grid: sched/work_map.h.
//
// Workgroup: 4 waves, 128 q rows, 32 a wave; kv in tiles of 64. Both products are transposed,
// S^T = K Q^T and O^T = V^T P^T, so that P is an operand in the registers where it was computed
// (tile/fragment.h) and a row's softmax lives in the four lanes of a fragment column.
//
// LDS: K 16 KiB + V^T 16 KiB, so two workgroups fit a CU and one's matrix phases cover the other's
// softmax. Registers (at most 256 a lane for that): O^T 64, Q 32, S^T 32, next K and V 32.
//
//   phase    all four waves                                                  memory in flight
//   scores   barrier; S^T = K Q^T; keys past seqlen_kv become -inf           V -> LDS, transposed
//   fetch    barrier; issue the loads of the K after the next, the next V    next K -> LDS
//   softmax  row maximum, P = 2^(S - origin), row sum, P to bf16             K, V -> registers
//   output   O^T = O^T + V^T P^T                                             K, V -> registers
//
// A tile goes to LDS right behind the barrier at which its predecessor is done with, not between
// two barriers of its own: other instructions cover the writes. docs/tuning.md has the reasons.
//
// Sources: online softmax, Milakov and Gimelshein 2018 (arXiv 1805.02867); tiling, Dao 2023
// (arXiv 2307.08691).
#include "isa/sched.h"
#include "isa/wait.h"
#include "sched/work_map.h"
#include "tile/load.h"
#include "tile/mma.h"
#include "tile/softmax_state.h"
#include "tile/store.h"

namespace {

constexpr int kHeadDim = 128;
constexpr int kNumWaves = 4;
constexpr int kNumLanes = kNumWaves * kWaveLanes;
constexpr int kWaveQ = 32;  // q rows of a wave
constexpr int kTileQ = kNumWaves * kWaveQ;
constexpr int kTileKv = 64;

constexpr int kFragsQ = kWaveQ / kFragRows;
constexpr int kFragsKv = kTileKv / kFragRows;
constexpr int kFragsD = kHeadDim / kFragRows;
constexpr int kStepsD = kHeadDim / kMmaStep;  // contraction of S^T = K Q^T
constexpr int kStepsKv = kTileKv / kMmaStep;  // contraction of O^T = V^T P^T

constexpr int kMfmaPerRead = kFragsQ * kMfmaPerMma;  // each octet from LDS meets every q fragment
constexpr int kReadsAhead = 2;                       // 8 MFMA of 16 clocks: about the LDS latency

using KTile = LdsTile<kFragsKv, kStepsD>;
using VtTile = LdsTile<kFragsD, kStepsKv>;
using KStage = RowStage<KTile, kNumLanes>;
using VStage = TransposeStage<VtTile, kNumLanes>;
constexpr int kLdsOctets = KTile::kNumOctets + VtTile::kNumOctets;

static_assert(2 * kLdsOctets * sizeof(u32x4) <= 64 * 1024,
              "two workgroups must fit the LDS of a CU");
static_assert(kFragsKv == 2 * kStepsKv, "two S^T fragments make one step of the second product");
static_assert(kFragsD % 2 == 0, "O leaves in octets, a pair of fragments at a time");

using QFragments = u32x4[kFragsQ][kStepsD];
using Scores = f32x4[kFragsQ][kFragsKv];
using Probabilities = u32x4[kFragsQ][kStepsKv];
using Output = f32x4[kFragsQ][kFragsD];

// `signs` flips those of the elements.
__device__ __forceinline__ void load_q(QFragments& q, const RowSource& rows, int row,
                                       uint32_t signs) {
  for (int step = 0; step < kStepsD; ++step) {
    u32x4 octets[kFragsQ];
    RowCursor(rows, row, octet_of(step, lane_group()) * kOctet)
        .load_some<kFragRows>(octets, global_load_dwordx4);
    for (int i = 0; i < kFragsQ; ++i) q[i][step] = octets[i] ^ signs;
  }
}

// S^T = K Q^T
__device__ __forceinline__ void compute_scores(Scores& scores, KTile k, const QFragments& q) {
  for (int f = 0; f < kFragsKv; ++f) {
    for (int i = 0; i < kFragsQ; ++i) scores[i][f] = f32x4{};
    for (int step = 0; step < kStepsD; ++step) {
      const u32x4 k_octet = k.read(f, step);
      for (int i = 0; i < kFragsQ; ++i) mma(scores[i][f], k_octet, q[i][step]);
    }
  }
  schedule_reads_ahead<kFragsKv * kStepsD, kMfmaPerRead, kReadsAhead>();
}

// Moves results to a new origin if a row of the wave outgrew its own: rarely after the first tile.
__device__ __forceinline__ void rebase(SoftmaxState (&softmax)[kFragsQ], Output& output,
                                       const Scores& scores, float scale_log2) {
  float lane_max_log2[kFragsQ];
  bool outgrown = false;
  for (int i = 0; i < kFragsQ; ++i) {
    lane_max_log2[i] = SoftmaxState::lane_max(scores[i]) * scale_log2;
    outgrown |= softmax[i].outgrown(lane_max_log2[i]);
  }
  if (!any_lane(outgrown)) [[likely]]
    return;
  for (int i = 0; i < kFragsQ; ++i) {
    const float rescale = softmax[i].rescale(lane_max_log2[i]);
    for (auto& fragment : output[i]) fragment *= rescale;
  }
}

// Keys at num_keys and beyond do not exist.
__device__ __forceinline__ void mask_tail(Scores& scores, int num_keys) {
  const int lane_keys = num_keys - octet_of(0, lane_group()) * kOctet;
  for (auto& column : scores)
    for (int f = 0; f < kFragsKv; ++f)
      for (int r = 0; r < 4; ++r)
        if (octet_of(f / 2, 0) * kOctet + f % 2 * 4 + r >= lane_keys) column[f][r] = -kInf;
}

__device__ __forceinline__ void round_probabilities(Probabilities& p, const Scores& scores) {
  for (int i = 0; i < kFragsQ; ++i)
    for (int f = 0; f < kFragsKv; ++f) {
      const u32x2 lo = round_bf16_normals(scores[i][f].lo),
                  hi = round_bf16_normals(scores[i][f].hi);
      p[i][f / 2][f % 2 * 2] = pack_bf16(lo[0], lo[1]);
      p[i][f / 2][f % 2 * 2 + 1] = pack_bf16(hi[0], hi[1]);
    }
}

// O^T += V^T P^T
__device__ __forceinline__ void accumulate_output(Output& output, VtTile vt,
                                                  const Probabilities& p) {
  for (int f = 0; f < kFragsD; ++f)
    for (int step = 0; step < kStepsKv; ++step) {
      const u32x4 v_octet = vt.read(f, step);
      for (int i = 0; i < kFragsQ; ++i) mma(output[i][f], v_octet, p[i][step]);
    }
  schedule_reads_ahead<kFragsD * kStepsKv, kMfmaPerRead, kReadsAhead>();
}

__device__ __forceinline__ void store_rows(const AttnFwdArgs& args, const AttnWork& work, int q_row,
                                           const f32x4 (&output)[kFragsD],
                                           const SoftmaxResult& softmax) {
  if (q_row >= args.seqlen_q) return;
  auto* o_row = (Global<uint16_t>*)args.o + work.batch_idx * args.o_stride_batch +
                work.head_q_idx * args.o_stride_head + q_row * args.o_stride_seq;
  for (int pair = 0; pair < kFragsD / 2; ++pair)
    global_store_dwordx4(o_row + octet_of(pair, lane_group()) * kOctet,
                         round_octet(output[2 * pair], output[2 * pair + 1], softmax.inv_sum));
  if (args.lse != 0 && lane_group() == 0) {
    const int64_t lse_row = int64_t(work.batch_idx) * args.num_heads_q + work.head_q_idx;
    global_store_dword((Global<float>*)args.lse + lse_row * args.seqlen_q + q_row, softmax.lse);
  }
}

}  // namespace

extern "C" __global__ void WORKGROUP(kNumLanes, 2)
    amdattn_attn_fwd_bf16_d128_gfx942(AttnFwdArgs args) {
  __shared__ u32x4 lds[kLdsOctets];
  const KTile k_tile{(Local<u32x4>*)lds};
  const VtTile vt_tile{k_tile.base + KTile::kNumOctets};

  const AttnWork work(args, kTileQ);
  const int wave_row = Lane::wave() * kWaveQ + fragment_row();

  // A negative scale is a positive one of -Q. 0 becomes the least normal number: 0 * -inf is NaN.
  const float scale_log2 = v_max_f32(__builtin_fabsf(args.softmax_scale_log2), 0x1p-126f);
  QFragments q;
  load_q(q, work.q_rows(args), wave_row, args.softmax_scale_log2 < 0 ? 0x80008000 : 0);

  int num_keys = args.seqlen_kv;
  KStage k_stage(work.k_rows(args));
  VStage v_stage(work.v_rows(args));
  k_stage.load(num_keys);
  v_stage.load(num_keys);
  k_stage.store(k_tile);
  if (num_keys > kTileKv) k_stage.load(num_keys - kTileKv);

  SoftmaxState softmax[kFragsQ];
  Output output = {};
  do {
    s_barrier();  // K is in LDS, and every wave has read the previous V
    v_stage.store(vt_tile);
    Scores scores;
    s_setprio<1>();  // or a younger workgroup would wait for all vector work of an older one
    compute_scores(scores, k_tile, q);
    if (num_keys < kTileKv) [[unlikely]] {  // else the compiler makes it 32 selects every tile
      mask_tail(scores, num_keys);
    }

    s_barrier();  // V is in LDS, and every wave has read K
    if (num_keys > kTileKv) {
      k_stage.store(k_tile);
      v_stage.load(num_keys - kTileKv);
      if (num_keys > 2 * kTileKv) k_stage.load(num_keys - 2 * kTileKv);
    }

    rebase(softmax, output, scores, scale_log2);
    s_setprio<0>();
    for (int i = 0; i < kFragsQ; ++i) softmax[i].exponentiate(scores[i], scale_log2);

    Probabilities p;
    round_probabilities(p, scores);
    accumulate_output(output, vt_tile, p);
    num_keys -= kTileKv;
  } while (num_keys > 0);

  for (int i = 0; i < kFragsQ; ++i)
    store_rows(args, work, work.q_start + wave_row + i * kFragRows, output[i],
               SoftmaxResult(softmax[i]));
}

// Read back from the code object when the manifest is made: the launcher's only source of these.
extern "C" __device__ const int32_t amdattn_attn_fwd_bf16_d128_gfx942_tiles[] = {kTileQ, kTileKv};
