// Kernel arguments of a rotary embedding. Fixed-width scalars only; strides are in elements, of any
// sign; the elements of a head lie next to each other. The first 14 dwords are in SGPRs when a
// workgroup starts: all that the loads of x and of the angles take where x has sequences that
// follow each other. Quotients: n / d = (n + 1) * factor >> 32 + shift.
typedef struct RotaryArgs {
  uint64_t x;    // [batch, seqlen, heads, head_dim], device address
  uint64_t cos;  // [table_rows, rotary_dim / 2], of the type of x or float32
  uint64_t sin;
  int32_t x_seq;
  int32_t x_head;
  uint32_t x_factor;  // by the lanes of a token
  uint32_t x_facts;   // heads << 16 | shift
  uint32_t dims;      // head_dim << 16 | rotary_dim
  int32_t x_items;    // lanes
  int32_t seqlen;     // 0: there is one sequence
  uint32_t flags;     // RotaryFlag, and above 16 bits the shift for seqlen
  uint64_t x_out;     // these 8 dwords are loaded at once
  int32_t x_out_batch;
  int32_t x_out_seq;
  int32_t x_out_head;
  int32_t x_batch;  // where flags say so; else sequences follow each other
  int32_t table_rows;
  uint32_t batch_factor;
  uint64_t k_out;  // as many of k
  int32_t k_out_batch;
  int32_t k_out_seq;
  int32_t k_out_head;
  int32_t k_batch;
  int32_t k_items;
  uint32_t k_factor;
  uint64_t k;  // as x, with heads of its own
  int32_t k_seq;
  int32_t k_head;
  uint32_t k_facts;
  int32_t positions_batch;  // strides of positions
  uint64_t positions;       // int32: what is added to a token's number, or is its position
  int32_t positions_seq;
  float norm_eps;
  uint64_t x_norm;  // [head_dim], of the type of x: weights that heads are normalised with; 0: none
  uint64_t k_norm;
} RotaryArgs;
