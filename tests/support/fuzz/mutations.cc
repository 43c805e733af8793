#include "mutations.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace fuzz {
namespace {

// Tables of the image, found leniently: what lies outside is not there.
class Editor {
 public:
  Editor(uint8_t* data, size_t size, size_t max_size, unsigned seed)
      : data_(data), size_(size), max_size_(max_size), random_(seed) {
    if (size_ >= sizeof(Elf64_Ehdr)) std::memcpy(&header_, data_, sizeof header_);
  }

  size_t size() const { return size_; }
  bool is_elf() const { return size_ >= sizeof(Elf64_Ehdr) && !std::memcmp(data_, ELFMAG, 4); }

  uint64_t below(uint64_t n) { return n ? random_() % n : 0; }
  bool chance(int percent) { return below(100) < static_cast<uint64_t>(percent); }

  // A number that breaks arithmetic, sizes or alignment.
  uint64_t odd_number() {
    const uint64_t interesting[] = {0,
                                    1,
                                    3,
                                    4,
                                    255,
                                    256,
                                    4095,
                                    4096,
                                    0x7fffffff,
                                    0x80000000,
                                    0xffffffff,
                                    uint64_t{1} << 32,
                                    uint64_t{1} << 40,
                                    uint64_t{1} << 47,
                                    ~uint64_t{0} >> 1,
                                    uint64_t{1} << 63,
                                    ~uint64_t{0},
                                    ~uint64_t{4095},
                                    size_,
                                    size_ - 1,
                                    size_ + 1,
                                    header_.e_shoff,
                                    header_.e_phoff,
                                    random_()};
    const uint64_t value = interesting[below(std::size(interesting))];
    return chance(20) ? value + below(64) - 32 : value;
  }

  bool put(uint64_t at, uint64_t value, uint64_t bytes) {
    if (at > size_ || bytes > size_ - at) return false;
    std::memcpy(data_ + at, &value, bytes);
    return true;
  }
  uint32_t word(uint64_t at) const {
    uint32_t value = 0;
    if (at <= size_ && size_ - at >= 4) std::memcpy(&value, data_ + at, 4);
    return value;
  }

  struct Range {
    uint64_t offset = 0, bytes = 0;
  };
  Range clip(uint64_t offset, uint64_t bytes) const {
    if (offset >= size_) return {};
    return {offset, std::min<uint64_t>(bytes, size_ - offset)};
  }
  Range segments() const {
    return clip(header_.e_phoff, uint64_t{header_.e_phnum} * sizeof(Elf64_Phdr));
  }
  Range sections() const {
    return clip(header_.e_shoff, uint64_t{header_.e_shnum} * sizeof(Elf64_Shdr));
  }
  Range section(uint32_t type) const {
    const Range table = sections();
    for (uint64_t at = 0; at + sizeof(Elf64_Shdr) <= table.bytes; at += sizeof(Elf64_Shdr)) {
      Elf64_Shdr s;
      std::memcpy(&s, data_ + table.offset + at, sizeof s);
      if (s.sh_type == type) return clip(s.sh_offset, s.sh_size);
    }
    return {};
  }
  // By its segment: images need no section for it.
  Range note() const {
    const Range table = segments();
    for (uint64_t at = 0; at + sizeof(Elf64_Phdr) <= table.bytes; at += sizeof(Elf64_Phdr)) {
      Elf64_Phdr p;
      std::memcpy(&p, data_ + table.offset + at, sizeof p);
      if (p.p_type == PT_NOTE) return clip(p.p_offset, p.p_filesz);
    }
    return {};
  }
  Range executable() const {
    const Range table = segments();
    for (uint64_t at = 0; at + sizeof(Elf64_Phdr) <= table.bytes; at += sizeof(Elf64_Phdr)) {
      Elf64_Phdr p;
      std::memcpy(&p, data_ + table.offset + at, sizeof p);
      if (p.p_type == PT_LOAD && p.p_flags & PF_X) return clip(p.p_offset, p.p_filesz);
    }
    return {};
  }
  // A descriptor: where a symbol of 64 bytes points. Addresses equal file offsets plus a page at
  // a time in images of lld; try all distances.
  Range descriptor() {
    const Range table = section(SHT_DYNSYM);
    std::vector<uint64_t> found;
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= table.bytes; at += sizeof(Elf64_Sym)) {
      Elf64_Sym s;
      std::memcpy(&s, data_ + table.offset + at, sizeof s);
      if (s.st_size == 64) found.push_back(file_offset(s.st_value));
    }
    return found.empty() ? Range{} : clip(found[below(found.size())], 64);
  }
  uint64_t file_offset(uint64_t vaddr) const {
    const Range table = segments();
    for (uint64_t at = 0; at + sizeof(Elf64_Phdr) <= table.bytes; at += sizeof(Elf64_Phdr)) {
      Elf64_Phdr p;
      std::memcpy(&p, data_ + table.offset + at, sizeof p);
      if (p.p_type == PT_LOAD && vaddr - p.p_vaddr < p.p_filesz)
        return p.p_offset + vaddr - p.p_vaddr;
    }
    return ~uint64_t{0};
  }

