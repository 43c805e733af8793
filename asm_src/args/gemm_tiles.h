// Kernel arguments of products with many rows, in the order of the kernels' parameters.
// Parsed by the HIP compiler and by a C declaration parser, from which the build makes the list of
// parameters: fixed-width scalars only, no macros.
// Strides count elements, not bytes; the stride of the last axis is 1 for every matrix.
// The first 14 dwords come in SGPRs: what the first loads need must be among them.
typedef struct GemmTilesArgs {
  uint64_t a;        // [m, k] or, by k, [k, m] device address
  uint64_t b;        // [n or 2 n, k] or, by k, [k, n or 2 n] device address
  int32_t a_stride;  // of rows of memory
  int32_t b_stride;
  int32_t m;
  int32_t n;
  int32_t k;
  int32_t up_offset;    // rows of b from the gate's to their factors; 0 = not gated
  int32_t chunk;        // tiles that follow each other on an XCD: those it holds at a time
  int32_t batches;      // products of the launch, or its groups; -parts, where it has parts along k
  uint64_t group_rows;  // int32, rows of a of each group, which follow each other; 0 = no groups
  uint64_t bias;        // [rows of b], of the type of a, or of out if a has 8 bits; 0 = none
  uint64_t out;         // [m, n] device address
  int64_t out_stride;
  float alpha;  // out = activation(alpha * a @ b^T + bias)
  int32_t activation;
  int32_t out_type;  // 0 float32, 1 bfloat16, 2 float16
  int32_t adds;      // beta * addend: 0 not, 1 before the activation, 2 behind it
  float beta;
  int32_t bias_batch;  // from what is of a product of the launch to what is of the next one
  uint64_t scale_a;    // float32, of each row of a, or of all; 0 = none. For 8 bits, as scale_b
  uint64_t scale_b;
  int32_t scale_a_step;  // from the scale of a row to the next one's; 0 = there is one
  int32_t scale_b_step;
  uint64_t addend;  // [m, n], of the type of out
  int64_t addend_stride;
  int64_t a_batch;  // of groups 0, as out_batch, addend_batch and scale_a_batch
  int64_t b_batch;
  int64_t out_batch;
  int64_t addend_batch;
  int64_t scale_a_batch;
  int64_t scale_b_batch;
  uint64_t partials;    // float32 [tiles, parts, sums of a tile]; 0 = no parts, as the next two
  uint64_t counters;    // uint64 [tiles], of gemm/arrival.h
  uint64_t generation;  // greater in every launch than in those before
  int64_t split_steps;  // of k, of each part but the last
} GemmTilesArgs;
