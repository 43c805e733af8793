#include "core/code_object.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "core/code_object_metadata.h"
#include "core/elf.h"
#include "core/offload_bundle.h"

namespace vdev {
namespace {

// e_flags of AMDGPU images: processor and target features.
constexpr u32 kMachMask = 0xff;
constexpr u32 kXnackMask = 0x300, kXnackOff = 0x200, kXnackOn = 0x300;
constexpr u32 kSrameccMask = 0xc00, kSrameccOff = 0x800, kSrameccOn = 0xc00;
// EI_ABIVERSION of code objects of version 4, 5 and 6.
constexpr u8 kFirstAbiVersion = 2, kLastAbiVersion = 4;

std::string hex(u64 value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

TargetId target_of(const Elf64_Ehdr& header) {
  using enum TargetId::Feature;
  TargetId target;
  const u32 mach = header.e_flags & kMachMask;
  for (const Processor* processor : processors()) {
    if (processor->elf_machine == mach) target.processor = processor->name;
  }
  const u32 xnack = header.e_flags & kXnackMask, sramecc = header.e_flags & kSrameccMask;
  target.xnack = xnack == kXnackOn ? kOn : xnack == kXnackOff ? kOff : kAny;
  target.sramecc = sramecc == kSrameccOn ? kOn : sramecc == kSrameccOff ? kOff : kAny;
  return target;
}

}  // namespace

// The steps of CodeObject::load. Each returns false after it has set error_.
class CodeObjectLoader {
 public:
  CodeObjectLoader(const elf::Image& image, const Processor& processor, Memory& memory)
      : image_(image),
        processor_(processor),
        memory_(memory),
        code_(new CodeObject(memory, processor)) {}

  std::variant<std::shared_ptr<CodeObject>, LoadError> load() {
    if (check_target() && place_segments() && read_symbols() && relocate() && read_kernels()) {
      return code_;
    }
    return error_;
  }

 private:
  using Symbols = std::vector<elf::Symbol>;

  bool invalid(std::string message) {
    error_ = {true, std::move(message)};
    return false;
  }
  // The image is well formed, but it cannot run here.
  bool unloadable(std::string message) {
    error_ = {false, std::move(message)};
    return false;
  }

  bool check_target();
  bool place_segments();
  bool read_symbols();
  bool relocate();
  bool apply(const Elf64_Rela& relocation, const Symbols& symbols);
  bool read_kernels();
  bool read_descriptor(const std::string& symbol, Kernel& kernel);

  // Whether [vaddr, vaddr + bytes) lies inside the placed segments.
  bool placed(u64 vaddr, u64 bytes) const {
    return code_->segments_.contains(load_base_ + vaddr, bytes);
  }
  std::byte* host(u64 vaddr) const { return code_->segments_.host(load_base_ + vaddr); }

