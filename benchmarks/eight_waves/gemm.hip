// A product of many rows by eight waves in ping-pong: a SIMD has two, and while one multiplies the
// other reads its next operands. A study beside the four waves of gemm_tiles/loop.h, which place
// reads and loads between matrix instructions one by one; all but the loop is the same code.
//
// The build defines KERNEL, ELEMENT, PARAMETERS and ARGUMENTS; gfx950, tiles of 256 x 256.
#include "gemm_tiles/epilogue.h"
#include "priority.h"

namespace {

// Eight waves, two along m and four along n, each with 4 x 2 fragments.
struct S : TileShape<4, 2, 2, 2, TileElements<TileElement::ELEMENT, TileElement::ELEMENT>, false,
                     false> {
  static constexpr int kWaves = 8, kWavesN = 4, kLanes = kWaves * kWaveLanes;
  static constexpr int kRowsM = kWavesM * kM * kFragment, kRowsN = kWavesN * kN * kFragment;
  static constexpr int kBlocksA = kRowsM / kWaves / kBlockRows, kLoadsA = kBlocksA;
  static constexpr int kBlocksB = kRowsN / kWaves / kBlockRows, kLoadsB = kBlocksB;
  static constexpr int kBlocks = kBlocksA + kBlocksB, kLoads = kBlocks;
  static constexpr int kB = kRowsM * kRowBytes, kStageBytes = kB + kRowsN * kRowBytes;
  static constexpr int kLdsBytes = kStages * kStageBytes;
};

struct PingPong : TileLoop<S> {
  __device__ __forceinline__ void run(int steps, bool is_second) {
    start();
    if (is_second) ordered::s_barrier();  // half a phase behind the others
    for (int left = steps; left > 0; --left) {
      phase<0>();
      phase<1>();
    }
    if (!is_second) ordered::s_barrier();
    ordered::s_barrier();
  }

 private:
  static constexpr int kPartsOfPhase = S::kParts / 2;

  __device__ __forceinline__ void start() {
    bring();
    zero();
    ordered::s_waitcnt<0, 0>();
    ordered::s_barrier();
  }
  // The next step, to the stage that is not read.
  __device__ __forceinline__ void bring() {
    load<S::kLoads>();
    loads.advance<0>();
    loads.advance<1>();
  }
  // Half of a step: memory and LDS while the other wave multiplies, then the other way around.
  template <int half>
  __device__ __forceinline__ void phase() {
    constexpr int kFirst = half * kPartsOfPhase, kEnd = kFirst + kPartsOfPhase;
    unroll_from<kFirst, kEnd>([&]<int part>() {
      unroll<S::kReads>([&]<int n>() { read<part, n>(); });
      turn<part>();
    });
    if constexpr (half == 0) bring();
    ordered::s_waitcnt<half == 0 ? ordered::kAnyVm : 0, 0>();
    unroll_from<kFirst, kEnd>([&]<int part>() { wait_for_part<part>(); });
    ordered::s_barrier();
    s_setprio<1>();
    unroll_from<kFirst * S::kPartSlots, kEnd * S::kPartSlots>(
        [&]<int slot>() { multiply<slot>(); });
    s_setprio<0>();
    ordered::s_barrier();
  }
};

__device__ __forceinline__ void gemm(GemmTilesArgs args) {
  __shared__ u32x4 lds[S::kLdsBytes / 16];
  RESERVE_ACC_TO(127);
  const int wave = Lane::wave(), lane = Lane::in_wave();
  TilePlace place;
  Product product;
  if (!find_tile<S>(args, place, product)) return;
  const uint32_t base = (uint32_t)(Local<u32x4>*)lds;
  PingPong loop;
  loop.begin(base, wave, lane);
  loop.loads.begin({args.a, args.a_stride, args.m, place.m, 0},
                   {args.b, args.b_stride, args.n, place.n, args.up_offset}, base, wave, lane,
                   args.k);
  loop.run((args.k + S::kStep - 1) / S::kStep, wave >= S::kWaves / 2);
  end_of_sums();
  unroll<S::kGroups>([&]<int nth>() { TileEpilogue<S, nth>(args, place, base, wave, lane)(lane); });
}

}  // namespace

extern "C" __global__ void WORKGROUP(S::kLanes, 2) KERNEL(PARAMETERS) { gemm({ARGUMENTS}); }
