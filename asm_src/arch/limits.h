// What kernels know of the architecture that they are built for. Host programs may include it: they
// say what kernels for gfx942 do.
#pragma once

#if defined(__AMDGCN__) && !defined(__gfx942__)
#error "no limits of this architecture here"
#endif

inline constexpr int kMaxLdsBytes = 64 * 1024;  // of a workgroup
