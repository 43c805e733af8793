// out[row, column] = f(gate[row, column]) * up[row, column], in float32, rounded to nearest even.
//
// Workgroup: 4 waves; a lane has STEPS chunks of 8 columns. Chunks are counted through all rows, so
// that rows of any length fill waves. Grid: x = ceil(chunks of all rows / (lanes * STEPS)).
//
//   phase    memory      vector unit
//   load     gate, up    row and column of each chunk
//   store    out         activation, product, round
//
// Registers: struct Work: gate[STEPS], up[STEPS]; 36 to 58 vector registers, no LDS, no barrier.
// The build defines KERNEL (its name), ELEMENT, STEPS, PARAMETERS and ARGUMENTS (of the struct).
#include "elementwise/activation.h"
#include "elementwise/chunk.h"
#include "elementwise/quotient.h"
// clang-format off
#include "args/gated_activation.h"
// clang-format on

namespace {

constexpr int kLanes = 256, kSteps = STEPS;
using Part = Chunk<Element::ELEMENT>;

// Of a lane in one step.
struct Place {
  uint32_t row, column, left;  // columns of the row from there on
  __device__ __forceinline__ Place() = default;
  __device__ __forceinline__ Place(const GatedActivationArgs& args, uint32_t i)
      : row(quotient(i, args.factor, args.flags & 255)),
        column((i - row * args.row_chunks) * Part::kColumns),
        left(args.columns - column) {}
  __device__ __forceinline__ Global<uint16_t>* in(uint64_t base, int stride) const {
    return (Global<uint16_t>*)base + int64_t(int(row)) * stride + column;
  }
};

// kWhole: every chunk has all of its columns.
template <bool kWhole>
__device__ __forceinline__ Part load(const Global<uint16_t>* from, uint32_t left) {
  if (kWhole || left >= Part::kColumns) return Part::load(from);
  return Part::load_first(left, from);
}

template <bool kWhole>
struct Work {
  Place at[kSteps];
  Part gate[kSteps], up[kSteps];

  // In place a lane must not read what another one may have written: where a step has no chunk it
  // reads that of the first one again.
  __device__ __forceinline__ Work(const GatedActivationArgs& args, uint32_t first) {
    for (int s = 0; s < kSteps; ++s) {
      const uint32_t i = first + s * kLanes;
      at[s] = Place(args, i < uint32_t(args.total) ? i : first);
      gate[s] = load<kWhole>(at[s].in(args.gate, args.gate_stride), at[s].left);
      up[s] = load<kWhole>(at[s].in(args.up, args.up_stride), at[s].left);
    }
  }
  template <int kActivation>
  __device__ __forceinline__ void store(const GatedActivationArgs& args, uint32_t first) const {
    for (int s = 0; s < kSteps; ++s) {
      if (s > 0 && first + s * kLanes >= uint32_t(args.total)) continue;
      Part out;
      for (int i = 0; i < Part::kPairs; ++i)
        out.set_pair(i, activated_pair<kActivation>(gate[s].pair(i)) * up[s].pair(i));
      auto* to = at[s].in(args.out, args.out_stride);
      if (kWhole || at[s].left >= Part::kColumns)
        out.store(to);
      else
        out.store_first(at[s].left, to);
    }
  }
};

template <bool kWhole>
__device__ __forceinline__ void run(const GatedActivationArgs& args, uint32_t first) {
  const Work<kWhole> work(args, first);
  const int activation = args.flags >> 8;
  if (activation == kSilu)
    work.template store<kSilu>(args, first);
  else if (activation == kGeluTanh)
    work.template store<kGeluTanh>(args, first);
  else
    work.template store<kGelu>(args, first);
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, 4) KERNEL(PARAMETERS) {
  const GatedActivationArgs args{ARGUMENTS};
  const uint32_t first =
      __builtin_amdgcn_workgroup_id_x() * (kLanes * kSteps) + Lane::in_workgroup();
  if (first >= uint32_t(args.total)) return;
  if (__builtin_expect(args.columns % Part::kColumns == 0, true))
    run<true>(args, first);
  else
    run<false>(args, first);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kLanes * kSteps, 0};