  // A field of 1 to 8 bytes somewhere in a range.
  bool spoil(Range range, uint64_t unit) {
    if (range.bytes < 8) return false;
    const uint64_t at = range.offset + below(range.bytes / unit) * unit;
    const uint64_t widths[] = {8, 4, 4, 2, 1};
    return put(at, odd_number(), widths[below(5)]);
  }
  // A dword of the code.
  uint64_t code_position() {
    const Range code = executable();
    return code.bytes < 4 ? ~uint64_t{0} : code.offset + below(code.bytes / 4) * 4;
  }

  uint8_t* data_;
  size_t size_, max_size_;
  std::mt19937_64 random_;
  Elf64_Ehdr header_{};
};

bool truncate(Editor& e) {
  e.size_ = e.below(e.size_);
  return true;
}

bool elf_header(Editor& e) {
  return e.spoil(e.clip(e.chance(30) ? 0 : 16, sizeof(Elf64_Ehdr) - 16), e.chance(50) ? 8 : 2);
}

bool program_header(Editor& e) { return e.spoil(e.segments(), 8); }
bool section_header(Editor& e) { return e.spoil(e.sections(), 4); }

// One segment is laid over another, or becomes huge.
bool segment_overlap(Editor& e) {
  const auto table = e.segments();
  const uint64_t count = table.bytes / sizeof(Elf64_Phdr);
  if (count < 2) return false;
  const uint64_t a = table.offset + e.below(count) * sizeof(Elf64_Phdr);
  const uint64_t b = table.offset + e.below(count) * sizeof(Elf64_Phdr);
  Elf64_Phdr first, second;
  std::memcpy(&first, e.data_ + a, sizeof first);
  std::memcpy(&second, e.data_ + b, sizeof second);
  if (e.chance(40)) {
    second.p_memsz = uint64_t{1} << e.below(64);
  } else {
    second.p_vaddr = first.p_vaddr + e.below(8192);
    if (e.chance(50)) second.p_flags = first.p_flags;
    if (e.chance(30)) second.p_type = PT_LOAD;
    if (e.chance(50)) second.p_offset = first.p_offset;
  }
  std::memcpy(e.data_ + b, &second, sizeof second);
  return true;
}

bool symbol(Editor& e) { return e.spoil(e.section(SHT_DYNSYM), e.chance(50) ? 8 : 1); }
bool symbol_names(Editor& e) { return e.spoil(e.section(SHT_STRTAB), 1); }
bool relocation(Editor& e) { return e.spoil(e.section(SHT_RELA), 8); }
bool descriptor(Editor& e) { return e.spoil(e.descriptor(), 4); }

bool metadata(Editor& e) {
  auto note = e.note();
  if (note.bytes < 32) return false;
  const uint64_t at = note.offset + e.below(note.bytes);
  if (e.chance(60)) return e.put(at, 0x80 | e.below(128), 1);  // a type byte of MessagePack
  return e.put(at, e.odd_number(), e.chance(50) ? 1 : 4);
}

