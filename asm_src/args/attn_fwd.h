// Kernel arguments of the attention forward family. One by-value struct is the whole kernarg block.
// Parsed by the HIP compiler and by a C declaration parser: fixed-width scalars only, no macros.
// Strides count elements, not bytes; the stride of head_dim is 1 for every tensor.
typedef struct AttnFwdArgs {
  // What a workgroup needs before its loop, in one trip to memory (attn/first_loads.h).
  uint64_t q;  // [batch, seqlen_q, num_heads_q, head_dim] device address
  uint64_t k;  // [batch, seqlen_kv, num_heads_kv, head_dim] device address
  uint64_t v;  // [batch, seqlen_kv, num_heads_kv, head_dim_v] device address
  // [batch + 1] int32, rows of q and o before each sequence; 0 = dense. Without cu_seqlens_kv the
  // schedule: AttnScheduleEntries of all workgroups, or of all tiles to merge
  // (attn/schedule_entry.h).
  uint64_t cu_seqlens_q;
  uint64_t cu_seqlens_kv;  // [batch + 1] int32; 0 = dense, or a schedule
  int64_t q_stride_batch;  // 0 with cu_seqlens
  int64_t q_stride_seq;
  int64_t q_stride_head;
  int64_t k_stride_batch;
  int64_t k_stride_seq;
  int64_t k_stride_head;
  int64_t v_stride_batch;
  int64_t v_stride_seq;
  int64_t v_stride_head;
  int32_t num_heads_q;
  int32_t seqlen_q;  // with cu_seqlens the greatest
  int32_t seqlen_kv;
  float softmax_scale_log2;  // softmax_scale * log2(e)
  int32_t window_left;       // a row sees keys >= row + diagonal - window_left; < 0: all
  int32_t window_right;      // and keys <= row + diagonal + window_right; < 0: all. Causal: 0
  int32_t top_left;          // diagonal = 0 if set, else seqlen_kv - seqlen_q
  int32_t q_tiles;           // tiles of tile_q rows of the longest sequence; workgroups of an entry
  int32_t whole_tiles;       // work items that are whole tiles; those after them are parts.
                             // Less than 0: workgroups find their tiles (attn/tile_order.h)
  int32_t head_dim;          // columns of q and k: a multiple of 8
  int32_t head_dim_v;        // columns of v and o: a multiple of 8
  int32_t column_groups;     // tiles that share the columns of a row of o
  // n / d = (2 n * inverse >> 32) >> shift, for 0 <= n < 2^31.
  uint32_t q_tiles_inverse;
  int32_t q_tiles_shift;
  uint32_t num_heads_q_inverse;  // or of tiles that are found the least class of those in parts
  int32_t num_heads_q_shift;     // or log2 of the keys of a class
  uint32_t group_inverse;        // of q heads that share a kv head
  int32_t group_shift;
  uint64_t scales;  // HeadScales (attn/head_scales.h) [num_heads_kv]; 0 = none
  // What it needs later, from here on.
  uint64_t o;          // [batch, seqlen_q, num_heads_q, head_dim_v] device address
  uint64_t lse;        // float32, natural log, [batch, num_heads_q, seqlen_q]; 0 = none
  uint64_t sinks;      // [num_heads_q] float32, natural-log units; 0 = none
  uint64_t partial_o;  // [split parts, tile_q, columns of a tile] float32; 0 = no parts
  // [split parts, tile_q, 2] float32: the reference of a row's probabilities, log2 units, and their
  // sum relative to it; 0 where the part has no key of the row.
  uint64_t partial_max_sum;
  // [split parts, waves] of 64 bits, 0 between launches: of the first part of a tile, how many of
  // its parts have arrived; the last one to do so merges them. 0: another launch merges them.
  uint64_t counters;
  uint64_t generation;  // the number of the launch
  int64_t o_stride_batch;
  int64_t o_stride_seq;
  int64_t o_stride_head;
  int64_t lse_stride_batch;  // of the lse, with the row stride 1
  int64_t lse_stride_head;
  int32_t batch;
  int32_t num_heads_kv;  // divides num_heads_q; kv_head = q_head / (num_heads_q / num_heads_kv)
  int32_t parts;         // parts along KV of each tile that is not whole
  float softcap_log2;    // softcap * log2(e); kernels without a cap take no notice
  int32_t part_blocks;   // blocks of keys of all but the last part of a tile; 0: parts are equal
  int32_t merge_tiles;   // those in parts; with a schedule at most. If found tiles are more, none
  // Of the kernel that merges them, if it is one of its own: each takes every so many rows.
  int32_t merge_workgroups;
  // What log2 units of the kernel, those of softcap_log2 where there is a cap, else of
  // softmax_scale_log2, are too small by, relative to them: the rest of that constant. For what
  // leaves the kernel, or meets a sink.
  float log2_rest;
  int32_t keeps_floats;  // it writes O as float32, lse as pairs of them; else rounded
  int32_t padding;       // to a multiple of 8 bytes
} AttnFwdArgs;
