// Kernel arguments of the gradients of RMS normalisation. Fixed-width scalars only; strides are
// between rows, in elements of 16 bits, of any sign; the elements of a row lie next to each other.
typedef struct RmsNormBackwardArgs {
  uint64_t dout;     // [groups * rows, columns], device address
  uint64_t x;        // the same: what was normalised, with a residual the sum
  uint64_t weight;   // [columns], of the type of x or float32, as the kernel has it
  uint64_t dsum;     // as dout: the gradient of that sum as a result; 0 = none
  uint64_t dx;       // as dout, written
  uint64_t dweight;  // float32 [groups, blocks, columns], written: sums over rows of a block
  int64_t dout_stride;
  int64_t x_stride;
  int64_t dsum_stride;
  int64_t dx_stride;
  int32_t columns;
  int32_t rows;    // of a group
  int32_t blocks;  // of rows, of a group
  int32_t block_rows;
  float eps;              // not NaN
  float inverse_columns;  // 1 / columns
} RmsNormBackwardArgs;
