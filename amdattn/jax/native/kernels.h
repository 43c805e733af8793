// Loaded kernels by key and device. Read without a lock; entries are added and never change.
#pragma once

#include <stdint.h>

enum { kMaxArguments = 128 };

typedef struct Kernel {
  uint64_t key[2];
  int32_t platform, ordinal;
  void* function;          // hipFunction_t
  int32_t argument_bytes;  // as plans have them
  int32_t arguments;       // 0: they go as one block (`extra`); else so many, one by one
  const int32_t* offsets;  // of each in the block
} Kernel;

const Kernel* find_kernel(int platform, int ordinal, const uint64_t key[2]);
