// Mutations that know what a code object is made of. Each keeps the rest of the image as it is, so
// that the damage gets past the first check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fuzz {

// Mutates an image in place and returns its new size, at most `max_size`.
size_t mutate(uint8_t* data, size_t size, size_t max_size, unsigned seed);

// The processor that bundles name as that of their image.
void bundle_for(std::string_view processor);

// By kind, for the summary: how often each was applied.
int num_mutations();
const char* mutation_name(int kind);
uint64_t mutation_count(int kind);

}  // namespace fuzz
