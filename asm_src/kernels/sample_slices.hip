// out[row] = the token of a row of logits, by several workgroups per row: sample.hip, bit for bit.
//
// Workgroup: 4 waves, a slice of 1024 columns in registers, four per lane. The greatest logit, or a
// draw among all tokens, takes one launch; min_p takes a second, top_k and top_p a third. Grid: x =
// slices of a row, y = rows.
//
//   phase   each workgroup                               the last one of a row to arrive
//   0       its greatest logit; for a draw among all,    the greatest; the draw, or empty bins of
//           logarithm + noise, up to rounding            logarithms
//   1       counts and sums of bins
//   2       the bin of the least logit; draws among      the least logit of the list, draws of it;
//           greater bins, lists its own                  the result
//
// Registers: x[4], the lane's logits; 54 vector registers. LDS: struct Lds, 18624 bytes of LDS:
// group (over waves), seen, and a union of mass and count of bins with a copy of the list.
//
// The build defines KERNEL (its name), ELEMENT (0 float32, 1 bfloat16, 2 float16).
#include "sample/bins.h"
#include "sample/least_key.h"

namespace {

constexpr int kLanes = 256, kEach = 4, kColumns = kLanes * kEach;
constexpr int kCopied = 2048;  // of a list
// Scores that differ by more than rounding: 2^-13 at most, of logarithms down to -114.
constexpr float kApart = 0x1p-12f;
constexpr uint32_t kNone = ~0u, kSeveral = ~0u - 1;  // instead of a column

using Group = Workgroup<kLanes>;

struct Lds {
  Group::Lds group;
  int is_last, several;
  uint64_t listed;
  uint32_t seen[kColumns / 32];
  uint64_t sums[kDigits];
  union {
    struct {
      uint64_t mass[kBins];
      uint32_t count[kBins];
    };
    u32x2 list[kCopied];
    int of_several[kLanes];
  };
};

struct Slices {
  const SampleArgs& args;
  Local<Lds>* lds;
  Logits<ELEMENT> logits;
  Group group;
  Meeting<kLanes> meeting;
  Global<SharedOfRow>* shared;
  Global<u32x2>* list;  // of logits and columns, as long as the row
  float x[kEach];       // of the slice; NaN where there is no column
  int first;            // the lane's first column

  // A slice of the row; its own one first.
  __device__ __forceinline__ void load(int slice) {
    first = slice * kColumns + Lane::in_workgroup() * kEach;
    logits.load(x, first);
    if (args.tokens == 0) return;
    logits.mark<kLanes>(lds->seen, slice * kColumns, kColumns);
    const uint32_t seen = lds->seen[Lane::in_workgroup() / 8] >> Lane::in_workgroup() % 8 * kEach;
#pragma clang loop unroll(full)
    for (int i = 0; i < kEach; ++i)
      if (seen >> i & 1) x[i] = logits.penalised(x[i]);
  }
  __device__ __forceinline__ uint64_t greatest_of_own() const {
    uint64_t best = 0;
#pragma clang loop unroll(full)
    for (int i = 0; i < kEach; ++i) {
      const uint64_t own = with_column(x[i], first + i);
      if (own > best) best = own;
    }
    return best;
  }
  __device__ __forceinline__ Global<uint64_t>* state() const {
    return (Global<uint64_t>*)args.state + 2 * logits.row;
  }
  __device__ __forceinline__ void put(uint32_t top, uint64_t best) const {
    if (Lane::in_workgroup() == 0)
      ((Global<int32_t>*)args.out)[logits.row] = top < kLeastKey ? -1 : column_of(best);
  }
  static __device__ __forceinline__ bool is_drawn(uint32_t top) {
    return top >= kLeastKey && top != key_of(kInf);
  }
  __device__ __forceinline__ bool is_own(int i) const { return first + i < args.columns; }

