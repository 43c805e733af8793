// Kernel arguments of the sum of splits of dk and dv. Fixed-width scalars only; strides count
// elements, that of columns is 1.
typedef struct AttnBwdSumArgs {
  uint64_t dk_sums;        // float32 [splits, batch, num_heads, seqlen, head_dim] device address
  uint64_t dv_sums;        // the same of head_dim_v
  uint64_t dk;             // [batch, seqlen, num_heads, head_dim]
  uint64_t dv;             // [batch, seqlen, num_heads, head_dim_v]
  uint64_t cu_seqlens_q;   // rows before each sequence of q
  uint64_t cu_seqlens_kv;  // rows before each sequence, of which all is one batch; 0 = dense
  int64_t dk_stride_batch;
  int64_t dk_stride_seq;
  int64_t dk_stride_head;
  int64_t dv_stride_batch;
  int64_t dv_stride_seq;
  int64_t dv_stride_head;
  int32_t rows;  // of a split: batch * num_heads * seqlen
  int32_t seqlen;
  int32_t num_heads;
  int32_t splits;
  int32_t head_dim;    // a multiple of 8
  int32_t head_dim_v;  // a multiple of 8
  int32_t sequences;   // of cu_seqlens_kv
  // What is not split, so that nothing is summed, and what tells which: as AttnBwdArgs.
  int32_t whole_rows;
  int32_t whole_blocks;
  int32_t first_row;  // of the first head that has a block that is split
  int32_t heads_at_once;
  int32_t block_keys;
  int32_t keeps_floats;  // dk and dv are float32
  int32_t padding;       // to a multiple of 8 bytes
} AttnBwdSumArgs;
