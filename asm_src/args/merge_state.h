// Kernel arguments of the merge of partial attention results. Fixed-width scalars only. A row is
// one query of one head of one sequence; of these three axes one is `x`, one goes along the rows of
// a workgroup, one is `z`. Strides are of any sign, those of o and out in 16 bytes, those of lse
// and lse_out in elements; the elements of a row lie next to each other. What a workgroup needs
// first comes first: 14 dwords are in SGPRs when it starts.
typedef struct MergeStateArgs {
  uint64_t o;    // [parts] x rows, each of so many chunks, device address
  uint64_t lse;  // [parts] x rows, float32
  int32_t o_part;
  int32_t o_x;
  int32_t o_row;
  int32_t o_z;
  int32_t lse_part;
  int32_t lse_x;
  int32_t lse_row;
  int32_t lse_z;
  int32_t rows;              // along the axis of a workgroup's rows
  int32_t parts_and_chunks;  // parts * 256 + chunks: 1 to 2^23 - 1, 1 to 64
  uint64_t out;              // rows, as o
  uint64_t lse_out;          // rows, float32
  int32_t out_x;
  int32_t out_row;
  int32_t out_z;
  int32_t lse_out_x;
  int32_t lse_out_row;
  int32_t lse_out_z;
} MergeStateArgs;
