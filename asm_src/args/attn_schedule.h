// Kernel arguments of the schedule of attention over sequences of several lengths, and what it
// writes. As in attn_fwd.h: fixed-width scalars only.
typedef struct AttnScheduleArgs {
  uint64_t cu_seqlens_q;   // [batch + 1] int32, as in attn_fwd.h
  uint64_t cu_seqlens_kv;  // [batch + 1] int32
  uint64_t entries;        // [max_entries] AttnScheduleEntry; 0 rows behind the last one
  uint64_t merges;         // [max_merges], of each tile in parts the first one; likewise
  int32_t batch;
  int32_t seqlen_q;  // the greatest
  int32_t seqlen_kv;
  int32_t window_left;  // as in attn_fwd.h
  int32_t window_right;
  int32_t top_left;
  int32_t tile_q;
  int32_t kv_tile_log2;
  int32_t max_entries;
  int32_t max_merges;
  int32_t max_partials;  // entries that are parts
  int32_t heads;         // workgroups of an entry
  int32_t slots;         // workgroups that run at a time
  int32_t max_parts;     // of a tile
  int32_t num_splits;    // parts of every tile; 0: as many as take the least time
  int32_t class_shift;   // tiles of as many blocks >> class_shift count as equally long
  float block_clk;       // modelled: of a block of keys, of what is beside them,
  float workgroup_clk;
  float merge_clk;  // of merging, and more for each part
  float partial_clk;
} AttnScheduleArgs;
