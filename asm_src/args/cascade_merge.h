// Kernel arguments of the merge of attention over a prefix that all sequences share into attention
// over the keys of each. Fixed-width scalars only, strides count elements, that of the last axis is
// 1. Of the prefix a row is query t of all sequences, and a member of a group of heads.
typedef struct CascadeMergeArgs {
  uint64_t prefix_o;  // float32 [queries, num_heads_kv, group, head_dim_v], in any order
  uint64_t
      prefix_lse;    // pairs of float32, whose sum it is: [queries, num_heads_kv, group], likewise
  uint64_t own_o;    // float32 [batch, seqlen_q, num_heads_q, head_dim_v], compact
  uint64_t o;        // the same, of all keys, rounded
  uint64_t own_lse;  // pairs of float32 [batch, num_heads_q, seqlen_q]
  uint64_t lse;      // float32, of all keys, compact; 0 = not wanted
  int64_t prefix_o_query;
  int64_t prefix_o_kv;
  int64_t prefix_o_member;
  int64_t prefix_lse_query;
  int64_t prefix_lse_kv;
  int64_t prefix_lse_member;
  int64_t own_lse_batch;
  int64_t own_lse_head;
  int64_t o_batch;
  int64_t o_seq;
  int64_t o_head;
  int64_t rows;  // of all queries and heads
  int32_t seqlen_q;
  int32_t num_heads_q;
  int32_t group;  // query heads of a head of keys
  int32_t head_dim_v;
} CascadeMergeArgs;
