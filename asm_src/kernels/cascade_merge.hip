// Merges attention over a prefix that all sequences share into attention over the keys of each:
// out = sum_p exp(lse_p - L) o_p of each row, with L = log(sum_p exp(lse_p)), as merge_state.hip
// does, of two parts whose rows lie in different orders. Sums in float32, rounded once. A part with
// lse = -inf has no key: what its o holds is not used.
//
// The build defines KERNEL (its name) and ELEMENT. A lane has 8 columns of a row.
// Grid: x = ceil(rows / (lanes / (head_dim_v / 8))).
#include "merge/chunk.h"
#include "merge/softmax.h"
// clang-format off
#include "args/cascade_merge.h"
// clang-format on

namespace {

using Chunk = Chunk16<Element::ELEMENT, 4>;
constexpr int kLanes = 256, kColumns = 2 * Chunk::kDwords;

__device__ __forceinline__ Global<Chunk::Bits>* chunk_at(uint64_t first, int64_t element) {
  return (Global<Chunk::Bits>*)((Global<uint16_t>*)first + element);
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, 8) KERNEL(CascadeMergeArgs args) {
  const uint32_t lane = Lane::in_workgroup(), of_row = uint32_t(args.head_dim_v) / kColumns;
  const uint32_t nth = lane / of_row, at_once = kLanes / of_row;
  const uint32_t column = (lane - nth * of_row) * kColumns, heads = args.num_heads_q;
  const uint32_t row = __builtin_amdgcn_workgroup_id_x() * at_once + nth;
  if (nth >= at_once || row >= args.rows) return;
  const uint32_t query = row / heads, head = row - query * heads;
  const uint32_t b = query / uint32_t(args.seqlen_q), of_sequence = query - b * args.seqlen_q;
  const uint32_t kv = head / uint32_t(args.group), member = head - kv * args.group;

  const int64_t of_o =
      query * args.prefix_o_query + kv * args.prefix_o_kv + member * args.prefix_o_member + column;
  const int64_t of_prefix =
      query * args.prefix_lse_query + kv * args.prefix_lse_kv + member * args.prefix_lse_member;
  const int64_t of_lse = (int64_t(b) * heads + head) * args.seqlen_q + of_sequence;
  auto* own =
      chunk_at(args.o, b * args.o_batch + of_sequence * args.o_seq + head * args.o_head + column);
  const float lse[2] = {((const Global<float>*)args.prefix_lse)[of_prefix],
                        ((const Global<float>*)args.own_lse)[of_lse]};
  const Chunk::Bits o[2] = {*chunk_at(args.prefix_o, of_o), *own};
  Softmax softmax;
  softmax.add(lse);
  softmax.end();
  f32x2 sum[Chunk::kPairs] = {};
  for (int p = 0; p < 2; ++p) {
    const float weight = softmax.weight(lse[p]);
    for (int i = 0; i < Chunk::kPairs; ++i) {
      const f32x2 x = Chunk::pair(o[p], i) * weight;
      sum[i] += lse[p] == -kInf ? f32x2{} : x;
    }
  }
  if (softmax.is_nan())
    for (auto& x : sum) x = f32x2{softmax.lse(), softmax.lse()};
  *own = Chunk::rounded(sum, softmax.is_nan());
  if (args.lse && column == 0) global_store_dword((Global<float>*)args.lse + of_lse, softmax.lse());
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kLanes, kColumns};