// A size that the device has to cap, or that lies beside a limit.
uint32_t odd_size(Editor& e) {
  const uint32_t limits[] = {0,      1,       4,       64,      1024,       4096,      65536,
                             131056, 1 << 20, 8 << 20, 1 << 28, 0x7fffffff, 0xffffffff};
  const uint32_t value = limits[e.below(std::size(limits))];
  return e.chance(30)   ? value + static_cast<uint32_t>(e.below(9)) - 4
         : e.chance(20) ? static_cast<uint32_t>(e.random_())
                        : value;
}

// A number of the metadata by its key. Seeds encode them in 32 bits, so that each can hold any. The
// sizes that the descriptor repeats are mostly changed there as well: it would be refused.
bool metadata_value(Editor& e) {
  struct Key {
    const char* name;
    int descriptor_at;
  };
  const Key keys[] = {{".private_segment_fixed_size", 4},
                      {".private_segment_fixed_size", 4},
                      {".group_segment_fixed_size", 0},
                      {".kernarg_segment_size", 8},
                      {".kernarg_segment_align", -1},
                      {".max_flat_workgroup_size", -1},
                      {".wavefront_size", -1},
                      {".sgpr_count", -1},
                      {".vgpr_count", -1},
                      {".size", -1},
                      {".offset", -1}};
  const Key key = keys[e.below(std::size(keys))];
  const auto note = e.note();
  const std::string_view text(reinterpret_cast<const char*>(e.data_) + note.offset, note.bytes);
  std::vector<uint64_t> found;
  const std::string packed =
      static_cast<char>(0xa0 | std::strlen(key.name)) + std::string(key.name);
  for (auto at = text.find(packed); at != text.npos; at = text.find(packed, at + 1)) {
    const uint64_t value = note.offset + at + packed.size();
    if (value + 5 <= note.offset + note.bytes && e.data_[value] == 0xce) found.push_back(value);
  }
  if (found.empty()) return false;
  const uint32_t size = odd_size(e);
  if (!e.put(found[e.below(found.size())] + 1, __builtin_bswap32(size), 4)) return false;
  if (key.descriptor_at >= 0 && e.chance(80)) {
    const auto descriptor = e.descriptor();
    if (descriptor.bytes)
      e.put(descriptor.offset + static_cast<uint64_t>(key.descriptor_at), size, 4);
  }
  return true;
}

// A field of the kernel descriptor, all else as it is.
bool descriptor_field(Editor& e) {
  struct Field {
    uint64_t at;
    uint32_t first, bits;
  };
  const Field fields[] = {{44, 0, 6},                                          // accum_offset
                          {44, 16, 1},                                         // tg_split
                          {48, 0, 6},  {48, 0, 6},  {48, 6, 4},   {48, 6, 4},  // VGPRs, SGPRs
                          {48, 10, 2}, {48, 12, 8}, {48, 20, 12},              // priority, MODE
                          {52, 0, 1},  {52, 1, 5},  {52, 6, 1},   {52, 7, 4},
                          {52, 11, 2}, {52, 24, 7},                              // user SGPRs
                          {56, 0, 7},  {56, 10, 2}, {56, 16, 7},  {56, 23, 9}};  // preload
  const auto descriptor = e.descriptor();
  if (descriptor.bytes < 64) return false;
  const Field field = fields[e.below(std::size(fields))];
  const uint64_t at = descriptor.offset + field.at;
  const uint32_t mask = ((1u << field.bits) - 1) << field.first;
  const uint32_t value = e.chance(30)   ? 0
                         : e.chance(30) ? mask
                                        : static_cast<uint32_t>(e.random_()) & mask;
  return e.put(at, (e.word(at) & ~mask) | value, 4);
}

// Registers that M0 moves: all vector instructions that follow, or an SGPR.
bool gpr_indexing(Editor& e) {
  const uint64_t at = e.code_position();
  const auto random = [&](uint64_t n) { return static_cast<uint32_t>(e.below(n)); };
  if (e.chance(60))  // s_movk_i32 s2, N; s_set_gpr_idx_on s2, MODE
    return e.put(at, 0xb0020000 | random(256), 4) &&
           e.put(at + 4, 0xbf110002 | (1 + random(15)) << 8, 4);
  const uint32_t opcode = 0x2a + random(4);  // s_movk_i32 m0, N; s_movrel[sd]_b{32,64}
  return e.put(at, 0xb07c0000 | random(128), 4) &&
         e.put(at + 4, 0xbe800000 | 2 * random(48) << 16 | opcode << 8 | 2 * random(48), 4);
}

