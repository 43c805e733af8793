#include "isa/ds_transpose.h"

#include <cstring>
#include <type_traits>

#include "isa/ds_semantics.h"

namespace vdev::ds {
namespace {

constexpr u32 kColumns = 16;  // lanes that exchange data

// Elements of whole bytes: rows are arrays.
template <class Element>
void transpose_bytes(const std::byte* data, Reg* out) {
  constexpr u32 kRows = 8 / sizeof(Element), kOfDword = 4 / sizeof(Element);
  for (u32 group = 0; group < kLanes; group += kColumns) {
    Element matrix[kRows][kColumns];
    std::memcpy(matrix, data + 8 * group, sizeof matrix);
    for (u32 dword = 0; dword < 2; ++dword)
      for (u32 column = 0; column < kColumns; ++column) {
        u32 word = 0;
        for (u32 i = 0; i < kOfDword; ++i)
          word |= u32{matrix[kOfDword * dword + i][column]} << 8 * sizeof(Element) * i;
        out[dword].lane[group + column] = word;
      }
  }
}

// Sixteen elements of 4 or 6 bits: each lane's datum is a row.
template <u32 kBits>
void transpose_bits(const std::byte* data, Reg* out) {
  using Datum = std::conditional_t<kBits == 4, u64, unsigned __int128>;
  constexpr u32 kBytes = transposed_bytes(kBits);
  for (u32 group = 0; group < kLanes; group += kColumns) {
    u8 matrix[kColumns][kColumns];
    for (u32 row = 0; row < kColumns; ++row) {
      Datum datum = 0;
      std::memcpy(&datum, data + kBytes * (group + row), kBytes);
      for (u32 column = 0; column < kColumns; ++column)
        matrix[row][column] = static_cast<u8>(datum >> kBits * column) & ((1u << kBits) - 1);
    }
    for (u32 column = 0; column < kColumns; ++column) {
      Datum datum = 0;
      for (u32 row = 0; row < kColumns; ++row) datum |= Datum{matrix[row][column]} << kBits * row;
      for (u32 dword = 0; dword < kBytes / 4; ++dword)
        out[dword].lane[group + column] = static_cast<u32>(datum >> 32 * dword);
    }
  }
}

}  // namespace

void transpose(u32 element_bits, const std::byte* data, Reg* out) {
  switch (element_bits) {
    case 16:
      return transpose_bytes<u16>(data, out);
    case 8:
      return transpose_bytes<u8>(data, out);
    case 6:
      return transpose_bits<6>(data, out);
    default:
      return transpose_bits<4>(data, out);
  }
}

template <u32 kElementBits>
void read_transposed(Wave& w, const Inst& inst) {
  constexpr u32 kBytes = transposed_bytes(kElementBits);
  constexpr u32 kAlignment = transposed_alignment(kElementBits);
  const u64 exec = w.exec();
  if (!exec) return;  // as behind a branch that was not taken
  if (exec != ~u64{0})
    raise(FaultKind::kIllegalInstruction,
          std::string(inst.row->name) + " exchanges data between lanes, and EXEC is not all ones",
          std::countr_zero(~exec));
  const Reg address = addresses(w, inst, static_cast<u32>(inst.offset));
  Workgroup& group = *w.workgroup;
  u32 low_bits = 0;
  for (int i = 0; i < kLanes; ++i) low_bits |= address.lane[i];
  if (low_bits % kAlignment || !lds_holds_all(group, address, kBytes)) [[unlikely]]
    for (int lane = 0; lane < kLanes; ++lane) {
      const u32 at = address.lane[lane];
      if (at % kAlignment)
        raise(FaultKind::kMisaligned,
              std::string(inst.row->name) + " at an address that is not a multiple of " +
                  std::to_string(kAlignment),
              lane, at);
      group.local(at, kBytes, Access::kRead, lane);
    }
  const auto* const lds = reinterpret_cast<const std::byte*>(group.lds.data());
  std::byte data[kLanes * kBytes];
  for (u32 lane = 0; lane < kLanes; ++lane)
    std::memcpy(data + kBytes * lane, lds + address.lane[lane], kBytes);
  transpose(kElementBits, data, vector(w, inst.dst));
}

template void read_transposed<16>(Wave&, const Inst&);
template void read_transposed<8>(Wave&, const Inst&);
template void read_transposed<6>(Wave&, const Inst&);
template void read_transposed<4>(Wave&, const Inst&);

}  // namespace vdev::ds
