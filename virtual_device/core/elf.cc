#include "core/elf.h"

#include <algorithm>

namespace vdev::elf {
namespace {

static_assert(std::endian::native == std::endian::little, "images are read without swapping");

// Work and memory of the loader are linear in the image's size: its tables may neither overlap nor
// repeat one another.
constexpr u64 kMostSegments = 256;
constexpr u64 kMostNameBytes = u64{64} << 20;  // of the symbols of a table, together

// Element `index` of a table of T at the start of `bytes`; the caller has checked the count.
template <class T>
T element(std::span<const u8> bytes, u64 index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

std::optional<std::span<const u8>> slice(std::span<const u8> bytes, u64 offset, u64 size) {
  if (offset > bytes.size() || size > bytes.size() - offset) return std::nullopt;
  return bytes.subspan(offset, size);
}

// The zero-terminated string at `offset`; nothing when it leaves the table.
std::optional<std::string_view> string_at(std::span<const u8> table, u64 offset) {
  if (offset >= table.size()) return std::nullopt;
  const char* begin = reinterpret_cast<const char*>(table.data()) + offset;
  const void* end = std::memchr(begin, 0, table.size() - offset);
  if (!end) return std::nullopt;
  return std::string_view(begin, static_cast<const char*>(end) - begin);
}

}  // namespace

std::string quoted(std::string_view name) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text = "'";
  for (const char c : name.substr(0, 200)) {
    const u8 byte = static_cast<u8>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      text += c;
    } else {
      text += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return text + (name.size() > 200 ? "...'" : "'");
}

std::optional<Image> Image::parse(std::span<const u8> bytes, std::string& error) {
  const auto refuse = [&](std::string why) {
    error = std::move(why);
    return std::nullopt;
  };
  Image image;
  image.bytes_ = bytes;
  if (bytes.size() < sizeof(Elf64_Ehdr)) {
    return refuse("the image of " + std::to_string(bytes.size()) +
                  " bytes is shorter than an ELF header");
  }
  Elf64_Ehdr& header = image.header_ = element<Elf64_Ehdr>(bytes, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return refuse("this is no ELF image");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_ident[EI_VERSION] != EV_CURRENT) {
    return refuse("the ELF image is not 64-bit little-endian of version 1");
  }
  if (!image.parse_segments(error) || !image.parse_sections(error)) return std::nullopt;
  return image;
}

bool Image::parse_segments(std::string& error) {
  if (header_.e_phnum == 0) return true;
  if (header_.e_phnum > kMostSegments) {
    error = std::to_string(header_.e_phnum) + " program headers; at most " +
            std::to_string(kMostSegments) + " are supported";
    return false;
  }
  const auto table = slice(bytes_, header_.e_phoff, u64{header_.e_phnum} * sizeof(Elf64_Phdr));
  if (header_.e_phentsize != sizeof(Elf64_Phdr) || !table) {
    error = "the program header table leaves the image (truncated?)";
    return false;
  }
  for (u64 i = 0; i < header_.e_phnum; ++i) {
    const auto segment = element<Elf64_Phdr>(*table, i);
    if (segment.p_type != PT_NULL && !slice(bytes_, segment.p_offset, segment.p_filesz)) {
      error = "program header " + std::to_string(i) + " leaves the image (truncated?)";
      return false;
    }
    segments_.push_back(segment);
  }
  return true;
}

bool Image::parse_sections(std::string& error) {
  if (header_.e_shnum == 0) return true;
  const auto table = slice(bytes_, header_.e_shoff, u64{header_.e_shnum} * sizeof(Elf64_Shdr));
  if (header_.e_shentsize != sizeof(Elf64_Shdr) || !table) {
    error = "the section header table leaves the image (truncated?)";
    return false;
  }
  u64 left = bytes_.size();
  for (u64 i = 0; i < header_.e_shnum; ++i) {
    const auto section = element<Elf64_Shdr>(*table, i);
    const bool in_file = section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL;
    if (in_file && !slice(bytes_, section.sh_offset, section.sh_size)) {
      error = "section header " + std::to_string(i) + " leaves the image (truncated?)";
      return false;
    }
    if (in_file && section.sh_size > left) {
      error = "the sections overlap: together they are larger than the image";
      return false;
    }
    if (in_file) left -= section.sh_size;
    sections_.push_back({{}, section});
  }
  if (header_.e_shstrndx >= sections_.size()) return true;  // sections without names
  const auto names = contents(sections_[header_.e_shstrndx]);
  for (Section& section : sections_) {
    section.name = string_at(names, section.header.sh_name).value_or(std::string_view());
  }
  return true;
}

std::span<const u8> Image::contents(const Elf64_Phdr& segment) const {
  if (segment.p_type == PT_NULL) return {};
  return bytes_.subspan(segment.p_offset, segment.p_filesz);
}

std::span<const u8> Image::contents(const Section& section) const {
  const Elf64_Shdr& header = section.header;
  if (header.sh_type == SHT_NOBITS || header.sh_type == SHT_NULL) return {};
  return bytes_.subspan(header.sh_offset, header.sh_size);
}

u32 Image::find_section(u32 type) const {
  for (u32 i = 0; i < sections_.size(); ++i) {
    if (sections_[i].header.sh_type == type) return i;
  }
  return 0;
}

std::optional<std::vector<Symbol>> Image::symbols(u32 index, std::string& error) const {
  const auto refuse = [&](std::string_view why) {
    error = "symbol table (section " + std::to_string(index) + "): " + std::string(why);
    return std::nullopt;
  };
  if (index >= sections_.size()) return refuse("there is no such section");
  const Section& section = sections_[index];
  if (section.header.sh_type != SHT_SYMTAB && section.header.sh_type != SHT_DYNSYM) {
    return refuse("the section is no symbol table");
  }
  if (section.header.sh_entsize != sizeof(Elf64_Sym)) return refuse("wrong size of an entry");
  if (section.header.sh_link >= sections_.size()) return refuse("its string table is missing");
  const auto names = contents(sections_[section.header.sh_link]);
  const auto table = contents(section);
  std::vector<Symbol> symbols;
  u64 name_bytes = 0;
  for (u64 i = 0; i < table.size() / sizeof(Elf64_Sym); ++i) {
    const auto entry = element<Elf64_Sym>(table, i);
    const auto name = string_at(names, entry.st_name);
    if (!name && entry.st_name != 0) return refuse("a name lies outside its string table");
    if (name) name_bytes += name->size();
    if (name_bytes > kMostNameBytes) return refuse("its names have more than 64 MiB together");
    symbols.push_back({name.value_or(std::string_view()),
                       static_cast<u8>(ELF64_ST_TYPE(entry.st_info)),
                       static_cast<u8>(ELF64_ST_BIND(entry.st_info)), entry.st_shndx,
                       entry.st_value, entry.st_size});
  }
  return symbols;
}

std::optional<std::vector<Elf64_Rela>> Image::relocations(const Section& section,
                                                          std::string& error) const {
  if (section.header.sh_entsize != sizeof(Elf64_Rela)) {
    error = "relocation section " + quoted(section.name) + ": wrong size of an entry";
    return std::nullopt;
  }
  const auto table = contents(section);
  std::vector<Elf64_Rela> relocations;
  for (u64 i = 0; i < table.size() / sizeof(Elf64_Rela); ++i) {
    relocations.push_back(element<Elf64_Rela>(table, i));
  }
  return relocations;
}

std::optional<std::span<const u8>> Image::note(std::string_view owner, u32 type) const {
  const auto padded = [](u64 size) { return (size + 3) & ~u64{3}; };
  for (const Elf64_Phdr& segment : segments_) {
    if (segment.p_type != PT_NOTE) continue;
    auto rest = contents(segment);
    while (rest.size() >= sizeof(Elf64_Nhdr)) {
      const auto header = element<Elf64_Nhdr>(rest, 0);
      const u64 name_at = sizeof(Elf64_Nhdr), data_at = name_at + padded(header.n_namesz);
      const auto name = slice(rest, name_at, header.n_namesz);
      const auto data = slice(rest, data_at, header.n_descsz);
      if (!name || !data) break;
      const auto text = string_at(*name, 0);
      if (header.n_type == type && text && *text == owner) return data;
      rest = rest.subspan(std::min<u64>(data_at + padded(header.n_descsz), rest.size()));
    }
  }
  return std::nullopt;
}

}  // namespace vdev::elf
