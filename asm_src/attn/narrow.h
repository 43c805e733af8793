// Attention forward under windows of at most kMostKeys keys: few keys, many rows.
//
// A wave has 16 rows of Q of several heads that share a kv head, and all of their keys and values
// in registers (attn/narrow_keys.h). Each head is then two products with a softmax between them, of
// which the scores of whole rows are registers, too: the maximum is exact and nothing is rescaled.
// There is no LDS, no barrier and no loop over keys; a second wave on the SIMD fills the gaps.
//
// Both products are transposed as in attn/forward.h, so that P is an operand where it was computed.
// The vector instructions are those of one number: packed ones would wait for the matrix unit.
#pragma once
#include "attn/narrow_keys.h"

template <class S>
struct Narrow : NarrowKeys<S> {
  using Keys = NarrowKeys<S>;
  using Keys::args, Keys::work, Keys::share, Keys::row, Keys::group, Keys::from, Keys::to;
  using Keys::k, Keys::v, Keys::tiles, Keys::column;
  static constexpr int kTiles = S::kTiles, kTilesD = S::kTilesD, kOctets = S::kOctets;
  static constexpr bool kBf16 = S::kElement == Element::kBf16;
  // log2 of the greatest probability of a row. A bf16 then has those down to 2^-134 of it, which
  // is as far as bf16s that are at most 1 go; fp16s have all of their bits to 2^-29.
  static constexpr float kTop = kBf16 ? 8 : 15, kBelowTop = kBf16 ? 0x1p-8f : 0x1p-15f;
  static constexpr bool kTruncates = kBf16 && S::kRounding == Rounding::kTowardZero;
  // Probabilities are truncated, and raised before by what that takes on average of numbers with
  // evenly distributed logarithms, 0.72 of half a ULP: in powers of two that leave sums with kTop
  // exact, and as a factor.
  static constexpr float kLog2Raise = kBf16 ? 0x10ap-16f : 0x85p-18f;
  static constexpr float kRaise = kBf16 ? 1.002817333f : 1.000351733f;

  using Keys::Keys;

  struct Query {
    u32x4 octets[kOctets];
  };
  // Of a row: the greatest scaled score, log2 units, as two numbers, and 2^kTop times the sum of
  // the probabilities relative to it.
  struct RowState {
    float reference, rest, sum;
  };
  // What O is multiplied by, as two factors: 2^-half of what a sink is above the keys, and the
  // rest.
  struct Factor {
    float root, rest;
    __device__ __forceinline__ float all() const { return root * rest; }
  };
  static constexpr float kFarBelow = 0x1p-32f;  // of `root`: all() may be a denormal

  f32x4 score[kTiles];  // keys 4 * (l / 16) + 0..3 of row l % 16
  uint64_t careful;     // elements of each head to be computed with care
  f32x4 o[kTilesD];     // columns 16 * (l / 16) + 4 * i + d of row l % 16

  static __device__ __forceinline__ f32x4 product(u32x2 a, u32x2 b, f32x4 c) {
    if constexpr (kBf16)
      return v_mfma_f32_16x16x16_bf16(__builtin_bit_cast(bf16x4, a), __builtin_bit_cast(bf16x4, b),
                                      c);
    else
      return v_mfma_f32_16x16x16_f16(__builtin_bit_cast(f16x4, a), __builtin_bit_cast(f16x4, b), c);
  }
  static __device__ __forceinline__ bool any_lane(bool x) {
    return __builtin_expect(__builtin_amdgcn_ballot_w64(x) != 0, false);
  }
  // Which tiles mask keys of some row: the first its left end, the last one its right
  // end, or any.
  enum class Masks { kEnds, kAny, kAll };
  // Tiles that some row sees a key of.
  template <Masks kMasks>
  __device__ __forceinline__ bool used(int t) const {
    return kMasks != Masks::kAny || t < tiles;
  }
  // What the tiles have in registers, changed one by one.
  template <Masks kMasks, class F>
  __device__ __forceinline__ void for_scores(F&& f) {
    for (int t = 0; t < kTiles; ++t)
      for (int i = 0; i < 4 && used<kMasks>(t); ++i) score[t][i] = f(score[t][i]);
  }

