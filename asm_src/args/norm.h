// Kernel arguments of normalised rows, of their mean or not. Fixed-width scalars only; strides are
// between rows, in elements, of any sign; the elements of a row lie next to each other. What a
// workgroup needs first comes first: 14 dwords are in SGPRs when it starts.
typedef struct NormArgs {
  uint64_t x;         // [rows, columns], device address
  uint64_t residual;  // [rows, columns], or 0
  uint64_t weight;    // [columns], of the type of x or float32, as the kernel has it
  uint64_t state;  // uint64 [2]: a seed, and an offset that a launch adds 1 to; 0: nothing is drawn
  int64_t x_stride;
  int64_t residual_stride;
  int32_t columns;
  int32_t rows;
  uint64_t bias;     // as weight, or 0
  uint64_t arrived;  // uint32, workgroups that know the state; 0 before and after
  uint64_t out;      // [rows, columns], of x's type, or of 8 bits
  uint64_t sum;      // [rows, columns], written if not 0
  int64_t out_stride;
  int64_t sum_stride;
  uint64_t scales;       // float32: what rows of 8 bits are divided by; 0: made of a row
  uint64_t scale_out;    // float32 [rows], written; 0: none is made
  int32_t scale_stride;  // of `scales`: 0 or 1
  int32_t narrow;        // whether out is of 8 bits
  int32_t centred;       // whether the mean of a row is subtracted
  uint32_t
      threshold;  // a column is dropped if its 16 random bits are below those of the upper half
  float kept;     // what columns that stay are multiplied by
  float eps;      // not NaN
  float inverse_columns;  // 1 / columns
  int32_t workgroups;     // of the grid
} NormArgs;
