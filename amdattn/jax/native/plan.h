// A plan as it travels through XLA: an attribute of 64-bit words, the same in every process.
// Written by amdattn/jax/encoding.py, which has the same picture.
//
//   header    magic, words, inputs, results, clears, launches
//   buffers   bytes of every input, then of every result
//   clears    (buffer, offset, bytes) of what is 0 when launches begin
//   launches  key (2), grid (3), workgroup (3), bytes of arguments, patches,
//             then (where, addend) of each patch, then the arguments, padded to words
//
// `where` is the offset of an 8-byte argument and, from bit 32 on, the buffer whose address is
// added there; kGeneration stands for the number of the run, which goes into 4 bytes.
#pragma once

#include <stdint.h>

#define PLAN_MAGIC INT64_C(0x31306e6c70616d61)  // "amapln01": changes with the picture above

enum { kGeneration = 0xffffffff };
enum { kMaxBuffers = 32, kMaxLaunches = 8, kMaxArgumentBytes = 1024 };
enum { kMaxWorkgroup = 1024, kMaxWords = 20000 };

typedef struct PlanHeader {
  int64_t magic, words, inputs, results, clears, launches;
} PlanHeader;

typedef struct PlanClear {
  int64_t buffer, offset, bytes;
} PlanClear;

typedef struct PlanLaunch {
  uint64_t key[2];
  int64_t grid[3], workgroup[3];
  int64_t argument_bytes, patches;
} PlanLaunch;

typedef struct PlanPatch {
  uint64_t where;
  int64_t addend;
} PlanPatch;
