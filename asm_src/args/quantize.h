// Kernel arguments of the quantisation of rows to 8 bits. Fixed-width scalars only; strides are
// between rows, in elements, of any sign; the elements of a row lie next to each other. What a
// workgroup needs first comes first: 14 dwords are in SGPRs when it starts.
typedef struct QuantizeArgs {
  uint64_t x;  // [rows, columns], device address
  uint64_t
      scales;  // float32: those of the caller, or maxima of parts of x; 0: one is made of a row
  int64_t x_stride;
  int32_t columns;
  int32_t rows;
  int32_t maxima;        // how many; 0: the scales are the caller's, or there are none
  int32_t scale_stride;  // of the caller's: 0 or 1
  uint64_t y;            // [rows, columns], of 8 bits
  int64_t y_stride;
  uint64_t scale_out;  // float32, written where it is made; else 0
} QuantizeArgs;
