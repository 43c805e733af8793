// A forward reader of MessagePack, the encoding of code object metadata.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/types.h"

namespace vdev::msgpack {

// Reads one value after the other. The first error sticks: from then on every call returns an empty
// value and ok() is false, so that callers check once per container. Never allocates according to
// what the input claims, never recurses.
class Reader {
 public:
  explicit Reader(std::span<const u8> bytes) : bytes_(bytes) {}

  bool ok() const { return error_.empty(); }
  const std::string& error() const { return error_; }

  u64 map();    // number of key-value pairs that follow
  u64 array();  // number of values that follow
  std::string_view string();
  u64 number();  // non-negative integer
  bool boolean();
  void skip();  // one value with all that it contains

  void fail(std::string_view what);

 private:
  enum class Type : u8 { kNil, kBool, kUnsigned, kSigned, kFloat, kBytes, kString, kArray, kMap };
  struct Head {
    Type type = Type::kNil;
    u64 value = 0;  // the number, the bytes of a payload, or the elements of a container
  };

  std::optional<Head> head();
  u64 expect(Type type, std::string_view name);
  u64 big_endian(u64 bytes);
  bool take(u64 bytes);

  std::span<const u8> bytes_;
  u64 position_ = 0;
  std::string error_;
};

}  // namespace vdev::msgpack
