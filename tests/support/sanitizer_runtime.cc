// What instrumented code of a newer clang calls, and the runtimes of gcc 12 do not have.
#include <cstring>

extern "C" {
// ThreadSanitizer's, which gcc has under the plain names alone.
void* __tsan_memset(void* to, int value, size_t bytes) { return std::memset(to, value, bytes); }
void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  return std::memmove(to, from, bytes);
}
// Says to AddressSanitizer which part of a deque is in use: not looked at.
void __sanitizer_annotate_double_ended_contiguous_container(const void*, const void*, const void*,
                                                            const void*, const void*, const void*) {
}
}
