// Kernel arguments of the copy of K or V to rows next to each other. As in attn_fwd.h: fixed-width
// scalars only, strides count 16-bit elements, the stride of a row's columns is 1.
typedef struct GatherRowsArgs {
  uint64_t from;         // [batch, seqlen, num_heads, columns] device address
  uint64_t to;           // [batch, num_heads, seqlen, columns], compact
  int64_t stride_batch;  // of `from`
  int64_t stride_seq;
  int64_t stride_head;
  int64_t to_stride_batch;
  int64_t to_stride_head;
  int32_t seqlen;
  int32_t columns;  // a multiple of 8, at most 256
} GatherRowsArgs;
