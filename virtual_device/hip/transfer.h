// Copies and fills, checked when they are requested.
#pragma once

#include "core/safe_read.h"
#include "hip/runtime.h"

namespace vdev::hip {

inline constexpr bool kWait = true, kAsync = false;  // whether a call returns when it is done

// One side of a transfer of `height` rows of `row_bytes` in each of `depth` planes. Refuses null,
// addresses of the device that are not allocated, and ranges that leave their allocation.
Side make_side(Runtime& runtime, const void* pointer, u64 pitch, u64 slice, u64 row_bytes,
               u64 height, u64 depth, HostAccess access);

// A checked copy; `kind` must agree with the pointers.
CopyCommand make_copy(Runtime& runtime, void* dst, u64 dst_pitch, u64 dst_slice, const void* src,
                      u64 src_pitch, u64 src_slice, u64 width, u64 height, u64 depth,
                      hipMemcpyKind kind);
CopyCommand make_copy(Runtime& runtime, const hipMemcpy3DParms* params);
FillCommand make_fill(Runtime& runtime, void* dst, u64 pitch, u64 slice, u32 value,
                      u32 element_bytes, u64 width, u64 height, u64 depth);

}  // namespace vdev::hip
