// Kernel arguments of RMS normalisation. Fixed-width scalars only; strides are between rows, in
// elements of 16 bits, of any sign; the elements of a row lie next to each other. What a workgroup
// needs first comes first: 14 dwords are in SGPRs when it starts.
typedef struct RmsNormArgs {
  uint64_t x;         // [rows, columns], device address
  uint64_t weight;    // [columns], of the type of x or float32, as the kernel has it
  uint64_t residual;  // [rows, columns], or 0
  int64_t x_stride;
  int64_t residual_stride;
  int32_t columns;
  int32_t rows;
  float eps;              // not NaN
  float inverse_columns;  // 1 / columns
  uint64_t out;           // [rows, columns]
  uint64_t sum;           // [rows, columns], written with a residual only
  int64_t out_stride;
  int64_t sum_stride;
} RmsNormArgs;
