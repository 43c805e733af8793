// Computes for each query row what the attention backward needs: lse in base 2, and -delta, with
// which the accumulators of dP start. delta = sum over columns of dO * O, in float32, minus the
// gradient of lse; products of 16-bit numbers are exact. It also clears the float32 dQ, to which
// the workgroups of the blocks of keys add.
//
// Workgroup: 4 waves, 32 rows. 16 lanes share a row, up to 16 columns each. Grid: x = batch *
// num_heads * ceil(row_tiles * tile_rows / kRows), then, if sequences are ordered by their rows,
// ceil(batch / kLanes) more.
//
//   phase   memory                                   vector unit
//   load    lse; o, dout
//   sum     zeros to dq                              delta, over a row's lanes by DPP: over_row
//   store   lse, -delta: RowSums of attn_bwd.hip     lse to base 2
//
// Registers: log2_sum, delta; 20 to 26 vector registers, no LDS, no barrier.
// The build defines KERNEL (its name) and ELEMENT.
#include "attn_bwd/log2.h"
#include "isa/dpp.h"
#include "isa/uniform.h"
#include "merge/chunk.h"
// clang-format off
#include "args/attn_bwd_rows.h"
// clang-format on

namespace {
constexpr int kLanes = 256, kRowLanes = 16, kRowsAtOnce = kLanes / kRowLanes, kRows = 32;
constexpr int kColumns = 8, kZeroes = 4, kMaxColumns = 256;  // of a load, of a store, of a row
using Part = Chunk16<Element::ELEMENT, 4>;

// Over the 16 lanes of a row.
__device__ __forceinline__ float over_row(float x) {
  x += v_mov_b32_dpp<kQuad<1, 0, 3, 2>>(x);
  x += v_mov_b32_dpp<kQuad<2, 3, 0, 1>>(x);
  x += v_mov_b32_dpp<kRowHalfMirror>(x);
  return x + v_mov_b32_dpp<kRowMirror>(x);
}

// Its place: so many sequences have more rows, or as many and come before.
__device__ __forceinline__ void put_in_order(const AttnBwdRowsArgs& args, uint32_t sequence) {
  const auto* sums = (const Global<int32_t>*)args.cu_seqlens_q;
  const uint32_t batch = args.batch;
  if (sequence >= batch) return;
  const int own = sums[sequence + 1] - sums[sequence];
  uint32_t place = 0;
  int from = uniform(sums[0]);
  for (uint32_t other = 0; other < batch; ++other) {
    const int to = uniform(sums[other + 1]), rows = to - from;
    place += rows > own || (rows == own && other < sequence);
    from = to;
  }
  ((Global<int32_t>*)args.order)[place] = sequence;
}

// NaN of any payload as one that rounding to 16 bits does not wrap.
__device__ __forceinline__ float usual(float x) { return x == x ? x : __builtin_nanf(""); }
}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, 8) KERNEL(AttnBwdRowsArgs args) {
  const uint32_t padded = uint32_t(args.row_tiles) * args.tile_rows;
  const uint32_t of_head = (padded + kRows - 1) / kRows;
  const uint32_t id = __builtin_amdgcn_workgroup_id_x(), of_batch = id / of_head;
  const uint32_t first = (id - of_batch * of_head) * kRows, batch = of_batch / args.num_heads;
  if (args.order != 0 && batch >= uint32_t(args.batch)) {
    const uint32_t before = uint32_t(args.batch) * args.num_heads * of_head;
    put_in_order(args, (id - before) * kLanes + Lane::in_workgroup());
    return;
  }
  const int64_t head = of_batch - batch * args.num_heads;
  int64_t base = 0;
  int rows = args.seqlen_q;
  if (args.cu_seqlens_q != 0) {
    const auto* sums = (const Global<int32_t>*)args.cu_seqlens_q;
    base = uniform(sums[batch]);
    rows = uniform(sums[batch + 1]) - int(base);
  }
  const auto* o = (const Global<uint16_t>*)args.o + batch * args.o_stride_batch +
                  base * args.o_stride_seq + head * args.o_stride_head;
  const auto* dout = (const Global<uint16_t>*)args.dout + batch * args.dout_stride_batch +
                     base * args.dout_stride_seq + head * args.dout_stride_head;
  const auto* lse = (const Global<float>*)args.lse + batch * args.lse_stride_batch +
                    head * args.lse_stride_head + base;
  const auto* dlse = (const Global<float>*)args.dlse + batch * args.dlse_stride_batch +
                     head * args.dlse_stride_head + base;
  auto* dq = (Global<float>*)args.dq + batch * args.dq_stride_batch + base * args.dq_stride_seq +
             head * args.dq_stride_head;
  auto* sums = (Global<float>*)args.rows + int64_t(of_batch) * padded * 2;
  const int lane = Lane::in_workgroup() % kRowLanes;
  const uint32_t of_lane = Lane::in_workgroup() / kRowLanes;

  for (uint32_t n = 0; n < kRows; n += kRowsAtOnce) {
    const uint32_t row = first + n + of_lane;
    if (row >= padded) return;
    const bool known = int(row) < rows;
    float log2_sum = kInf, delta = 0;
    if (known) {
      log2_sum = usual(lse[row]);
      const int64_t o_row = row * args.o_stride_seq, dout_row = row * args.dout_stride_seq;
      for (int c = 0; c < kMaxColumns / kRowLanes / kColumns; ++c) {
        const int column = (c * kRowLanes + lane) * kColumns;
        if (column >= args.head_dim_v) break;
        const u32x4 x = global_load_dwordx4(o + o_row + column);
        const u32x4 y = global_load_dwordx4(dout + dout_row + column);
        for (int i = 0; i < Part::kPairs; ++i) {
          const f32x2 a = Part::pair(x, i), b = Part::pair(y, i);
          delta = __builtin_fmaf(a[0], b[0], delta);
          delta = __builtin_fmaf(a[1], b[1], delta);
        }
      }
      for (int c = 0; c < kMaxColumns / kRowLanes / kZeroes; ++c) {
        const int column = (c * kRowLanes + lane) * kZeroes;
        if (column < args.head_dim)
          global_store_dwordx4(dq + row * args.dq_stride_seq + column, u32x4{});
      }
    }
    delta = over_row(delta);
    if (known && args.dlse != 0) delta -= usual(dlse[row]);
    if (log2_sum == -kInf) {  // a row without keys: no probability is above 0
      log2_sum = kInf;
      delta = 0;
    } else {
      log2_sum = to_log2(log2_sum, args.log2_factor, args.log2_rest);
    }
    const uint32_t tile = row / args.tile_rows, place = row + tile * args.tile_rows;
    if (lane == 0) sums[place] = log2_sum;
    if (lane == 1) sums[place + args.tile_rows] = -delta;
  }
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kRows, kMaxColumns};
