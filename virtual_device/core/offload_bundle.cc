#include "core/offload_bundle.h"

#include <elf.h>

#include <algorithm>

#include "core/elf.h"
#include "core/safe_read.h"

namespace vdev {
namespace {

constexpr std::string_view kMagic = "__CLANG_OFFLOAD_BUNDLE__";
constexpr std::string_view kCompressedMagic = "CCOB";
// Of an image whose length only its own headers tell.
constexpr u64 kLargestImage = u64{4} << 30, kMostEntries = 4096, kLongestName = 4096;

bool starts_with(std::span<const u8> image, std::string_view magic) {
  return image.size() >= magic.size() && std::memcmp(image.data(), magic.data(), magic.size()) == 0;
}

template <class T>
T load(const u8* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// An entry is three u64 (offset and bytes of the image, length of the name) and the name.
struct Entry {
  u64 offset = 0, size = 0;
  std::string_view name;
};

// Reads the entry at `position` and moves behind it; nothing when it leaves the bundle.
std::optional<Entry> next_entry(std::span<const u8> bundle, u64& position) {
  if (bundle.size() - position < 24) return std::nullopt;
  const u8* at = bundle.data() + position;
  const u64 name_bytes = load<u64>(at + 16);
  position += 24;
  if (name_bytes > bundle.size() - position) return std::nullopt;
  position += name_bytes;
  return Entry{
      load<u64>(at), load<u64>(at + 8), {reinterpret_cast<const char*>(at) + 24, name_bytes}};
}

// Entry names are KIND-TRIPLE-TARGET with triples of several spellings; the target id begins at
// the processor. Host entries and other devices' give nothing.
std::optional<TargetId> device_target(std::string_view name) {
  if (!name.starts_with("hip-") && !name.starts_with("hipv4-")) return std::nullopt;
  const auto dash = name.rfind("-gfx");
  if (dash == std::string_view::npos) return std::nullopt;
  return TargetId::parse(name.substr(dash + 1));
}

// As many elements of a table as the host can read.
template <class T>
std::vector<T> read_table(const u8* at, u64 count) {
  std::vector<T> table(count);
  table.resize(read_safely(table.data(), at, count * sizeof(T)) / sizeof(T));
  return table;
}

// An ELF image ends where its last part ends. Parts that no image can have are left out: whatever
// the headers claim, the parser checks it against the bytes that there are.
u64 elf_bytes(const u8* image) {
  Elf64_Ehdr header{};
  if (read_safely(&header, image, sizeof header) < sizeof header) return sizeof header;
  u64 end = sizeof header;
  const auto extend = [&](u64 offset, u64 bytes) {
    if (offset <= kLargestImage && bytes <= kLargestImage - offset)
      end = std::max(end, offset + bytes);
  };
  extend(header.e_phoff, u64{header.e_phnum} * sizeof(Elf64_Phdr));
  extend(header.e_shoff, u64{header.e_shnum} * sizeof(Elf64_Shdr));
  if (header.e_phoff < kLargestImage)
    for (const auto& segment : read_table<Elf64_Phdr>(image + header.e_phoff, header.e_phnum))
      extend(segment.p_offset, segment.p_filesz);
  if (header.e_shoff < kLargestImage)
    for (const auto& section : read_table<Elf64_Shdr>(image + header.e_shoff, header.e_shnum))
      if (section.sh_type != SHT_NOBITS) extend(section.sh_offset, section.sh_size);
  return end;
}

u64 bundle_bytes(const u8* image) {
  u64 position = kMagic.size() + 8, count = 0;
  read_safely(&count, image + kMagic.size(), sizeof count);
  u64 end = position;
  for (u64 i = 0; i < std::min(count, kMostEntries); ++i) {
    u64 fields[3] = {};  // offset, bytes, length of the name
    if (read_safely(fields, image + position, sizeof fields) < sizeof fields) break;
    const auto [offset, size, name_bytes] = fields;
    if (name_bytes > kLongestName || offset > kLargestImage || size > kLargestImage - offset) break;
    position += sizeof fields + name_bytes;
    end = std::max({end, position, offset + size});
  }
  return end;
}

}  // namespace

std::optional<TargetId> TargetId::parse(std::string_view text) {
  TargetId target;
  const auto colon = text.find(':');
  target.processor = text.substr(0, colon);
  while (!text.empty()) {
    const auto end = std::min(text.find(':'), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (part == target.processor) continue;
    if (part.empty()) return std::nullopt;
    const char sign = part.back();
    const std::string_view name = part.substr(0, part.size() - 1);
    Feature* feature = name == "sramecc" ? &target.sramecc
                       : name == "xnack" ? &target.xnack
                                         : nullptr;
    if (!feature || (sign != '+' && sign != '-')) return std::nullopt;
    *feature = sign == '+' ? Feature::kOn : Feature::kOff;
  }
  return target;
}

bool runs_on(const TargetId& target, const Processor& processor) {
  return (target.processor == processor.name ||
          (processor.generic && target.processor == processor.generic->name)) &&
         target.sramecc != TargetId::Feature::kOff && target.xnack != TargetId::Feature::kOn;
}

bool is_offload_bundle(std::span<const u8> image) { return starts_with(image, kMagic); }

bool is_compressed_bundle(std::span<const u8> image) {
  return starts_with(image, kCompressedMagic);
}

std::optional<std::span<const u8>> select_image(std::span<const u8> bundle,
                                                const Processor& processor, std::string& error) {
  u64 position = kMagic.size() + 8;
  if (bundle.size() < position) {
    error = "the offload bundle is cut off";
    return std::nullopt;
  }
  const u64 count = load<u64>(bundle.data() + kMagic.size());
  std::optional<Entry> best;
  int best_rank = -1;
  std::string names;
  for (u64 i = 0; i < count; ++i) {
    const auto entry = next_entry(bundle, position);
    if (!entry) {
      error = "entry " + std::to_string(i) + " of the offload bundle is cut off";
      return std::nullopt;
    }
    if (i < 16) names += (i ? ", " : "") + elf::quoted(entry->name);
    if (i == 16) names += ", ...";
    const auto target = device_target(entry->name);
    if (!target || !runs_on(*target, processor)) continue;
    const int rank = 4 * (target->processor == processor.name) +
                     (target->sramecc != TargetId::Feature::kAny) +
                     (target->xnack != TargetId::Feature::kAny);
    if (rank > best_rank) {
      best = entry;
      best_rank = rank;
    }
  }
  if (!best) {
    error = "the offload bundle has no image for " +
            std::string(processor.name).append(processor.features) + "; it has " +
            (count ? names : "none at all");
    return std::nullopt;
  }
  if (best->offset > bundle.size() || best->size > bundle.size() - best->offset) {
    error = "the image " + elf::quoted(best->name) + " leaves the offload bundle (truncated?)";
    return std::nullopt;
  }
  return bundle.subspan(best->offset, best->size);
}

u64 image_bytes(const void* image) {
  u8 start[kMagic.size()];
  const u64 readable = read_safely(start, image, sizeof start);
  const std::span<const u8> known(start, readable);
  if (is_offload_bundle(known)) return bundle_bytes(static_cast<const u8*>(image));
  if (starts_with(known, {ELFMAG, SELFMAG})) return elf_bytes(static_cast<const u8*>(image));
  return readable;
}

std::vector<u8> copy_image(const void* image) {
  // Piece by piece: a hostile header may claim gigabytes that are not there.
  constexpr u64 kPiece = u64{1} << 20;
  std::vector<u8> bytes;
  for (u64 left = image_bytes(image); left > 0;) {
    const u64 done = bytes.size(), piece = std::min(left, kPiece);
    bytes.resize(done + piece);
    const u64 got = read_safely(bytes.data() + done, static_cast<const u8*>(image) + done, piece);
    bytes.resize(done + got);
    if (got < piece) break;
    left -= piece;
  }
  return bytes;
}

}  // namespace vdev
