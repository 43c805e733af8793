// Keys of a sequence, and divisions of numbers of them.
#pragma once
#include "cache/indices.h"
#include "decode/arguments.h"
#include "isa/ordered.h"
#include "isa/valu.h"
#include "tile/integers.h"
#include "tile/operand.h"

// Of numbers that are not negative: shorter than that of signed ones.
__device__ __forceinline__ int quotient(int a, int b) { return uint32_t(a) / uint32_t(b); }

// The same of a dividend below 2^21, by fewer instructions: the quotient is off an integer by more
// than what rounding adds.
__device__ __forceinline__ int small_quotient(int a, int b) {
  return uniform(int((float(a) + 0.5f) * v_rcp_f32(float(b))));
}

// A divisor that is the same in all lanes, and what can be known before the dividend.
class Divisor {
 public:
  __device__ __forceinline__ explicit Divisor(int by) : by_(by) {
    constexpr float kBelow = 0x1.fffffcp31f;  // 2^32 less what rounding may add
    inverse_ = uniform(uint32_t(v_rcp_f32(float(by_)) * kBelow));
    inverse_ = uniform(inverse_ + mul_hi(inverse_, -by_ * inverse_));
    ordered::settle_uniform(inverse_);  // here, not where it is used
  }
  // The same as `quotient`.
  __device__ __forceinline__ int of(int a) const {
    uint32_t q = mul_hi(a, inverse_), rest = a - q * by_;
    for (int i = 0; i < 2; ++i) {
      const bool is_more = rest >= by_;
      q += is_more;
      rest -= is_more ? by_ : 0;
    }
    return q;
  }

 private:
  static __device__ __forceinline__ uint32_t mul_hi(uint32_t a, uint32_t b) {
    return uint64_t(a) * b >> 32;
  }
  uint32_t by_, inverse_;
};

// Keys of a sequence.
struct Length : Keys {
  int first;  // that any query sees, or that is appended

  Length() = default;
  // From arguments in memory or in registers, `is_paged`: in pages.
  template <class Of>
  __device__ __forceinline__ Length(Of& args, bool is_paged, int given, int left_pad)
      : Keys(is_within(given, args.max_seqlen - args.seqlen_new + 1), given, args.seqlen_new,
             left_pad, args.seqlen_q, args.window_left) {
    first = max_of(seen, 0);
    if (args.seqlen_new > 0) first = min_of(first, old);
    // The 16 keys of a matrix instruction are of one page.
    if (is_paged) first &= -kMatrix;
  }
  template <int kTileKeys>
  __device__ __forceinline__ int tiles() const {
    return max_of((all - first + kTileKeys - 1) / kTileKeys, 1);
  }
};

__device__ __forceinline__ Length uniform(Length x) {
  x.old = uniform(x.old);
  x.all = uniform(x.all);
  x.seen = uniform(x.seen);
  x.first = uniform(x.first);
  return x;
}

// Of one sequence that is the same in all lanes.
__device__ __forceinline__ Length length_of(Arguments& args, int b) {
  const int given =
      args.cache_seqlens ? ((Constant<int32_t>*)args.cache_seqlens)[b] : args.max_seqlen;
  const int pad = args.cache_leftpad ? ((Constant<int32_t>*)args.cache_leftpad)[b] : 0;
  return uniform(Length(args, args.block_table != 0, given, pad));
}
