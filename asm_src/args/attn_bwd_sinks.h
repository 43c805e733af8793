// Kernel arguments of the gradients of sinks. Fixed-width scalars only.
typedef struct AttnBwdSinksArgs {
  uint64_t rows;    // float32 [batch, num_heads, row_tiles, 2, rows of a tile]: AttnBwdArgs
  uint64_t sinks;   // float32 [num_heads], natural log
  uint64_t dsinks;  // float32 [num_heads], written
  int32_t batch;
  int32_t num_heads;
  int32_t row_tiles;
  int32_t tile_rows;
  float log2_factor;  // of sinks: AttnBwdRowsArgs
  float log2_rest;
} AttnBwdSinksArgs;
