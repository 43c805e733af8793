// The token of each row of logits: the greatest, or one that is drawn.
//
// A token is drawn as the greatest of its logarithm and Gumbel noise of its own, so that nothing is
// summed in any order; which ones may be is told by the least logit, found digit by digit of its
// bits: of top_k by counts, of top_p by probabilities in 2^-40. Ties of the least one all may be.
//
// The build defines KERNEL (its name), ELEMENT (0 float32, 1 bfloat16, 2 float16). Grid: x = rows.
//
//   pass              memory   vector unit                     LDS
//   tokens            tokens                                   a bit for each token so far
//   greatest          logits   penalty
//   top_k, 4 times    logits   digits of keys                  counts of digits
//   top_p, 1 + 4      logits   probabilities                   sums of digits
//   draw              logits   Philox, logarithms
#include "isa/global.h"
#include "sample/philox.h"
#include "sample/workgroup.h"
#include "tile/integers.h"
// clang-format off
#include "args/sample.h"
// clang-format on

namespace {

constexpr int kLanes = 1024, kEach = 4, kDigits = 256, kMostColumns = 1 << 18;
constexpr float kOne = 1 << 20;  // of a probability: its square is 2^40

using Group = Workgroup<kLanes>;

// Of a float32, so that greater ones have greater keys; that of no number is 0.
__device__ __forceinline__ uint32_t key_of(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  if (x != x) return 0;
  return bits ^ (int32_t(bits) < 0 ? ~0u : 1u << 31);
}
constexpr uint32_t kLeastKey = 0x00800000;  // of numbers greater than -infinity

struct Lds {
  uint64_t of_waves[Group::kWaves];
  uint64_t sums[kDigits];
  uint32_t seen[kMostColumns / 32];
};

struct Row {
  const SampleArgs& args;
  Local<Lds>* lds;
  int64_t first;

  static __device__ __forceinline__ float element(const Global<char>* base, int64_t at) {
    if constexpr (ELEMENT == 0) return ((const Global<float>*)base)[at];
    const uint16_t bits = ((const Global<uint16_t>*)base)[at];
    if constexpr (ELEMENT == 1) return __builtin_bit_cast(float, uint32_t(bits) << 16);
    return float(__builtin_bit_cast(_Float16, bits));
  }
  __device__ __forceinline__ float logit(int column) const {
    float x = element((const Global<char>*)args.logits, first + column);
    if (args.tokens != 0 && (lds->seen[column / 32] >> column % 32 & 1))
      x = x < 0 ? x * args.penalty : x / args.penalty;
    return x;
  }
  // Each lane's columns, four next to each other.
  template <class Do>
  __device__ __forceinline__ void each(Do&& with) const {
    for (int base = Lane::in_workgroup() * kEach; base < args.columns; base += kLanes * kEach)
      for (int i = 0; i < kEach; ++i)
        if (base + i < args.columns) with(base + i, logit(base + i));
  }
  __device__ __forceinline__ void mark() const {
    for (int i = Lane::in_workgroup(); i < (args.columns + 31) / 32; i += kLanes) lds->seen[i] = 0;
    Group::join();
    const auto* tokens = (const Global<int32_t>*)args.tokens +
                         __builtin_amdgcn_workgroup_id_x() * args.tokens_stride;
    for (int i = Lane::in_workgroup(); i < args.history; i += kLanes) {
      const int token = tokens[i];
      if (token >= 0 && token < args.columns)
        __atomic_fetch_or(&lds->seen[token / 32], 1u << token % 32, __ATOMIC_RELAXED);
    }
    Group::join();
  }
  // The greatest key at which what is there of it and of greater ones is `wanted` or more; `of`
  // gives what there is of a key. Digit by digit, the upper one first.
  template <class Of>
  __device__ __forceinline__ uint32_t least_key(uint64_t wanted, Of&& of) const {
    uint32_t known = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
      for (int i = Lane::in_workgroup(); i < kDigits; i += kLanes) lds->sums[i] = 0;
      Group::join();
      each([&](int, float x) {
        const uint32_t key = key_of(x);
        if (shift == 24 || key >> (shift + 8) == known >> (shift + 8))
          __atomic_fetch_add(&lds->sums[key >> shift & 255], of(x, key), __ATOMIC_RELAXED);
      });
      Group::join();
      int digit = kDigits - 1;
      for (; digit > 0; --digit) {
        const uint64_t there = lds->sums[digit];
        if (there >= wanted) break;
        wanted -= there;
      }
      known |= uint32_t(digit) << shift;
      Group::join();
    }
    return known;
  }
};

