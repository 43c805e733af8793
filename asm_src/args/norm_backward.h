// Kernel arguments of the gradients of normalised rows, of their mean or not. Fixed-width scalars
// only; strides are between rows, in elements of 16 bits, of any sign; the elements of a row lie
// next to each other.
typedef struct NormBackwardArgs {
  uint64_t dout;         // [groups * rows, columns], device address
  uint64_t x;            // the same: the sum that was normalised, without a residual x itself
  uint64_t weight;       // [columns], of the type of x or float32, as the kernel has it
  uint64_t dsum;         // as dout: the gradient of that sum as a result; 0 = none
  uint64_t state;        // uint64 [2]: a seed, and an offset; 0: nothing was dropped
  uint64_t dx;           // as dout, written
  uint64_t dresidual;    // as dout, written where it is not dx; 0: it is
  uint64_t dparameters;  // float32 [groups, blocks, 1 or 2, columns], written: sums over rows of a
                         // block, of the weight and of the bias
  int64_t dout_stride;
  int64_t x_stride;
  int64_t dsum_stride;
  int64_t dx_stride;
  int64_t dresidual_stride;
  int32_t columns;
  int32_t rows;    // of a group
  int32_t blocks;  // of rows, of a group
  int32_t block_rows;
  int32_t bias;        // whether it has a gradient
  int32_t centred;     // whether the mean of a row was subtracted
  int32_t drops_x;     // whether x is what elements were dropped of, not the sum
  uint32_t behind;     // how much the offset is ahead of that of the forward pass
  uint32_t threshold;  // as of the forward pass
  float kept;
  float eps;              // not NaN
  float inverse_columns;  // 1 / columns
} NormBackwardArgs;
