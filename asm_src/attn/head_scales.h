// What keys and values of a kv head are to be multiplied by, where they are 8-bit floats that were
// widened as they are: so scores and O are.
#pragma once
#include "isa/device.h"

struct HeadScales {
  float scores;     // in place of softmax_scale_log2
  float values;     // of O
  float log2_rest;  // in place of that of the arguments
  float unused;
};

template <class Args>
__device__ __forceinline__ const Constant<HeadScales>& head_scales(const Args& args, int head_kv) {
  return ((const Constant<HeadScales>*)args.scales)[head_kv];
}

template <class Args>
__device__ __forceinline__ float log2_rest_of(const Args& args, int head_kv) {
  return args.scales == 0 ? args.log2_rest : head_scales(args, head_kv).log2_rest;
}
