// Host memory that somebody else names: what of it is there.
#pragma once

#include "core/types.h"

namespace vdev {

// Reads memory of this process that may not be mapped; returns how many bytes could be read.
u64 read_safely(void* dst, const void* src, u64 bytes);

enum class HostAccess : u8 { kRead, kWrite };

// Whether all of [first, first + bytes) is mapped and may be read, or read and written.
bool is_accessible(const void* first, u64 bytes, HostAccess access);

// Whether a text ends within memory that can be read, and within `limit` bytes.
bool is_text(const char* text, u64 limit = u64{1} << 20);

}  // namespace vdev
