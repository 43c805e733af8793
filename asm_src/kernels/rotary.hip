// Rotary embedding of x and, if given, k: pairs of columns of each head are rotated by the angle of
// their token's position, in float32, rounded once to nearest even; the other columns are copied. A
// position outside the tables makes the rotated columns NaN and is reported. Before that, heads may
// be RMS-normalised with weights.
//
// Workgroup: 4 waves, all of x or all of k. A lane has 8 pairs of a token, or 16 columns to copy,
// of HEADS heads one after the other; if these numbers do not divide the columns, one pair or two
// columns. It reads the angles once for all of its heads.
// Grid: x = ceil(lanes of x / lanes) + ceil(lanes of k / lanes).
//
//   phase    memory                 vector unit
//   load     heads; cos, sin        token, group of heads and columns of the lane
//   norm     weights                squares over the lanes of a head: HeadNorm
//   store    heads                  rotate, round
//
// Registers: pieces[HEADS], both halves of the pairs; turn, their angles; norm, the weights; 44 to
// 80 vector registers, no LDS, no barrier.
//
// The build defines KERNEL (its name), ELEMENT, HEADS, NORM (whether heads are normalised),
// PARAMETERS and ARGUMENTS (of the struct).
#include "cache/indices.h"
#include "elementwise/head_norm.h"
#include "elementwise/quotient.h"
// clang-format off
#include "args/rotary.h"
// clang-format on

