// sum[lane] and most[lane] of in[] over the lanes up to `lane`; most is of numbers that are not
// negative.
#include "isa/valu.h"
#include "tile/integers.h"
#include "tile/operand.h"
#include "tile/scan.h"

extern "C" __global__ void WORKGROUP(64, 1)
    lane_scan(const int32_t* in, int32_t* sum, int32_t* most) {
  const int lane = Lane::in_workgroup();
  sum[lane] = sum_scanned(in[lane]);
  most[lane] = scanned(in[lane], max_of);
}
