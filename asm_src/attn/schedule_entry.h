// What a workgroup of attention over sequences of several lengths is told: a tile of rows, or a
// part of it along the keys. Each entry is of as many workgroups as there are heads.
#pragma once
#include "isa/device.h"

struct AttnScheduleEntry {
  int32_t q_start;          // first row of the tile, of its sequence
  int32_t rows, keys;       // of the sequence; 0 rows: nothing to do
  int32_t q_base, kv_base;  // its first row of q and of k
  int32_t partial;          // of the entries that are parts, the number of the tile's first one
  int32_t part, parts;      // of a whole tile 0, 1
};
