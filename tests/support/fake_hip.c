/* A HIP runtime without a GPU behind it: enough to be chosen, bound, described and launched
   through. It plays one kernel, gather_rows, with one row of one head; others do nothing.

   Variables FAKE_HIP_* of the environment choose what it is like: see `option`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef ARCH
#define ARCH "gfx942:sramecc+:xnack-"
#endif
#ifndef NAME
#define NAME "AMD Instinct MI300X"
#endif
#ifndef NUM_DEVICES
#define NUM_DEVICES option("DEVICES", 1)
#endif

enum { kInvalidValue = 1, kNoInit = 303, kInvalidHandle = 400, kNotSupported = 801 };
enum { kWrongStream = 709, kMaxFunctions = 64, kMaxStreams = 64, kAttributeMissing = -1 };
enum { kMaxAllocations = 4096 };

typedef struct Allocation {
  char* begin;
  size_t bytes;
  int device;
} Allocation;

typedef struct Stream {
  int device;
  char alive;
} Stream;

typedef struct GatherRows {
  const char* from;
  char* to;
  long strides[5];
  int seqlen, columns;
} GatherRows;

static __thread int last_error, current_device;
static int is_initialised;
static char functions[kMaxFunctions][128];
static int function_devices[kMaxFunctions];
static Allocation allocations[kMaxAllocations];
static int num_functions;
static Stream streams[kMaxStreams];
static int num_streams;
static void** late_extra; /* of a launch that has not read its arguments yet */

static const char* text(const char* name, const char* otherwise) {
  char variable[64];
  snprintf(variable, sizeof variable, "FAKE_HIP_%s", name);
  const char* value = getenv(variable);
  return value ? value : otherwise;
}

static int option(const char* name, int otherwise) {
  const char* value = text(name, 0);
  return value ? (int)strtol(value, 0, 0) : otherwise;
}

static void say(const char* call, long value) {
  FILE* log = option("LOG", 0) ? stderr : 0;
  if (log) fprintf(log, "fake: %s %ld on device %d\n", call, value, current_device);
}

static int result(int code) {
  if (!code && option("NEEDS_INIT", 0) && !is_initialised) code = kNoInit;
  if (code) last_error = code;
  return code;
}

/* -- devices ------------------------------------------------------------------------------------
 */

int hipInit(unsigned flags) { return (void)flags, is_initialised = 1, 0; }

int hipGetDeviceCount(int* count) {
#ifdef ABORTS
  abort();
#endif
  *count = NUM_DEVICES;
  return result(NUM_DEVICES ? 0 : 100);
}

int hipSetDevice(int device) {
  if (device < 0 || device >= NUM_DEVICES) return result(101);
  current_device = device;
  return result(0);
}

int hipGetDevice(int* device) { return *device = current_device, result(0); }

int hipGetLastError(void) {
  int code = last_error;
  last_error = 0;
  return code;
}

int hipRuntimeGetVersion(int* version) {
  *version = 70253211;
  return 0;
}

const char* hipGetErrorString(int code) { return code ? "an error" : "no error"; }

int hipDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  *value = 0;
  if (attribute == 10018) *value = option("XCCS", 8);
  if (attribute == option("CHIP_ATTRIBUTE", 10020)) *value = option("CHIP", 0x74a1);
  /* What another release has at a number that this one has given to another fact. */
  if (attribute == option("OTHER_ATTRIBUTE", 10019)) *value = 512;
  return result(*value == kAttributeMissing ? option("ATTRIBUTE_ERROR", kNotSupported) : 0);
}

int hipDeviceGetPCIBusId(char* to, int length, int device) {
  const char* id = text("BUS", "0000:0c:00.0");
  (void)device;
  if (!*id) return result(kNotSupported);
  snprintf(to, (size_t)length, "%s", id);
  return result(0);
}

int hipGetDevicePropertiesR0600(char* prop, int device) {
  if (device < 0 || device >= NUM_DEVICES) return result(101);
  memset(prop, 0, 1472); /* sizeof(hipDeviceProp_tR0600) */
  strcpy(prop, text("NAME", NAME));
  *(size_t*)(prop + 288) = (size_t)192 << 30;    /* totalGlobalMem */
  *(size_t*)(prop + 296) = option("LDS", 65536); /* sharedMemPerBlock */
  *(int*)(prop + 388) = option("CUS", 304);      /* multiProcessorCount */
  strcpy(prop + 1160, ARCH);                     /* gcnArchName */
  return result(0);
}

/* -- memory -------------------------------------------------------------------------------------
 */

int hipMalloc(void** address, size_t bytes) {
  *address = aligned_alloc(256, (bytes + 255) / 256 * 256);
  for (int i = 0; i < kMaxAllocations; ++i) {
    if (allocations[i].begin) continue;
    allocations[i] = (Allocation){*address, bytes, current_device};
    return result(0);
  }
  abort();
}
int hipFree(void* address) {
  for (int i = 0; i < kMaxAllocations; ++i) {
    if (allocations[i].begin == address) allocations[i].begin = 0;
  }
  return free(address), result(0);
}

int hipMemcpyAsync(void* to, const void* from, size_t bytes, int kind, Stream* stream);

int hipMemsetAsync(void* to, int value, size_t bytes, Stream* stream) {
  (void)stream;
  memset(to, value, bytes);
  return result(0);
}

