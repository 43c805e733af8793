// Merges attention over disjoint sets of keys: out = sum_p exp(lse_p - L) o_p for each row, with
// L = log(sum_p exp(lse_p)), which is stored to lse_out. Sums are float32, in the order of the
// parts; out is rounded once to nearest even. A part with lse = -inf has no key: its o is not used.
//
// Workgroup: LANES lanes; a lane has one CHUNK of each of STEPS rows, a power of two lanes a row.
// Grid: x and z along two of the three axes of rows, y = ceil(rows / (rows at once * STEPS)).
//
//   phase    memory                              vector unit
//   load     lse, o of up to kAtOnce parts       addresses
//   weigh                                        exponentials and their sum: Softmax
//   merge                                        o * weight: Sum
//   store    out, lse_out                        round
//
// More parts (merge_many): first lse of all of them, then lse and o of kAtOnce parts at a time.
//
// Registers: lse[STEPS][parts], o[STEPS][parts], Sum; 52 to 122 vector registers, no LDS, no
// barrier. The build defines KERNEL (its name), CHUNK, LANES, STEPS, PARAMETERS and ARGUMENTS: each
// field of the struct is a parameter of its own, so that the first ones arrive in SGPRs.
#include "isa/issue_order.h"
#include "isa/unroll.h"
#include "merge/chunk.h"
#include "merge/softmax.h"
// clang-format off
#include "args/merge_state.h"
// clang-format on

namespace {

using Chunk = CHUNK;
constexpr int kLanes = LANES, kSteps = STEPS, kAtOnce = 8;
constexpr int kChunksOfStep = 4 / Chunk::kDwords;  // strides count 16 bytes
constexpr int kMinWaves = 4;                       // of a SIMD

// Of a lane; the first one of a row has its lse as well.
struct Place {
  int row, column;
};

// Strides of rows, along the three axes.
struct Steps {
  int32_t x, row, z;
  __device__ __forceinline__ int64_t to(int of_row) const {
    const int at_x = __builtin_amdgcn_workgroup_id_x(), at_z = __builtin_amdgcn_workgroup_id_z();
    return int64_t(at_x) * x + int64_t(at_z) * z + int64_t(of_row) * row;
  }
};

__device__ __forceinline__ Global<Chunk::Bits>* chunk_at(uint64_t first, Steps steps, Place at) {
  return (Global<Chunk::Bits>*)first + steps.to(at.row) * kChunksOfStep + at.column;
}

// One row over all parts, and the columns of a lane.
class Parts {
 public:
  Parts() = default;
  __device__ __forceinline__ Parts(const MergeStateArgs& args, Place at)
      : o_(chunk_at(args.o, Steps{args.o_x, args.o_row, args.o_z}, at)),
        lse_((const Global<float>*)args.lse +
             Steps{args.lse_x, args.lse_row, args.lse_z}.to(at.row)) {}

  template <int kParts>
  __device__ __forceinline__ void load(const MergeStateArgs& args, int first,
                                       float (&lse)[kParts]) const {
    for (int p = 0; p < kParts; ++p) lse[p] = lse_[int64_t(first + p) * args.lse_part];
  }
  template <int kParts>
  __device__ __forceinline__ void load(const MergeStateArgs& args, int first,
                                       Chunk::Bits (&o)[kParts]) const {
    for (int p = 0; p < kParts; ++p) o[p] = o_[int64_t(first + p) * args.o_part * kChunksOfStep];
  }

 private:
  const Global<Chunk::Bits>* o_;
  const Global<float>* lse_;
};

struct Sum {
  f32x2 pairs[Chunk::kPairs] = {};

