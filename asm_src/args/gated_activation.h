// Kernel arguments of an activation times a factor. Fixed-width scalars only; strides are between
// rows, in elements of 16 bits, of any sign; the elements of a row lie next to each other. All of
// them are in SGPRs when a workgroup starts: 14 dwords.
typedef struct GatedActivationArgs {
  uint64_t gate;  // [rows, columns], device address: what is activated
  uint64_t up;    // [rows, columns]: the factor
  uint64_t out;   // [rows, columns]; may be gate or up
  int32_t gate_stride;
  int32_t up_stride;
  int32_t out_stride;
  int32_t columns;
  int32_t total;       // chunks of all rows: of 8 columns each, the last one of a row may have less
  int32_t row_chunks;  // of a row
  uint32_t factor;     // n / row_chunks = (n + 1) * factor >> 32 + shift
  int32_t flags;       // of the shift the lower byte; the activation above
} GatedActivationArgs;
