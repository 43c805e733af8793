// Kernel arguments of the members of the decode GEMM family that load element by element, in the
// order of the kernels' parameters: those of args/gemm_8bit.h, then what tells products of a launch
// apart. Parsed as those are.
typedef struct GemmAnyArgs {
  uint64_t a;        // [m, k] device address
  uint64_t b;        // [n or 2 n, k] device address
  uint64_t bias;     // [rows of b], of the type of a, or of out if a has 8 bits; 0 = none
  int32_t a_stride;  // of rows
  int32_t b_stride;
  int32_t m;
  int32_t n;
  int32_t k;
  int32_t split_steps;  // along k of each part
  int16_t num_splits;   // parts along k of each tile
  int16_t tile_n;       // columns of the result in each tile
  int32_t up_offset;    // rows of b from the gate's to their factors; 0 = not gated
  uint64_t out;         // [m, n] device address
  int64_t out_stride;
  float alpha;      // out = activation(alpha * a @ b^T + bias)
  int8_t out_type;  // 0 float32, 1 bfloat16, 2 float16
  int8_t activation;
  int16_t accumulates;  // parts are added in memory by atomics, not in their order
  uint64_t partials;    // float32 [tiles, parts, tile], accumulated: [tiles, tile]; 0 = no parts
  uint64_t counters;    // uint64 [tiles], 0 before and after every launch; 0 = no parts
  uint64_t generation;  // a number greater than those of all launches before on the counters
  uint64_t addend;      // [m, n], of the type of out
  int64_t addend_stride;
  float beta;
  int32_t adds;      // beta * addend: 0 not, 1 before the activation, 2 behind it
  uint64_t scale_a;  // float32, of each row of a, or of all; 0 = none. For 8 bits, as scale_b
  uint64_t scale_b;
  int32_t scale_a_step;  // from the scale of a row to the next one's; 0 = there is one
  int32_t scale_b_step;
  int64_t a_batch;  // from what is of a product of the launch to what is of the next one, elements
  int64_t b_batch;
  int64_t bias_batch;
  int64_t out_batch;
  int64_t addend_batch;
  int64_t scale_a_batch;
  int64_t scale_b_batch;
} GemmAnyArgs;