  const elf::Image& image_;
  const Processor& processor_;
  Memory& memory_;
  std::shared_ptr<CodeObject> code_;
  u64 load_base_ = 0;  // device address = load_base_ + virtual address of the image
  std::unordered_map<std::string_view, u64> exported_;  // values of defined, non-local symbols
  LoadError error_;
};

bool CodeObjectLoader::check_target() {
  const Elf64_Ehdr& header = image_.header();
  if (header.e_machine != elf::kMachineAmdgpu) {
    return invalid("the ELF image is for machine " + std::to_string(header.e_machine) +
                   ", not for AMDGPU (224)");
  }
  if (header.e_ident[EI_OSABI] != elf::kOsAbiAmdgpuHsa) {
    return invalid("the ELF image has OS ABI " + std::to_string(header.e_ident[EI_OSABI]) +
                   ", not AMDGPU HSA (64)");
  }
  const u8 abi = header.e_ident[EI_ABIVERSION];
  if (abi < kFirstAbiVersion || abi > kLastAbiVersion) {
    return invalid("the ELF image has ABI version " + std::to_string(abi) +
                   "; 2, 3 and 4 (code object versions 4, 5 and 6) are supported");
  }
  if (header.e_type != ET_DYN) {
    return invalid("the ELF image is not linked (type " + std::to_string(header.e_type) +
                   ", expected shared object 3)");
  }
  const auto& sections = image_.sections();
  if (std::none_of(sections.begin(), sections.end(),
                   [](const elf::Section& section) { return section.name == ".strtab"; })) {
    return invalid(
        "the ELF image has no section .strtab: it is stripped, and AMD's HIP runtime refuses such "
        "images");
  }
  const TargetId target = target_of(header);
  code_->may_have_xnack_ = target.xnack != TargetId::Feature::kOff;
  if (!runs_on(target, processor_)) {
    return invalid("the code object is for " +
                   (target.processor.empty() ? "another processor" : target.processor) +
                   " (e_flags " + hex(header.e_flags) + "), this device is " +
                   std::string(processor_.name).append(processor_.features));
  }
  return true;
}

bool CodeObjectLoader::place_segments() {
  u64 first = std::numeric_limits<u64>::max(), end = 0;
  u64 text_first = 0, text_end = 0;
  for (const Elf64_Phdr& segment : image_.segments()) {
    if (segment.p_type != PT_LOAD || segment.p_memsz == 0) continue;
    const u64 segment_end = segment.p_vaddr + segment.p_memsz;
    if (segment_end < segment.p_vaddr || segment.p_filesz > segment.p_memsz) {
      return invalid("a segment at " + hex(segment.p_vaddr) + " of " + hex(segment.p_memsz) +
                     " bytes is malformed");
    }
    if (segment.p_align > kMemoryPage) {
      return unloadable("a segment asks for an alignment of " + hex(segment.p_align) +
                        "; at most 4096 is supported");
    }
    first = std::min(first, segment.p_vaddr);
    end = std::max(end, segment_end);
    if (segment.p_flags & PF_X) {
      if (text_end) return unloadable("several executable segments are not supported");
      text_first = segment.p_vaddr;
      text_end = segment.p_vaddr + segment.p_filesz;
    }
  }
  if (end == 0) return invalid("the code object has no segment to load");
  first &= ~(kMemoryPage - 1);
  // Zero-filled, because the part of a segment that the file does not hold must read as zeros.
  const auto memory = memory_.allocate(end - first, MemoryKind::kDevice, 0, Fill::kZero);
  if (!memory) {
    return unloadable("no device memory for the " + hex(end - first) +
                      " bytes of the code object's segments");
  }
  code_->segments_ = *memory;
  load_base_ = code_->load_base_ = memory->base - first;
  for (const Elf64_Phdr& segment : image_.segments()) {
    if (segment.p_type != PT_LOAD || segment.p_memsz == 0) continue;
    const auto bytes = image_.contents(segment);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<u8*>(host(segment.p_vaddr)));
  }
  if (text_first < text_end) {
    if (text_first % sizeof(u32)) return invalid("the executable segment is not aligned to 4");
    code_->text_address_ = load_base_ + text_first;
    code_->text_ = {reinterpret_cast<const u32*>(host(text_first)),
                    (text_end - text_first) / sizeof(u32)};
  }
  return true;
}

bool CodeObjectLoader::read_symbols() {
  std::string error;
  const u32 dynamic = image_.find_section(SHT_DYNSYM), full = image_.find_section(SHT_SYMTAB);
  if (!dynamic && !full) return invalid("the code object has no symbol table");
  const auto exported = image_.symbols(dynamic ? dynamic : full, error);
  const auto all = image_.symbols(full ? full : dynamic, error);
  if (!exported || !all) return invalid(error);
  for (const elf::Symbol& symbol : *exported) {
    if (symbol.binding == STB_LOCAL || symbol.section == SHN_UNDEF) continue;
    exported_.emplace(symbol.name, symbol.value);
    const bool variable = symbol.type == STT_OBJECT && !symbol.name.ends_with(".kd");
    if (!variable || symbol.section >= SHN_LORESERVE) continue;
    if (!placed(symbol.value, symbol.size)) {
      return invalid("variable " + elf::quoted(symbol.name) + " lies outside the segments");
    }
    code_->globals_.push_back({std::string(symbol.name), load_base_ + symbol.value, symbol.size});
  }
  for (const elf::Symbol& symbol : *all) {
    if (symbol.type != STT_FUNC || symbol.section == SHN_UNDEF) continue;
    // Only where there is code: reports and listings rely on it.
    const u64 address = load_base_ + symbol.value, offset = address - code_->text_address_;
    if (offset >= code_->text_.size_bytes() || offset % sizeof(u32) != 0) continue;
    code_->functions_.push_back({address, std::string(symbol.name)});
  }
  std::sort(code_->functions_.begin(), code_->functions_.end(),
            [](const auto& a, const auto& b) { return a.address < b.address; });
  return true;
}

bool CodeObjectLoader::relocate() {
  std::string error;
  std::map<u32, std::optional<Symbols>> tables;  // by section; several may share one
  for (const elf::Section& section : image_.sections()) {
    const Elf64_Shdr& header = section.header;
    // Relocations outside the loaded image (--emit-relocs) have been applied by the linker.
    if (!(header.sh_flags & SHF_ALLOC) || header.sh_size == 0) continue;
    if (header.sh_type == SHT_REL) {
      return unloadable("relocations without addends (section " + elf::quoted(section.name) +
                        ") are not supported");
    }
    if (header.sh_type != SHT_RELA) continue;
    const auto relocations = image_.relocations(section, error);
    const auto [entry, added] = tables.try_emplace(header.sh_link);
    std::optional<Symbols>& symbols = entry->second;
    if (added) symbols = image_.symbols(header.sh_link, error);
    if (!relocations || !symbols) return invalid(error);
    for (const Elf64_Rela& relocation : *relocations) {
      if (!apply(relocation, *symbols)) return false;
    }
  }
  return true;
}

bool CodeObjectLoader::apply(const Elf64_Rela& relocation, const Symbols& symbols) {
  using enum elf::RelocationType;
  const u64 index = ELF64_R_SYM(relocation.r_info);
  const auto type = static_cast<elf::RelocationType>(ELF64_R_TYPE(relocation.r_info));
  const std::string where = "relocation of type " + std::to_string(static_cast<u32>(type)) +
                            " at " + hex(relocation.r_offset);
  if (index >= symbols.size()) return invalid(where + " names a symbol that does not exist");
  const elf::Symbol& symbol = symbols[index];
  u64 symbol_address = load_base_ + symbol.value;
  if (symbol.section == SHN_ABS) symbol_address = symbol.value;
  if (symbol.section == SHN_UNDEF) {
    if (index != 0 && symbol.binding != STB_WEAK) {
      return unloadable(where + " needs the undefined symbol " + elf::quoted(symbol.name));
    }
    symbol_address = 0;
  }
  const u64 place = load_base_ + relocation.r_offset;
  const u64 addend = static_cast<u64>(relocation.r_addend);
  u64 value = symbol_address + addend;
  u64 bytes = 4;
  switch (type) {
    case kNone:
      return true;
    case kAbs64:
      bytes = 8;
      break;
    case kRelative64:
      bytes = 8;
      value = load_base_ + addend;
      break;
    case kRel64:
      bytes = 8;
      value -= place;
      break;
    case kAbs32Lo:
      break;
    case kAbs32Hi:
      value >>= 32;
      break;
    case kRel32Lo:
      value -= place;
      break;
    case kRel32Hi:
      value = (value - place) >> 32;
      break;
    case kAbs32:
      if (value >> 32) return unloadable(where + " does not hold the 64-bit value " + hex(value));
      break;
    case kRel32:
      value -= place;
      if (static_cast<i64>(value) != static_cast<i32>(value)) {
        return unloadable(where + " does not reach " + elf::quoted(symbol.name));
      }
      break;
    default:
      return unloadable(where + " is not supported in a linked code object");
  }
  if (!placed(relocation.r_offset, bytes)) return invalid(where + " lies outside the segments");
  std::memcpy(host(relocation.r_offset), &value, bytes);
  return true;
}

bool CodeObjectLoader::read_kernels() {
  const auto note = image_.note("AMDGPU", elf::kNoteAmdgpuMetadata);
  if (!note) return invalid("the code object has no AMDGPU metadata note");
  std::string error;
  auto kernels = parse_metadata(*note, error);
  if (!kernels) return invalid(error);
  for (KernelMetadata& metadata : *kernels) {
    if (!read_descriptor(metadata.symbol, metadata.kernel)) return false;
    code_->kernels_.push_back(std::move(metadata.kernel));
  }
  return true;
}

bool CodeObjectLoader::read_descriptor(const std::string& name, Kernel& kernel) {
  const auto refuse = [&](const std::string& why) {
    return invalid("kernel " + elf::quoted(kernel.name) + ": " + why);
  };
  const auto symbol = exported_.find(name);
  if (symbol == exported_.end()) return refuse("no descriptor symbol " + elf::quoted(name));
  const u64 vaddr = symbol->second;
  if (!placed(vaddr, kDescriptorBytes) || vaddr % kDescriptorBytes != 0) {
    return refuse("its descriptor is misaligned or outside the segments");
  }
  const std::span<const u8, kDescriptorBytes> bytes(reinterpret_cast<const u8*>(host(vaddr)),
                                                    kDescriptorBytes);
  if (const std::string sizes = sizes_differ(bytes, kernel); !sizes.empty()) return refuse(sizes);
  kernel.descriptor_address = load_base_ + vaddr;
  kernel.entry_address =
      kernel.descriptor_address + static_cast<u64>(decode_descriptor(bytes, kernel));
  for (const KernelArg& arg : kernel.args) {
    if (u64{arg.offset} + arg.size > kernel.kernarg_bytes) {
      return refuse("argument " + elf::quoted(arg.name) + " at " + hex(arg.offset) + " of " +
                    hex(arg.size) + " bytes leaves the kernarg segment of " +
                    hex(kernel.kernarg_bytes) + " bytes");
    }
  }
  // Entry points come in units of 256 bytes; preloading kernargs skips the first unit.
  const u64 start = kernel.entry_address - code_->text_address_;
  const u64 skipped = kernel.kernarg_preload_dwords > 0 ? 256 : 0;
  if (kernel.entry_address % 256 != 0 || start >= code_->text_.size_bytes() ||
      skipped >= code_->text_.size_bytes() - start) {
    return refuse("its entry point is misaligned or outside the executable segment");
  }
  return true;
}

std::variant<std::shared_ptr<CodeObject>, LoadError> CodeObject::load(std::span<const u8> image,
                                                                      const Processor& processor,
                                                                      Memory& memory) {
  std::string error;
  if (is_compressed_bundle(image)) {
    return LoadError{true,
                     "compressed offload bundles (CCOB) are not supported; build with "
                     "--no-offload-compress or pass one of the contained ELF images"};
  }
  if (is_offload_bundle(image)) {
    const auto selected = select_image(image, processor, error);
    if (!selected) return LoadError{true, error};
    image = *selected;
  }
  const auto elf_image = elf::Image::parse(image, error);
  if (!elf_image) return LoadError{true, error};
  auto loaded = CodeObjectLoader(*elf_image, processor, memory).load();
  if (auto* code = std::get_if<std::shared_ptr<CodeObject>>(&loaded))
    (*code)->image_.assign(image.begin(), image.end());
  return loaded;
}

CodeObject::~CodeObject() {
  if (segments_.size) memory_.free(segments_.base);
}

const Kernel* CodeObject::find_kernel(std::string_view name) const {
  const auto found = std::find_if(kernels_.begin(), kernels_.end(),
                                  [&](const Kernel& kernel) { return kernel.name == name; });
  return found == kernels_.end() ? nullptr : &*found;
}

std::string CodeObject::describe(u64 address) const {
  if (!segments_.contains(address, 1)) return hex(address);
  const auto above =
      std::upper_bound(functions_.begin(), functions_.end(), address,
                       [](u64 value, const Symbol& symbol) { return value < symbol.address; });
  if (above == functions_.begin()) return "code object+" + hex(address - segments_.base);
  const Symbol& symbol = *std::prev(above);
  return symbol.name + "+" + hex(address - symbol.address);
}

std::pair<u64, u64> CodeObject::function_around(u64 address) const {
  const u64 end = text_address_ + 4 * text_.size();
  const auto above =
      std::upper_bound(functions_.begin(), functions_.end(), address,
                       [](u64 value, const Symbol& symbol) { return value < symbol.address; });
  if (above == functions_.begin() || address >= end) return {0, 0};
  return {std::prev(above)->address, above == functions_.end() ? end : above->address};
}

}  // namespace vdev
