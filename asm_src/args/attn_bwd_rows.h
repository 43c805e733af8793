// Kernel arguments of what the attention backward needs of each row of q, and of its zeroes.
// Fixed-width scalars only; strides count elements, that of columns is 1.
typedef struct AttnBwdRowsArgs {
  uint64_t o;     // [batch, seqlen_q, num_heads, head_dim_v] device address
  uint64_t dout;  // the same
  uint64_t lse;   // float32, natural log, [batch, num_heads, seqlen_q]
  uint64_t dlse;  // gradients of lse, the same shape; 0 = none
  uint64_t rows;  // float32 [batch, num_heads, row_tiles, 2, rows of a tile], written: AttnBwdArgs
  uint64_t dq;    // float32 [batch, seqlen_q, num_heads, head_dim], set to 0
  uint64_t cu_seqlens_q;  // [batch + 1] int32, rows before each sequence; 0 = dense
  uint64_t order;         // [batch] int32, written: AttnBwdArgs; 0 = none
  int64_t o_stride_batch;
  int64_t o_stride_seq;
  int64_t o_stride_head;
  int64_t dout_stride_batch;
  int64_t dout_stride_seq;
  int64_t dout_stride_head;
  int64_t dq_stride_batch;
  int64_t dq_stride_seq;
  int64_t dq_stride_head;
  int64_t lse_stride_batch;  // 0 with cu_seqlens: rows of all sequences follow each other
  int64_t lse_stride_head;
  int64_t dlse_stride_batch;  // the same of dlse
  int64_t dlse_stride_head;
  int32_t seqlen_q;  // with cu_seqlens the greatest
  int32_t head_dim;
  int32_t head_dim_v;
  int32_t row_tiles;  // of the longest sequence
  int32_t tile_rows;  // of a tile
  int32_t num_heads;
  int32_t batch;      // of order
  float log2_factor;  // of lse, as scores are scaled to base 2 by the main kernel
  float log2_rest;    // by how much that is more
  int32_t padding;    // to a multiple of 8 bytes
} AttnBwdRowsArgs;
