#include "isa/ds_transpose.h"

#include <cstring>

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
  constexpr u32 kBytes = transposed_bytes(kBits);
  for (u32 group = 0; group < kLanes; group += kColumns) {
    u64 rows[kColumns][2] = {};
    for (u32 row = 0; row < kColumns; ++row)
      std::memcpy(rows[row], data + kBytes * (group + row), kBytes);
    const auto element = [&](u32 row, u32 column) -> u64 {
      const u32 at = kBits * column, low = at % 64;
      const u64 above = low + kBits > 64 ? rows[row][1] << (64 - low) : 0;
      return (rows[row][at / 64] >> low | above) & ((1u << kBits) - 1);
    };
    for (u32 column = 0; column < kColumns; ++column) {
      u64 words[2] = {};
      for (u32 row = 0; row < kColumns; ++row) {
        const u32 at = kBits * row, low = at % 64;
        const u64 value = element(row, column);
        words[at / 64] |= value << low;
        if (low + kBits > 64) words[1] |= value >> (64 - low);
      }
      for (u32 dword = 0; dword < kBytes / 4; ++dword)
        out[dword].lane[group + column] = static_cast<u32>(words[dword / 2] >> dword % 2 * 32);
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