  // ---- Phase 0
  __device__ __forceinline__ void greatest() {
    load(meeting.slice);
    const uint64_t own = group.greatest(greatest_of_own());
    const bool draws = args.state != 0, limits = args.shared != 0;
    const Noise noise = draws ? Noise(state()[0], state()[1]) : Noise(0, 0);
    if (draws && !limits && is_drawn(own >> 32)) {
      nominate(own, noise);
    } else {
      uint32_t least = ~0u;
      if (limits) {
#pragma clang loop unroll(full)
        for (int i = 0; i < kEach; ++i)
          if (key_of(x[i]) >= kLeastKey && key_of(x[i]) < least) least = key_of(x[i]);
        least = ~uint32_t(group.greatest(~least));
      }
      if (Lane::in_workgroup() == 0) meeting.store(own, u32x2{least, kNone});
    }
    const uint64_t counter = args.counters + logits.row * 8;
    if (!meeting.template arrive<true>(counter, args.generation)) return;
    if (Lane::in_workgroup() == 0) ordered::global_store_dwordx2_sc1(counter, 0, 0);

    const int nth = Lane::in_workgroup();
    const Partial its = nth < meeting.slices ? meeting.partial(nth) : Partial{0, {~0u, kNone}};
    const uint64_t best = group.greatest(its.best);
    const uint32_t top = best >> 32;
    if (!draws || !is_drawn(top)) put(top, best);
    if (!draws) return;
    if (limits) {
      const uint32_t least = ~uint32_t(group.greatest(uint32_t(~its.rest[0])));
      begin(best, least);
      if (is_drawn(top)) return;
    } else if (is_drawn(top)) {
      put(top, drawn_of(its, nth, {value_of(top), args.scale}, noise));
    }
    next(noise);
  }
  // By the last workgroup of a row, of which all have read the offset before they arrived.
  __device__ __forceinline__ void next(const Noise& noise) const {
    if (Lane::in_workgroup() == 0)
      state()[1] = (uint64_t(noise.offset[1]) << 32 | noise.offset[0]) + 1;
  }
  // Who of the slice would be drawn, as far as rounding tells: scores are of the greatest of the
  // row in the end, of which the slice knows no more than its own.
  __device__ __forceinline__ void nominate(uint64_t own, const Noise& noise) {
    const Weights weights{value_of(own >> 32), args.scale};
    const u32x4 words = noise.words(first / kEach);
    float score[kEach];
    uint64_t best = 0;
#pragma clang loop unroll(full)
    for (int i = 0; i < kEach; ++i) {
      score[i] = key_of(x[i]) < kLeastKey ? -kInf : weights.log_of(x[i]) + Noise::of(words[i]);
      const uint64_t one = with_column(score[i], first + i);
      if (is_own(i) && one > best) best = one;
    }
    if (Lane::in_workgroup() == 0) lds->several = 0;
    best = group.greatest(best);
    const float least = value_of(best >> 32) - kApart;
    int near = 0;
#pragma clang loop unroll(full)
    for (int i = 0; i < kEach; ++i) near += score[i] >= least;
    if (near) __atomic_fetch_add(&lds->several, near, __ATOMIC_RELAXED);
    group.join();
    const uint32_t column = column_of(best);
#pragma clang loop unroll(full)
    for (int i = 0; i < kEach; ++i)
      if (first + i == int(column))
        meeting.store(
            own, u32x2{__builtin_bit_cast(uint32_t, x[i]), lds->several > 1 ? kSeveral : column});
  }
  __device__ __forceinline__ uint64_t drawn_of(const Partial& its, int nth, const Weights& weights,
                                               const Noise& noise) {
    uint64_t best = 0;
    const uint32_t bits = its.rest[0], column = its.rest[1];
    if (column < kSeveral) best = score(__builtin_bit_cast(float, bits), column, weights, noise);
    if (Lane::in_workgroup() == 0) lds->several = 0;
    group.join();
    if (column == kSeveral)
      lds->of_several[__atomic_fetch_add(&lds->several, 1, __ATOMIC_RELAXED)] = nth;
    group.join();
    for (int s = 0; s < uniform(lds->several); ++s) {
      load(uniform(lds->of_several[s]));
      best = drawn_of_slice(best, weights, noise, [](int) { return true; });
    }
    return group.greatest(best);
  }

