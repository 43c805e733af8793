// Fuzz target: whatever bytes the device is given as a code object, loading them, looking at them
// and launching their kernels gives an error or works. It never crashes, hangs or reads beyond.
//
// An input is an image. What is done with it follows from its bytes, so that a saved input
// reproduces. AMDATTN_FUZZ_CHECKED=1 runs everything in checked mode; AMDATTN_FUZZ_PRODUCT names
// the product that is played.
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "arch/arch.h"
#include "core/code_object_metadata.h"
#include "core/elf.h"
#include "core/offload_bundle.h"
#include "mutations.h"

extern "C" {
int LLVMFuzzerRunDriver(int* argc, char*** argv, int (*target)(const uint8_t*, size_t));
int hipModuleLoadData(void** module, const void* image);
int hipModuleUnload(void* module);
int hipModuleGetFunction(void** function, void* module, const char* name);
int hipModuleLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned wx, unsigned wy,
                          unsigned wz, unsigned lds, void* stream, void** params, void** extra);
int hipDeviceSynchronize();
int hipMalloc(void** pointer, size_t bytes);
int hipMemset(void* pointer, int value, size_t bytes);
int amdattn_vdev_play(const char* name);
int amdattn_vdev_set_option(const char* key, const char* value);
const char* amdattn_vdev_take_findings();
const char* amdattn_vdev_listing(uint64_t id, const char* kernel);

// libc++ of a newer LLVM than the runtime's asks for it; containers are watched without it.
void __sanitizer_annotate_double_ended_contiguous_container(const void*, const void*, const void*,
                                                            const void*, const void*, const void*) {
}
}

