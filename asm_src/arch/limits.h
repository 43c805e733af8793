// What kernels know of the architecture that they are built for.
#pragma once
#include "arch/target.h"

#if defined(__AMDGCN__) && !defined(__gfx942__) && !defined(__gfx950__)
#error "no limits of this architecture here"
#endif

inline constexpr int kMaxLdsBytes = Here::kMaxLdsBytes;  // of a workgroup
