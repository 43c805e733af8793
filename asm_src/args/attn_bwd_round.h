// Kernel arguments of the rounding of dq to 16 bits. Fixed-width scalars only; strides count
// elements, that of columns is 1.
typedef struct AttnBwdRoundArgs {
  uint64_t from;          // float32 [batch, seqlen, num_heads, columns] device address
  uint64_t to;            // bfloat16 or float16, the same shape
  uint64_t cu_seqlens_q;  // rows before each sequence, of which all is one batch; 0 = dense
  int64_t from_stride_batch;
  int64_t from_stride_seq;
  int64_t from_stride_head;
  int64_t to_stride_batch;
  int64_t to_stride_seq;
  int64_t to_stride_head;
  int32_t seqlen;
  int32_t num_heads;
  int32_t columns;    // a multiple of 8
  int32_t sequences;  // of cu_seqlens_q
} AttnBwdRoundArgs;
