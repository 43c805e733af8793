// Kernel arguments of the maxima of parts of a matrix. Fixed-width scalars only.
typedef struct QuantizeMaximaArgs {
  uint64_t x;        // [rows, columns], device address
  uint64_t maxima;   // float32 [workgroups], written
  int64_t x_stride;  // between rows, in elements, of any sign
  int32_t columns;
  int32_t rows;
  int32_t tiles;       // ceil(rows / those of a tile) * ceil(columns / those of a tile)
  int32_t workgroups;  // of the grid
} QuantizeMaximaArgs;
