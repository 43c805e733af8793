// Kernel arguments of the copy of indices of 64 bits to 32. Fixed-width scalars only.
typedef struct NarrowIndicesArgs {
  uint64_t from;  // int64, `step` apart, device address
  uint64_t to;    // int32 [count]
  int64_t step;   // in elements
  int64_t count;
  int64_t least;  // what is below becomes this one, what is above `most` that one
  int64_t most;
} NarrowIndicesArgs;
