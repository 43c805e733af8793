// Kernel arguments of products of rows whose mean square is made 1, in the order of the kernels'
// parameters. Parsed by the HIP compiler and by a C declaration parser: fixed-width scalars only,
// no macros. What gemm.h has comes first.
typedef struct GemmRmsArgs {
  uint64_t a;        // [m, k] device address
  uint64_t b;        // [n or 2 n, k] device address
  uint64_t bias;     // [rows of b], of the type of a; 0 = none
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
  int32_t adds;     // beta * addend: 0 not, 1 before the activation, 2 behind it
  float inverse_k;  // rows of a are multiplied by 1 / sqrt(sum(a^2) * inverse_k + rms_eps)
  float rms_eps;
} GemmRmsArgs;
