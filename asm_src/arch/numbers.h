// What formats of numbers an architecture has. The first branch is CDNA4's OCP, the other FNUZ.
#pragma once

#ifdef __gfx950__
inline constexpr float kMostFp8 = 448;  // the greatest e4m3
#else
inline constexpr float kMostFp8 = 240;
#endif
