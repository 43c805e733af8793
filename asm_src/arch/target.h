// What the schedule of a kernel follows from, by architecture. Host programs may include it.
#pragma once

struct Cdna3 {
  static constexpr int kMaxLdsBytes = 64 * 1024;  // of a workgroup
  static constexpr int kOperandElements = 4;      // of a lane, of a 16-bit matrix instruction
  static constexpr int kTransSlots = 4;           // of the vector unit for a transcendental
  // Wait states behind a matrix instruction of 8 passes, until its result may be read.
  static constexpr int kWaitOf8Passes = 11;
  static constexpr bool kLdsRightBehindMatrix = true;  // may the next slot have an LDS instruction?
  static constexpr int kHeadsOfXcd = 8;                // at once, under a mask: attn/work.h
  static constexpr bool kConvertsPairs = false;  // float32 to 16 bits, to nearest even, in a slot
  static constexpr bool kTransposesReads =
      false;  // of LDS; then loads to LDS bring 16 bytes a lane
};

struct Cdna4 {
  static constexpr int kMaxLdsBytes = 160 * 1024;
  static constexpr int kOperandElements = 8;
  static constexpr int kTransSlots = 2;
  static constexpr int kWaitOf8Passes = 12;
  static constexpr bool kLdsRightBehindMatrix = false;
  static constexpr int kHeadsOfXcd = 2;
  static constexpr bool kConvertsPairs = true;
  static constexpr bool kTransposesReads = true;
};

// The one that is compiled for; of a host program the first one.
#ifdef __gfx950__
using Here = Cdna4;
#else
using Here = Cdna3;
#endif