// scratch_{load,store}_* off, v1, off offset:N, of all widths.
bool scratch_access(Editor& e) {
  const uint64_t at = e.code_position();
  const uint32_t opcode = 0x10 + static_cast<uint32_t>(e.below(16));
  const uint32_t offset =
      e.chance(70) ? static_cast<uint32_t>(e.below(16)) : static_cast<uint32_t>(e.below(4096));
  return e.put(at, 0xdc004000 | opcode << 18 | offset, 4) && e.put(at + 4, 0x007f0200, 4);
}

// Containers in containers, or with counts that the bytes cannot hold.
bool metadata_bomb(Editor& e) {
  auto note = e.note();
  if (note.bytes < 64) return false;
  uint64_t at = note.offset + 20 + e.below(note.bytes / 2);
  const uint64_t end = std::min<uint64_t>(note.offset + note.bytes, at + 8 + e.below(400));
  const uint8_t tags[] = {0xdd, 0xdf, 0xdb, 0xc6, 0xc9, 0x91, 0x81, 0xdc, 0xde};
  const uint8_t tag = tags[e.below(std::size(tags))];
  while (at + 5 <= end) {
    e.data_[at++] = tag;
    if (tag >= 0xc0)
      for (int i = 0; i < (tag == 0xdc || tag == 0xde ? 2 : 4); ++i) e.data_[at++] = 0xff;
  }
  return true;
}

bool instruction_word(Editor& e) { return e.put(e.code_position(), e.random_(), 4); }

bool instruction_bits(Editor& e) {
  const uint64_t at = e.code_position();
  return e.put(at, e.word(at) ^ (1u << e.below(32)) ^ (e.chance(30) ? 1u << e.below(32) : 0), 4);
}

bool instruction_moved(Editor& e) {
  const uint64_t from = e.code_position(), to = e.code_position();
  const uint64_t bytes = 4 + 4 * e.below(4);
  if (std::max(from, to) > e.size_ || std::max(from, to) + bytes > e.size_) return false;
  std::memmove(e.data_ + to, e.data_ + from, bytes);
  return true;
}

// Branches to anywhere, computed jumps, endless loops, traps, ends.
bool control_flow(Editor& e) {
  const uint32_t soppp[] = {0xbf820000, 0xbf840000, 0xbf850000, 0xbf880000, 0xbf890000,
                            0xbf8a0000, 0xbf810000, 0xbf920000, 0xbf8e0000, 0xbf8c0000};
  const uint64_t at = e.code_position();
  if (e.chance(20)) {
    const uint32_t reg = static_cast<uint32_t>(e.below(128));  // s_setpc, s_swappc, s_getpc
    return e.put(at, 0xbe801c00u + (static_cast<uint32_t>(e.below(3)) << 8) + reg, 4);
  }
  uint32_t target = static_cast<uint32_t>(e.below(0x10000));
  if (e.chance(60)) target = static_cast<uint32_t>(e.below(64) - 32) & 0xffff;
  return e.put(at, soppp[e.below(std::size(soppp))] | target, 4);
}

// s_getpc_b64 s[40:41]; v_mov_b32 v1, 0; global_store_dwordx4 v1, v[0:3], s[40:41] offset.
bool store_into_text(Editor& e) {
  const uint64_t at = e.code_position();
  const uint32_t offset = static_cast<uint32_t>(e.below(0x2000));
  return e.put(at, 0xbea81c00, 4) && e.put(at + 4, 0x7e020280, 4) &&
         e.put(at + 8, 0xdc7c8000 | offset, 4) && e.put(at + 12, 0x00280001, 4);
}

