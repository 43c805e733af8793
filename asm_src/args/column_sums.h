// Kernel arguments of sums of float32 rows. Fixed-width scalars only.
typedef struct ColumnSumsArgs {
  uint64_t from;  // float32 [groups, rows, columns], device address
  uint64_t to;    // float32 [groups, columns], written
  int32_t columns;
  int32_t rows;  // of a group
} ColumnSumsArgs;