  // ---- Q
  __device__ __forceinline__ const Global<uint16_t>* find_q() const {
    const int r = least(work.q_start + row, work.rows - 1);  // behind the last row copies of it
    return (const Global<uint16_t>*)args.q + work.batch * args.q_stride_batch +
           work.head_q * args.q_stride_head + (work.q_base + r) * args.q_stride_seq;
  }
  __device__ __forceinline__ Query load_q(const Global<uint16_t>* from) const {
    Query q;
    for (int octet = 0; octet < kOctets; ++octet)
      q.octets[octet] =
          global_load_dwordx4(from + (column(octet) < args.head_dim ? column(octet) : 0));
    return q;
  }
  // Zeros for the columns that are not there, and the sign of the scale: the greatest score must be
  // the greatest scaled one.
  __device__ __forceinline__ void prepare(Query& q) const {
    if (args.head_dim < S::kHeadDim)
      for (int octet = 0; octet < kOctets; ++octet)
        if (column(octet) >= args.head_dim) q.octets[octet] = u32x4{};
    if (args.softmax_scale_log2 < 0)
      for (auto& octet : q.octets) octet ^= 0x80008000;
  }

  // ---- Scores
  template <Masks kMasks>
  __device__ __forceinline__ void scores(const Query& q) {
    for (int t = 0; t < kTiles; ++t) {
      if (!used<kMasks>(t)) continue;
      score[t] = f32x4{};
      for (int octet = 0; octet < kOctets; ++octet)
        for (int half = 0; half < 2; ++half)
          score[t] = product(half_of(k[t][octet], half), half_of(q.octets[octet], half), score[t]);
    }
  }
  template <Masks kMasks>
  __device__ __forceinline__ void mask_scores() {
    int lower = from - 4 * group, upper = to - 4 * group;
    ordered::settle(lower);  // or all comparisons are kept over the heads, in too many SGPRs
    ordered::settle(upper);
    for (int t = 0; t < kTiles; ++t) {
      const bool left = kMasks != Masks::kEnds || t == 0,
                 right = kMasks != Masks::kEnds || t == kTiles - 1;
      for (int i = 0; i < 4 && used<kMasks>(t); ++i) {
        const int key = t * kMatrix + i;
        if (left && right)
          score[t][i] = uint32_t(key - lower) < uint32_t(upper - lower) ? score[t][i] : -kInf;
        else if (left)
          score[t][i] = key >= lower ? score[t][i] : -kInf;
        else if (right)
          score[t][i] = key < upper ? score[t][i] : -kInf;
      }
    }
  }

  // ---- Softmax
  // Over the four lanes of a row.
  static __device__ __forceinline__ float from_lane(int lane, float x) {
    return __builtin_bit_cast(float,
                              __builtin_amdgcn_ds_bpermute(4 * lane, __builtin_bit_cast(int, x)));
  }
  __device__ __forceinline__ float row_sum(float x) const {
    x += from_lane(this->lane ^ 16, x);
    return x + from_lane(this->lane ^ 32, x);
  }
  __device__ __forceinline__ float row_max(float x) const {
    x = ordered::v_max_f32(x, from_lane(this->lane ^ 16, x));
    return ordered::v_max_f32(x, from_lane(this->lane ^ 32, x));
  }
  template <Masks kMasks>
  __device__ __forceinline__ float greatest_score() const {
    float greatest = -kInf;
    for (int t = 0; t < kTiles; ++t)
      for (int i = 0; i < 4 && used<kMasks>(t); ++i) greatest = v_max_f32(greatest, score[t][i]);
    return row_max(greatest);
  }
  // Two probabilities to 16 bits: truncated, in one instruction. NaNs stay NaNs.
  static __device__ __forceinline__ uint32_t truncated(float lo, float hi) {
    if constexpr (!kBf16) return __builtin_bit_cast(uint32_t, __builtin_amdgcn_cvt_pkrtz(lo, hi));
    return ::v_perm_b32<kHighHalfOfBoth>(bits(hi), bits(lo));
  }

  // The probabilities of a tile relative to `shift`, and as the operand of the second product.
  __device__ __forceinline__ f32x4 probabilities(int t, float scale, float shift) const {
    f32x4 p;
    for (int i = 0; i < 4; ++i) p[i] = ::v_exp_f32(__builtin_fmaf(score[t][i], scale, shift));
    return p;
  }
  // O, and the sum of the probabilities before they are truncated.
  template <Masks kMasks>
  __device__ __forceinline__ float output(float scale, float shift) {
    float sum = 0;
    for (auto& x : o) x = f32x4{};
    for (int t = 0; t < kTiles; ++t) {
      if (!used<kMasks>(t)) continue;
      const f32x4 x = probabilities(t, scale, shift);
      for (int i = 0; i < 4; ++i) sum += x[i];
      const u32x2 p = {truncated(x[0], x[1]), truncated(x[2], x[3])};
      for (int d = 0; d < kTilesD; ++d) o[d] = product(v[t][d], p, o[d]);
    }
    return row_sum(sum) * (1 / kRaise);
  }

