// out = x * weight / sqrt(mean(x^2) + eps) along each row, in float32, rounded once to nearest
// even. With a residual, x is x + residual, rounded to the element type, which goes to `sum`.
//
// The build defines KERNEL (its name), ELEMENT, ROWS and ROW_LANES (rows of a workgroup at a time,
// lanes of each), STEPS, SLICES, CHUNK, MIN_WAVES, and from the struct of the arguments PARAMETERS
// and ARGUMENTS: each field is a parameter of its own, so that the first ones can come in SGPRs.
// Grid: x = row_step / ROWS, where a workgroup takes every x-th group of rows; y = SLICES.
//
//   phase    memory                      vector unit                matrix unit
//   load     x, residual, then weight
//   sum                                  x + residual, round        squares, as they come
//   reduce   LDS, where waves share rows over lanes: DPP
//   store    sum, out                    scale, weigh, round
//
// A lane has CHUNK columns next to each other in each step: 4 registers of x, residual and weight.
// The last chunk of a row is moved back to end with it; what it then has twice counts and is
// written once. Where a row is in slices each workgroup reads all of it and writes the part it
// loads first. Squares beyond float32 make the mean infinite and the row 0, as they do in float32.
#include "norm/row.h"

namespace {

template <bool kResidual>
__device__ __forceinline__ void rms_norm(const RmsNormArgs& args, Local<float>* of_waves) {
  Outputs outputs;
  outputs.load();
  const Columns columns(args.columns);
  const int own_row = kRows == 1                ? 0
                      : kRowLanes == kWaveLanes ? Lane::wave()
                                                : Lane::in_workgroup() / kRowLanes;
  int group = __builtin_amdgcn_workgroup_id_x() * kRows, parity = 0;
  do {
    const bool there = group + own_row < args.rows;
    const uint32_t row = there ? group + own_row : args.rows - 1;
    Chunk x[kSteps], residual[kSteps], weight[kOwnSteps];
    load(x, {args.x, row, args.x_stride}, columns);
    if constexpr (kResidual) load(residual, {args.residual, row, args.residual_stride}, columns);
    if constexpr (!kLateWeight) load(weight, {args.weight, 0, 0}, columns);

    SumOfSquares squares;
    for (int s = 0; s < kSteps; ++s) {
      if constexpr (kResidual) x[s] = x[s] + residual[s];
      squares.add(x[s], columns, s);
    }
    if constexpr (kLateWeight) load(weight, {args.weight, 0, 0}, columns);
    outputs.wait();
    const float sum = sum_of_row(squares.of_quad(), of_waves + parity);
    const float scale = inverse_root(sum * v_rcp_f32(float(args.columns)) + args.eps);
    parity ^= kRowWaves;
    if (there)
      for (int s = 0; s < kOwnSteps; ++s) {
        if constexpr (kResidual) x[s].store(outputs.sum(row), columns, s);
        x[s].scaled(scale, weight[s]).store(outputs.out(row), columns, s);
      }
    group += args.row_step;
  } while (group < args.rows);
}

}  // namespace

#define JOIN(a, b) a##b
#define TILES_OF(name) JOIN(name, _tiles)

extern "C" __global__ void WORKGROUP(kLanes, MIN_WAVES) KERNEL(PARAMETERS) {
  __shared__ float of_waves[2 * kRowWaves];
  const RmsNormArgs args{ARGUMENTS};
  if (args.residual)
    rms_norm<true>(args, (Local<float>*)of_waves);
  else
    rms_norm<false>(args, (Local<float>*)of_waves);
}

// Read back from the code object when the manifest is made.
extern "C" __device__ const int32_t TILES_OF(KERNEL)[] = {kRows, kColumns};
