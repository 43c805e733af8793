// Text of DS, FLAT and its segments, MUBUF and MTBUF.
#include "isa/decoder.h"
#include "isa/printer.h"

namespace vdev {
namespace {

constexpr const char* kDataFormats[] = {"INVALID",     "8",          "16",          "8_8",
                                        "32",          "16_16",      "10_11_11",    "11_11_10",
                                        "10_10_10_2",  "2_10_10_10", "8_8_8_8",     "32_32",
                                        "16_16_16_16", "32_32_32",   "32_32_32_32", "RESERVED_15"};
constexpr const char* kNumberFormats[] = {"UNORM", "SNORM", "USCALED",    "SSCALED",
                                          "UINT",  "SINT",  "RESERVED_6", "FLOAT"};

}  // namespace

void Printer::ds() {
  if (inst_.dst.kind != OperandKind::kNone) listed(inst_.dst, row_.dst.type);
  for (int i = 0; i < 3; ++i)
    if (inst_.src[i].kind != OperandKind::kNone) listed(inst_.src[i], row_.src[i].type);
  const auto offset = [&](const char* name, i32 value) {
    if (value == 0) return;
    append(name);
    number(value);
  };
  if (row_.is(Trait::kTwoOffsets)) {
    offset(" offset0:", inst_.offset0);
    offset(" offset1:", inst_.offset1);
  } else if (row_.is(Trait::kSwizzle) && inst_.offset != 0) {
    append(" offset:");
    swizzle();
  } else {
    offset(" offset:", inst_.offset);
  }
  flag(inst_.gds, "gds");
}

// The pattern is named after the simplest macro that gives it.
void Printer::swizzle() {
  const u32 pattern = static_cast<u32>(inst_.offset);
  const auto macro = [&](const char* name, std::initializer_list<u32> arguments) {
    append("swizzle(");
    append(name);
    for (const u32 argument : arguments) {
      append(",");
      number(argument);
    }
    append(")");
  };
  if (pattern >= 0xe000) return macro("FFT", {pattern & 0x1f});
  if (pattern >= 0xc000) return macro("ROTATE", {pattern >> 10 & 1, pattern >> 5 & 0x1f});
  if ((pattern & 0xff00) == 0x8000)
    return macro("QUAD_PERM", {pattern & 3, pattern >> 2 & 3, pattern >> 4 & 3, pattern >> 6 & 3});
  if (pattern & 0x8000) return number(pattern);
  const u32 and_mask = pattern & 0x1f, or_mask = pattern >> 5 & 0x1f, xor_mask = pattern >> 10;
  const bool single_bit = (xor_mask & (xor_mask - 1)) == 0;
  if (and_mask == 0x1f && or_mask == 0 && xor_mask != 0 && single_bit)
    return macro("SWAP", {xor_mask});
  if (and_mask == 0x1f && or_mask == 0 && xor_mask > 1 && (xor_mask & (xor_mask + 1)) == 0)
    return macro("REVERSE", {xor_mask + 1});
  const u32 group = 32 - and_mask;
  if (and_mask != 0x1f && xor_mask == 0 && (group & (group - 1)) == 0 && or_mask < group)
    return macro("BROADCAST", {group, or_mask});
  append("swizzle(BITMASK_PERM,\"");
  for (u32 bit = 0x10; bit != 0; bit >>= 1) {
    const bool kept = and_mask & bit, flipped = xor_mask & bit;
    const bool base = or_mask & bit;  // with the AND mask clear, the bit is OR, then XOR
    append(!kept || base ? (base != flipped ? "1" : "0") : (flipped ? "i" : "p"));
  }
  append("\")");
}

void Printer::cache_policy() {
  flag(inst_.sc0, "sc0");
  flag(inst_.nt, "nt");
  flag(inst_.sc1, "sc1");
}

void Printer::flat() {
  if (inst_.dst.kind != OperandKind::kNone) listed(inst_.dst, row_.dst.type);
  listed(inst_.src[0], Type::kU64);
  if (inst_.src[1].kind != OperandKind::kNone) listed(inst_.src[1], row_.src[1].type);
  if (inst_.src[2].kind != OperandKind::kNone) listed(inst_.src[2], Type::kU64);
  if (inst_.offset != 0) {
    append(" offset:");
    number(inst_.offset);
  }
  cache_policy();
}

void Printer::buffer_format() {
  const bool data = inst_.dfmt != 1, numeric = inst_.nfmt != 0;
  if (!data && !numeric) return;
  append(" format:[");
  if (data) {
    append("BUF_DATA_FORMAT_");
    append(kDataFormats[inst_.dfmt]);
  }
  if (data && numeric) append(",");
  if (numeric) {
    append("BUF_NUM_FORMAT_");
    append(kNumberFormats[inst_.nfmt]);
  }
  append("]");
}

void Printer::buffer() {
  if (inst_.src[2].kind != OperandKind::kNone) {
    if (inst_.src[1].kind != OperandKind::kNone)
      listed(inst_.src[1], row_.src[1].type);
    else if (inst_.dst.kind != OperandKind::kNone)
      listed(inst_.dst, row_.dst.type);
    listed(inst_.src[0], Type::kU32);
    listed(inst_.src[2], Type::kRaw);
    listed(inst_.src[3], Type::kU32);
    if (row_.format == Format::kMtbuf) buffer_format();
    flag(inst_.idxen, "idxen");
    flag(inst_.offen, "offen");
    if (inst_.offset != 0) {
      append(" offset:");
      number(inst_.offset);
    }
  }
  cache_policy();
  flag(inst_.lds, "lds");
}

}  // namespace vdev
