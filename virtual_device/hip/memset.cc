// Fills. Every variant becomes one FillCommand.
#include "hip/api.h"
#include "hip/transfer.h"

namespace vdev::hip {
namespace {

hipError_t fill(void* dst, u32 value, u32 element_bytes, size_t count, hipStream_t stream,
                bool wait) {
  return api([&](Runtime& runtime) {
    const auto s = runtime.stream(stream);
    return runtime.enqueue(s, make_fill(runtime, dst, 0, 0, value, element_bytes, count, 1, 1),
                           wait);
  });
}

hipError_t fill_2d(void* dst, size_t pitch, u32 value, u32 element_bytes, size_t width,
                   size_t height, hipStream_t stream, bool wait) {
  return api([&](Runtime& runtime) {
    const auto s = runtime.stream(stream);
    return runtime.enqueue(
        s, make_fill(runtime, dst, pitch, 0, value, element_bytes, width, height, 1), wait);
  });
}

hipError_t fill_3d(hipPitchedPtr dst, int value, hipExtent extent, hipStream_t stream, bool wait) {
  return api([&](Runtime& runtime) {
    const auto s = runtime.stream(stream);
    return runtime.enqueue(
        s,
        make_fill(runtime, dst.ptr, dst.pitch, dst.pitch * dst.ysize, static_cast<u32>(value), 1,
                  extent.width, extent.height, extent.depth),
        wait);
  });
}

u32 bits(int value) { return static_cast<u32>(value); }

}  // namespace

HIP_API hipMemset(void* dst, int value, size_t bytes) {
  return fill(dst, bits(value), 1, bytes, nullptr, kWait);
}
HIP_API hipMemset_spt(void* dst, int value, size_t bytes) {
  return fill(dst, bits(value), 1, bytes, per_thread(nullptr), kWait);
}
HIP_API hipMemsetAsync(void* dst, int value, size_t bytes, hipStream_t stream) {
  return fill(dst, bits(value), 1, bytes, stream, kAsync);
}
HIP_API hipMemsetAsync_spt(void* dst, int value, size_t bytes, hipStream_t stream) {
  return fill(dst, bits(value), 1, bytes, per_thread(stream), kAsync);
}
HIP_API hipMemsetD8(hipDeviceptr_t dst, unsigned char value, size_t count) {
  return fill(dst, value, 1, count, nullptr, kWait);
}
HIP_API hipMemsetD8Async(hipDeviceptr_t dst, unsigned char value, size_t count,
                         hipStream_t stream) {
  return fill(dst, value, 1, count, stream, kAsync);
}
HIP_API hipMemsetD16(hipDeviceptr_t dst, unsigned short value, size_t count) {
  return fill(dst, value, 2, count, nullptr, kWait);
}
HIP_API hipMemsetD16Async(hipDeviceptr_t dst, unsigned short value, size_t count,
                          hipStream_t stream) {
  return fill(dst, value, 2, count, stream, kAsync);
}
HIP_API hipMemsetD32(hipDeviceptr_t dst, int value, size_t count) {
  return fill(dst, bits(value), 4, count, nullptr, kWait);
}
HIP_API hipMemsetD32Async(hipDeviceptr_t dst, int value, size_t count, hipStream_t stream) {
  return fill(dst, bits(value), 4, count, stream, kAsync);
}
HIP_API hipMemset2D(void* dst, size_t pitch, int value, size_t width, size_t height) {
  return fill_2d(dst, pitch, bits(value), 1, width, height, nullptr, kWait);
}
HIP_API hipMemset2D_spt(void* dst, size_t pitch, int value, size_t width, size_t height) {
  return fill_2d(dst, pitch, bits(value), 1, width, height, per_thread(nullptr), kWait);
}
HIP_API hipMemset2DAsync(void* dst, size_t pitch, int value, size_t width, size_t height,
                         hipStream_t stream) {
  return fill_2d(dst, pitch, bits(value), 1, width, height, stream, kAsync);
}
HIP_API hipMemset2DAsync_spt(void* dst, size_t pitch, int value, size_t width, size_t height,
                             hipStream_t stream) {
  return fill_2d(dst, pitch, bits(value), 1, width, height, per_thread(stream), kAsync);
}
HIP_API hipMemsetD2D8(hipDeviceptr_t dst, size_t pitch, unsigned char value, size_t width,
                      size_t height) {
  return fill_2d(dst, pitch, value, 1, width, height, nullptr, kWait);
}
HIP_API hipMemsetD2D8Async(hipDeviceptr_t dst, size_t pitch, unsigned char value, size_t width,
                           size_t height, hipStream_t stream) {
  return fill_2d(dst, pitch, value, 1, width, height, stream, kAsync);
}
HIP_API hipMemsetD2D16(hipDeviceptr_t dst, size_t pitch, unsigned short value, size_t width,
                       size_t height) {
  return fill_2d(dst, pitch, value, 2, width, height, nullptr, kWait);
}
HIP_API hipMemsetD2D16Async(hipDeviceptr_t dst, size_t pitch, unsigned short value, size_t width,
                            size_t height, hipStream_t stream) {
  return fill_2d(dst, pitch, value, 2, width, height, stream, kAsync);
}
HIP_API hipMemsetD2D32(hipDeviceptr_t dst, size_t pitch, unsigned value, size_t width,
                       size_t height) {
  return fill_2d(dst, pitch, value, 4, width, height, nullptr, kWait);
}
HIP_API hipMemsetD2D32Async(hipDeviceptr_t dst, size_t pitch, unsigned value, size_t width,
                            size_t height, hipStream_t stream) {
  return fill_2d(dst, pitch, value, 4, width, height, stream, kAsync);
}
HIP_API hipMemset3D(hipPitchedPtr dst, int value, hipExtent extent) {
  return fill_3d(dst, value, extent, nullptr, kWait);
}
HIP_API hipMemset3D_spt(hipPitchedPtr dst, int value, hipExtent extent) {
  return fill_3d(dst, value, extent, per_thread(nullptr), kWait);
}
HIP_API hipMemset3DAsync(hipPitchedPtr dst, int value, hipExtent extent, hipStream_t stream) {
  return fill_3d(dst, value, extent, stream, kAsync);
}
HIP_API hipMemset3DAsync_spt(hipPitchedPtr dst, int value, hipExtent extent, hipStream_t stream) {
  return fill_3d(dst, value, extent, per_thread(stream), kAsync);
}

}  // namespace vdev::hip