  // ---- The end of a head
  // The sink's share of the sum, and what the keys' probabilities are relative to it. Of a sink far
  // above them, 2^-distance would be flushed to 0 while its product with V counts.
  __device__ __forceinline__ Factor add_sink(const Sink& sink, RowState& of, float top) const {
    const float distance = __builtin_fminf(sink.log2 - of.reference + (sink.rest - of.rest),
                                           kGreatestFloat);  // no NaN
    const bool is_above = sink.log2 >= of.reference;
    const float above = is_above ? distance : 0;
    const float root = ::v_exp_f32(-0.5f * above);
    float weight = ::v_exp_f32(distance - above + top);
    if (!(sink.natural <= kGreatestFloat)) weight = __builtin_nanf("");
    of.sum = of.sum * root * root + weight;
    if (is_above) of.reference = sink.log2;
    return {root, root * v_rcp_f32(of.sum)};
  }
  // A row with one key gets its V, and not what is next to it toward zero: its probability is 1 but
  // for the rounding of the reference.
  static constexpr float kNudge = kTruncates ? 1 + 0x1p-16f : 1;

  __device__ __forceinline__ Factor factor(const Sink& sink, RowState& of, float top) const {
    const bool has_keys = of.sum != 0;  // or NaN
    Factor by{1, v_rcp_f32(of.sum)};
    if (args.sinks != 0) by = add_sink(sink, of, top);
    by.rest = has_keys ? by.rest * kNudge : 0;
    return by;
  }
  // One bit an element that is not finite: what is stored for it is to be replaced.
  __device__ __forceinline__ uint32_t store(int head, float by, Query& next) {
    uint32_t out[8];
    float probe = by;  // not finite where an element is not, or where two are huge
    for (int n = 0; n < 8; ++n) {
      const float lo = o[n % 2 * 2][n / 2] * by, hi = o[n % 2 * 2 + 1][n / 2] * by;
      probe = __builtin_fmaf(lo, hi, probe);
      out[n] = round_numbers(lo, hi);
    }
    uint32_t not_finite = 0;
    if (any_lane(!(__builtin_fabsf(probe) < kInf)))
      for (int c = 0; c < 16; ++c) not_finite |= uint32_t(!is_finite(o[c % 4][c / 4] * by)) << c;
    // Arrives before the stores are under way: a wait behind them would be for them, too.
    for (auto& octet : next.octets) ordered::settle(octet);
    auto* to = first_column(head);
    const int columns = num_columns();
    if (columns > 0) global_store_dwordx4(to, u32x4{out[0], out[1], out[2], out[3]});
    if (columns > 8) global_store_dwordx4(to + 8, u32x4{out[4], out[5], out[6], out[7]});
    return not_finite;
  }
  static __device__ __forceinline__ bool is_finite(float x) { return __builtin_fabsf(x) < kInf; }
  // That there are from the lane's first one on. Settled, or conditions that need them are kept
  // over the heads, in too many SGPRs.
  __device__ __forceinline__ int num_columns() const {
    int first = work.q_start + row < work.rows ? 16 * group : S::kHeadDim;
    ordered::settle(first);
    return args.head_dim_v - first;
  }
  __device__ __forceinline__ Global<uint16_t>* first_column(int head) const {
    return output_row(args, work, work.q_start + row) + head * args.o_stride_head + 16 * group;
  }
  __device__ __forceinline__ void store_lse(int head, float of_head, const RowState& of) const {
    // Arguments are read where they are needed: there are few SGPRs.
    auto* from = read_again((Arguments*)__builtin_amdgcn_kernarg_segment_ptr());
    if (work.q_start + row >= work.rows || group != 0) return;
    ordered::settle(of_head);  // nothing of the sink is kept in registers: there are few
    const Sink sink(of_head, from->log2_rest);
    const bool is_sink = args.sinks != 0 && of.reference == sink.log2;
    const float sum = of.sum * kBelowTop;
    lse_of_rows(*from, work)[head * from->lse_stride_head + work.q_start + row] =
        is_sink && sum != 0 ? sink.natural + v_log_f32(sum) * kLn2
                            : natural_log_sum_exp(of.reference, of.rest, sum, from->log2_rest);
  }
  // As if there were no NaN.
  static __device__ __forceinline__ uint32_t round_numbers(float lo, float hi) {
    if constexpr (!kBf16) return round_pair<S::kElement, S::kRounding>(lo, hi);
    return ::v_perm_b32<kHighHalfOfBoth>(round_bf16_number<S::kRounding>(hi),
                                         round_bf16_number<S::kRounding>(lo));
  }

