// Kernel arguments of what comes before attention over a cache by the forward kernels: new rows go
// to the cache, the keys and values of every sequence to rows next to each other, and where each
// begins is written down. As in attn_decode.h: fixed-width scalars only, strides count elements,
// that of the last axis is 1; a cache lies as it has it, pages of 16 keys or of a multiple.
typedef struct CacheRowsArgs {
  uint64_t k;                // [pages or rows of the cache, page_keys, num_heads_kv, head_dim]
  uint64_t v;                // [pages or rows of the cache, page_keys, num_heads_kv, head_dim_v]
  uint64_t k_new;            // [batch, seqlen_new, num_heads_kv, head_dim], appended; 0 = none
  uint64_t v_new;            // [batch, seqlen_new, num_heads_kv, head_dim_v]
  uint64_t k_rows;           // [num_heads_kv, max_rows, head_dim], compact; 0 = none are copied
  uint64_t v_rows;           // [num_heads_kv, max_rows, head_dim_v]
  uint64_t q;                // [batch, seqlen_q, num_heads_q, head_dim]
  uint64_t q_rows;           // [num_heads_q / q_group, queries, q_group, head_dim]; 0 = none
  uint64_t rotary_cos;       // [positions, rotary_dim / 2], compact; 0 = none
  uint64_t rotary_sin;       // the same
  uint64_t cache_seqlens;    // int32 [batch], keys before those appended; 0 = max_seqlen
  uint64_t cu_seqlens_q;     // int32 [batch + 1]: sequences have so many queries; 0 = seqlen_q
  uint64_t cu_seqlens_kv;    // int32 [batch + 1]: and so many keys, whatever cache_seqlens
  uint64_t cache_batch_idx;  // int32 [batch]; 0 = b
  uint64_t cache_leftpad;    // int32 [batch], positions before it hold no key; 0 = none
  uint64_t block_table;      // int32 [batch, table_stride]; 0 = no pages
  uint64_t k_scales;         // float32, of a head, for elements of 8 bits; 0 = k_scale of all
  uint64_t v_scales;         // the same
  // int32 [batch + 1], rows of q and of keys before each sequence. Of keys that are not copied
  // [2 batch + 1], but for one sequence: every other one has no queries, and the rows between two.
  uint64_t q_sums;   // 0 = not wanted
  uint64_t kv_sums;  // 0 = not wanted
  uint64_t scales;   // HeadScales (attn/head_scales.h) [num_heads_kv]; 0 = not wanted
  int64_t k_page;
  int64_t k_head;
  int64_t v_page;
  int64_t v_head;
  int64_t k_new_batch;
  int64_t k_new_head;
  int64_t v_new_batch;
  int64_t v_new_head;
  int64_t q_batch;
  int64_t q_seq;
  int64_t q_head;
  int32_t k_seq;
  int32_t v_seq;
  int32_t k_chunk;   // from 16 bytes of a key to its next ones
  int32_t v_column;  // of V whose keys of a column are neighbours; else 0
  int32_t v_chunk;   // then from 16 bytes of a column to its next ones, else as k_chunk
  int32_t k_scale_head;
  int32_t v_scale_head;
  int32_t k_new_seq;
  int32_t v_new_seq;
  int32_t table_stride;
  int32_t batch;
  int32_t seqlen_q;  // with cu_seqlens_q the greatest
  int32_t seqlen_new;
  int32_t num_heads_q;
  int32_t q_group;  // heads of a query that are next to each other when it is copied
  int32_t num_heads_kv;
  int32_t head_dim;
  int32_t head_dim_v;
  int32_t rotary_dim;       // first columns of q and k_new that are turned; a multiple of 16
  int32_t rotary_flags;     // 1: pairs are neighbours; 2: angles are float32, else of the type of q
  int32_t turns_each;       // 0: all queries of a sequence are turned as its first one
  int32_t page_keys;        // a multiple of 16; without a table those of a row of the cache
  int32_t page_reciprocal;  // ceil(2^32 / page_keys) as bits
  int32_t num_pages;        // or rows of the cache: others are out of range: cache/indices.h
  int32_t max_seqlen;       // after appending; lengths beyond are out of range
  int32_t max_rows;         // of all sequences: keys beyond are left out
  int32_t window_left;      // keys before a query's diagonal that it sees; -1 = all
  int32_t num_workgroups;   // along x
  int32_t pieces;           // of 16 keys: of K and of V so many heads each
  int32_t piece_heads;
  float k_scale;  // of elements of 8 bits
  float v_scale;
  float softmax_scale_log2;  // of scales, as the forward kernels have them without
  float log2_rest;
  int32_t is_capped;  // then log2_rest is not that of scores
  int32_t padding;    // to a multiple of 8 bytes
} CacheRowsArgs;
