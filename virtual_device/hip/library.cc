// The library interface to code objects: hipLibrary_t and hipKernel_t. A hipKernel_t is the
// hipFunction_t of the same kernel.
#include <algorithm>

#include "core/offload_bundle.h"
#include "hip/api.h"
#include "hip/function.h"
#include "hip/module.h"

namespace vdev::hip {
namespace {

hipError_t load(Runtime& runtime, hipLibrary_t* library, std::span<const u8> image) {
  auto loaded = std::make_shared<Library>();
  loaded->module = load_module(runtime, image);
  *library = runtime.libraries.add(loaded);
  loaded->module->library = *library;
  return hipSuccess;
}

hipKernel_t kernel_handle(const Function& function) {
  return reinterpret_cast<hipKernel_t>(function.handle);
}

}  // namespace

HIP_API hipLibraryLoadData(hipLibrary_t* library, const void* image, hipJitOption*, void**,
                           unsigned, hipLibraryOption*, void**, unsigned) {
  return api([&](Runtime& runtime) {
    require(writable(library) && image != nullptr);
    *library = nullptr;
    return load(runtime, library, copy_image(image));
  });
}

HIP_API hipLibraryLoadFromFile(hipLibrary_t* library, const char* path, hipJitOption*, void**,
                               unsigned, hipLibraryOption*, void**, unsigned) {
  return api([&](Runtime& runtime) {
    require(writable(library) && is_text(path));
    *library = nullptr;
    return load(runtime, library, read_file(path));
  });
}

HIP_API hipLibraryUnload(hipLibrary_t library) {
  return api([&](Runtime& runtime) {
    const auto removed = runtime.libraries.remove(library);
    require(removed != nullptr, hipErrorInvalidHandle);
    unload_module(runtime, *removed->module);
    return hipSuccess;
  });
}

HIP_API hipLibraryGetKernel(hipKernel_t* kernel, hipLibrary_t library, const char* name) {
  return api([&](Runtime& runtime) {
    require(writable(kernel));
    const auto l = runtime.libraries.get(library);
    *kernel = kernel_handle(*get_function(runtime, *l->module, name));
    return hipSuccess;
  });
}

HIP_API hipLibraryGetKernelCount(unsigned* count, hipLibrary_t library) {
  return api([&](Runtime& runtime) {
    require(writable(count));
    const auto l = runtime.libraries.get(library);
    *count = static_cast<unsigned>(l->module->code->kernels().size());
    return hipSuccess;
  });
}

HIP_API hipLibraryEnumerateKernels(hipKernel_t* kernels, unsigned count, hipLibrary_t library) {
  return api([&](Runtime& runtime) {
    const auto l = runtime.libraries.get(library);
    const auto& all = l->module->code->kernels();
    const size_t given = std::min<size_t>(count, all.size());
    require(writable(kernels, given));
    for (size_t i = 0; i < given; ++i) {
      kernels[i] = kernel_handle(*get_function(runtime, *l->module, &all[i]));
    }
    return hipSuccess;
  });
}

HIP_API hipLibraryGetGlobal(void** address, size_t* bytes, hipLibrary_t library, const char* name) {
  return api([&](Runtime& runtime) {
    const auto l = runtime.libraries.get(library);
    const GlobalVariable& global = get_global(*l->module, name);
    if (wanted(address)) *address = reinterpret_cast<void*>(global.address);
    if (wanted(bytes)) *bytes = global.size;
    return hipSuccess;
  });
}

HIP_API hipKernelGetFunction(hipFunction_t* function, hipKernel_t kernel) {
  return api([&](Runtime& runtime) {
    require(writable(function));
    *function = runtime.functions.get(kernel)->handle;
    return hipSuccess;
  });
}

HIP_API hipKernelGetLibrary(hipLibrary_t* library, hipKernel_t kernel) {
  return api([&](Runtime& runtime) {
    require(writable(library));
    const auto function = runtime.functions.get(kernel);
    require(function->library != nullptr, hipErrorInvalidHandle);
    *library = function->library;
    return hipSuccess;
  });
}

HIP_API hipKernelGetName(const char** name, hipKernel_t kernel) {
  return api([&](Runtime& runtime) {
    require(writable(name));
    *name = runtime.functions.get(kernel)->kernel->name.c_str();
    return hipSuccess;
  });
}

HIP_API hipKernelGetParamInfo(hipKernel_t kernel, size_t index, size_t* offset, size_t* bytes) {
  return api([&](Runtime& runtime) {
    const auto function = runtime.functions.get(kernel);
    const KernelArg* arg = explicit_argument(*function->kernel, index);
    require(arg != nullptr && writable(offset));
    *offset = arg->offset;
    if (wanted(bytes)) *bytes = arg->size;
    return hipSuccess;
  });
}

HIP_API hipKernelGetAttribute(int* value, hipFunction_attribute attribute, hipKernel_t kernel,
                              int device) {
  return api([&](Runtime& runtime) {
    check_device(device);
    require(writable(value));
    *value = function_attribute(runtime, *runtime.functions.get(kernel), attribute);
    return hipSuccess;
  });
}

HIP_API hipKernelSetAttribute(hipFunction_attribute attribute, int value, hipKernel_t kernel,
                              int device) {
  return api([&](Runtime& runtime) {
    check_device(device);
    check_function_attribute(runtime, *runtime.functions.get(kernel), attribute, value);
    return hipSuccess;
  });
}

}  // namespace vdev::hip
