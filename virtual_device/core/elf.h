// A bounds-checked view of an ELF64 little-endian image. It refers to the image and never copies.
#pragma once

#include <elf.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"

namespace vdev::elf {

inline constexpr u16 kMachineAmdgpu = 224;
inline constexpr u8 kOsAbiAmdgpuHsa = 64;
inline constexpr u32 kNoteAmdgpuMetadata = 32;

// R_AMDGPU_*; S symbol, A addend, P place, B load base.
enum class RelocationType : u32 {
  kNone = 0,
  kAbs32Lo = 1,
  kAbs32Hi = 2,
  kAbs64 = 3,
  kRel32 = 4,
  kRel64 = 5,
  kAbs32 = 6,
  kGotPcRel = 7,
  kGotPcRel32Lo = 8,
  kGotPcRel32Hi = 9,
  kRel32Lo = 10,
  kRel32Hi = 11,
  kRelative64 = 13,
  kRel16 = 14,
};

struct Section {
  std::string_view name;
  Elf64_Shdr header;
};

struct Symbol {
  std::string_view name;
  u8 type = STT_NOTYPE;
  u8 binding = STB_LOCAL;
  u16 section = SHN_UNDEF;
  u64 value = 0;
  u64 size = 0;
};

class Image {
 public:
  // Checks the headers and that every segment and section lies inside the image. On failure
  // returns nothing and says why in `error`.
  static std::optional<Image> parse(std::span<const u8> bytes, std::string& error);

  const Elf64_Ehdr& header() const { return header_; }
  const std::vector<Elf64_Phdr>& segments() const { return segments_; }
  const std::vector<Section>& sections() const { return sections_; }
  std::span<const u8> contents(const Elf64_Phdr& segment) const;
  std::span<const u8> contents(const Section& section) const;  // empty for SHT_NOBITS
  // The index of the first section of that type, 0 when there is none.
  u32 find_section(u32 type) const;
  // Symbols of the symbol table with that section index; nothing when it is malformed.
  std::optional<std::vector<Symbol>> symbols(u32 section, std::string& error) const;
  std::optional<std::vector<Elf64_Rela>> relocations(const Section& section,
                                                     std::string& error) const;
  // The descriptor of the first note with this owner and type, from the PT_NOTE segments.
  std::optional<std::span<const u8>> note(std::string_view owner, u32 type) const;

 private:
  bool parse_segments(std::string& error);
  bool parse_sections(std::string& error);

  std::span<const u8> bytes_;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Phdr> segments_;
  std::vector<Section> sections_;
};

// A name from an untrusted image for a message: printable, quoted and not too long.
std::string quoted(std::string_view name);

}  // namespace vdev::elf
