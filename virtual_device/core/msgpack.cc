#include "core/msgpack.h"

namespace vdev::msgpack {

void Reader::fail(std::string_view what) {
  if (ok()) error_ = "metadata byte " + std::to_string(position_) + ": " + std::string(what);
}

bool Reader::take(u64 bytes) {
  if (!ok()) return false;
  if (bytes > bytes_.size() - position_) {
    fail("the value is cut off");
    return false;
  }
  position_ += bytes;
  return true;
}

u64 Reader::big_endian(u64 bytes) {
  if (!take(bytes)) return 0;
  u64 value = 0;
  for (u64 i = position_ - bytes; i < position_; ++i) value = value << 8 | bytes_[i];
  return value;
}

// The type byte and the number after it. Payloads (strings, elements) stay unread.
std::optional<Reader::Head> Reader::head() {
  const u8 tag = static_cast<u8>(big_endian(1));
  Head head;
  const auto sized = [&](Type type, u32 log2_bytes) {
    head = {type, big_endian(u64{1} << log2_bytes)};
  };
  if (tag <= 0x7f) {
    head = {Type::kUnsigned, tag};
  } else if (tag <= 0x8f) {
    head = {Type::kMap, tag & 0xfu};
  } else if (tag <= 0x9f) {
    head = {Type::kArray, tag & 0xfu};
  } else if (tag <= 0xbf) {
    head = {Type::kString, tag & 0x1fu};
  } else if (tag >= 0xe0) {
    head = {Type::kSigned, static_cast<u64>(i64{static_cast<i8>(tag)})};
  } else if (tag == 0xc1) {
    fail("0xc1 is no MessagePack type");
  } else if (tag >= 0xde) {
    sized(Type::kMap, tag - 0xddu);
  } else if (tag >= 0xdc) {
    sized(Type::kArray, tag - 0xdbu);
  } else if (tag >= 0xd9) {
    sized(Type::kString, tag - 0xd9u);
  } else if (tag >= 0xd4) {  // extension of fixed size; one more byte gives its type
    head = {Type::kBytes, (u64{1} << (tag - 0xd4u)) + 1};
  } else if (tag >= 0xd0) {
    sized(Type::kSigned, tag - 0xd0u);
    const u32 unused = 64 - (8u << (tag - 0xd0u));
    head.value = static_cast<u64>(static_cast<i64>(head.value << unused) >> unused);
  } else if (tag >= 0xcc) {
    sized(Type::kUnsigned, tag - 0xccu);
  } else if (tag >= 0xca) {
    sized(Type::kFloat, tag - 0xc8u);
  } else if (tag >= 0xc7) {  // extension
    sized(Type::kBytes, tag - 0xc7u);
    ++head.value;
  } else if (tag >= 0xc4) {
    sized(Type::kBytes, tag - 0xc4u);
  } else if (tag >= 0xc2) {
    head = {Type::kBool, tag & 1u};
  }
  if (!ok()) return std::nullopt;
  return head;
}

u64 Reader::expect(Type type, std::string_view name) {
  const auto found = head();
  if (!found) return 0;
  if (found->type != type) {
    fail("expected " + std::string(name));
    return 0;
  }
  return found->value;
}

u64 Reader::map() { return expect(Type::kMap, "a map"); }

u64 Reader::array() { return expect(Type::kArray, "an array"); }

bool Reader::boolean() { return expect(Type::kBool, "a boolean") != 0; }

std::string_view Reader::string() {
  const u64 bytes = expect(Type::kString, "a string");
  if (!take(bytes)) return {};
  return {reinterpret_cast<const char*>(bytes_.data()) + position_ - bytes, bytes};
}

u64 Reader::number() {
  const auto found = head();
  if (!found) return 0;
  const bool natural = found->type == Type::kUnsigned ||
                       (found->type == Type::kSigned && static_cast<i64>(found->value) >= 0);
  if (!natural) {
    fail("expected a non-negative integer");
    return 0;
  }
  return found->value;
}

void Reader::skip() {
  // Every pending value takes a byte at least, so the loop ends with the input however large the
  // counts are; they add up without overflow because each is below 2^33.
  for (u64 pending = 1; pending > 0 && ok(); --pending) {
    const auto found = head();
    if (!found) return;
    switch (found->type) {
      case Type::kBytes:
      case Type::kString:
        take(found->value);
        break;
      case Type::kArray:
        pending += found->value;
        break;
      case Type::kMap:
        pending += 2 * found->value;
        break;
      default:
        break;
    }
  }
}

}  // namespace vdev::msgpack
