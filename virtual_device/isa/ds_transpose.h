// The transposing reads of LDS, which feed matrix instructions.
//
// ISA manual of CDNA4, 11.4: EXEC must be all ones, and addresses aligned to the data size. What is
// read by 16 lanes, one after the other, is a matrix of 16 columns; lane c of them gets column c,
// from the first row on. The manual tells it by the values of K that a lane gets (4 of b16, 8 of
// b8, 16 of b6 and b4); rocRoller's tests of a GPU check it of every form.
#pragma once

#include "core/wave.h"

namespace vdev::ds {

constexpr u32 transposed_bytes(u32 element_bits) { return element_bits == 6 ? 12 : 8; }
// A datum of 96 bits counts as one of 128 (rocRoller pads it).
constexpr u32 transposed_alignment(u32 element_bits) { return element_bits == 6 ? 16 : 8; }

// `data`: transposed_bytes of each of the wave's lanes in turn. `out`: the result's registers.
void transpose(u32 element_bits, const std::byte* data, Reg* out);

template <u32 kElementBits>
void read_transposed(Wave& w, const Inst& inst);

}  // namespace vdev::ds
