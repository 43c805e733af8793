// What clang calls in code with ThreadSanitizer, and gcc's runtime has under the plain names alone.
#include <cstring>

extern "C" {
void* __tsan_memset(void* to, int value, size_t bytes) { return std::memset(to, value, bytes); }
void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  return std::memmove(to, from, bytes);
}
}
