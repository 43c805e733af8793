// Orders the tiles of attention over sequences of different lengths: tiles with the most keys come
// first, so that short ones fill the end, and long tiles are split along the keys where that is
// faster. Only the device knows the lengths, so one workgroup works this out ahead of the others.
//
// Workgroup: 8 waves; 16 lanes share a sequence, each takes every 16th tile of it. Grid: x = 1.
//
//   phase    what it does                                             barrier in front protects
//   count    histogram of tiles by blocks of keys: lds.count          lds.count is cleared
//   choose   each wave estimates one way to split: lds.clk            lds.count, then lds.clk
//   count    if any tile is split, a histogram of the pieces          lds.count, read and cleared
//   place    one entry for each piece, to memory                      lds.count: begins of classes
//   fill     empty entries up to the end of the table                 lds.entries, lds.merges
//
// LDS: struct Shared, 1072 bytes of LDS. 34 vector registers; `cut`, the split that is chosen, is
// the same in all lanes.
//
// The result does not depend on the order within a class, which LDS atomics decide: how a tile is
// split depends on lengths alone. The build defines KERNEL (its name).
#include "attn/schedule_entry.h"
#include "isa/dpp_scan.h"
#include "isa/global.h"
#include "isa/ordered_memory.h"
#include "isa/uniform.h"
#include "isa/valu.h"
#include "isa/wait.h"
// clang-format off
#include "args/attn_schedule.h"
// clang-format on

