// Kernel arguments of the merge of attention over a prefix that all sequences share into attention
// over the keys of each. Fixed-width scalars only, strides count elements, that of the last axis is
// 1. Rows of the prefix are all queries of all heads that share a head of keys: of query t of all
// sequences and head g of those row t * group + g.
typedef struct CascadeMergeArgs {
  uint64_t prefix_o;    // [num_heads_kv, queries * group, head_dim_v], compact
  uint64_t prefix_lse;  // float32 [num_heads_kv, queries * group]
  uint64_t o;           // [batch, seqlen_q, num_heads_q, head_dim_v], of own keys, then of all
  uint64_t own_lse;     // float32 [batch, num_heads_q, seqlen_q], compact
  uint64_t lse;         // the same, of all keys; 0 = not wanted
  int64_t o_batch;
  int64_t o_seq;
  int64_t o_head;
  int32_t queries;  // of all sequences
  int32_t seqlen_q;
  int32_t num_heads_q;
  int32_t group;  // query heads of a head of keys
  int32_t head_dim_v;
} CascadeMergeArgs;
