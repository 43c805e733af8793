// What kernels know of the architecture that they are built for. Host programs may include it: they
// say what kernels for gfx942 do.
#pragma once

#if defined(__gfx950__)
inline constexpr int kMaxLdsBytes = 160 * 1024;  // of a workgroup
#elif defined(__gfx942__) || !defined(__AMDGCN__)
inline constexpr int kMaxLdsBytes = 64 * 1024;
#else
#error "no limits of this architecture here"
#endif