  // ---- Draws
  __device__ __forceinline__ uint64_t score(float value, int column, const Weights& weights,
                                            const Noise& noise) const {
    const float log = weights.log_of(value);
    if (key_of(value) < kLeastKey || !(log >= args.log_min_p)) return 0;
    const u32x4 words = noise.words(column / kEach);
    const uint32_t low = column & 1 ? words[1] : words[0], high = column & 1 ? words[3] : words[2];
    return with_column(log + Noise::of(column & 2 ? high : low), column);
  }
  // The best of `best` and those of the lane for which `may` holds.
  template <class May>
  __device__ __forceinline__ uint64_t drawn_of_slice(uint64_t best, const Weights& weights,
                                                     const Noise& noise, May&& may) const {
    const u32x4 words = noise.words(first / kEach);
#pragma clang loop unroll(full)
    for (int i = 0; i < kEach; ++i) {
      const float log = weights.log_of(x[i]);
      if (key_of(x[i]) < kLeastKey || !(log >= args.log_min_p) || !may(i)) continue;
      const uint64_t one = with_column(log + Noise::of(words[i]), first + i);
      if (one > best) best = one;
    }
    return best;
  }

  // ---- Between launches
  __device__ __forceinline__ void begin(uint64_t best, uint32_t least) {
    for (int i = Lane::in_workgroup(); i < kBins; i += kLanes) {
      shared->mass[i] = 0;
      shared->count[i] = 0;
    }
    if (Lane::in_workgroup() != 0) return;
    const float log = Weights{value_of(best >> 32), args.scale}.log_of(value_of(least));
    const float reach = __builtin_fminf(kReach, __builtin_fmaxf(-log, 0x1p-60f));
    shared->best = best;
    shared->bins = kBins / reach;
    shared->listed = 0;
    shared->arrivals = 0;
  }
  __device__ __forceinline__ Bins bins() const {
    return {{value_of(shared->best >> 32), args.scale}, shared->bins};
  }

