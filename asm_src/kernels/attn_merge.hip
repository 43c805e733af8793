// Merges the parts of attention tiles that were split along the keys: O = sum_p w_p O_p / sum_p w_p
// and lse, where w_p is the part's sum of probabilities times 2^(its reference - the greatest one)
// (attn/parts.h). Parts are float32; the result is rounded once.
//
// Workgroup: 4 waves. A lane owns 8 columns of a row, HEAD_DIM_V / 8 lanes share a row. Grid: any
// number of workgroups, which share the split tiles, a few rows at a time.
//
//   phase   memory                            vector unit
//   weigh   reference and sum of each part    greatest reference, total: MergedSoftmax
//   merge   O of one part after the other     o += O_p * weight
//   store   O, lse                            round
//
// Registers: o[2], the lane's 8 columns; 50 to 52 vector registers, no LDS, no barrier.
//
// The build defines KERNEL (its name), HEAD_DIM_V, ELEMENT, ROUNDING and TILE_ROWS, the rows of a
// tile of the kernel that made the parts, whose arguments it takes.
#include "attn/output.h"
#include "attn/parts.h"
#include "isa/ordered_l2.h"

namespace {

constexpr int kLanes = 256, kLaneD = 8;
constexpr int kLanesOfRow = HEAD_DIM_V / kLaneD, kRowsAtOnce = kLanes / kLanesOfRow;
constexpr int kTilesOfRows = (TILE_ROWS + kRowsAtOnce - 1) / kRowsAtOnce;

// The parts of a lane's row, and of its columns of O.
struct Parts {
  const Global<f32x2>* max_sum;
  const Global<f32x4>* o;
  int count;

  __device__ __forceinline__ Parts(const Arguments& args, int64_t first, int column, int parts)
      : max_sum((const Global<f32x2>*)args.partial_max_sum + first),
        o((const Global<f32x4>*)((const Global<float>*)args.partial_o + first * HEAD_DIM_V +
                                 column)),
        count(parts) {}
  __device__ __forceinline__ MaxSum of(int p) const {
    const f32x2 x = max_sum[p * TILE_ROWS];
    return {x[0], x[1]};
  }
  __device__ __forceinline__ f32x4 columns(int p, int quad) const {
    return o[int64_t(p) * TILE_ROWS * HEAD_DIM_V / 4 + quad];
  }
};

__device__ __forceinline__ void store(Global<uint16_t>* to, const f32x4 (&o)[2]) {
  u32x4 out;
  for (int n = 0; n < 4; ++n)
    out[n] = round_pair<Element::ELEMENT, Rounding::ROUNDING>(o[n / 2][n % 2 * 2],
                                                              o[n / 2][n % 2 * 2 + 1]);
  if constexpr (Here::kTransposesReads) {
    *(Global<u32x4>*)to = out;
  } else {  // through the L2: see attn/epilogue.h
    ordered::global_store_dwordx4_sc1<0>(to, out);
    ordered::s_nop<1>();  // until it has read its registers
    ordered::keep(out);
  }
}

// Some rows of the nth tile that is in parts.
__device__ __forceinline__ void merge(const Arguments& args, const AttnWork& work, int row_of_tile,
                                      int d) {
  const int row = work.q_start + row_of_tile;
  if (row_of_tile >= TILE_ROWS || row >= work.rows || int(work.column) + d >= args.head_dim_v)
    return;

  const Parts parts(args, int64_t(work.part) * TILE_ROWS + row_of_tile, d, work.parts);
  const Sink sink = args.sinks == 0 ? Sink()
                                    : Sink(((const Global<float>*)args.sinks)[work.head_q],
                                           log2_rest_of(args, work.head_kv));
  const MergedSoftmax softmax(parts, sink);
  const float inverse = softmax.inverse();
  f32x4 o[2] = {};
  for (int p = 0; p < parts.count; ++p) {
    const MaxSum part = parts.of(p);
    if (part.sum == 0) continue;  // it may hold nothing
    const float root = softmax.root_of(part), rest = part.sum * inverse * root;
    for (int i = 0; i < 2; ++i) o[i] += parts.columns(p, i) * root * rest;
  }
  if (softmax.nan != softmax.nan)
    for (auto& x : o) x = f32x4{softmax.nan, softmax.nan, softmax.nan, softmax.nan};
  auto* to = output_row(args, work, row) + d;
  if (args.keeps_floats) {
    auto* floats = (Global<f32x4>*)(2 * (uint64_t)to - args.o);
    for (int i = 0; i < 2; ++i) floats[i] = o[i];
  } else {
    store(to, o);
  }
  if (args.lse == 0 || work.column + d != 0) return;
  const Log lse = softmax.log_sum_exp(sink, log2_rest_of(args, work.head_kv));
  auto* of_rows = lse_of_rows(args, work);
  if (args.keeps_floats)
    ((Global<f32x2>*)(2 * (uint64_t)of_rows - args.lse))[row] = f32x2{lse.whole, lse.rest};
  else
    of_rows[row] = lse.rounded();
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

// Few workgroups, which go on: to start one for some rows takes longer than to merge these.
extern "C" __global__ void WORKGROUP(kLanes, 1) KERNEL(AttnFwdArgs args) {
  auto* from = (Arguments*)__builtin_amdgcn_kernarg_segment_ptr();
  const int lane = Lane::in_workgroup();
  const int row = lane / kLanesOfRow, d = lane % kLanesOfRow * kLaneD;
  for (int id = __builtin_amdgcn_workgroup_id_x(); id < args.merge_tiles * kTilesOfRows;
       id += args.merge_workgroups) {
    const AttnWork work = AttnWork::nth_in_parts(args, id / kTilesOfRows, TILE_ROWS, HEAD_DIM_V);
    if (work.rows == 0) return;  // nor has any tile behind it
    // Of the arguments what a merge needs is read again: there are few SGPRs.
    merge(*read_again(from), work, id % kTilesOfRows * kRowsAtOnce + row, d);
  }
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kRowsAtOnce, 0};