namespace {

using vdev::u64;
using vdev::u8;

constexpr u64 kPage = 4096, kLargestInput = u64{1} << 20;
constexpr u64 kBufferBytes = 1 << 16;
constexpr const char *kRun = "200000", *kLongRun = "2000000";  // instructions of a workgroup
constexpr u64 kLongRunEvery = 101;
constexpr int kRunsPerSession = 500;  // of checked mode, before it begins afresh

const bool g_checked = std::getenv("AMDATTN_FUZZ_CHECKED") != nullptr;
const vdev::Processor* g_processor = nullptr;

// What became of the inputs, printed at the end.
struct {
  u64 inputs = 0, loaded = 0, launches = 0, completed = 0, findings = 0, long_runs = 0;
} g_counts;

void set_option(const char* key, const char* value) {
  if (amdattn_vdev_set_option(key, value) != 1) std::abort();
}

// Memory behind which nothing is mapped: the image lies at its end.
u8* guarded_end() {
  static u8* const end = [] {
    void* map = mmap(nullptr, kLargestInput + kPage, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) std::abort();
    u8* guard = static_cast<u8*>(map) + kLargestInput;
    mprotect(guard, kPage, PROT_NONE);
    return guard;
  }();
  return end;
}

// Arguments of any kernel: pointers to one buffer that are also plausible numbers.
std::array<u64, 512>& arguments() {
  static std::array<u64, 512> words = [] {
    void* buffer = nullptr;
    if (hipMalloc(&buffer, kBufferBytes) != 0) std::abort();
    hipMemset(buffer, 0, kBufferBytes);
    std::array<u64, 512> w;
    w.fill(reinterpret_cast<u64>(buffer));
    return w;
  }();
  return words;
}

u64 hash(const u8* data, size_t size) {
  u64 value = 0xcbf29ce484222325;
  for (size_t i = 0; i < size; ++i) value = (value ^ data[i]) * 0x100000001b3;
  return value ^ value >> 29;
}

std::vector<std::string> kernel_names(std::span<const u8> image) {
  std::string error;
  if (vdev::is_offload_bundle(image)) {
    const auto selected = vdev::select_image(image, *g_processor, error);
    if (!selected) return {};
    image = *selected;
  }
  const auto elf = vdev::elf::Image::parse(image, error);
  const auto note = elf ? elf->note("AMDGPU", vdev::elf::kNoteAmdgpuMetadata) : std::nullopt;
  const auto kernels = note ? vdev::parse_metadata(*note, error) : std::nullopt;
  std::vector<std::string> names;
  if (kernels)
    for (const auto& metadata : *kernels) names.push_back(metadata.kernel.name);
  return names;
}

void launch(void* function, u64 choice) {
  constexpr unsigned kLanes[] = {64, 128, 1, 256, 100, 1024};
  const bool is_long = choice % kLongRunEvery == 0;
  if (is_long) set_option("max_total_instructions", kLongRun);
  size_t bytes = sizeof arguments();
  void* extra[] = {reinterpret_cast<void*>(1), arguments().data(), reinterpret_cast<void*>(2),
                   &bytes, reinterpret_cast<void*>(3)};
  const unsigned lanes = kLanes[choice % 6], groups = is_long ? 64 : 1 + choice / 6 % 3;
  const unsigned lds = choice / 18 % 2 ? 512 : 0;
  ++g_counts.launches;
  const int queued =
      hipModuleLaunchKernel(function, groups, 1, 1, lanes, 1, 1, lds, nullptr, nullptr, extra);
  const int result = hipDeviceSynchronize();
  g_counts.completed += queued == 0 && result == 0;
  g_counts.long_runs += is_long;
  if (is_long) set_option("max_total_instructions", kRun);
}

// Text for Python's json: it has to be UTF-8; ours is ASCII.
void check_ascii(const char* text) {
  for (; text && *text; ++text)
    if (static_cast<unsigned char>(*text) >= 0x80) std::abort();
}

void begin() {
  set_option("check", "0");
  set_option("threads", "1");
  set_option("max_instructions", "20000");
  set_option("max_total_instructions", kRun);
  if (g_checked) set_option("check", "1");
}

int run(const u8* data, size_t size) {
  if (size > kLargestInput) return -1;
  if (g_counts.inputs++ % kRunsPerSession == 0) begin();
  u8* const image = guarded_end() - size;
  if (size) std::memcpy(image, data, size);
  void* module = nullptr;
  // In checked mode only images that load are built upon: the others are explored in fast mode.
  if (hipModuleLoadData(&module, image) != 0) return g_checked ? -1 : 0;
  ++g_counts.loaded;
  const u64 choice = hash(data, size);
  const auto names = kernel_names({image, size});
  for (size_t i = 0; i < names.size() && i < 2; ++i) {
    const std::string& name = names[(choice / 64 + i) % names.size()];
    void* function = nullptr;
    if (hipModuleGetFunction(&function, module, name.c_str()) == 0) launch(function, choice);
    if (g_checked) check_ascii(amdattn_vdev_listing(choice % 4, name.c_str()));
  }
  hipModuleUnload(module);
  if (g_checked) {
    const char* findings = amdattn_vdev_take_findings();
    check_ascii(findings);
    g_counts.findings += findings && std::strstr(findings, "\"error\"") != nullptr;
  }
  return 0;
}

void print_counts() {
  const auto number = [](u64 value) { return static_cast<unsigned long long>(value); };
  std::printf(
      "{\"inputs\": %llu, \"loaded\": %llu, \"launches\": %llu, \"completed\": %llu, "
      "\"findings\": %llu, \"long_runs\": %llu, \"mutations\": {",
      number(g_counts.inputs), number(g_counts.loaded), number(g_counts.launches),
      number(g_counts.completed), number(g_counts.findings), number(g_counts.long_runs));
  for (int i = 0; i < fuzz::num_mutations(); ++i)
    std::printf("%s\"%s\": %llu", i ? ", " : "", fuzz::mutation_name(i),
                number(fuzz::mutation_count(i)));
  std::printf("}}\n");
  std::fflush(stdout);
}

}  // namespace

// libFuzzer looks it up by name.
extern "C" __attribute__((visibility("default"))) size_t LLVMFuzzerCustomMutator(uint8_t* data,
                                                                                 size_t size,
                                                                                 size_t max_size,
                                                                                 unsigned seed) {
  return fuzz::mutate(data, size, max_size, seed);
}

int main(int argc, char** argv) {
  const char* product = std::getenv("AMDATTN_FUZZ_PRODUCT");
  const auto machine = product ? vdev::find_machine(product) : std::nullopt;
  if (!machine || amdattn_vdev_play(product) != 1) {
    std::fprintf(stderr, "AMDATTN_FUZZ_PRODUCT names no product\n");
    return 1;
  }
  g_processor = &machine->arch->processor;
  fuzz::bundle_for(g_processor->name);
  std::atexit(print_counts);
  return LLVMFuzzerRunDriver(&argc, &argv, run);
}
