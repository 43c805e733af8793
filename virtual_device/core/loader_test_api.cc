// C entry points through which the tests look at the loader and at device memory.
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <variant>

#include "core/code_object.h"
#include "core/code_object_metadata.h"
#include "core/memory.h"
#include "core/offload_bundle.h"

#define VDEV_TEST_API extern "C" __attribute__((visibility("default")))

namespace vdev {
namespace {

// Objects and arrays are written by the callers; this adds the values. Bytes of names that are not
// ASCII come out as \u00XX.
class Json {
 public:
  Json& raw(std::string_view text) {
    text_ += text;
    return *this;
  }
  Json& string(std::string_view value) {
    text_ += '"';
    for (const char c : value) {
      const u8 byte = static_cast<u8>(c);
      if (byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\') {
        text_ += c;
      } else {
        char escape[8];
        std::snprintf(escape, sizeof(escape), "\\u%04x", byte);
        text_ += escape;
      }
    }
    text_ += '"';
    return *this;
  }
  Json& key(std::string_view name) {
    if (text_.back() != '{') text_ += ',';
    return string(name).raw(":");
  }
  Json& field(std::string_view name, u64 value) { return key(name).raw(std::to_string(value)); }
  Json& field(std::string_view name, bool value) { return key(name).raw(value ? "true" : "false"); }
  Json& field(std::string_view name, std::string_view value) { return key(name).string(value); }
  Json& field(std::string_view name, u32 value) { return field(name, u64{value}); }

