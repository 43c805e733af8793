// Names of types and of ways to round, for host programs, too.
#pragma once

enum class Element { kBf16, kF16 };  // of operands, 16 bits
enum class Rounding { kNearestEven, kNearestAway, kTowardZero };
