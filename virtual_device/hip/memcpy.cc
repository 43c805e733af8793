// Copies. Every variant becomes one CopyCommand.
#include "hip/api.h"
#include "hip/module.h"
#include "hip/transfer.h"

namespace vdev::hip {
namespace {

hipError_t copy(void* dst, const void* src, size_t bytes, hipMemcpyKind kind, hipStream_t stream,
                bool wait) {
  return api([&](Runtime& runtime) {
    const auto s = runtime.stream(stream);
    return runtime.enqueue(s, make_copy(runtime, dst, bytes, 0, src, bytes, 0, bytes, 1, 1, kind),
                           wait);
  });
}

hipError_t copy_2d(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width,
                   size_t height, hipMemcpyKind kind, hipStream_t stream, bool wait) {
  return api([&](Runtime& runtime) {
    const auto s = runtime.stream(stream);
    require(dst_pitch >= width && src_pitch >= width, hipErrorInvalidPitchValue);
    return runtime.enqueue(
        s, make_copy(runtime, dst, dst_pitch, 0, src, src_pitch, 0, width, height, 1, kind), wait);
  });
}

hipError_t copy_3d(const hipMemcpy3DParms* params, hipStream_t stream, bool wait) {
  return api([&](Runtime& runtime) {
    const auto s = runtime.stream(stream);
    return runtime.enqueue(s, make_copy(runtime, params), wait);
  });
}

hipError_t copy_peer(void* dst, int dst_device, const void* src, int src_device, size_t bytes,
                     hipStream_t stream, bool wait) {
  if (dst_device != 0 || src_device != 0) return note_result(hipErrorInvalidDevice);
  return copy(dst, src, bytes, hipMemcpyDeviceToDevice, stream, wait);
}

// One side of hip_Memcpy2D, as a pointer to its first byte.
void* first_byte(hipMemoryType type, const void* host, const void* device, hipArray_t array,
                 size_t x, size_t y, size_t pitch) {
  require(array == nullptr && type != hipMemoryTypeArray, hipErrorNotSupported);
  const bool on_host = type == hipMemoryTypeHost;
  require(on_host || type == hipMemoryTypeDevice || type == hipMemoryTypeUnified ||
          type == hipMemoryTypeManaged);
  const void* base = on_host ? host : device;
  require(base != nullptr);
  return const_cast<char*>(static_cast<const char*>(base) + y * pitch + x);
}

hipError_t copy_param_2d(const hip_Memcpy2D* params, hipStream_t stream, bool wait) {
  return api([&](Runtime& runtime) {
    require(readable(params));
    const hip_Memcpy2D& p = *params;
    void* dst = first_byte(p.dstMemoryType, p.dstHost, p.dstDevice, p.dstArray, p.dstXInBytes,
                           p.dstY, p.dstPitch);
    const void* src = first_byte(p.srcMemoryType, p.srcHost, p.srcDevice, p.srcArray, p.srcXInBytes,
                                 p.srcY, p.srcPitch);
    const auto s = runtime.stream(stream);
    return runtime.enqueue(s,
                           make_copy(runtime, dst, p.dstPitch, 0, src, p.srcPitch, 0,
                                     p.WidthInBytes, p.Height, 1, hipMemcpyDefault),
                           wait);
  });
}

// Device variables are named by their address (hipModuleGetGlobal): no host program is linked
// against their names.
void* symbol_address(Runtime& runtime, const void* symbol, size_t bytes, size_t offset) {
  const auto global = find_global(runtime, symbol);
  require(global.has_value(), hipErrorInvalidSymbol);
  require(offset <= global->size && bytes <= global->size - offset);
  return reinterpret_cast<void*>(global->address + offset);
}

hipError_t copy_to_symbol(const void* symbol, const void* src, size_t bytes, size_t offset,
                          hipMemcpyKind kind, hipStream_t stream, bool wait) {
  return api([&](Runtime& runtime) {
    void* dst = symbol_address(runtime, symbol, bytes, offset);
    require(kind == hipMemcpyHostToDevice || kind == hipMemcpyDeviceToDevice ||
                kind == hipMemcpyDefault,
            hipErrorInvalidMemcpyDirection);
    const auto s = runtime.stream(stream);
    return runtime.enqueue(s, make_copy(runtime, dst, bytes, 0, src, bytes, 0, bytes, 1, 1, kind),
                           wait);
  });
}

hipError_t copy_from_symbol(void* dst, const void* symbol, size_t bytes, size_t offset,
                            hipMemcpyKind kind, hipStream_t stream, bool wait) {
  return api([&](Runtime& runtime) {
    const void* src = symbol_address(runtime, symbol, bytes, offset);
    require(kind == hipMemcpyDeviceToHost || kind == hipMemcpyDeviceToDevice ||
                kind == hipMemcpyDefault,
            hipErrorInvalidMemcpyDirection);
    const auto s = runtime.stream(stream);
    return runtime.enqueue(s, make_copy(runtime, dst, bytes, 0, src, bytes, 0, bytes, 1, 1, kind),
                           wait);
  });
}

}  // namespace

CopyCommand make_copy(Runtime& runtime, const hipMemcpy3DParms* params) {
  require(readable(params));
  const hipMemcpy3DParms& p = *params;
  require(p.srcArray == nullptr && p.dstArray == nullptr, hipErrorNotSupported);
  const auto slice = [](const hipPitchedPtr& side) { return side.pitch * side.ysize; };
  const auto first = [&](const hipPitchedPtr& side, const hipPos& position) -> void* {
    require(side.ptr != nullptr);
    require(p.extent.width <= side.pitch || p.extent.height * p.extent.depth <= 1,
            hipErrorInvalidPitchValue);
    return static_cast<char*>(side.ptr) + position.z * slice(side) + position.y * side.pitch +
           position.x;
  };
  return make_copy(runtime, first(p.dstPtr, p.dstPos), p.dstPtr.pitch, slice(p.dstPtr),
                   first(p.srcPtr, p.srcPos), p.srcPtr.pitch, slice(p.srcPtr), p.extent.width,
                   p.extent.height, p.extent.depth, p.kind);
}

HIP_API hipMemcpy(void* dst, const void* src, size_t bytes, hipMemcpyKind kind) {
  return copy(dst, src, bytes, kind, nullptr, kWait);
}
HIP_API hipMemcpy_spt(void* dst, const void* src, size_t bytes, hipMemcpyKind kind) {
  return copy(dst, src, bytes, kind, per_thread(nullptr), kWait);
}
HIP_API hipMemcpyWithStream(void* dst, const void* src, size_t bytes, hipMemcpyKind kind,
                            hipStream_t stream) {
  return copy(dst, src, bytes, kind, stream, kWait);
}
HIP_API hipMemcpyAsync(void* dst, const void* src, size_t bytes, hipMemcpyKind kind,
                       hipStream_t stream) {
  return copy(dst, src, bytes, kind, stream, kAsync);
}
HIP_API hipMemcpyAsync_spt(void* dst, const void* src, size_t bytes, hipMemcpyKind kind,
                           hipStream_t stream) {
  return copy(dst, src, bytes, kind, per_thread(stream), kAsync);
}
HIP_API hipMemcpyHtoD(hipDeviceptr_t dst, const void* src, size_t bytes) {
  return copy(dst, src, bytes, hipMemcpyHostToDevice, nullptr, kWait);
}
HIP_API hipMemcpyDtoH(void* dst, hipDeviceptr_t src, size_t bytes) {
  return copy(dst, src, bytes, hipMemcpyDeviceToHost, nullptr, kWait);
}
// Copies inside the device need not be over when the call returns; they are ordered all the same.
HIP_API hipMemcpyDtoD(hipDeviceptr_t dst, hipDeviceptr_t src, size_t bytes) {
  return copy(dst, src, bytes, hipMemcpyDeviceToDevice, nullptr, kAsync);
}
HIP_API hipMemcpyHtoDAsync(hipDeviceptr_t dst, const void* src, size_t bytes, hipStream_t stream) {
  return copy(dst, src, bytes, hipMemcpyHostToDevice, stream, kAsync);
}
HIP_API hipMemcpyDtoHAsync(void* dst, hipDeviceptr_t src, size_t bytes, hipStream_t stream) {
  return copy(dst, src, bytes, hipMemcpyDeviceToHost, stream, kAsync);
}
HIP_API hipMemcpyDtoDAsync(hipDeviceptr_t dst, hipDeviceptr_t src, size_t bytes,
                           hipStream_t stream) {
  return copy(dst, src, bytes, hipMemcpyDeviceToDevice, stream, kAsync);
}
HIP_API hipMemcpyPeer(void* dst, int dst_device, const void* src, int src_device, size_t bytes) {
  return copy_peer(dst, dst_device, src, src_device, bytes, nullptr, kWait);
}
HIP_API hipMemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device, size_t bytes,
                           hipStream_t stream) {
  return copy_peer(dst, dst_device, src, src_device, bytes, stream, kAsync);
}
HIP_API hipMemcpy2D(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width,
                    size_t height, hipMemcpyKind kind) {
  return copy_2d(dst, dst_pitch, src, src_pitch, width, height, kind, nullptr, kWait);
}
HIP_API hipMemcpy2D_spt(void* dst, size_t dst_pitch, const void* src, size_t src_pitch,
                        size_t width, size_t height, hipMemcpyKind kind) {
  return copy_2d(dst, dst_pitch, src, src_pitch, width, height, kind, per_thread(nullptr), kWait);
}
HIP_API hipMemcpy2DAsync(void* dst, size_t dst_pitch, const void* src, size_t src_pitch,
                         size_t width, size_t height, hipMemcpyKind kind, hipStream_t stream) {
  return copy_2d(dst, dst_pitch, src, src_pitch, width, height, kind, stream, kAsync);
}
HIP_API hipMemcpy2DAsync_spt(void* dst, size_t dst_pitch, const void* src, size_t src_pitch,
                             size_t width, size_t height, hipMemcpyKind kind, hipStream_t stream) {
  return copy_2d(dst, dst_pitch, src, src_pitch, width, height, kind, per_thread(stream), kAsync);
}
HIP_API hipMemcpyParam2D(const hip_Memcpy2D* params) {
  return copy_param_2d(params, nullptr, kWait);
}
HIP_API hipDrvMemcpy2DUnaligned(const hip_Memcpy2D* params) {
  return copy_param_2d(params, nullptr, kWait);
}
HIP_API hipMemcpyParam2DAsync(const hip_Memcpy2D* params, hipStream_t stream) {
  return copy_param_2d(params, stream, kAsync);
}
HIP_API hipMemcpy3D(const hipMemcpy3DParms* params) { return copy_3d(params, nullptr, kWait); }
HIP_API hipMemcpy3D_spt(const hipMemcpy3DParms* params) {
  return copy_3d(params, per_thread(nullptr), kWait);
}
HIP_API hipMemcpy3DAsync(const hipMemcpy3DParms* params, hipStream_t stream) {
  return copy_3d(params, stream, kAsync);
}
HIP_API hipMemcpy3DAsync_spt(const hipMemcpy3DParms* params, hipStream_t stream) {
  return copy_3d(params, per_thread(stream), kAsync);
}
HIP_API hipMemcpyToSymbol(const void* symbol, const void* src, size_t bytes, size_t offset,
                          hipMemcpyKind kind) {
  return copy_to_symbol(symbol, src, bytes, offset, kind, nullptr, kWait);
}
HIP_API hipMemcpyToSymbol_spt(const void* symbol, const void* src, size_t bytes, size_t offset,
                              hipMemcpyKind kind) {
  return copy_to_symbol(symbol, src, bytes, offset, kind, per_thread(nullptr), kWait);
}
HIP_API hipMemcpyToSymbolAsync(const void* symbol, const void* src, size_t bytes, size_t offset,
                               hipMemcpyKind kind, hipStream_t stream) {
  return copy_to_symbol(symbol, src, bytes, offset, kind, stream, kAsync);
}
HIP_API hipMemcpyToSymbolAsync_spt(const void* symbol, const void* src, size_t bytes, size_t offset,
                                   hipMemcpyKind kind, hipStream_t stream) {
  return copy_to_symbol(symbol, src, bytes, offset, kind, per_thread(stream), kAsync);
}
HIP_API hipMemcpyFromSymbol(void* dst, const void* symbol, size_t bytes, size_t offset,
                            hipMemcpyKind kind) {
  return copy_from_symbol(dst, symbol, bytes, offset, kind, nullptr, kWait);
}
HIP_API hipMemcpyFromSymbol_spt(void* dst, const void* symbol, size_t bytes, size_t offset,
                                hipMemcpyKind kind) {
  return copy_from_symbol(dst, symbol, bytes, offset, kind, per_thread(nullptr), kWait);
}
HIP_API hipMemcpyFromSymbolAsync(void* dst, const void* symbol, size_t bytes, size_t offset,
                                 hipMemcpyKind kind, hipStream_t stream) {
  return copy_from_symbol(dst, symbol, bytes, offset, kind, stream, kAsync);
}
HIP_API hipMemcpyFromSymbolAsync_spt(void* dst, const void* symbol, size_t bytes, size_t offset,
                                     hipMemcpyKind kind, hipStream_t stream) {
  return copy_from_symbol(dst, symbol, bytes, offset, kind, per_thread(stream), kAsync);
}

HIP_API hipGetSymbolAddress(void** address, const void* symbol) {
  return api([&](Runtime& runtime) {
    require(writable(address));
    *address = symbol_address(runtime, symbol, 0, 0);
    return hipSuccess;
  });
}

HIP_API hipGetSymbolSize(size_t* bytes, const void* symbol) {
  return api([&](Runtime& runtime) {
    require(writable(bytes));
    const auto global = find_global(runtime, symbol);
    require(global.has_value(), hipErrorInvalidSymbol);
    *bytes = global->size;
    return hipSuccess;
  });
}

}  // namespace vdev::hip
