// A wait that the compiler counts among its own.
#pragma once
#include "isa/device.h"

// Until every access to memory is done; LDS and scalar loads may be under way.
__device__ __forceinline__ void s_waitcnt_vmcnt_0() { __builtin_amdgcn_s_waitcnt(0x0f70); }
