// Kernel arguments of the attention backward family. One by-value struct is the whole kernarg
// block. Parsed by the HIP compiler and by a C declaration parser: fixed-width scalars only, no
// macros. Strides count elements, not bytes; the stride of head_dim is 1 for every tensor.
typedef struct AttnBwdArgs {
  uint64_t q;     // [batch, seqlen_q, num_heads_q, head_dim] device address
  uint64_t k;     // [batch, seqlen_kv, num_heads_kv, head_dim]
  uint64_t v;     // [batch, seqlen_kv, num_heads_kv, head_dim_v]
  uint64_t dout;  // [batch, seqlen_q, num_heads_q, head_dim_v]
  // float32 [batch, num_heads_q, row_tiles, 2, rows of a tile], made by attn_bwd_rows: lse in log2
  // units, +inf where a row has no key; the sums over columns of dout times o.
  uint64_t rows;
  uint64_t dq;  // float32 [batch, seqlen_q, num_heads_q, head_dim], to which is added
  // uint32 [1 + batch * num_heads_q * row_tiles, 4 waves], 0 between launches: how many workgroups
  // have begun, and three that nobody counts with; then how many blocks of keys have been added to
  // a tile of dq by this wave of theirs. Kernels that add in the order of blocks alone have it.
  uint64_t turns;
  uint64_t
      cu_seqlens_q;  // [batch + 1] int32, rows of q, dout and dq before each sequence; 0 = dense
  uint64_t cu_seqlens_kv;  // [batch + 1] int32; 0 = dense
  // [batch] int32, made by attn_bwd_rows: numbers of the sequences, those of most rows first, in
  // which order their blocks of keys begin; 0 = as they are.
  uint64_t order;
  // Of blocks of keys that are not split: [batch, seqlen_kv, num_heads_kv, head_dim]
  uint64_t dk;
  uint64_t dv;  // the same of head_dim_v
  int64_t dk_stride_batch;
  int64_t dk_stride_seq;
  int64_t dk_stride_head;
  int64_t dv_stride_batch;
  int64_t dv_stride_seq;
  int64_t dv_stride_head;
  // Of splits, in the same order: float32, one after the other
  uint64_t dk_sums;
  uint64_t dv_sums;
  int64_t dk_sums_stride_batch;
  int64_t dk_sums_stride_seq;
  int64_t dk_sums_stride_head;
  int64_t dv_sums_stride_batch;
  int64_t dv_sums_stride_seq;
  int64_t dv_sums_stride_head;
  int64_t q_stride_batch;  // 0 with cu_seqlens
  int64_t q_stride_seq;
  int64_t q_stride_head;
  int64_t k_stride_batch;
  int64_t k_stride_seq;
  int64_t k_stride_head;
  int64_t v_stride_batch;
  int64_t v_stride_seq;
  int64_t v_stride_head;
  int64_t dout_stride_batch;
  int64_t dout_stride_seq;
  int64_t dout_stride_head;
  int64_t dq_stride_batch;
  int64_t dq_stride_seq;
  int64_t dq_stride_head;
  int64_t dk_stride_split;
  int64_t dv_stride_split;
  int32_t num_heads_q;
  int32_t num_heads_kv;  // divides num_heads_q
  int32_t seqlen_q;      // with cu_seqlens the greatest
  int32_t seqlen_kv;
  int32_t head_dim;    // columns of q and k: a multiple of 8
  int32_t head_dim_v;  // columns of v and dout: a multiple of 8
  float softmax_scale;
  float softmax_scale_log2;  // softmax_scale * log2(e)
  float softcap;             // in units of the scores; 0: none
  float inverse_softcap;     // softmax_scale / softcap
  int32_t window_left;       // a row sees keys >= row + diagonal - window_left; < 0: all
  int32_t window_right;      // and keys <= row + diagonal + window_right; < 0: all. Causal: 0
  int32_t top_left;          // diagonal = 0 if set, else seqlen_kv - seqlen_q
  int32_t of_head;           // blocks of keys of the longest sequence
  int32_t row_tiles;         // of the longest sequence
  int32_t heads;             // batch * num_heads_kv
  int32_t heads_at_once;     // whose blocks of keys follow each other
  int32_t keeps_floats;      // dk and dv are float32
  int32_t head_splits;       // of the query heads of a group, which it divides
  int32_t row_splits;        // of the rows that see a block of keys
  int32_t whole_blocks;      // the first ones are not split
  int32_t whole_rows;        // nor those of sequences of at most so many rows; -1: none
} AttnBwdArgs;
