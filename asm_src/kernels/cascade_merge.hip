// Merges attention over a prefix that all sequences share into attention over each sequence's own
// keys: out = sum_p exp(lse_p - L) o_p for each row, with L = log(sum_p exp(lse_p)) and p = prefix,
// own. It is merge_state.hip for two parts whose rows are in different orders. Parts and sums are
// float32 and rounded once. A part with lse = -inf has no key: its o is not used.
//
// Workgroup: 4 waves; a lane owns 8 columns of a row.
// Grid: x = ceil(rows / (lanes / (head_dim_v / 8))).
//
//   phase   memory                          vector unit
//   load    lse and o of both parts         addresses
//   merge                                   weight of the lesser part; sum += o * weight
//   store   out, lse                        round
//
// Registers: lse[2], o[2], sum; 40 vector registers, no LDS, no barrier.
// The build defines KERNEL (its name) and ELEMENT (of the result).
#include "merge/chunk.h"
#include "merge/logarithm.h"
// clang-format off
#include "args/cascade_merge.h"
// clang-format on

namespace {

using Rounded = Chunk16<Element::ELEMENT, 4>;
constexpr int kLanes = 256, kColumns = 2 * Rounded::kDwords;

__device__ __forceinline__ Log log_at(uint64_t first, int64_t nth) {
  const f32x2 x = ((const Global<f32x2>*)first)[nth];
  return {x[0], x[1]};
}

// Else it is NaN.
__device__ __forceinline__ bool has_no_key(const Log& lse) {
  return lse.whole == -kInf && lse.rest == lse.rest;
}

// Eight columns.
struct Floats {
  f32x4 quad[2];
  __device__ __forceinline__ Floats(uint64_t first, int64_t element) {
    const auto* from = (const Global<f32x4>*)((const Global<float>*)first + element);
    for (int i = 0; i < 2; ++i) quad[i] = from[i];
  }
  __device__ __forceinline__ f32x2 pair(int i) const {
    const f32x4 x = quad[i / 2];
    return i % 2 ? f32x2{x[2], x[3]} : f32x2{x[0], x[1]};
  }
};

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
  const int64_t of_result =
      b * args.o_batch + of_sequence * args.o_seq + head * args.o_head + column;
  const Log lse[2] = {
      log_at(args.prefix_lse, of_prefix),
      log_at(args.own_lse, b * args.own_lse_batch + head * args.own_lse_head + of_sequence)};
  const Floats o[2] = {{args.prefix_o, of_o},
                       {args.own_o, int64_t(row) * args.head_dim_v + column}};
  const bool has_none = has_no_key(lse[0]) && has_no_key(lse[1]);
  // How far own keys are above the prefix; and of 1 the root of the lesser weight: the weight
  // itself may be flushed where its product with o counts.
  const float above = has_none ? 0 : (lse[1].whole - lse[0].whole) + (lse[1].rest - lse[0].rest);
  const float lesser_root = v_exp_f32(-__builtin_fabsf(above) * (0.5f * kLog2E));
  const float total = __builtin_fmaf(lesser_root, lesser_root, 1.0f), inverse = v_rcp_f32(total);
  const bool is_own = above > 0;
  f32x2 sum[Rounded::kPairs] = {};
  for (int p = 0; p < 2; ++p) {
    const float root = is_own == (p == 1) ? 1.0f : lesser_root, rest = root * inverse;
    for (int i = 0; i < Rounded::kPairs; ++i) {
      const f32x2 x = o[p].pair(i) * root * rest;
      sum[i] += has_no_key(lse[p]) ? f32x2{} : x;
    }
  }
  const bool is_nan = above != above;
  if (is_nan)
    for (auto& x : sum) x = f32x2{above, above};
  *(Global<Rounded::Bits>*)((Global<uint16_t>*)args.o + of_result) = Rounded::rounded(sum, is_nan);
  if (!args.lse || column != 0) return;
  const Log& greater = lse[is_own];
  const float rest = is_nan ? above : greater.rest + v_log_f32(total) * kLn2;
  ((Global<float>*)args.lse)[(int64_t(b) * heads + head) * args.seqlen_q + of_sequence] =
      has_none ? -kInf : greater.whole + rest;
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kLanes, kColumns};
