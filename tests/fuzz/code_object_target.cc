#include <cstddef>
#include <cstdint>
extern "C" int LLVMFuzzerTestOneInput(const uint8_t*, size_t) { return 0; }
extern "C" int LLVMFuzzerRunDriver(int*, char***, int (*)(const uint8_t*, size_t));
int main(int c, char** v) { return LLVMFuzzerRunDriver(&c, &v, LLVMFuzzerTestOneInput); }
