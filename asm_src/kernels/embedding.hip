// Gathers rows of a table: out[i] = table[indices[i]], elements of 2 or 4 bytes. An index outside
// the table makes its row NaN and is reported.
//
// Workgroup: 4 waves; ROW_LANES lanes share a row, a lane has STEPS chunks of 16 bytes of it.
// Grid: x = ceil(rows / (lanes / ROW_LANES)), y = ceil(row_bytes / (ROW_LANES * STEPS * 16)).
//
//   phase    memory           vector unit
//   load     index, then row  addresses
//   store    row
//
// Registers: x[STEPS], the lane's chunks; 12 to 24 vector registers, no LDS, no barrier.
// The build defines KERNEL (its name), ROW_LANES, STEPS, PARAMETERS and ARGUMENTS (of the struct).
#include "cache/indices.h"
#include "isa/global.h"
// clang-format off
#include "args/embedding.h"
// clang-format on

namespace {

constexpr int kLanes = 256, kRowLanes = ROW_LANES, kSteps = STEPS, kRows = kLanes / kRowLanes;
constexpr int kChunk = 16, kTile = kRowLanes * kSteps * kChunk;  // bytes

// At the end of a row: 8, 4 and 2 bytes.
__device__ __forceinline__ void copy_rest(Global<uint8_t>* to, const Global<uint8_t>* from,
                                          int count, bool is_there, uint32_t lost) {
  if (count & 8) {
    auto two = is_there ? global_load_anywhere<2>(from) : DwordsAnywhere<2>{lost, lost};
    global_store_anywhere<2>(to, two);
  }
  if (count & 4) {
    const int at = count & 8;
    auto one = is_there ? global_load_anywhere<1>(from + at) : DwordsAnywhere<1>{lost};
    global_store_anywhere<1>(to + at, one);
  }
  if (count & 2) {
    const int at = count & 12;
    *(Global<uint16_t>*)(to + at) =
        is_there ? *(const Global<uint16_t>*)(from + at) : uint16_t(lost);
  }
}

template <bool kWhole>
__device__ __forceinline__ void run(const EmbeddingArgs& args, int row, int first) {
  int index = ((const Global<int32_t>*)args.indices)[row];
  if (kRowLanes >= kWaveLanes) index = uniform(index);
  const bool is_there = is_within(index, args.table_rows);
  if (!is_there) report_index();
  const auto* from = (const Global<uint8_t>*)args.table +
                     (int64_t(is_there ? index : 0) * args.table_stride << args.log2_bytes);
  auto* to = (Global<uint8_t>*)args.out + (int64_t(row) * args.out_stride << args.log2_bytes);
  u32x4 x[kSteps];
  for (int s = 0; s < kSteps; ++s) {
    const int at = first + s * kRowLanes * kChunk;
    if (kWhole || at + kChunk <= args.row_bytes) x[s] = global_load_anywhere<4>(from + at);
    if (!is_there) x[s] = args.lost;
  }
  for (int s = 0; s < kSteps; ++s) {
    const int at = first + s * kRowLanes * kChunk;
    if (kWhole || at + kChunk <= args.row_bytes)
      global_store_anywhere<4>(to + at, x[s]);
    else if (at < args.row_bytes)
      copy_rest(to + at, from + at, args.row_bytes - at, is_there, args.lost);
  }
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, 8) KERNEL(PARAMETERS) {
  const EmbeddingArgs args{ARGUMENTS};
  const int lane = Lane::in_workgroup();
  const int row = __builtin_amdgcn_workgroup_id_x() * kRows + lane / kRowLanes;
  const int first = __builtin_amdgcn_workgroup_id_y() * kTile + lane % kRowLanes * kChunk;
  if (row >= args.rows) return;
  if (args.row_bytes % kTile == 0)
    run<true>(args, row, first);
  else
    run<false>(args, row, first);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kRows, kTile};