  // "name": [each(row), ...]
  template <class Rows, class Each>
  Json& list(std::string_view name, const Rows& rows, Each each) {
    key(name).raw("[");
    bool first = true;
    for (const auto& row : rows) {
      if (!first) text_ += ',';
      first = false;
      raw("{");
      each(row);
      raw("}");
    }
    return raw("]");
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void write_kernel(Json& json, const Kernel& kernel) {
#define VDEV_FIELD(name) json.field(#name, kernel.name)
  VDEV_FIELD(descriptor_address);
  VDEV_FIELD(entry_address);
  VDEV_FIELD(lds_bytes);
  VDEV_FIELD(scratch_bytes);
  VDEV_FIELD(dynamic_stack);
  VDEV_FIELD(kernarg_bytes);
  VDEV_FIELD(kernarg_align);
  VDEV_FIELD(max_workgroup_size);
  VDEV_FIELD(uniform_workgroup_size);
  VDEV_FIELD(num_vgprs);
  VDEV_FIELD(num_agprs);
  VDEV_FIELD(num_sgprs);
  VDEV_FIELD(vgpr_spills);
  VDEV_FIELD(sgpr_spills);
  VDEV_FIELD(float_mode);
  VDEV_FIELD(dx10_clamp);
  VDEV_FIELD(ieee_mode);
  VDEV_FIELD(fp16_overflow);
  VDEV_FIELD(enable_private_segment);
  VDEV_FIELD(user_sgpr_count);
  VDEV_FIELD(workgroup_id_x);
  VDEV_FIELD(workgroup_id_y);
  VDEV_FIELD(workgroup_id_z);
  VDEV_FIELD(workgroup_info);
  VDEV_FIELD(workitem_id_dims);
  VDEV_FIELD(trap_handler);
  VDEV_FIELD(exception_mask);
  VDEV_FIELD(wavefront_size);
  VDEV_FIELD(tg_split);
  VDEV_FIELD(user_private_segment_buffer);
  VDEV_FIELD(user_dispatch_ptr);
  VDEV_FIELD(user_queue_ptr);
  VDEV_FIELD(user_kernarg_ptr);
  VDEV_FIELD(user_dispatch_id);
  VDEV_FIELD(user_flat_scratch);
  VDEV_FIELD(user_private_segment_size);
  VDEV_FIELD(kernarg_preload_dwords);
  VDEV_FIELD(kernarg_preload_offset);
#undef VDEV_FIELD
  json.field("name", std::string_view(kernel.name));
  json.list("args", kernel.args, [&](const KernelArg& arg) {
    json.field("name", std::string_view(arg.name)).field("offset", arg.offset);
    json.field("size", arg.size).field("kind", arg_kind_name(arg.kind));
  });
}

std::string to_json(const CodeObject& code, const Allocation& segments) {
  Json json;
  json.raw("{").field("arch", std::string_view(code.arch()));
  json.field("segments_address", segments.base).field("segments_bytes", segments.size);
  json.field("text_address", code.text_address());
  json.field("text_bytes", u64{code.text().size_bytes()});
  json.list("globals", code.globals(), [&](const GlobalVariable& variable) {
    json.field("name", std::string_view(variable.name));
    json.field("address", variable.address).field("size", variable.size);
  });
  json.list("kernels", code.kernels(), [&](const Kernel& kernel) { write_kernel(json, kernel); });
  return json.raw("}").take();
}

std::string to_json(const LoadError& error) {
  Json json;
  json.raw("{").field("error", std::string_view(error.message));
  return json.field("invalid_image", error.invalid_image).raw("}").take();
}

struct LoadedCode {
  Memory memory{u64{64} << 30};
  std::shared_ptr<CodeObject> code;
  std::string json, text;
};

struct TestAllocation {
  u64 base, size;
  i64 bias;
  u32 kind, flags;
  u64 id;
};

int give(const std::optional<Allocation>& allocation, TestAllocation* out) {
  if (!allocation) return 0;
  *out = {allocation->base,  allocation->size, allocation->bias, static_cast<u32>(allocation->kind),
          allocation->flags, allocation->id};
  return 1;
}

}  // namespace

// Loads an image into a memory of its own. Never null; release with vdev_test_code_release.
VDEV_TEST_API LoadedCode* vdev_test_code_load(const u8* image, u64 bytes, const char* arch) {
  auto* loaded = new LoadedCode;
  const Processor* processor = find_processor(arch);
  if (!processor) {
    loaded->json = to_json(LoadError{true, std::string("unknown processor ") + arch});
    return loaded;
  }
  auto result = CodeObject::load({image, bytes}, *processor, loaded->memory);
  if (auto* error = std::get_if<LoadError>(&result)) {
    loaded->json = to_json(*error);
  } else {
    loaded->code = std::get<0>(result);
    loaded->json = to_json(*loaded->code, *loaded->memory.nearest(0));
  }
  return loaded;
}

// The code object, or {"error", "invalid_image"}.
VDEV_TEST_API const char* vdev_test_code_json(const LoadedCode* loaded) {
  return loaded->json.c_str();
}

VDEV_TEST_API const char* vdev_test_code_describe(LoadedCode* loaded, u64 address) {
  loaded->text = loaded->code ? loaded->code->describe(address) : "";
  return loaded->text.c_str();
}

// Copies bytes of the loaded segments; 0 when the range lies outside them.
VDEV_TEST_API int vdev_test_code_read(const LoadedCode* loaded, u64 address, void* out, u64 bytes) {
  const auto allocation = loaded->memory.find(address);
  if (!allocation || !allocation->contains(address, bytes)) return 0;
  std::memcpy(out, allocation->host(address), bytes);
  return 1;
}

// Device bytes still allocated after the code object has gone.
VDEV_TEST_API u64 vdev_test_code_release(LoadedCode* loaded) {
  loaded->code.reset();
  const u64 left = loaded->memory.used();
  delete loaded;
  return left;
}

VDEV_TEST_API u64 vdev_test_image_bytes(const void* image) { return image_bytes(image); }

VDEV_TEST_API Memory* vdev_test_memory_new(u64 capacity, u64 range_bytes) {
  return new Memory(capacity, range_bytes);
}

VDEV_TEST_API void vdev_test_memory_delete(Memory* memory) { delete memory; }

VDEV_TEST_API int vdev_test_memory_allocate(Memory* memory, u64 size, u32 kind, u32 flags, int zero,
                                            TestAllocation* out) {
  const auto fill = zero ? Fill::kZero : Fill::kPoison;
  return give(memory->allocate(size, static_cast<MemoryKind>(kind), flags, fill), out);
}

VDEV_TEST_API int vdev_test_memory_free(Memory* memory, u64 address) {
  return memory->free(address);
}

VDEV_TEST_API int vdev_test_memory_register(Memory* memory, void* host, u64 size, u32 flags) {
  return memory->register_host(host, size, flags);
}

VDEV_TEST_API int vdev_test_memory_unregister(Memory* memory, void* host) {
  return memory->unregister_host(host);
}

VDEV_TEST_API int vdev_test_memory_borrow(Memory* memory, u64 host, u64 size) {
  return memory->borrow(host, size);
}

VDEV_TEST_API int vdev_test_memory_give_back(Memory* memory, u64 host, u64 size) {
  return memory->give_back(host, size);
}

VDEV_TEST_API int vdev_test_memory_find(const Memory* memory, u64 address, TestAllocation* out) {
  return give(memory->find(address), out);
}

VDEV_TEST_API int vdev_test_memory_nearest(const Memory* memory, u64 address, TestAllocation* out) {
  return give(memory->nearest(address), out);
}

VDEV_TEST_API int vdev_test_memory_was_freed(const Memory* memory, u64 address) {
  return memory->was_freed(address);
}

VDEV_TEST_API u64 vdev_test_memory_capacity(const Memory* memory) { return memory->capacity(); }

VDEV_TEST_API u64 vdev_test_memory_used(const Memory* memory) { return memory->used(); }

VDEV_TEST_API u64 vdev_test_memory_epoch(const Memory* memory) { return memory->epoch(); }

}  // namespace vdev
