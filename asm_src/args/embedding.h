// Kernel arguments of the gathering of rows. Fixed-width scalars only; strides are between rows, in
// elements, of any sign; the elements of a row lie next to each other. All of them are in SGPRs
// when a workgroup starts: 14 dwords.
typedef struct EmbeddingArgs {
  uint64_t table;    // [table_rows, columns], device address
  uint64_t indices;  // int32, next to each other
  int64_t table_stride;
  int32_t table_rows;
  int32_t row_bytes;
  int32_t rows;
  uint32_t lost;  // an element that is NaN, of 16 bits twice
  uint64_t out;   // [rows, columns]
  int32_t out_stride;
  int32_t log2_bytes;  // of an element
} EmbeddingArgs;
