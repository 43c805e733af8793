// Tiles of 64 rows x 128 columns go through LDS as operand fragments.
// out[tile, fragment, step, lane] = octet step * 4 + lane / 16 of the tile row that
// FragmentRow::of_tile_row maps to (fragment, lane % 16); rows past num_rows are 0.
#include "isa/wait.h"
#include "tile/load.h"

using Tile = LdsTile<4, 4>;

extern "C" __global__ void WORKGROUP(256, 1)
    row_stage(uint64_t source, int64_t stride, int num_rows, u32x4* out) {
  __shared__ u32x4 lds[Tile::kNumOctets];
  const Tile tile{(Local<u32x4>*)lds};
  RowStage<Tile, 256> stage(RowSource{(const Global<uint16_t>*)source, stride, num_rows});
  for (; num_rows > 0; num_rows -= Tile::kRows, out += Tile::kNumOctets) {
    stage.load(num_rows);
    s_barrier();
    stage.store(tile);
    s_barrier();
    if (Lane::wave() != 0) continue;
    for (int f = 0; f < Tile::kFrags; ++f)
      for (int step = 0; step < Tile::kSteps; ++step)
        out[(f * Tile::kSteps + step) * kWaveLanes + Lane::in_wave()] = tile.read(f, step);
  }
}