  // ---- Phase 1
  __device__ __forceinline__ void count() {
    if (!is_drawn(shared->best >> 32)) return;
    const Bins bins = this->bins();
    for (int i = Lane::in_workgroup(); i < kBins; i += kLanes) {
      lds->mass[i] = 0;
      lds->count[i] = 0;
    }
    group.join();
    load(meeting.slice);
#pragma clang loop unroll(full)
    for (int i = 0; i < kEach; ++i) {
      const int bin = bins.of(x[i]);
      if (bin >= kBins) continue;
      __atomic_fetch_add(&lds->count[bin], 1, __ATOMIC_RELAXED);
      if (args.top_p < 1)
        __atomic_fetch_add(&lds->mass[bin], bins.weights.part(x[i]), __ATOMIC_RELAXED);
    }
    group.join();
    for (int i = Lane::in_workgroup(); i < kBins; i += kLanes) {
      const uint32_t count = lds->count[i];
      if (count == 0) continue;
      __scoped_atomic_fetch_add(&shared->count[i], count, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
      if (args.top_p < 1)
        __scoped_atomic_fetch_add(&shared->mass[i], lds->mass[i], __ATOMIC_RELAXED,
                                  __MEMORY_SCOPE_DEVICE);
    }
  }

  // ---- Phase 2
  __device__ __forceinline__ void draw() {
    const uint64_t best = shared->best;
    if (!is_drawn(best >> 32)) return;
    const Bins bins = this->bins();
    const Noise noise(state()[0], state()[1]);
    load(meeting.slice);
    Boundaries edge;
    edge.find(args, group, shared);
    uint64_t own = drawn_of_slice(0, bins.weights, noise, [&](int i) {
      return edge.sure == kBins || bins.of(x[i]) < edge.sure;
    });
    list_own(bins, edge);
    own = group.greatest(own);
    if (Lane::in_workgroup() == 0) meeting.store(own, u32x2{0, kNone});
    if (!meeting.template arrive<false>((uint64_t)&shared->arrivals)) return;

    const int nth = Lane::in_workgroup();
    own = nth < meeting.slices ? meeting.partial(nth).best : 0;
    const uint64_t of_list = edge.sure == kBins ? 0 : drawn_of_list(bins, edge, noise);
    put(kLeastKey, group.greatest(own > of_list ? own : of_list));
    next(noise);
  }
  __device__ __forceinline__ void list_own(const Bins& bins, const Boundaries& edge) const {
    if (edge.sure == kBins) return;
    if (Lane::in_workgroup() == 0) lds->several = 0;
    group.join();
    int place = 0, count = 0;
#pragma clang loop unroll(full)
    for (int i = 0; i < kEach; ++i) count += edge.tells(bins.of(x[i]));
    if (count) place = __atomic_fetch_add(&lds->several, count, __ATOMIC_RELAXED);
    group.join();
    const int all = uniform(lds->several);
    if (all == 0) return;
    if (Lane::in_workgroup() == 0) {
      uint64_t before;
      ordered::global_atomic_add_x2_return(before, (uint64_t)&shared->listed, 0, all);
      ordered::s_waitcnt<0, ordered::kAnyLgkm>();
      ordered::settle(before);
      lds->listed = before;
    }
    group.join();
    uint64_t at = lds->listed + place;
#pragma clang loop unroll(full)
    for (int i = 0; i < kEach; ++i) {
      if (!edge.tells(bins.of(x[i]))) continue;
      const uint64_t entry = uint64_t(first + i) << 32 | __builtin_bit_cast(uint32_t, x[i]);
      ordered::global_store_dwordx2_sc1((uint64_t)list, uint32_t(at) * 8, entry);
      ++at;
    }
  }
  // `with` logits and columns of the list, of which LDS has a copy if there is room.
  template <class With>
  __device__ __forceinline__ void each_listed(int listed, With&& with) const {
    for (int i = Lane::in_workgroup(); i < listed; i += kLanes) {
      const u32x2 entry = listed <= kCopied ? u32x2(lds->list[i]) : u32x2(list[i]);
      const uint32_t bits = entry[0];
      with(__builtin_bit_cast(float, bits), int(entry[1]));
    }
  }
  __device__ __forceinline__ uint64_t drawn_of_list(const Bins& bins, const Boundaries& edge,
                                                    const Noise& noise) {
    uint64_t all;
    ordered::global_load_dwordx2_sc1(all, (uint64_t)&shared->listed, 0);
    ordered::s_waitcnt<0, ordered::kAnyLgkm>();
    ordered::settle(all);
    const int listed = uniform(int(all));
    if (listed <= kCopied)
      for (int i = Lane::in_workgroup(); i < listed; i += kLanes) lds->list[i] = list[i];
    group.join();
    const auto each = [&](auto&& with) { each_listed(listed, with); };
    uint32_t least = kLeastKey;
    if (edge.of_k < kBins)
      least = least_key(group, lds->sums, edge.k_left, [&](auto&& add) {
        each([&](float x, int) { add(key_of(x), uint64_t(bins.of(x) == edge.of_k)); });
      });
    if (args.top_p < 1) {
      const auto part = [&](float x) { return key_of(x) < least ? 0 : bins.weights.part(x); };
      uint64_t own = edge.mass;
      if (edge.of_k < kBins) {
        uint64_t of_bin = 0;
        each([&](float x, int) { of_bin += bins.of(x) == edge.of_k ? part(x) : 0; });
        own += group.sum(of_bin);
      }
      const uint64_t wanted = Weights::wanted(own, args.top_p) - edge.in_front;
      const uint32_t found = least_key(group, lds->sums, wanted, [&](auto&& add) {
        each([&](float x, int) { add(key_of(x), part(x)); });
      });
      least = found > least ? found : least;
    }
    uint64_t best = 0;
    each([&](float x, int column) {
      if (key_of(x) < least) return;
      const uint64_t one = score(x, column, bins.weights, noise);
      if (one > best) best = one;
    });
    return best;
  }
};

}  // namespace

extern "C" __global__ void WORKGROUP(kLanes, 3) KERNEL(SampleArgs args) {
  __shared__ Lds lds_of_workgroup;
  auto* lds = (Local<Lds>*)&lds_of_workgroup;
  const int slice = __builtin_amdgcn_workgroup_id_x(), row = __builtin_amdgcn_workgroup_id_y();
  const int slices = (args.columns + kColumns - 1) / kColumns;
  auto* shared = (Global<SharedOfRow>*)args.shared + row;
  auto* list = (Global<u32x2>*)args.lists + int64_t(row) * args.columns;
  Slices of_row{args,
                lds,
                {args, row},
                {&lds->group},
                {args, row, slice, slices, &lds->is_last},
                shared,
                list,
                {},
                0};
  if (args.phase == 0)
    of_row.greatest();
  else if (args.phase == 1)
    of_row.count();
  else
    of_row.draw();
}

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)
// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {1, kColumns};