namespace {

constexpr int kLanes = 512, kWaves = kLanes / kWaveLanes;
constexpr int kClasses = 256, kClassesOfLane = kClasses / kWaveLanes;
constexpr int kLanesOfSequence = 16;
constexpr float kWorth = 0.995f;  // as in kv_split.py: more parts must save so much

struct Shared {
  int32_t count[kClasses];  // of tiles, then of pieces; then where they begin
  float clk[kWaves];
  int32_t most_blocks, partials, merges, entries;
};

__device__ __forceinline__ int min_of(int a, int b) { return a < b ? a : b; }
__device__ __forceinline__ int max_of(int a, int b) { return a > b ? a : b; }
__device__ __forceinline__ int32_t add(Local<int32_t>& to, int32_t x) {
  return __hip_atomic_fetch_add(&to, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}
__device__ __forceinline__ float from_lane(int lane, float x) {
  return __builtin_bit_cast(float,
                            __builtin_amdgcn_ds_bpermute(4 * lane, __builtin_bit_cast(int, x)));
}

// To the rows that a bit of kRows names; what is not moved to gets `otherwise`.
template <int kFrom, int kRows>
__device__ __forceinline__ float moved(float x, float otherwise) {
  return __builtin_bit_cast(
      float, __builtin_amdgcn_update_dpp(__builtin_bit_cast(int, otherwise),
                                         __builtin_bit_cast(int, x), kFrom, kRows, 0xf, false));
}

// Of all lanes up to this one, by f, which leaves x as it is with `none`: of its row of 16, then of
// the rows before.
template <class F>
__device__ __forceinline__ float scanned(float x, float none, F&& f) {
  constexpr int kAll = 0xf, kOddRows = 0xa, kUpperRows = 0xc;
  x = f(x, moved<kRowShr<1>, kAll>(x, none));
  x = f(x, moved<kRowShr<2>, kAll>(x, none));
  x = f(x, moved<kRowShr<4>, kAll>(x, none));
  x = f(x, moved<kRowShr<8>, kAll>(x, none));
  x = f(x, moved<kRowBcast15, kOddRows>(x, none));
  return f(x, moved<kRowBcast31, kUpperRows>(x, none));
}
// Of all lanes.
template <class F>
__device__ __forceinline__ float of_all(float x, float none, F&& f) {
  const float upto = scanned(x, none, f);
  return __builtin_bit_cast(
      float, __builtin_amdgcn_readlane(__builtin_bit_cast(int, upto), kWaveLanes - 1));
}
__device__ __forceinline__ float sum_of(float a, float b) { return a + b; }
__device__ __forceinline__ float least_of(float a, float b) { return __builtin_fminf(a, b); }
__device__ __forceinline__ float greatest_of(float a, float b) { return v_max_f32(a, b); }

struct Sequence {
  int q_base, rows, kv_base, keys, tiles;

  __device__ __forceinline__ Sequence(const AttnScheduleArgs& args, int b) {
    const auto* q = (const Global<int32_t>*)args.cu_seqlens_q + b;
    const auto* kv = (const Global<int32_t>*)args.cu_seqlens_kv + b;
    q_base = q[0];
    kv_base = kv[0];
    rows = max_of(q[1] - q_base, 0);
    keys = max_of(kv[1] - kv_base, 0);
    tiles = (min_of(rows, args.seqlen_q) + args.tile_q - 1) / args.tile_q;
  }
  // Blocks of keys of a tile: as attn/work.h has it.
  __device__ __forceinline__ int blocks(const AttnScheduleArgs& args, int tile) const {
    const int diagonal = args.top_left ? 0 : keys - rows, begin = tile * args.tile_q;
    const int last = min_of(begin + args.tile_q, rows) - 1, block = 1 << args.kv_tile_log2;
    const int from = args.window_left < 0 ? 0 : max_of(0, begin + diagonal - args.window_left);
    const int to =
        args.window_right < 0 ? keys : min_of(keys, last + diagonal + args.window_right + 1);
    const int first = from >> args.kv_tile_log2;
    return max_of(((to + block - 1) >> args.kv_tile_log2) - first, 0);
  }
};

// Of every tile of every sequence: some lanes have one.
template <class F>
__device__ __forceinline__ void for_tiles(const AttnScheduleArgs& args, F&& f) {
  const int lane = Lane::in_workgroup();
  int b = lane / kLanesOfSequence;
  if (b >= args.batch) return;
  Sequence next(args, b);
  while (b < args.batch) {
    const Sequence sequence = next;
    b += kLanes / kLanesOfSequence;
    if (b < args.batch) next = Sequence(args, b);  // on its way while this one is counted
    for (int tile = lane % kLanesOfSequence; tile < sequence.tiles; tile += kLanesOfSequence)
      f(sequence, tile, sequence.blocks(args, tile));
  }
}

// The least integer that is not below x / y, or now and then one less: of 1 / y.
__device__ __forceinline__ int over(int x, float inverse) { return 1 + int((x - 1) * inverse); }

// Tiles of more blocks than `most` are cut.
struct Cut {
  int most, max_parts, num_splits;
  float inverse;  // of most

  __device__ __forceinline__ int parts(int blocks) const {
    if (num_splits > 0) return num_splits;
    return blocks > most ? min_of(max_parts, over(blocks, inverse)) : 1;
  }
  // Of the longest part.
  static __device__ __forceinline__ int of_part(int blocks, int parts) {
    return parts == 1 ? blocks : over(blocks, v_rcp_f32(parts));
  }
};

class Schedule {
  const AttnScheduleArgs& args;
  Local<Shared>& lds;
  Cut cut;

 public:
  __device__ __forceinline__ Schedule(const AttnScheduleArgs& of, Local<Shared>& in)
      : args(of), lds(in), cut{0, of.max_parts, of.num_splits, 0} {}

  __device__ __forceinline__ void operator()() {
    const int lane = Lane::in_workgroup();
    // All lines of the lengths are on their way at once, not a turn's after the other.
    const int32_t first_lengths[2] = {length(args.cu_seqlens_q), length(args.cu_seqlens_kv)};
    clear();
    if (lane == 0) lds.most_blocks = lds.partials = lds.merges = lds.entries = 0;
    s_barrier();
    int most_blocks = 0;
    for_tiles(args, [&](const Sequence&, int, int blocks) {
      most_blocks = max_of(most_blocks, blocks);
      add(lds.count[class_of(blocks)], 1);
    });
    for (int32_t x : first_lengths) ordered::keep(x);
    // Numbers of blocks and of tiles are exact in float32.
    most_blocks = int(of_all(most_blocks, 0, greatest_of));
    if (Lane::in_wave() == 0)
      __hip_atomic_fetch_max(&lds.most_blocks, most_blocks, __ATOMIC_RELAXED,
                             __HIP_MEMORY_SCOPE_WORKGROUP);
    s_barrier();
    most_blocks = lds.most_blocks;
    if (args.num_splits == 0 && args.max_parts > 1)
      choose(most_blocks);
    else
      cut.most = most_blocks;
    if (args.num_splits > 0 || cut.most < most_blocks) count_pieces();
    if (Lane::wave() == 0) find_begins();
    s_barrier();
    place();
    fill();
  }

 private:
  __device__ __forceinline__ int32_t length(uint64_t sums) const {
    return ((const Global<int32_t>*)sums)[min_of(Lane::in_workgroup(), args.batch)];
  }
  __device__ __forceinline__ int class_of(int blocks) const {
    return min_of(blocks >> args.class_shift, kClasses - 1);
  }
  // Of the longest tile of a class.
  __device__ __forceinline__ int blocks_of(int nth, int most_blocks) const {
    return min_of(((nth + 1) << args.class_shift) - 1, most_blocks);
  }
  __device__ __forceinline__ void clear() {
    for (int c = Lane::in_workgroup(); c < kClasses; c += kLanes) lds.count[c] = 0;
  }
  // A lane's classes, those of most blocks first.
  static __device__ __forceinline__ int nth_class(int n) {
    return kClasses - 1 - (Lane::in_wave() * kClassesOfLane + n);
  }
  static __device__ __forceinline__ int sum_before(int x) {  // of the lanes before this one
    return int(scanned(x, 0, sum_of)) - x;
  }

  __device__ __forceinline__ void choose(int most_blocks) {
    const int wave = Lane::wave();
    int ways = 1;
    while (ways < kWaves && parts_of(ways) <= args.max_parts) ++ways;
    if (wave < ways) {
      const float clk = estimate(cut_for(wave, most_blocks), most_blocks);
      if (Lane::in_wave() == 0) lds.clk[wave] = clk;
    }
    s_barrier();
    int best = 0;
    float best_clk = lds.clk[0];
    for (int w = 1; w < ways; ++w) {
      const float clk = lds.clk[w];
      if (clk < kWorth * best_clk) {
        best = w;
        best_clk = clk;
      }
    }
    cut = cut_for(best, most_blocks);
  }
  // The longest tile has parts_of(way) parts.
  static __device__ __forceinline__ int parts_of(int way) {
    return way < 6 ? way + 1 : way == 6 ? 8 : 12;
  }
  __device__ __forceinline__ Cut cut_for(int way, int most_blocks) const {
    Cut found = cut;
    found.most = max_of(1, over(most_blocks, v_rcp_f32(parts_of(way))));
    found.inverse = v_rcp_f32(found.most);
    return found;
  }
  // Clocks until all are done, the longest first: at least the mean over slots; and of as many
  // pieces as come up to one, rounds as long as that one.
  __device__ __forceinline__ float estimate(const Cut& way, int most_blocks) const {
    int pieces = 0, partials = 0;
    float work = 0, least = kInf;
    const auto each = [&](auto&& f) {
      for (int n = 0; n < kClassesOfLane; ++n) {
        const int nth = nth_class(n), tiles = lds.count[nth];
        if (tiles == 0) continue;
        const int blocks = blocks_of(nth, most_blocks), parts = way.parts(blocks);
        const float clk = args.workgroup_clk + args.block_clk * Cut::of_part(blocks, parts);
        f(tiles * parts, parts > 1, clk);
      }
    };
    each([&](int count, bool are_parts, float clk) {
      pieces += count;
      partials += are_parts ? count : 0;
      work += count * clk;
      least = __builtin_fminf(least, clk);
    });
    const int lane = Lane::in_wave();
    int before = sum_before(pieces);
    float least_before = from_lane(lane - 1, scanned(least, kInf, least_of));
    if (lane == 0) least_before = kInf;
    const float inverse = v_rcp_f32(args.slots);
    float rounds_clk = 0;
    each([&](int count, bool, float clk) {
      before += count;
      least_before = __builtin_fminf(least_before, clk);
      const int rounds = 1 + int((float(before) * args.heads - 0.5f) * inverse);
      rounds_clk = v_max_f32(rounds_clk, rounds * least_before);
    });
    work = of_all(work, 0, sum_of);
    partials = int(of_all(partials, 0, sum_of));
    rounds_clk = of_all(rounds_clk, 0, greatest_of);
    if (partials > args.max_partials) return kInf;
    const float merging =
        partials > 0 ? args.merge_clk + float(partials) * args.heads * args.partial_clk : 0;
    return v_max_f32(work * args.heads * inverse, rounds_clk) + merging;
  }

  __device__ __forceinline__ void count_pieces() {
    s_barrier();  // all have read how many tiles there are
    clear();
    s_barrier();
    for_tiles(args, [&](const Sequence&, int, int blocks) {
      const int parts = cut.parts(blocks);
      add(lds.count[class_of(Cut::of_part(blocks, parts))], parts);
    });
    s_barrier();
  }
  // Of the pieces of each class the first one's place.
  __device__ __forceinline__ void find_begins() {
    int count[kClassesOfLane], sum = 0;
    for (int n = 0; n < kClassesOfLane; ++n) {
      count[n] = lds.count[nth_class(n)];
      sum += count[n];
    }
    int begin = sum_before(sum);
    for (int n = 0; n < kClassesOfLane; ++n) {
      lds.count[nth_class(n)] = begin;
      begin += count[n];
    }
    if (Lane::in_wave() == kWaveLanes - 1) lds.entries = begin;
  }
  static __device__ __forceinline__ void store(uint64_t to, int nth, const AttnScheduleEntry& e) {
    auto* at = (Global<u32x4>*)(to + uint64_t(nth) * sizeof(AttnScheduleEntry));
    const struct Quads {
      u32x4 quad[2];
    } quads = __builtin_bit_cast(Quads, e);
    at[0] = quads.quad[0];
    at[1] = quads.quad[1];
  }
  // Sums that are wrong have more tiles than there is room for: those are left out.
  __device__ __forceinline__ void place() {
    for_tiles(args, [&](const Sequence& sequence, int tile, int blocks) {
      const int parts = cut.parts(blocks);
      const int at = add(lds.count[class_of(Cut::of_part(blocks, parts))], parts);
      AttnScheduleEntry entry{tile * args.tile_q,
                              sequence.rows,
                              sequence.keys,
                              sequence.q_base,
                              sequence.kv_base,
                              0,
                              0,
                              parts};
      if (parts > 1) {
        entry.partial = add(lds.partials, parts);
        const int merge = add(lds.merges, 1);
        if (entry.partial + parts > args.max_partials || merge >= args.max_merges) entry.rows = 0;
        if (merge < args.max_merges) store(args.merges, merge, entry);
      }
      for (; entry.part < parts; ++entry.part)
        if (at + entry.part < args.max_entries) store(args.entries, at + entry.part, entry);
    });
  }
  __device__ __forceinline__ void fill() {
    s_barrier();
    const AttnScheduleEntry none{};
    const int lane = Lane::in_workgroup();
    for (int n = lds.entries + lane; n < args.max_entries; n += kLanes)
      store(args.entries, n, none);
    for (int n = lds.merges + lane; n < args.max_merges; n += kLanes) store(args.merges, n, none);
  }
};

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, 2) KERNEL(AttnScheduleArgs args) {
  __shared__ Shared shared;
  Schedule(args, *(Local<Shared>*)&shared)();
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {0, 0};
