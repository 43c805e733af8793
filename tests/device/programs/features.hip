// What a HIP program may use, each by its name on the command line: prints what was computed, and
// "ok" if it is right.
#include <hip/hip_cooperative_groups.h>
#include <hip/hip_runtime.h>

#include <cassert>
#include <cstdio>
#include <cstring>
#include <vector>

#define CHECK(call)                                              \
  do {                                                           \
    const hipError_t status = call;                              \
    if (status != hipSuccess) {                                  \
      std::printf("%s: %s\n", #call, hipGetErrorString(status)); \
      return false;                                              \
    }                                                            \
  } while (0)

namespace {

// -- hidden arguments -----------------------------------------------------------------------------

__global__ void places(unsigned* out) {
  const dim3 at(blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y * blockDim.y + threadIdx.y,
                blockIdx.z * blockDim.z + threadIdx.z);
  const unsigned width = gridDim.x * blockDim.x, height = gridDim.y * blockDim.y;
  const unsigned flat = (at.z * height + at.y) * width + at.x;
  out[flat] = flat ^ (gridDim.z << 24) ^ (blockDim.z << 28);
}

bool hidden_arguments() {
  const dim3 grid(3, 2, 4), block(8, 4, 2);
  const unsigned count = 3 * 2 * 4 * 64;
  unsigned* out = nullptr;
  CHECK(hipMalloc(&out, count * 4));
  places<<<grid, block>>>(out);
  std::vector<unsigned> host(count);
  CHECK(hipMemcpy(host.data(), out, count * 4, hipMemcpyDeviceToHost));
  for (unsigned i = 0; i < count; ++i)
    if (host[i] != (i ^ (4u << 24) ^ (2u << 28))) return false;
  return hipFree(out) == hipSuccess;
}

// -- printf ---------------------------------------------------------------------------------------

__global__ void say(int launch, double number) {
  if (threadIdx.x % 32 == 5) {
    printf("launch %d block %u lane %u %.3f %s\n", launch, blockIdx.x, threadIdx.x, number, "text");
  }
}

bool print() {
  for (int launch = 0; launch < 3; ++launch) say<<<5, 128>>>(launch, launch + 0.125);
  CHECK(hipDeviceSynchronize());
  return true;
}

__global__ void pour() {
  printf("block %u lane %u has a line that is long enough to fill a pipe\n", blockIdx.x,
         threadIdx.x);
}

bool print_much() {
  pour<<<40, 64>>>();
  CHECK(hipDeviceSynchronize());
  return true;
}

// -- dynamic LDS ----------------------------------------------------------------------------------

template <class T>
__global__ void reversed(T* data) {
  extern __shared__ char memory[];
  T* const shared = reinterpret_cast<T*>(memory);
  shared[threadIdx.x] = data[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  data[blockIdx.x * blockDim.x + threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

bool dynamic_lds() {
  constexpr int kLanes = 1024, kBlocks = 3;
  std::vector<double> host(kLanes * kBlocks);
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<double>(i);
  double* data = nullptr;
  CHECK(hipMalloc(&data, host.size() * sizeof(double)));
  CHECK(hipMemcpy(data, host.data(), host.size() * sizeof(double), hipMemcpyHostToDevice));
  reversed<double><<<kBlocks, kLanes, kLanes * sizeof(double)>>>(data);
  CHECK(hipMemcpy(host.data(), data, host.size() * sizeof(double), hipMemcpyDeviceToHost));
  for (int i = 0; i < kLanes * kBlocks; ++i)
    if (host[i] != i / kLanes * kLanes + kLanes - 1 - i % kLanes) return false;
  return hipFree(data) == hipSuccess;
}

// -- a cooperative launch -------------------------------------------------------------------------

__global__ void summed(unsigned* partial, unsigned* total, int rounds) {
  const auto grid = cooperative_groups::this_grid();
  const unsigned self = blockIdx.x * blockDim.x + threadIdx.x;
  for (int round = 0; round < rounds; ++round) {
    partial[self] = self + round;
    grid.sync();
    if (self == 0) {
      unsigned sum = 0;
      for (unsigned i = 0; i < grid.size(); ++i) sum += partial[i];
      total[round] = sum;
    }
    grid.sync();
  }
}

bool cooperative() {
  constexpr unsigned kBlocks = 7, kLanes = 64, kCount = kBlocks * kLanes, kRounds = 3;
  unsigned *partial = nullptr, *total = nullptr;
  CHECK(hipMalloc(&partial, kCount * 4));
  CHECK(hipMalloc(&total, kRounds * 4));
  int rounds = kRounds;
  void* arguments[] = {&partial, &total, &rounds};
  CHECK(hipLaunchCooperativeKernel(summed, dim3(kBlocks), dim3(kLanes), arguments, 0, nullptr));
  unsigned host[kRounds];
  CHECK(hipMemcpy(host, total, sizeof host, hipMemcpyDeviceToHost));
  for (unsigned round = 0; round < kRounds; ++round)
    if (host[round] != kCount * (kCount - 1) / 2 + kCount * round) return false;
  return true;
}

// -- variables of the device, managed memory ------------------------------------------------------

__device__ int table[64];
__constant__ float scale;
__managed__ int counter = 5;

__global__ void scaled(float* out) {
  out[threadIdx.x] = scale * static_cast<float>(table[threadIdx.x]);
  atomicAdd(&counter, 1);
}

bool variables() {
  int values[64];
  for (int i = 0; i < 64; ++i) values[i] = 3 * i;
  const float factor = 0.5f;
  CHECK(hipMemcpyToSymbol(HIP_SYMBOL(table), values, sizeof values));
  CHECK(hipMemcpyToSymbol(HIP_SYMBOL(scale), &factor, sizeof factor));
  float* out = nullptr;  // the host reads what the device wrote
  CHECK(hipMallocManaged(&out, 64 * sizeof(float)));
  counter += 10;
  scaled<<<1, 64>>>(out);
  CHECK(hipDeviceSynchronize());
  for (int i = 0; i < 64; ++i)
    if (out[i] != 1.5f * static_cast<float>(i)) return false;
  int back[64];
  CHECK(hipMemcpyFromSymbol(back, HIP_SYMBOL(table), sizeof back));
  return counter == 79 && std::memcmp(back, values, sizeof back) == 0 && hipFree(out) == hipSuccess;
}

// -- streams, events, graphs ----------------------------------------------------------------------

__global__ void add(int* data, int value, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) data[i] += value;
}

bool streams() {
  constexpr int kCount = 1000;
  int *data = nullptr, *host = nullptr;
  CHECK(hipMalloc(&data, kCount * 4));
  CHECK(hipHostMalloc(&host, kCount * 4));
  hipStream_t first, second;
  hipEvent_t begin, done;
  CHECK(hipStreamCreate(&first));
  CHECK(hipStreamCreateWithFlags(&second, hipStreamNonBlocking));
  CHECK(hipEventCreate(&begin));
  CHECK(hipEventCreate(&done));
  CHECK(hipMemsetAsync(data, 0, kCount * 4, first));
  CHECK(hipEventRecord(begin, first));
  add<<<4, 256, 0, first>>>(data, 3, kCount);
  CHECK(hipEventRecord(done, first));
  CHECK(hipStreamWaitEvent(second, done, 0));
  add<<<4, 256, 0, second>>>(data, 4, kCount);
  CHECK(hipMemcpyAsync(host, data, kCount * 4, hipMemcpyDeviceToHost, second));
  CHECK(hipStreamSynchronize(second));
  float milliseconds = -1;
  CHECK(hipEventElapsedTime(&milliseconds, begin, done));
  for (int i = 0; i < kCount; ++i)
    if (host[i] != 7) return false;

  hipGraph_t graph;
  hipGraphExec_t executable;
  CHECK(hipStreamBeginCapture(second, hipStreamCaptureModeGlobal));
  for (int i = 0; i < 5; ++i) add<<<4, 256, 0, second>>>(data, 1, kCount);
  CHECK(hipMemcpyAsync(host, data, kCount * 4, hipMemcpyDeviceToHost, second));
  CHECK(hipStreamEndCapture(second, &graph));
  CHECK(hipGraphInstantiate(&executable, graph, nullptr, nullptr, 0));
  for (int i = 0; i < 3; ++i) CHECK(hipGraphLaunch(executable, second));
  CHECK(hipStreamSynchronize(second));
  for (int i = 0; i < kCount; ++i)
    if (host[i] != 22) return false;
  CHECK(hipGraphExecDestroy(executable));
  CHECK(hipGraphDestroy(graph));
  CHECK(hipStreamDestroy(first));
  CHECK(hipStreamDestroy(second));
  return milliseconds >= 0 && hipFree(data) == hipSuccess && hipHostFree(host) == hipSuccess;
}

// -- what is wrong --------------------------------------------------------------------------------

__global__ void asserted(int limit) { assert(static_cast<int>(threadIdx.x) < limit); }

bool assertion() {
  asserted<<<1, 64>>>(60);
  return hipDeviceSynchronize() == hipSuccess;
}

// Lanes of the second wave may read what the first has not written yet.
__global__ void racing(int* out) {
  __shared__ int shared[128];
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  out[threadIdx.x] = shared[127 - threadIdx.x];
}

bool race() {
  int* out = nullptr;
  CHECK(hipMalloc(&out, 128 * 4));
  racing<<<1, 128>>>(out);
  CHECK(hipDeviceSynchronize());
  return true;
}

bool outside() {
  int* data = nullptr;
  CHECK(hipMalloc(&data, 256 * 4));
  add<<<64, 256>>>(data, 1, 64 * 256);
  return hipDeviceSynchronize() == hipSuccess;
}

struct {
  const char* name;
  bool (*run)();
} const features[] = {
    {"hidden_arguments", hidden_arguments},
    {"print", print},
    {"print_much", print_much},
    {"dynamic_lds", dynamic_lds},
    {"cooperative", cooperative},
    {"variables", variables},
    {"streams", streams},
    {"assertion", assertion},
    {"race", race},
    {"outside", outside},
};

}  // namespace

int main(int count, char** words) {
  for (const auto& feature : features)
    if (count == 2 && std::strcmp(words[1], feature.name) == 0) {
      const bool right = feature.run();
      std::puts(right ? "ok" : "wrong");
      return right ? 0 : 3;
    }
  std::puts("no such feature");
  return 2;
}
