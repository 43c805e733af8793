// Kernel arguments of the copy of lse to another order of its axes. Fixed-width scalars only,
// strides count float32; along the rows of a sequence that of both is 1.
typedef struct LseRowsArgs {
  uint64_t from;  // float32 [batch, num_heads, seqlen] device address
  uint64_t to;    // the same, compact
  int64_t from_batch;
  int64_t from_head;
  int64_t count;  // of all
  int32_t seqlen;
  int32_t num_heads;
} LseRowsArgs;
