// C entry points through which the tests decode and disassemble.
#include <cstring>
#include <string>

#include "core/test_machine.h"
#include "isa/decode.h"

#define VDEV_TEST_API extern "C" __attribute__((visibility("default")))

namespace {

// Copies as much as fits, terminated, and returns the bytes that all of it needs.
size_t copy_out(const std::string& text, char* out, size_t out_bytes) {
  if (out_bytes > 0) {
    const size_t n = text.size() < out_bytes ? text.size() : out_bytes - 1;
    std::memcpy(out, text.data(), n);
    out[n] = '\0';
  }
  return text.size() + 1;
}

const vdev::InstructionSet& set() { return vdev::instruction_set(vdev::test_processor()); }

// "size text", or "0 reason".
void append_line(std::string& out, const vdev::Decoded& decoded) {
  const bool ok = decoded.inst.row != nullptr;
  out += std::to_string(ok ? decoded.inst.size : 0);
  out += ' ';
  out += ok ? vdev::disassemble(decoded.inst) : decoded.why;
  out += '\n';
}

}  // namespace

// Decodes `count` instructions that begin `stride` dwords apart: a line each.
VDEV_TEST_API size_t vdev_test_decode(const vdev::u32* words, size_t stride, size_t count,
                                      char* out, size_t out_bytes) {
  std::string text;
  for (size_t i = 0; i < count; ++i)
    append_line(text, vdev::decode({words + i * stride, stride}, set()));
  return copy_out(text, out, out_bytes);
}

// Decodes a stretch of code from its first dword on: a line per instruction, and per dword that
// is none.
VDEV_TEST_API size_t vdev_test_disassemble(const vdev::u32* words, size_t num_words, char* out,
                                           size_t out_bytes) {
  std::string text;
  const std::span<const vdev::u32> code(words, num_words);
  for (size_t at = 0; at < num_words;) {
    const vdev::Decoded decoded = vdev::decode(code.subspan(at), set());
    append_line(text, decoded);
    at += decoded.inst.row != nullptr ? decoded.inst.size : 1;
  }
  return copy_out(text, out, out_bytes);
}

// "format opcode name" of every row, a line each; format as its number in enum Format.
VDEV_TEST_API size_t vdev_test_rows(char* out, size_t out_bytes) {
  std::string text;
  for (const vdev::Row& row : set().rows()) {
    text += std::to_string(static_cast<int>(row.format));
    text += ' ';
    text += std::to_string(row.opcode);
    text += ' ';
    text += row.name;
    text += '\n';
  }
  return copy_out(text, out, out_bytes);
}

// Value of source `i` where it is a constant; false where it is not, or nothing was decoded.
VDEV_TEST_API bool vdev_test_constant(const vdev::u32* words, size_t num_words, int i,
                                      vdev::u64* value) {
  const vdev::Decoded decoded = vdev::decode({words, num_words}, set());
  if (decoded.inst.row == nullptr) return false;
  const vdev::Operand& source = decoded.inst.src[i];
  *value = source.lo | vdev::u64{source.hi} << 32;
  return source.kind == vdev::OperandKind::kConst;
}
