// out[row] = the token of a row of logits: the greatest logit, or a random draw.
//
// A draw is the token with the greatest logarithm of probability plus Gumbel noise of its own, so
// no sum depends on an order. top_k and top_p become a least logit, found by radix select, digit by
// digit of its bits: for top_k by counts, for top_p by probabilities in units of 2^-40. Logits that
// tie with it all take part. For few rows sample_slices.hip does the same with several workgroups
// per row, bit for bit.
//
// Workgroup: 16 waves, one row; a lane takes four adjacent columns at a time. Grid: x = rows.
//
//   pass              memory   vector unit                     LDS, struct Lds
//   tokens            tokens                                   seen: a bit for each token so far
//   greatest          logits   penalty                         group: over waves, with barriers
//   top_k, 4 times    logits   digits of keys                  sums: counts of digits
//   top_p, 1 + 4      logits   probabilities                   sums: sums of digits
//   draw              logits   Philox, logarithms              group
//
// Registers: best, drawn: the greatest so far, its column in the low bits; least: the key of the
// least logit; 56 vector registers, 34960 bytes of LDS.
// The build defines KERNEL (its name), ELEMENT (0 float32, 1 bfloat16, 2 float16).
#include "sample/draw.h"
#include "sample/least_key.h"

namespace {

constexpr int kLanes = 1024, kEach = 4, kMostColumns = 1 << 18;

using Group = Workgroup<kLanes>;

struct Lds {
  Group::Lds group;
  uint64_t sums[kDigits];
  uint32_t seen[kMostColumns / 32];
};

struct Row {
  const SampleArgs& args;
  Local<Lds>* lds;
  Logits<ELEMENT> logits;

  __device__ __forceinline__ float logit(int column) const {
    const float x = logits.load(column);
    const bool penalty = args.tokens != 0 && (lds->seen[column / 32] >> column % 32 & 1);
    return penalty ? logits.penalised(x) : x;
  }
  // Each lane's columns, four next to each other.
  template <class Do>
  __device__ __forceinline__ void each(Do&& with) const {
    for (int base = Lane::in_workgroup() * kEach; base < args.columns; base += kLanes * kEach)
      for (int i = 0; i < kEach; ++i)
        if (base + i < args.columns) with(base + i, logit(base + i));
  }
};

__device__ __forceinline__ void sample(const SampleArgs& args, Local<Lds>* lds) {
  const int nth = __builtin_amdgcn_workgroup_id_x();
  const Row row{args, lds, {args, nth}};
  const Group group{&lds->group};
  if (args.tokens != 0) row.logits.mark<kLanes>(lds->seen, 0, args.columns);

  uint64_t best = 0;
  row.each([&](int column, float x) {
    const uint64_t own = with_column(x, column);
    if (own > best) best = own;
  });
  best = group.greatest(best);
  const uint32_t top = best >> 32;
  const bool is_drawn = args.state != 0 && top >= kLeastKey && top != key_of(kInf);
  auto* state = (Global<uint64_t>*)args.state + 2 * nth;
  if (!is_drawn) {  // nobody else reads the offset
    if (Lane::in_workgroup() != 0) return;
    ((Global<int32_t>*)args.out)[nth] = top < kLeastKey ? -1 : column_of(best);
    if (args.state != 0) state[1] += 1;
    return;
  }
  const uint64_t seed = state[0], offset = state[1];
  const Weights weights{value_of(top), args.scale};
  uint32_t least = kLeastKey;
  if (args.top_k > 0 && args.top_k < args.columns) {
    const uint32_t found = least_key(group, lds->sums, args.top_k, [&](auto&& add) {
      row.each([&](int, float x) { add(key_of(x), uint64_t(key_of(x) >= kLeastKey)); });
    });
    least = found > least ? found : least;
  }
  if (args.top_p < 1) {
    const auto part = [&](float x) { return key_of(x) < least ? 0 : weights.part(x); };
    uint64_t own = 0;
    row.each([&](int, float x) { own += part(x); });
    const uint64_t wanted = Weights::wanted(group.sum(own), args.top_p);
    const uint32_t found = least_key(group, lds->sums, wanted, [&](auto&& add) {
      row.each([&](int, float x) { add(key_of(x), part(x)); });
    });
    least = found > least ? found : least;
  }
  uint64_t drawn = 0;
  const Noise noise(seed, offset);
  int block = -1;
  u32x4 words{};
  row.each([&](int column, float x) {
    if (column / kEach != block) {
      block = column / kEach;
      words = noise.words(block);
    }
    const float log = weights.log_of(x);
    if (key_of(x) < least || !(log >= args.log_min_p)) return;
    const uint64_t one = with_column(log + Noise::of(words[column % kEach]), column);
    if (one > drawn) drawn = one;
  });
  drawn = group.greatest(drawn);
  if (Lane::in_workgroup() == 0) {
    ((Global<int32_t>*)args.out)[nth] = column_of(drawn);
    state[1] = offset + 1;
  }
}

}  // namespace

extern "C" __global__ void WORKGROUP(kLanes, 4) KERNEL(SampleArgs args) {
  __shared__ Lds lds;
  sample(args, (Local<Lds>*)&lds);
}

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)
// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {1, 0};
