// Calls the handler as XLA does, through frames made with the header of the installed jaxlib, on a
// HIP runtime that only records. What is checked of both: the handler's own declarations of XLA's
// ABI, and what the handler asks of a runtime.
#include <string.h>

#include "xla/ffi/api/c_api.h"

// -- a HIP runtime that records -------------------------------------------------------------------

enum { kMaxCalls = 64, kMaxArguments = 1024 };

typedef struct Record {
  char what;  // 'l'aunch, 'm'emset, 's'ynchronize, 'd'evice set
  void* function;
  unsigned grid[3], group[3], lds_bytes;
  void* stream;
  void* to;  // of a memset
  size_t bytes;
  int device, value, one_by_one;
  unsigned char arguments[kMaxArguments];
} Record;

#define EXPORT __attribute__((visibility("default")))

EXPORT Record fake_calls[kMaxCalls];
EXPORT int fake_count, fake_device, fake_status, fake_argument_bytes;

static Record* record(char what) {
  Record* const made = &fake_calls[fake_count < kMaxCalls ? fake_count++ : kMaxCalls - 1];
  memset(made, 0, sizeof *made);
  made->what = what;
  made->device = fake_device;
  return made;
}

EXPORT int hipModuleLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                 unsigned by, unsigned bz, unsigned lds_bytes, void* stream,
                                 void** params, void** extra) {
  Record* const made = record('l');
  made->function = function;
  const unsigned grid[] = {gx, gy, gz}, group[] = {bx, by, bz};
  memcpy(made->grid, grid, sizeof grid);
  memcpy(made->group, group, sizeof group);
  made->lds_bytes = lds_bytes;
  made->stream = stream;
  made->one_by_one = params != NULL;
  if (extra) {
    if (extra[0] != (void*)1 || extra[2] != (void*)2 || extra[4] != (void*)3) return 1;
    made->bytes = *(size_t*)extra[3];
    memcpy(made->arguments, extra[1], made->bytes);
  } else {  // 8 bytes of each argument
    made->bytes = (size_t)fake_argument_bytes;
    for (int i = 0; i < fake_argument_bytes / 8; ++i) memcpy(made->arguments + 8 * i, params[i], 8);
  }
  return fake_status;
}

EXPORT int hipMemsetAsync(void* to, int value, size_t bytes, void* stream) {
  Record* const made = record('m');
  made->to = to;
  made->value = value;
  made->bytes = bytes;
  made->stream = stream;
  return 0;
}

EXPORT int hipStreamSynchronize(void* stream) {
  record('s')->stream = stream;
  return 0;
}

EXPORT int hipGetDevice(int* device) {
  *device = fake_device;
  return 0;
}

EXPORT int hipSetDevice(int device) {
  fake_device = device;
  record('d');
  return 0;
}

EXPORT const char* hipGetErrorString(int status) { return status ? "made up" : "no error"; }

// -- XLA ------------------------------------------------------------------------------------------

static void* stream_of_context;
static int ordinal_of_context;
static char message[8192];

static XLA_FFI_Error* create_error(XLA_FFI_Error_Create_Args* args) {
  strncpy(message, args->message, sizeof message - 1);
  return (XLA_FFI_Error*)message;
}

static XLA_FFI_Error* get_stream(XLA_FFI_Stream_Get_Args* args) {
  args->stream = stream_of_context;
  return NULL;
}

static XLA_FFI_Error* get_ordinal(XLA_FFI_DeviceOrdinal_Get_Args* args) {
  args->device_ordinal = ordinal_of_context;
  return NULL;
}

static XLA_FFI_Api api = {
    .struct_size = sizeof(XLA_FFI_Api),
    .XLA_FFI_Error_Create = create_error,
    .XLA_FFI_Stream_Get = get_stream,
    .XLA_FFI_DeviceOrdinal_Get = get_ordinal,
};

typedef struct Buffer {  // as the test has it
  void* data;
  long dtype, rank, dims[8];
} Buffer;

static void fill(XLA_FFI_Buffer* to, void** pointer, const Buffer* from) {
  memset(to, 0, sizeof *to);
  to->struct_size = sizeof *to;
  to->dtype = (XLA_FFI_DataType)from->dtype;
  to->data = from->data;
  to->rank = from->rank;
  to->dims = (int64_t*)from->dims;
  *pointer = to;
}

// The error's text, "" if there is none. Runs `times` times.
EXPORT const char* call(XLA_FFI_Handler* handler, int stage, int ordinal, void* stream,
                        const Buffer* inputs, int num_inputs, const Buffer* results,
                        int num_results, int64_t* words, size_t num_words, const char* what,
                        int times) {
  XLA_FFI_Buffer buffers[64];
  void* pointers[64];
  XLA_FFI_ArgType arg_types[64];
  XLA_FFI_RetType ret_types[64];
  for (int i = 0; i < num_inputs; ++i) {
    fill(&buffers[i], &pointers[i], &inputs[i]);
    arg_types[i] = XLA_FFI_ArgType_BUFFER;
  }
  for (int i = 0; i < num_results; ++i) {
    fill(&buffers[32 + i], &pointers[32 + i], &results[i]);
    ret_types[i] = XLA_FFI_RetType_BUFFER;
  }
  XLA_FFI_ByteSpan names[] = {{"plan", 4}, {"what", 4}};
  XLA_FFI_ByteSpan* name_pointers[] = {&names[0], &names[1]};
  XLA_FFI_Array array = {XLA_FFI_DataType_S64, num_words, words};
  XLA_FFI_ByteSpan text = {what, strlen(what)};
  void* values[] = {&array, &text};
  XLA_FFI_AttrType attr_types[] = {XLA_FFI_AttrType_ARRAY, XLA_FFI_AttrType_STRING};
  XLA_FFI_CallFrame frame = {
      .struct_size = sizeof frame,
      .api = &api,
      .stage = (XLA_FFI_ExecutionStage)stage,
      .args = {sizeof(XLA_FFI_Args), NULL, num_inputs, arg_types, pointers},
      .rets = {sizeof(XLA_FFI_Rets), NULL, num_results, ret_types, pointers + 32},
      .attrs = {sizeof(XLA_FFI_Attrs), NULL, 2, attr_types, name_pointers, values},
  };
  stream_of_context = stream;
  ordinal_of_context = ordinal;
  message[0] = 0;
  for (int i = 0; i < times; ++i) {
    if (handler(&frame)) return message;
  }
  return "";
}

// What the handler says of itself: {major, minor, traits}.
EXPORT void query(XLA_FFI_Handler* handler, int* found) {
  XLA_FFI_Metadata metadata;
  memset(&metadata, 0, sizeof metadata);
  metadata.struct_size = sizeof metadata;
  metadata.api_version.struct_size = sizeof metadata.api_version;
  XLA_FFI_Metadata_Extension extension = {{sizeof extension, XLA_FFI_Extension_Metadata, NULL},
                                          &metadata};
  XLA_FFI_CallFrame frame;
  memset(&frame, 0, sizeof frame);
  frame.struct_size = sizeof frame;
  frame.extension_start = &extension.extension_base;
  frame.api = &api;
  handler(&frame);
  found[0] = metadata.api_version.major_version;
  found[1] = metadata.api_version.minor_version;
  found[2] = (int)metadata.traits;
}