  // Some elements of a head, with care. Where the scale is 0, or products with it so large that
  // their rounding is a factor of the probabilities that counts, the scores become relative to the
  // greatest first. Where sums with V overflow, probabilities that are small enough find out what
  // is finite.
  static constexpr float kFineProduct = kTruncates ? 0x1p7f : 0x1p16f;
  __device__ __forceinline__ void head_carefully(int head, Query q, uint32_t which) {
    const Sink sink(sink_of(head), args.log2_rest);
    constexpr Masks kMasks = Masks::kAll;
    const bool is_whole = which == kWholeRow;
    prepare(q);
    scores<kMasks>(q);
    float scale = __builtin_fabsf(args.softmax_scale_log2);
    if (scale == 0) {  // times infinity it is NaN, but not for keys that are hidden
      for_scores<kMasks>([](float x) { return x * 0; });
      scale = 1;
    }
    mask_scores<kMasks>();
    const float greatest = greatest_score<kMasks>();
    const float base = greatest == -kInf ? 0 : greatest;
    for_scores<kMasks>([&](float x) { return x - base; });
    auto* first = first_column(head);
#pragma clang loop unroll(disable)
    for (int pass = 0; pass < (kBf16 ? 2 : 1); ++pass) {
      const float top = pass == 0 ? kTop : kSmallTop;
      const int columns = num_columns();
      const float sum = output<kMasks>(scale, top + kLog2Raise);
      RowState of{-kInf, 0, sum};
      if (greatest != -kInf) {
        of.reference = greatest * scale;
        of.rest = __builtin_fmaf(greatest, scale, -of.reference);
      }
      const Factor by = factor(sink, of, top);
      for (int c = 0; c < 16; ++c) {
        float x = o[c % 4][c / 4] * by.root * by.rest;
        if (by.rest != by.rest) x = by.rest;  // of two NaNs the row's
        if (from >= to) x = 0;                // sees no key
        const bool wanted = (which >> c & 1) != 0 && (pass == 0 || x == x);
        if (is_finite(x)) which &= ~(1u << c);
        if (wanted && c < columns) first[c] = round_pair<S::kElement, S::kRounding>(x, x);
      }
      if (args.lse != 0 && pass == 0 && is_whole) store_lse(head, sink.natural, of);
    }
  }
  static constexpr uint32_t kWholeRow = 0xffff;  // of the lane's elements
  static constexpr float kSmallTop = -64;

  __device__ __forceinline__ float sink_of(int head) const {
    return args.sinks == 0 ? -kInf : ((Constant<float>*)args.sinks)[work.head_q + head];
  }

  template <Masks kMasks>
  __device__ __forceinline__ void heads(Query q, const Global<uint16_t>* from_q, float sink) {
    careful = 0;
    for (int head = 0;;) {
      prepare(q);
      scores<kMasks>(q);
      from_q += args.q_stride_head;
      const int next = head + 1;
      const bool last = next >> share.heads_log2 != 0;
      const float of_head = sink;
      if (!last) {
        q = load_q(from_q);
        sink = sink_of(next);
      }
      mask_scores<kMasks>();
      const float scale = __builtin_fabsf(args.softmax_scale_log2);
      const float greatest = greatest_score<kMasks>();
      const float reference = greatest * scale;
      const float shift = kTop + kLog2Raise - (greatest == -kInf ? 0 : reference);
      const float sum = output<kMasks>(scale, shift);
      // As it was rounded.
      RowState of{greatest == -kInf ? -kInf : kTop + kLog2Raise - shift, 0, sum};
      const Sink its_sink(of_head, args.log2_rest);
      const Factor by = factor(its_sink, of, kTop);
      uint32_t which = store(head, by.all(), q);
      if (args.lse != 0) store_lse(head, of_head, of);
      if (greatest != -kInf && !(__builtin_fabsf(reference) < kFineProduct && by.root > kFarBelow))
        which = kWholeRow;
      careful |= uint64_t(which) << 16 * head;
      head = next;
      if (last) break;
    }
  }

  // All heads. Returns one bit for each element of the lane that is to be computed with care, 16 a
  // head.
  __device__ __forceinline__ uint64_t operator()() {
    if (work.q_start >= work.rows) return 0;
    const auto* from_q = find_q();
    const Query q = load_q(from_q);
    const float sink = sink_of(0);
    this->load();
    if (this->masked_at_ends())
      heads<Masks::kEnds>(q, from_q, sink);
    else
      heads<Masks::kAny>(q, from_q, sink);
    return args.softmax_scale_log2 == 0 ? ~uint64_t(0) : careful;
  }
  __device__ __forceinline__ void carefully(uint64_t which) {
    const auto* from_q = find_q();
#pragma clang loop unroll(disable)
    for (int head = 0; head >> share.heads_log2 == 0; ++head, which >>= 16) {
      this->load();  // for each anew: there are few registers
      head_carefully(head, load_q(from_q + head * args.q_stride_head), uint32_t(which) & 0xffff);
    }
  }
};
