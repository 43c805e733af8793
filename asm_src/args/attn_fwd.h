// Kernel arguments of the attention forward family. One by-value struct is the whole kernarg block.
// Parsed by the HIP compiler and by a C declaration parser: fixed-width scalars only, no macros.
// Strides count elements, not bytes; the stride of head_dim is 1 for every tensor.
typedef struct AttnFwdArgs {
  uint64_t q;    // [batch, seqlen_q, num_heads_q, head_dim] device address
  uint64_t k;    // [batch, seqlen_kv, num_heads_kv, head_dim] device address
  uint64_t v;    // [batch, seqlen_kv, num_heads_kv, head_dim_v] device address
  uint64_t o;    // [batch, seqlen_q, num_heads_q, head_dim_v] device address
  uint64_t lse;  // [batch, num_heads_q, seqlen_q] float32, contiguous, natural log; 0 = none
  int64_t q_stride_batch;
  int64_t q_stride_seq;
  int64_t q_stride_head;
  int64_t k_stride_batch;
  int64_t k_stride_seq;
  int64_t k_stride_head;
  int64_t v_stride_batch;
  int64_t v_stride_seq;
  int64_t v_stride_head;
  int64_t o_stride_batch;
  int64_t o_stride_seq;
  int64_t o_stride_head;
  int32_t batch;
  int32_t num_heads_q;
  int32_t num_heads_kv;  // divides num_heads_q; kv_head = q_head / (num_heads_q / num_heads_kv)
  int32_t seqlen_q;
  int32_t seqlen_kv;
  float softmax_scale_log2;  // softmax_scale * log2(e)
} AttnFwdArgs;