// Memory instructions with random addresses, offsets and descriptors.
bool memory_instruction(Editor& e) {
  const uint32_t heads[] = {0xdc508000, 0xdc708000, 0xdc500000, 0xdc504000, 0xe0501000, 0xe0701000,
                            0xe8000000, 0xd86c0000, 0xd81a0000, 0xc0020000, 0xc0620000, 0xdd088000};
  const uint64_t at = e.code_position();
  const uint32_t head = heads[e.below(std::size(heads))] | static_cast<uint32_t>(e.below(0x2000));
  return e.put(at, head ^ (e.chance(30) ? 1u << e.below(26) : 0), 4) &&
         e.put(at + 4, e.random_(), 4);
}

std::string& bundle_entry() {
  static std::string name;
  return name;
}

// The image becomes the entry of an offload bundle.
bool bundle(Editor& e) {
  constexpr char kMagic[] = "__CLANG_OFFLOAD_BUNDLE__";
  const std::string& name = bundle_entry();
  const uint64_t head = 24 + 8 + 24 + name.size();
  if (e.size_ + head > e.max_size_ || !e.is_elf()) return false;
  std::memmove(e.data_ + head, e.data_, e.size_);
  std::memcpy(e.data_, kMagic, 24);
  const uint64_t fields[] = {1, head, e.size_, name.size()};
  std::memcpy(e.data_ + 24, fields, sizeof fields);
  std::memcpy(e.data_ + 56, name.data(), name.size());
  e.size_ += head;
  if (e.chance(60)) e.put(24 + 8 * e.below(4), e.odd_number(), 8);
  return true;
}

bool bundle_header(Editor& e) {
  if (e.size_ < 96 || std::memcmp(e.data_, "__CLANG", 7) != 0) return false;
  return e.spoil(e.clip(24, 72), 1);
}

bool any_bytes(Editor& e) {
  e.size_ = LLVMFuzzerMutate(e.data_, e.size_, e.max_size_);
  return true;
}

struct Mutation {
  const char* name;
  bool (*apply)(Editor&);  // false: the image has nothing of the kind
  int weight;
  uint64_t count = 0;
};
Mutation g_mutations[] = {
    {"truncate", truncate, 3},
    {"elf_header", elf_header, 4},
    {"program_header", program_header, 6},
    {"section_header", section_header, 6},
    {"segment_overlap", segment_overlap, 5},
    {"symbol", symbol, 5},
    {"symbol_names", symbol_names, 2},
    {"relocation", relocation, 4},
    {"descriptor", descriptor, 8},
    {"descriptor_field", descriptor_field, 10},
    {"metadata", metadata, 8},
    {"metadata_value", metadata_value, 10},
    {"metadata_bomb", metadata_bomb, 3},
    {"instruction_word", instruction_word, 12},
    {"instruction_bits", instruction_bits, 14},
    {"instruction_moved", instruction_moved, 6},
    {"control_flow", control_flow, 10},
    {"store_into_text", store_into_text, 4},
    {"memory_instruction", memory_instruction, 10},
    {"gpr_indexing", gpr_indexing, 8},
    {"scratch_access", scratch_access, 8},
    {"bundle", bundle, 2},
    {"bundle_header", bundle_header, 2},
    {"any_bytes", any_bytes, 8},
};

}  // namespace

size_t mutate(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  Editor editor(data, size, max_size, seed);
  int total = 0;
  for (const Mutation& m : g_mutations) total += m.weight;
  for (int todo = 1 + static_cast<int>(editor.below(3)), tries = 0; todo > 0 && tries < 20;
       ++tries) {
    int chosen = static_cast<int>(editor.below(static_cast<uint64_t>(total)));
    for (Mutation& m : g_mutations) {
      chosen -= m.weight;
      if (chosen >= 0) continue;
      if (m.apply(editor)) {
        ++m.count;
        --todo;
      }
      break;
    }
  }
  return editor.size();
}

int num_mutations() { return static_cast<int>(std::size(g_mutations)); }
const char* mutation_name(int kind) { return g_mutations[kind].name; }
uint64_t mutation_count(int kind) { return g_mutations[kind].count; }

void bundle_for(std::string_view processor) {
  bundle_entry() = "hipv4-amdgcn-amd-amdhsa--" + std::string(processor);
}

}  // namespace fuzz
