// Kernel arguments of what is drawn from logits. Fixed-width scalars only; strides count elements,
// those of a row lie next to each other.
typedef struct SampleArgs {
  uint64_t logits;  // [rows, columns] device address
  uint64_t
      tokens;      // int32 [rows, history]: those so far of each row, less than 0 none; 0 = no such
  uint64_t state;  // uint64 [rows, 2]: a seed, and an offset that a launch adds 1 to; 0 = greatest
  uint64_t out;    // int32 [rows]
  // Of several workgroups a row; see sample/slices.h.
  uint64_t counters;    // uint64 [rows]: who has arrived, 0 between launches
  uint64_t partials;    // 16 bytes [rows, slices]
  uint64_t shared;      // SharedOfRow [rows]; 0 = nobody is left out
  uint64_t lists;       // 8 bytes [rows, columns]: those whose bins do not tell
  uint64_t generation;  // the number of the run
  int64_t logits_stride;
  int64_t tokens_stride;
  int32_t columns;
  int32_t history;
  int32_t top_k;    // 0 = all
  float scale;      // log2(e) / temperature
  float top_p;      // 1 = all
  float log_min_p;  // in base 2; -infinity = all
  float penalty;    // of tokens so far
  int32_t phase;    // of several launches
} SampleArgs;