namespace {

constexpr Element kElement = Element::ELEMENT;
constexpr int kLanes = 256, kHeads = HEADS, kMostPairs = 8;
constexpr bool kNorm = NORM;
enum RotaryFlag { kNeighbours = 1, kFloat32 = 2, kGiven = 4, kOfTokens = 8, kApart = 16 };

// Loads by scalars have come; where they are waited for otherwise the compiler decides, and that is
// before the loads of x, which take none.
__device__ __forceinline__ void wait_for_scalars() { __builtin_amdgcn_s_waitcnt(0xc07f); }

using Late = Constant<RotaryArgs>*;
__device__ __forceinline__ Late arguments() { return (Late)__builtin_amdgcn_kernarg_segment_ptr(); }

// Where results go; of x and k at the same places of 8 dwords each.
struct Results {
  uint64_t to;
  int batch, seq, head, from_batch;
  // Behind the loads of a lane, so that these do not wait for it; it comes with them.
  static __device__ __forceinline__ Constant<Results>* of(bool of_k) {
    constexpr int kFirst = __builtin_offsetof(RotaryArgs, x_out), kBytes = 32;
    static_assert(__builtin_offsetof(RotaryArgs, k_out) == kFirst + kBytes);
    static_assert(__builtin_offsetof(RotaryArgs, k_batch) == kFirst + kBytes + 20);
    return (Constant<Results>*)(uint64_t(arguments()) + kFirst + (of_k ? kBytes : 0));
  }
};

// x or k: of all lanes of a workgroup the same one.
struct Array {
  uint64_t from;
  int seq, head, items;
  uint32_t factor, facts;
  bool of_k;
  __device__ __forceinline__ int heads() const { return facts >> 16; }
};

// That heads are multiplied by; 0: they are not normalised.
__device__ __forceinline__ uint64_t weights_of(bool of_k) {
  if constexpr (!kNorm) return 0;
  return of_k ? arguments()->k_norm : arguments()->x_norm;
}

// How the columns of a head are shared.
struct Shares {
  int half, turned, own, of_head;  // lanes whose columns are turned, with columns, and all lanes
  __device__ __forceinline__ Shares(uint32_t dims, int pairs)
      : half((dims & 0xffff) / 2), turned(half / pairs), own((dims >> 16) / (2 * pairs)) {
    // Of a power of two none is in two waves.
    of_head = kNorm ? 1 << (31 - __builtin_clz(2 * own - 1)) : own;
  }
};

// n / d, of numbers below 2^21.
__device__ __forceinline__ uint32_t small_quotient(uint32_t n, uint32_t d) {
  return uint32_t((float(n) + 0.5f) * v_rcp_f32(float(d)));
}

template <int kPairs, bool kAreNeighbours, bool kWide>
__device__ __forceinline__ void run(const RotaryArgs& args, const Array& array, uint32_t i) {
  using Pieces = Both<kElement, kWide, kPairs>;
  const Shares shares(args.dims, kPairs);
  const int of_token = (array.heads() + kHeads - 1) / kHeads * shares.of_head;
  const uint32_t token = quotient(i, array.factor, array.facts & 0xffff);
  const uint32_t rest = i - token * of_token, group = small_quotient(rest, shares.of_head);
  const int first = group * kHeads, lane = rest - group * shares.of_head;
  // A lane without columns reads those of the first one.
  const bool has_columns = !kNorm || lane < shares.own;
  const int nth = has_columns ? lane : 0;
  // The columns of both pieces.
  const bool is_turned = nth < shares.turned;
  const bool halves = is_turned && !kAreNeighbours;
  const int one = halves ? nth * kPairs : nth * 2 * kPairs;
  const int other = one + (halves ? shares.half : kPairs);
  // Of one sequence nothing is waited for here.
  uint32_t b = 0, s = token;
  if (args.seqlen != 0) {
    b = quotient(token, arguments()->batch_factor, args.flags >> 16);
    s = token - b * args.seqlen;
  }
  int64_t of_from = int64_t(int(token)) * array.seq;
  if (args.flags & kApart) {
    of_from = int64_t(int(b)) * Results::of(array.of_k)->from_batch + int64_t(int(s)) * array.seq;
  }
  const auto* from = (const Global<uint16_t>*)array.from + of_from;
  Pieces pieces[kHeads];
  for (int h = 0; h < kHeads; ++h) {
    // A head too many is the last one of this lane again, which it reads before it writes any.
    const int known = first + h < array.heads() ? first + h : array.heads() - 1;
    const auto* head = from + int64_t(known) * array.head;
    pieces[h].one = Part<kPairs>::load(head + one);
    pieces[h].other = Part<kPairs>::load(head + other);
  }
  int position = s;
  bool is_there = true;
  if (args.flags & kGiven) {
    const Late late = arguments();
    const auto* positions = (const Global<int32_t>*)late->positions;
    const int given =
        positions[int64_t(int(b)) * late->positions_batch + int64_t(int(s)) * late->positions_seq];
    // As whole numbers without signs none wraps to one that is there.
    const uint32_t sum = uint32_t(given) + (args.flags & kOfTokens ? 0 : s);
    is_there = given >= 0 && sum < uint32_t(late->table_rows);
    position = is_there ? sum : 0;
    if (!is_there) report_index();
  }
  // Of columns that are copied some angles, which nothing is turned by.
  const int at = is_turned ? nth * kPairs : 0;
  Turn<kElement, kWide, kPairs> turn(args.cos, args.sin, int64_t(position) * shares.half + at);
  if (!is_there) turn.lose();
  const uint64_t weights = weights_of(array.of_k);
  HeadNorm<kElement, kWide, kPairs> norm;
  if (weights) norm.load(weights, one, other);
  const auto* results = Results::of(array.of_k);
  if (!is_turned && array.from == results->to && !weights) return;
  auto* to = (Global<uint16_t>*)results->to + int64_t(int(b)) * results->batch +
             int64_t(int(s)) * results->seq;
  for (int h = 0; h < kHeads; ++h) {
    if (first + h >= array.heads()) break;
    if (weights) {
      norm.measure(pieces[h], has_columns, shares.of_head, args.dims >> 16, arguments()->norm_eps);
      if (is_turned)
        pieces[h].template turn<kAreNeighbours>(turn, norm);
      else
        norm.apply(pieces[h]);
    } else if (is_turned) {
      pieces[h].template turn<kAreNeighbours>(turn);
    }
    if (!has_columns) continue;
    auto* head = to + int64_t(first + h) * results->head;
    pieces[h].one.store(head + one);
    pieces[h].other.store(head + other);
  }
}

template <int kPairs, bool kAreNeighbours>
__device__ __forceinline__ void run(const RotaryArgs& args, const Array& array, uint32_t i) {
  if (args.flags & kFloat32)
    run<kPairs, kAreNeighbours, true>(args, array, i);
  else
    run<kPairs, kAreNeighbours, false>(args, array, i);
}

template <int kPairs>
__device__ __forceinline__ void run(const RotaryArgs& args, const Array& array, uint32_t i) {
  if (args.flags & kNeighbours)
    run<kPairs, true>(args, array, i);
  else
    run<kPairs, false>(args, array, i);
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, kHeads > 2 ? 2 : 4) KERNEL(PARAMETERS) {
  const RotaryArgs args{ARGUMENTS};
  const int of_x = (args.x_items + kLanes - 1) / kLanes;
  int workgroup = __builtin_amdgcn_workgroup_id_x();
  const bool of_k = workgroup >= of_x;
  Array array{args.x, args.x_seq, args.x_head, args.x_items, args.x_factor, args.x_facts, of_k};
  if (of_k) {
    const Late late = arguments();
    workgroup -= of_x;
    array = {late->k,        late->k_seq,   late->k_head, late->k_items,
             late->k_factor, late->k_facts, of_k};
    wait_for_scalars();
  }
  const uint32_t i = workgroup * kLanes + Lane::in_workgroup();
  if (i >= uint32_t(array.items)) return;
  if ((args.dims & (2 * kMostPairs - 1) * 0x10001) == 0)
    run<kMostPairs>(args, array, i);
  else
    run<1>(args, array, i);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kLanes, 0};
