// The smaller and the larger one of two integers.
#pragma once
#include "isa/device.h"

__device__ __forceinline__ int min_of(int a, int b) { return a < b ? a : b; }
__device__ __forceinline__ int max_of(int a, int b) { return a > b ? a : b; }
__device__ __forceinline__ uint32_t min_of(uint32_t a, uint32_t b) { return a < b ? a : b; }
