// Kernel arguments of attention of few queries over a cache of keys and values. Fixed-width scalars
// only; strides count elements, that of the last axis is 1. Row i of a sequence is query
// i / group of head i % group of those that share a head of keys.
// Position p of sequence b lies in page block_table[b][p / page_keys], at p % page_keys; without a
// table in row cache_batch_idx[b], or b, of the cache.
// Packed: K is [page, num_heads_kv, head_dim / x, page_keys, x], x elements being 16 bytes, and of
// V the page_keys of a column are neighbours, all of them or x at a time.
typedef struct AttnDecodeArgs {
  // In scalar registers when a workgroup starts: what it waits for before its first keys.
  uint64_t cache_seqlens;  // int32 [batch], keys before those appended; 0 = all have max_seqlen
  uint64_t block_table;    // int32 [batch, table_stride]; 0 = no pages
  uint64_t cache_leftpad;  // int32 [batch], positions before it hold no key; 0 = none
  int32_t batch;
  int32_t num_splits;  // parts of every item; -n = at most n if lengths are alike; 0, or if they
                       // are not = equal shares of the whole work
  int32_t num_workgroups;
  int32_t num_heads_kv;
  int32_t row_tiles;  // tiles of rows of an item's sequence and head
  int32_t table_stride;
  int32_t max_seqlen;       // after appending; lengths beyond are out of range
  int32_t page_reciprocal;  // ceil(2^32 / page_keys) as bits
  // In memory.
  uint64_t q;                // [batch, seqlen_q, num_heads_q, head_dim] device address
  uint64_t k;                // [pages or rows of the cache, page_keys, num_heads_kv, head_dim]
  uint64_t v;                // [pages or rows of the cache, page_keys, num_heads_kv, head_dim_v]
  uint64_t o;                // [batch, seqlen_q, num_heads_q, head_dim_v]
  uint64_t lse;              // float32 [batch, num_heads_q, seqlen_q], compact; 0 = not wanted
  uint64_t k_new;            // [batch, seqlen_new, num_heads_kv, head_dim], appended; 0 = none
  uint64_t v_new;            // [batch, seqlen_new, num_heads_kv, head_dim_v]
  uint64_t rotary_cos;       // [positions, rotary_dim / 2], compact; 0 = none
  uint64_t rotary_sin;       // the same
  uint64_t cache_batch_idx;  // int32 [batch]; 0 = b
  uint64_t sinks;            // float32 [num_heads_q]; 0 = none
  uint64_t k_scales;         // float32, of a head, for elements of 8 bits; 0 = k_scale of all
  uint64_t v_scales;         // the same
  uint64_t partials;         // float32 [workgroups * 2 or parts of all items][rows][columns + 2]
  uint64_t counters;         // uint64 [items], 0 before and after every launch
  uint64_t generation;       // a number greater than those of all launches before on the counters
  int64_t q_batch;
  int64_t q_seq;
  int64_t q_head;
  int64_t o_batch;
  int64_t o_seq;
  int64_t o_head;
  int64_t k_page;
  int64_t k_head;
  int64_t v_page;
  int64_t v_head;
  int64_t k_new_batch;
  int64_t k_new_head;
  int64_t v_new_batch;
  int64_t v_new_head;
  int32_t k_seq;  // of 16 positions' worth of bytes at most 2^30
  int32_t v_seq;
  int32_t window_right;  // behind a row's diagonal that it sees; -1 = all
  int32_t window_left;   // keys before it
  int32_t seqlen_new;
  int32_t seqlen_q;
  int32_t k_chunk;       // packed: from 16 bytes of a key to its next ones
  int32_t v_column;      // packed
  int32_t v_chunk;       // packed: from x keys of a column to the next ones
  int32_t k_scale_head;  // from a head's scale to the next one's
  int32_t v_scale_head;
  int32_t k_new_seq;
  int32_t v_new_seq;
  int32_t group;  // query heads of a head of keys
  int32_t head_dim;
  int32_t head_dim_v;
  int32_t rotary_dim;    // first columns of q and k_new that are turned; even
  int32_t rotary_flags;  // 1: pairs are neighbours; 2: angles are float32, else of the type of q
  int32_t page_keys;     // a multiple of 16; without a table those of a row of the cache
  int32_t num_pages;     // or rows of the cache: others are out of range: cache/indices.h
  float k_scale;         // of elements of 8 bits
  float v_scale;
  float softmax_scale_log2;
  float softcap;             // 0 = none
  float softmax_scale_rest;  // the true scale is 1 + this times softmax_scale_log2
  int32_t keeps_floats;      // for a merge with other keys: o is float32, lse pairs of them, whose
                             // sum it is; else rounded
} AttnDecodeArgs;
