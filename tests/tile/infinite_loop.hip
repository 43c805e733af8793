// Never ends while *flag is 0: for time-outs.
#include "isa/device.h"

extern "C" __global__ void WORKGROUP(64, 1) infinite_loop(uint64_t flag) {
  while (*(const volatile Global<int>*)flag == 0) __builtin_amdgcn_s_sleep(1);
}