  template <int kParts>
  __device__ __forceinline__ void add(const Softmax& softmax, const float (&lse)[kParts],
                                      const Chunk::Bits (&o)[kParts]) {
    for (int p = 0; p < kParts; ++p) {
      // Not a select of o, which the compiler would load behind a branch then.
      const Chunk::Bits known = o[p] & (lse[p] == -kInf ? 0 : ~0u);
      const float weight = softmax.weight(lse[p]);
      for (int i = 0; i < Chunk::kPairs; ++i)
        pairs[i] =
            __builtin_elementwise_fma(Chunk::pair(known, i), f32x2{weight, weight}, pairs[i]);
    }
  }
};

__device__ __forceinline__ MergeStateArgs with_results(MergeStateArgs args) {
  wait_for(args.out, args.lse_out, args.out_x, args.out_row, args.out_z);
  wait_for(args.lse_out_x, args.lse_out_row, args.lse_out_z);
  return args;
}

__device__ __forceinline__ void store(const MergeStateArgs& args, Place at, const Softmax& softmax,
                                      const Sum& sum) {
  if (at.row >= args.rows) return;
  *chunk_at(args.out, Steps{args.out_x, args.out_row, args.out_z}, at) =
      Chunk::rounded(sum.pairs, softmax.is_nan());
  if (at.column == 0)
    ((Global<float>*)
         args.lse_out)[Steps{args.lse_out_x, args.lse_out_row, args.lse_out_z}.to(at.row)] =
        softmax.lse();
}

// Of few parts, all in registers at once.
template <int kParts>
__device__ __forceinline__ void merge(const MergeStateArgs& args, const Place (&at)[kSteps],
                                      const Parts (&parts)[kSteps]) {
  float lse[kSteps][kParts];
  Chunk::Bits o[kSteps][kParts];
  for (int s = 0; s < kSteps; ++s) parts[s].load(args, 0, lse[s]);
  order_loads();
  for (int s = 0; s < kSteps; ++s) parts[s].load(args, 0, o[s]);
  __builtin_amdgcn_sched_barrier(0);
  const MergeStateArgs complete = with_results(args);
  for (int s = 0; s < kSteps; ++s) {
    Softmax softmax;
    Sum sum;
    softmax.add(lse[s]);
    softmax.end();
    sum.add(softmax, lse[s], o[s]);
    store(complete, at[s], softmax, sum);
  }
}

// `body` for kAtOnce parts after each other, then for the rest: a power of two each.
template <class Body>
__device__ __forceinline__ void for_parts(int count, Body&& body) {
  int first = 0;
  for (; first + kAtOnce <= count; first += kAtOnce) body.template operator()<kAtOnce>(first);
  unroll<3>([&]<int i> {
    constexpr int kParts = kAtOnce >> (i + 1);
    if (count & kParts) {
      body.template operator()<kParts>(first);
      first += kParts;
    }
  });
}

__device__ __forceinline__ void merge_many(const MergeStateArgs& args, int count, Place at,
                                           const Parts& parts) {
  Softmax softmax;
  Sum sum;
  for_parts(count, [&]<int kParts>(int first) {
    float lse[kParts];
    parts.load(args, first, lse);
    softmax.add(lse);
  });
  softmax.end();
  for_parts(count, [&]<int kParts>(int first) {
    float lse[kParts];
    Chunk::Bits o[kParts];
    parts.load(args, first, lse);
    order_loads();
    parts.load(args, first, o);
    __builtin_amdgcn_sched_barrier(0);
    sum.add(softmax, lse, o);
  });
  store(args, at, softmax, sum);
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, kMinWaves) KERNEL(PARAMETERS) {
  const MergeStateArgs args{ARGUMENTS};
  const int chunks = args.parts_and_chunks & 255, count = args.parts_and_chunks >> 8;
  // A power of two lanes for each row.
  const int log2_lanes = chunks == 1 ? 0 : 32 - __builtin_clz(chunks - 1);
  const int rows_at_once = kLanes >> log2_lanes;
  const int lane = Lane::in_workgroup(), column = lane & ((1 << log2_lanes) - 1);
  const int row = __builtin_amdgcn_workgroup_id_y() * kSteps * rows_at_once + (lane >> log2_lanes);
  if (column >= chunks || row >= args.rows) return;

  Place at[kSteps];
  Parts parts[kSteps];
  for (int s = 0; s < kSteps; ++s) {
    at[s] = {row + s * rows_at_once, column};
    const int known = at[s].row < args.rows ? at[s].row : row;
    parts[s] = Parts(args, {known, column});
  }
  if (count > kAtOnce) {
    unroll<kSteps>([&]<int s> { merge_many(args, count, at[s], parts[s]); });
    return;
  }
  unroll<kAtOnce>([&]<int i> {
    if (count == i + 1) merge<i + 1>(args, at, parts);
  });
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kLanes * kSteps, 0};
