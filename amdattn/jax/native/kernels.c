#include "kernels.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { kSlots = 1 << 14 };  // kernels times devices; a power of two

static _Atomic(Kernel*) slots[kSlots];

static uint64_t first_slot(int platform, int ordinal, const uint64_t key[2]) {
  return key[0] + 0x9e3779b97f4a7c15u * (uint64_t)(2 * ordinal + platform);  // keys are hashes
}

const Kernel* find_kernel(int platform, int ordinal, const uint64_t key[2]) {
  uint64_t slot = first_slot(platform, ordinal, key);
  for (int tried = 0; tried < kSlots; ++tried, ++slot) {
    const Kernel* kernel = atomic_load_explicit(&slots[slot % kSlots], memory_order_acquire);
    if (kernel == NULL) return NULL;
    if (kernel->key[0] == key[0] && kernel->key[1] == key[1] && kernel->ordinal == ordinal &&
        kernel->platform == platform) {
      return kernel;
    }
  }
  return NULL;
}

// 1: added, or there already. The arguments' offsets are copied.
__attribute__((visibility("default"))) int amdattn_xla_add_kernel(int platform, int ordinal,
                                                                  const uint64_t key[2],
                                                                  void* function,
                                                                  int argument_bytes, int arguments,
                                                                  const int32_t* offsets) {
  if (arguments < 0 || arguments > kMaxArguments) return 0;
  const size_t bytes = sizeof(int32_t) * (size_t)arguments;
  Kernel* const added = malloc(sizeof(Kernel) + bytes);
  if (added == NULL) return 0;
  int32_t* const kept = (int32_t*)(added + 1);
  if (arguments) memcpy(kept, offsets, bytes);
  *added = (Kernel){{key[0], key[1]}, platform, ordinal, function, argument_bytes, arguments, kept};
  uint64_t slot = first_slot(platform, ordinal, key);
  for (int tried = 0; tried < kSlots; ++tried, ++slot) {
    Kernel* there = NULL;
    if (atomic_compare_exchange_strong(&slots[slot % kSlots], &there, added)) return 1;
    if (there->key[0] == key[0] && there->key[1] == key[1] && there->ordinal == ordinal &&
        there->platform == platform) {
      break;
    }
  }
  free(added);
  return find_kernel(platform, ordinal, key) != NULL;
}
