// XLA's foreign function interface, as far as the handler uses it: a C ABI with a version of its
// own (xla/ffi/api/c_api.h of the OpenXLA project; 0.2 and 0.3 in jaxlib 0.8 and 0.10). Declared
// here so that building the package does not take jaxlib. tests/jax/test_handler.py compares sizes,
// offsets and numbers with the header of each jaxlib that is tested.
//
// Structs begin with the size that their maker knew and grow at the end: `size` is looked at before
// a field that came later is used.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define FFI_HEAD      \
  size_t struct_size; \
  struct FfiExtension* extension

typedef struct FfiError FfiError;      // XLA's
typedef struct FfiContext FfiContext;  // XLA's: of one execution

enum { kFfiExtensionMetadata = 1 };
enum { kFfiAttributeArray = 1, kFfiAttributeString = 4 };
enum { kFfiInt64 = 5 };
enum { kFfiInstantiate = 0, kFfiExecute = 3 };
enum { kFfiCommandBufferCompatible = 1 };
enum { kFfiInvalidArgument = 3, kFfiFailedPrecondition = 9, kFfiInternal = 13 };

typedef struct FfiExtension {
  size_t struct_size;
  int type;
  struct FfiExtension* next;
} FfiExtension;

typedef struct FfiVersion {
  FFI_HEAD;
  int major, minor;
} FfiVersion;

typedef struct FfiMetadata {
  size_t struct_size;
  FfiVersion version;
  uint32_t traits;
} FfiMetadata;

typedef struct FfiMetadataExtension {
  FfiExtension base;
  FfiMetadata* metadata;
} FfiMetadataExtension;

typedef struct FfiBuffer {
  FFI_HEAD;
  int dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
} FfiBuffer;

typedef struct FfiBuffers {  // arguments, or results
  FFI_HEAD;
  int64_t size;
  int* types;
  void** values;
} FfiBuffers;

typedef struct FfiSpan {
  const char* data;
  size_t size;
} FfiSpan;

typedef struct FfiArray {
  int dtype;
  size_t size;
  void* data;
} FfiArray;

typedef struct FfiAttributes {
  FFI_HEAD;
  int64_t size;
  int* types;
  FfiSpan** names;
  void** values;
} FfiAttributes;

typedef struct FfiErrorCreate {
  FFI_HEAD;
  const char* message;
  int code;
} FfiErrorCreate;

typedef struct FfiStreamGet {
  FFI_HEAD;
  FfiContext* context;
  void* stream;
} FfiStreamGet;

typedef struct FfiOrdinalGet {
  FFI_HEAD;
  FfiContext* context;
  int32_t ordinal;
} FfiOrdinalGet;

typedef struct FfiApi {
  FFI_HEAD;
  FfiVersion version;
  const void* internal;
  FfiError* (*error_create)(FfiErrorCreate*);
  void* error_get_message;
  void (*error_destroy)(void*);
  void* handler_register;
  FfiError* (*stream_get)(FfiStreamGet*);
  void* unused[12];
  FfiError* (*ordinal_get)(FfiOrdinalGet*);
} FfiApi;

typedef struct FfiFrame {
  FFI_HEAD;
  const FfiApi* api;
  FfiContext* context;
  int stage;
  FfiBuffers arguments;
  FfiBuffers results;
  FfiAttributes attributes;
} FfiFrame;