int hipPointerGetAttributes(char* found, void* address) {
  memset(found, 0, 32);
  *(int*)found = 2; /* device memory */
  *(void**)(found + 8) = address;
  for (int i = 0; i < kMaxAllocations; ++i) {
    const Allocation* a = &allocations[i];
    if (a->begin && (char*)address >= a->begin && (char*)address < a->begin + a->bytes) {
      *(int*)(found + 4) = a->device;
    }
  }
  return result(0);
}

/* -- streams and events --------------------------------------------------------------------------
 */

static int device_of(Stream* stream) {
  return (size_t)stream <= 2 ? current_device : stream->device;
}

int hipStreamCreateWithFlags(Stream** made, unsigned flags) {
  (void)flags;
  *made = &streams[num_streams++ % kMaxStreams];
  **made = (Stream){current_device, 1};
  return result(0);
}
int hipStreamCreate(Stream** made) { return hipStreamCreateWithFlags(made, 0); }
int hipStreamDestroy(Stream* stream) { return stream->alive = 0, result(0); }

int hipStreamGetDevice(Stream* stream, int* device) {
  if (stream < streams || stream >= streams + kMaxStreams || !stream->alive) {
    return result(kWrongStream);
  }
  return *device = stream->device, result(0);
}

static void run(const char* name, const GatherRows* args) {
  if (strstr(name, "gather_rows")) memcpy(args->to, args->from, 2 * (size_t)args->columns);
}

static void read_late(void) {
  if (late_extra) run("gather_rows", late_extra[1]);
  late_extra = 0;
}

int hipMemcpyAsync(void* to, const void* from, size_t bytes, int kind, Stream* stream) {
  (void)kind, (void)stream;
  read_late();
  memcpy(to, from, bytes);
  return result(0);
}

int hipStreamSynchronize(Stream* stream) {
  say("hipStreamSynchronize", (long)stream);
  read_late();
  return result(device_of(stream) == current_device ? 0 : kInvalidHandle);
}
int hipDeviceSynchronize(void) {
  say("hipDeviceSynchronize", 0);
  return read_late(), result(0);
}
int hipStreamGetFlags(Stream* stream, unsigned* flags) {
  return (void)stream, *flags = 0, result(0);
}
int hipStreamIsCapturing(Stream* stream, int* status) {
  return (void)stream, *status = 0, result(0);
}
int hipThreadExchangeStreamCaptureMode(int* mode) { return *mode = 0, result(0); }

int hipEventCreateWithFlags(int** event, unsigned flags) {
  (void)flags;
  *event = malloc(sizeof **event);
  **event = current_device;
  return result(0);
}
int hipEventRecord(int* event, Stream* stream) {
  say("hipEventRecord", (long)stream);
  return result(*event == device_of(stream) ? 0 : kInvalidHandle);
}
int hipEventQuery(int* event) { return (void)event, result(0); }
int hipEventDestroy(int* event) { return free(event), result(0); }
int hipStreamWaitEvent(Stream* stream, int* event, unsigned flags) {
  return (void)stream, (void)event, (void)flags, result(0);
}

/* -- modules and launches
 * -------------------------------------------------------------------------- */

int hipModuleLoadData(size_t* module, const void* image) {
  (void)image;
  *module = 1 + (size_t)current_device;
  say("hipModuleLoadData", (long)*module);
  if (option("LOAD_ERROR", 0)) *module = 0xdead;
  return result(option("LOAD_ERROR", 0));
}
int hipModuleUnload(size_t module) { return (void)module, abort(), 0; }

// AMD's runtime of ROCm 6 ends the process where another device is current.
int hipModuleGetFunction(char** function, size_t module, const char* name) {
  if ((int)module - 1 != current_device) abort();
  function_devices[num_functions % kMaxFunctions] = (int)module - 1;
  *function = functions[num_functions++ % kMaxFunctions];
  strcpy(*function, name);
  return result(0);
}

// AMD's runtime takes the device from the thread, and crashes where that is another one.
int hipFuncGetAttribute(int* value, int attribute, const char* function) {
  if (function_devices[(function - functions[0]) / sizeof *functions] != current_device) abort();
  *value = attribute == 0 ? option("MAX_LANES", kAttributeMissing) : option("SHARED", 0);
  return result(option("MAX_LANES", kAttributeMissing) == kAttributeMissing ? kNotSupported : 0);
}

int hipModuleLaunchKernel(const char* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned group_x, unsigned group_y, unsigned group_z, unsigned lds,
                          Stream* stream, void** params, void** extra) {
  (void)grid_x, (void)grid_y, (void)grid_z, (void)group_x, (void)group_y, (void)group_z, (void)lds;
  say(params ? "hipModuleLaunchKernel(params)" : "hipModuleLaunchKernel(extra)", (long)stream);
  if (params && extra) return result(kInvalidValue);
  const int of = function_devices[(function - functions[0]) / (long)sizeof functions[0]];
  if (of != device_of(stream)) return result(kInvalidHandle);
  if (params && option("NO_PARAMS", 0)) return result(option("NO_PARAMS", 0));
  if (extra && option("EXTRA_ERROR", 0)) return result(option("EXTRA_ERROR", 0));
  if (extra && option("NO_EXTRA", 0)) return result(0);
  if (extra && option("READS_LATE", 0)) return late_extra = extra, result(0);
  run(function, extra ? extra[1] : params[0]);
  return result(0);
}
