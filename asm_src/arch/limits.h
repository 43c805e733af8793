// What kernels know of the architecture that they are built for. Host programs may include it: they
// say what kernels for gfx942 do.
#pragma once

// kMaxLdsBytes: of a workgroup. kLaterResults: wait states by which a VALU may read what a matrix
// instruction of four passes or more writes later than on gfx942.
#if defined(__gfx950__)
inline constexpr int kMaxLdsBytes = 160 * 1024, kLaterResults = 1;
#elif defined(__gfx942__) || !defined(__AMDGCN__)
inline constexpr int kMaxLdsBytes = 64 * 1024, kLaterResults = 0;
#else
#error "no limits of this architecture here"
#endif