// -log2 of a number from 0 to 1 that a word stands for, also where that is nearly 1.
__device__ __forceinline__ float exponential(uint32_t word) {
  constexpr float kLog2E = 1.44269504f;
  const float rest = (float(word) + 0.5f) * 0x1p-32f;  // 1 less it
  if (rest < 0x1p-8f) return kLog2E * rest * (1 + rest * (0.5f + rest * 0.33333334f));
  return -__builtin_amdgcn_logf(1 - rest);
}

__device__ __forceinline__ void sample(const SampleArgs& args, Local<Lds>* lds) {
  const int nth = __builtin_amdgcn_workgroup_id_x();
  const Row row{args, lds, nth * args.logits_stride};
  const Group group{lds->of_waves};
  if (args.tokens != 0) row.mark();

  // Of equal ones the first.
  uint64_t best = 0;
  row.each([&](int column, float x) {
    const uint64_t own = uint64_t(key_of(x)) << 32 | uint32_t(~column);
    if (own > best) best = own;
  });
  best = group.greatest(best);
  const uint32_t top = best >> 32;
  if (top < kLeastKey) best = 0;  // none is a number greater than -infinity
  if (args.state == 0 || top < kLeastKey || top == key_of(kInf)) {
    if (Lane::in_workgroup() == 0)
      ((Global<int32_t>*)args.out)[nth] = top < kLeastKey ? -1 : int(~uint32_t(best));
  }
  if (args.state == 0) return;
  auto* state = (Global<uint64_t>*)args.state + 2 * nth;
  const uint64_t seed = state[0], offset = state[1];
  if (top >= kLeastKey && top != key_of(kInf)) {
    const float most = row.logit(int(~uint32_t(best)));
    const auto log_of = [&](float x) { return (x - most) * args.scale; };
    uint32_t least = kLeastKey;
    if (args.top_k > 0 && args.top_k < args.columns) {
      const auto one = [](float, uint32_t key) -> uint64_t { return key >= kLeastKey; };
      const uint32_t found = row.least_key(args.top_k, one);
      least = found > least ? found : least;
    }
    if (args.top_p < 1) {
      const auto part = [&](float x, uint32_t key) -> uint64_t {
        if (key < least) return 0;
        const float p = __builtin_amdgcn_exp2f(log_of(x)) * kOne;
        const uint32_t whole = p;
        return uint64_t(whole) << 20 | uint32_t((p - whole) * kOne);
      };
      uint64_t own = 0;
      row.each([&](int, float x) { own += part(x, key_of(x)); });
      const double all = group.sum(own) * double(args.top_p);
      const uint64_t wanted = all < 1 ? 1 : uint64_t(all);
      const uint32_t found = row.least_key(wanted, part);
      least = found > least ? found : least;
    }
    uint64_t drawn = 0;
    const u32x2 key{uint32_t(seed), uint32_t(seed >> 32)};
    int block = -1;
    u32x4 words{};
    row.each([&](int column, float x) {
      if (column / kEach != block) {
        block = column / kEach;
        words = philox(u32x4{uint32_t(block), 0, uint32_t(offset), uint32_t(offset >> 32)}, key);
      }
      const float log = log_of(x);
      if (key_of(x) < least || !(log >= args.log_min_p)) return;
      const float score = log - __builtin_amdgcn_logf(exponential(words[column % kEach]));
      const uint64_t one = uint64_t(key_of(score)) << 32 | uint32_t(~column);
      if (one > drawn) drawn = one;
    });
    drawn = group.greatest(drawn);
    if (Lane::in_workgroup() == 0) ((Global<int32_t>*)args.out)[nth] = int(~uint32_t(drawn));
  }
  if (Lane::in_workgroup() == 0) state[1] = offset + 1;
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
