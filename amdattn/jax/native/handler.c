// Runs plans inside XLA programs: the one handler of XLA's typed FFI for every operation.
//
// Python has made the plan when the program was lowered (plan.h). Here operands' addresses are put
// into the launches' arguments, and they are launched: nothing is planned, allocated or locked, and
// Python is not called. The exception is an executable that was made in another process: when it is
// loaded, Python loads the kernels.
//
// "ROCM": on XLA's stream of XLA's device, in XLA's HIP runtime. "cpu": on the virtual device,
// which borrows the operands for the length of the call, on a stream of the thread; the call
// returns when the launches have ended.
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "kernels.h"
#include "plan.h"
#include "xla_ffi.h"

enum { kCpu = 0, kRocm = 1, kPlatforms = 2 };
enum { kStreamPerThread = 2 };
enum { kOperandAlign = 16 };  // bytes: what XLA promises, and every kernel takes
enum { kMaxShown = 1000 };    // characters of what the call is
// Keys of hipModuleLaunchKernel's `extra`.
enum { kBufferPointer = 1, kBufferSize = 2, kEnd = 3 };

// Functions of the HIP runtime and, of the virtual device, some of its own; NULL what it has not.
typedef struct Hip {
  int (*launch)(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                unsigned lds_bytes, void* stream, void** params, void** extra);
  int (*memset_async)(void* to, int value, size_t bytes, void* stream);
  int (*synchronize)(void* stream);
  int (*get_device)(int* ordinal);
  int (*set_device)(int ordinal);
  const char* (*error_string)(int status);
  int (*borrow)(const uint64_t (*ranges)[2], uint32_t count);
  int (*give_back)(const uint64_t (*ranges)[2], uint32_t count);
  const char* (*last_report)(void);
} Hip;

// Loads the kernel on a device, on every device if `ordinal` is below 0, by amdattn_xla_add_kernel.
// 1: done; else the reason is in `why`.
typedef int (*Resolver)(int platform, int ordinal, const uint64_t* key, char* why,
                        size_t why_bytes);

static Hip runtimes[kPlatforms];
static _Atomic(const Hip*) bound[kPlatforms];
static _Atomic(Resolver) resolver;
static atomic_uint generation;  // what PerRun of amdattn/op/plan.py stands for

__attribute__((visibility("default"))) void amdattn_xla_bind(int platform, const Hip* functions) {
  runtimes[platform] = *functions;
  atomic_store(&bound[platform], &runtimes[platform]);
}

__attribute__((visibility("default"))) void amdattn_xla_set_resolver(Resolver given) {
  atomic_store(&resolver, given);
}

// -- errors --------------------------------------------------------------------------------------

typedef struct Call {
  const FfiFrame* frame;
  const Hip* hip;
  int platform;
  FfiSpan what;  // "attention: bfloat16 b1 ...", for people
} Call;

__attribute__((format(printf, 3, 4))) static FfiError* fail(const Call* call, int code,
                                                            const char* format, ...) {
  char text[4096];
  const size_t shown = call->what.size < kMaxShown ? call->what.size : kMaxShown;
  const int length = snprintf(text, sizeof text, "amdattn: %.*s: ", (int)shown, call->what.data);
  va_list values;
  va_start(values, format);
  vsnprintf(text + length, sizeof text - (size_t)length, format, values);
  va_end(values);
  FfiErrorCreate create = {sizeof create, NULL, text, code};
  return call->frame->api->error_create(&create);
}

static FfiError* hip_failed(const Call* call, const char* function, int status) {
  const Hip* const hip = call->hip;
  const char* const name = hip->error_string ? hip->error_string(status) : "";
  const char* const report = hip->last_report ? hip->last_report() : "";
  return fail(call, kFfiInternal, "%s: error %d (%s)%s%s", function, status, name ? name : "",
              report && *report ? "\n" : "", report ? report : "");
}

// -- the frame -----------------------------------------------------------------------------------

static const void* attribute(const FfiFrame* frame, const char* name, int type) {
  const FfiAttributes* const all = &frame->attributes;
  for (int64_t i = 0; i < all->size; ++i) {
    const FfiSpan* const span = all->names[i];
    if (all->types[i] == type && span->size == strlen(name) &&
        memcmp(span->data, name, span->size) == 0) {
      return all->values[i];
    }
  }
  return NULL;
}

// Of what XLA may pass, by its number: 0 for what no plan has.
static int64_t element_bytes(int dtype) {
  switch (dtype) {
    case 1:  // PRED
    case 2:  // S8
    case 6:  // U8
    case 19:
    case 20:
    case 23:
    case 24:
    case 25:
    case 28:
    case 29:  // F8
      return 1;
    case 3:
    case 7:
    case 10:
    case 16:  // S16, U16, F16, BF16
      return 2;
    case 4:
    case 8:
    case 11:  // S32, U32, F32
      return 4;
    case 5:
    case 9:
    case 12:  // S64, U64, F64
      return 8;
  }
  return 0;
}

static int64_t buffer_bytes(const FfiBuffer* buffer) {
  int64_t bytes = element_bytes(buffer->dtype);
  for (int64_t i = 0; i < buffer->rank; ++i) bytes *= buffer->dims[i];
  return bytes;
}

static bool is_within(int64_t word, int64_t least, int64_t most) {
  return word >= least && word <= most;
}

// Whether what a launch names is there: `bytes` are those of the plan's buffers.
static bool is_launch(const PlanLaunch* launch, const int64_t* bytes, int64_t buffers) {
  for (int i = 0; i < 3; ++i) {
    if (!is_within(launch->grid[i], 1, UINT32_MAX) ||
        !is_within(launch->workgroup[i], 1, kMaxWorkgroup)) {
      return false;
    }
  }
  const PlanPatch* patch = (const PlanPatch*)(launch + 1);
  for (int64_t p = 0; p < launch->patches; ++p, ++patch) {
    const int64_t buffer = (int64_t)(patch->where >> 32), offset = (uint32_t)patch->where;
    const bool is_number = buffer == kGeneration;
    if (offset + (is_number ? 4 : 8) > launch->argument_bytes) return false;
    if (is_number ? patch->addend != 0
                  : buffer >= buffers || !is_within(patch->addend, 0, bytes[buffer])) {
      return false;
    }
  }
  return true;
}

// The plan, if all of it lies inside the attribute and names only what is there. Programs can be
// read from files: no word is believed, and each is bounded before it takes part in a sum.
static const PlanHeader* checked_plan(const FfiFrame* frame) {
  const FfiArray* const array = attribute(frame, "plan", kFfiAttributeArray);
  const int64_t head = sizeof(PlanHeader) / 8;
  if (array == NULL || array->dtype != kFfiInt64 ||
      !is_within((int64_t)array->size, head, kMaxWords)) {
    return NULL;
  }
  const int64_t* const words = array->data;
  const PlanHeader* const plan = array->data;
  if (plan->magic != PLAN_MAGIC || plan->words != (int64_t)array->size ||
      !is_within(plan->inputs, 0, kMaxBuffers) || !is_within(plan->results, 0, kMaxBuffers) ||
      plan->inputs + plan->results > kMaxBuffers || !is_within(plan->clears, 0, kMaxBuffers) ||
      !is_within(plan->launches, 0, kMaxLaunches)) {
    return NULL;
  }
  const int64_t buffers = plan->inputs + plan->results;
  const int64_t* const bytes = words + head;
  int64_t at = head + buffers;
  if (at + 3 * plan->clears > plan->words) return NULL;
  for (int64_t i = 0; i < buffers; ++i) {
    if (bytes[i] < 0) return NULL;
  }
  for (int64_t i = 0; i < plan->clears; ++i, at += 3) {
    const PlanClear* const clear = (const PlanClear*)&words[at];
    if (!is_within(clear->buffer, plan->inputs, buffers - 1)) return NULL;  // operands stay
    const int64_t size = bytes[clear->buffer];
    if (!is_within(clear->bytes, 0, size) || !is_within(clear->offset, 0, size - clear->bytes)) {
      return NULL;
    }
  }
  for (int64_t i = 0; i < plan->launches; ++i) {
    const int64_t size = sizeof(PlanLaunch) / 8;
    if (at + size > plan->words) return NULL;
    const PlanLaunch* const launch = (const PlanLaunch*)&words[at];
    if (!is_within(launch->argument_bytes, 0, kMaxArgumentBytes) ||
        !is_within(launch->patches, 0, kMaxArgumentBytes)) {
      return NULL;
    }
    at += size + 2 * launch->patches + (launch->argument_bytes + 7) / 8;
    if (at > plan->words || !is_launch(launch, bytes, buffers)) return NULL;
  }
  return at == plan->words ? plan : NULL;
}

static const int64_t* launches_of(const PlanHeader* plan) {
  const int64_t* const words = (const int64_t*)plan;
  return words + sizeof *plan / 8 + plan->inputs + plan->results + 3 * plan->clears;
}

static const int64_t* after(const PlanLaunch* launch) {
  return (const int64_t*)(launch + 1) + 2 * launch->patches + (launch->argument_bytes + 7) / 8;
}

// -- stages --------------------------------------------------------------------------------------

static FfiError* resolve(const Call* call, int ordinal, const PlanLaunch* launch) {
  char why[2048] = "";
  const Resolver load = atomic_load(&resolver);
  if (load && load(call->platform, ordinal, launch->key, why, sizeof why) == 1) return NULL;
  return fail(call, kFfiFailedPrecondition, "%s", *why ? why : "amdattn.jax is not imported");
}

// When an executable is loaded: every kernel on every device, so that runs find them.
static FfiError* instantiate(const Call* call, const PlanHeader* plan) {
  const int64_t* at = launches_of(plan);
  for (int64_t i = 0; i < plan->launches; ++i) {
    const PlanLaunch* const launch = (const PlanLaunch*)at;
    FfiError* const error = resolve(call, -1, launch);
    if (error) return error;
    at = after(launch);
  }
  return NULL;
}

static FfiError* take_buffers(const Call* call, const PlanHeader* plan,
                              uint64_t ranges[kMaxBuffers][2]) {
  const FfiFrame* const frame = call->frame;
  if (frame->arguments.size != plan->inputs || frame->results.size != plan->results) {
    return fail(call, kFfiInvalidArgument,
                "the call has %" PRId64 " operands and %" PRId64 " results, its plan %" PRId64
                " and %" PRId64,
                frame->arguments.size, frame->results.size, plan->inputs, plan->results);
  }
  const int64_t* const bytes = (const int64_t*)(plan + 1);
  for (int64_t i = 0; i < plan->inputs + plan->results; ++i) {
    const FfiBuffer* const buffer =
        i < plan->inputs ? frame->arguments.values[i] : frame->results.values[i - plan->inputs];
    if (buffer_bytes(buffer) != bytes[i]) {
      return fail(call, kFfiInvalidArgument,
                  "operand %" PRId64 " has %" PRId64 " bytes, in the plan %" PRId64, i,
                  buffer_bytes(buffer), bytes[i]);
    }
    if ((uint64_t)buffer->data % kOperandAlign) {
      return fail(call, kFfiInvalidArgument, "operand %" PRId64 " is at %p, not a multiple of %d",
                  i, buffer->data, kOperandAlign);
    }
    ranges[i][0] = (uint64_t)buffer->data;
    ranges[i][1] = (uint64_t)bytes[i];
  }
  return NULL;
}

static FfiError* launch_one(const Call* call, const PlanLaunch* launch, const Kernel* kernel,
                            uint64_t ranges[kMaxBuffers][2], void* stream) {
  const PlanPatch* const patches = (const PlanPatch*)(launch + 1);
  _Alignas(16) char block[kMaxArgumentBytes];
  size_t bytes = (size_t)launch->argument_bytes;
  memcpy(block, patches + launch->patches, bytes);
  for (int64_t p = 0; p < launch->patches; ++p) {
    const uint64_t buffer = patches[p].where >> 32;
    char* const to = block + (uint32_t)patches[p].where;
    if (buffer == kGeneration) {
      const unsigned number = atomic_fetch_add(&generation, 1u) + 1;
      memcpy(to, &number, sizeof number);
    } else {
      const uint64_t address = ranges[buffer][0] + (uint64_t)patches[p].addend;
      memcpy(to, &address, sizeof address);
    }
  }
  void* extra[] = {(void*)kBufferPointer, block, (void*)kBufferSize, &bytes, (void*)kEnd};
  void* params[kMaxArguments];
  for (int i = 0; i < kernel->arguments; ++i) params[i] = block + kernel->offsets[i];
  const int64_t *const grid = launch->grid, *const group = launch->workgroup;
  const int status =
      call->hip->launch(kernel->function, (unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2],
                        (unsigned)group[0], (unsigned)group[1], (unsigned)group[2], 0, stream,
                        kernel->arguments ? params : NULL, kernel->arguments ? NULL : extra);
  return status ? hip_failed(call, "hipModuleLaunchKernel", status) : NULL;
}

static FfiError* run_on(const Call* call, const PlanHeader* plan, int ordinal, void* stream,
                        uint64_t ranges[kMaxBuffers][2]) {
  const int64_t* const words = (const int64_t*)plan;
  const PlanClear* clear =
      (const PlanClear*)(words + sizeof *plan / 8 + plan->inputs + plan->results);
  for (int64_t i = 0; i < plan->clears; ++i, ++clear) {
    void* const to = (void*)(ranges[clear->buffer][0] + (uint64_t)clear->offset);
    const int status = call->hip->memset_async(to, 0, (size_t)clear->bytes, stream);
    if (status) return hip_failed(call, "hipMemsetAsync", status);
  }
  const int64_t* at = launches_of(plan);
  for (int64_t i = 0; i < plan->launches; ++i) {
    const PlanLaunch* const launch = (const PlanLaunch*)at;
    const Kernel* kernel = find_kernel(call->platform, ordinal, launch->key);
    if (kernel == NULL) {
      FfiError* const error = resolve(call, ordinal, launch);
      if (error) return error;
      kernel = find_kernel(call->platform, ordinal, launch->key);
      if (kernel == NULL) return fail(call, kFfiInternal, "a kernel was not added");
    }
    if (kernel->argument_bytes != launch->argument_bytes) {
      return fail(call, kFfiInvalidArgument,
                  "its plan has %" PRId64 " bytes of arguments, the kernel %d: lower it again",
                  launch->argument_bytes, kernel->argument_bytes);
    }
    FfiError* const error = launch_one(call, launch, kernel, ranges, stream);
    if (error) return error;
    at = after(launch);
  }
  return NULL;
}

static FfiError* execute_on_cpu(const Call* call, const PlanHeader* plan,
                                uint64_t ranges[kMaxBuffers][2]) {
  const Hip* const hip = call->hip;
  uint64_t lent[kMaxBuffers][2];  // those that have bytes
  uint32_t count = 0;
  for (int64_t i = 0; i < plan->inputs + plan->results; ++i) {
    if (ranges[i][1]) memcpy(lent[count++], ranges[i], sizeof *lent);
  }
  if (hip->borrow) {
    const int status = hip->borrow((const uint64_t (*)[2])lent, count);
    if (status) return hip_failed(call, "amdattn_vdev_borrow", status);
  }
  void* const stream = (void*)kStreamPerThread;
  FfiError* error = run_on(call, plan, 0, stream, ranges);
  const int status = hip->synchronize(stream);
  // Before the next call of HIP, with which the report ends.
  if (status && error == NULL) error = hip_failed(call, "hipStreamSynchronize", status);
  if (hip->give_back) hip->give_back((const uint64_t (*)[2])lent, count);
  return error;
}

static FfiError* execute_on_rocm(const Call* call, const PlanHeader* plan,
                                 uint64_t ranges[kMaxBuffers][2]) {
  const FfiApi* const api = call->frame->api;
  FfiStreamGet of_stream = {sizeof of_stream, NULL, call->frame->context, NULL};
  FfiError* error = api->stream_get(&of_stream);
  if (error) return error;
  if (api->struct_size < offsetof(FfiApi, ordinal_get) + sizeof api->ordinal_get) {
    return fail(call, kFfiFailedPrecondition, "this jaxlib does not tell a handler its device");
  }
  FfiOrdinalGet of_device = {sizeof of_device, NULL, call->frame->context, 0};
  error = api->ordinal_get(&of_device);
  if (error) return error;
  const Hip* const hip = call->hip;
  const int ordinal = of_device.ordinal;
  int before = ordinal;
  int status = hip->get_device(&before);  // modules and streams are of one device
  if (status == 0 && before != ordinal) status = hip->set_device(ordinal);
  if (status) return hip_failed(call, "hipSetDevice", status);
  error = run_on(call, plan, ordinal, of_stream.stream, ranges);
  if (before != ordinal) hip->set_device(before);
  return error;
}

static void answer_metadata(FfiExtension* extension) {
  FfiMetadata* const metadata = ((FfiMetadataExtension*)extension)->metadata;
  // Not the version of a header but the least that the handler needs: XLA compares it once, when a
  // handler is registered (xla/ffi/ffi_registry.cc), and takes those from 0.1 up to its own. An XLA
  // of 0.2 would refuse a handler that says 0.3. What later versions have added stands at the end
  // of structs, and is used only where `struct_size` says that it is there.
  metadata->version.major = 0;
  metadata->version.minor = 1;
  // Not an argument of the registration, which older plugins refuse. The same launches every time:
  // what differs from run to run (PerRun) need not in a replay, which finds its counters at 0.
  metadata->traits = kFfiCommandBufferCompatible;
}

static FfiError* handle(const FfiFrame* frame, int platform) {
  for (FfiExtension* e = frame->extension; e; e = e->next) {
    if (e->type != kFfiExtensionMetadata) continue;
    answer_metadata(e);
    return NULL;
  }
  Call call = {frame, atomic_load(&bound[platform]), platform, {"?", 1}};
  const FfiSpan* const what = attribute(frame, "what", kFfiAttributeString);
  if (what) call.what = *what;
  const PlanHeader* const plan = checked_plan(frame);
  if (plan == NULL) {
    return fail(&call, kFfiInvalidArgument,
                "its plan is of another version of amdattn, or damaged: lower the program again");
  }
  if (frame->stage == kFfiInstantiate) return instantiate(&call, plan);
  if (frame->stage != kFfiExecute) return NULL;
  if (call.hip == NULL) {
    return fail(&call, kFfiFailedPrecondition, "no HIP runtime is bound: import amdattn.jax");
  }
  uint64_t ranges[kMaxBuffers][2];
  FfiError* const error = take_buffers(&call, plan, ranges);
  if (error) return error;
  return platform == kRocm ? execute_on_rocm(&call, plan, ranges)
                           : execute_on_cpu(&call, plan, ranges);
}

__attribute__((visibility("default"))) FfiError* amdattn_xla_cpu(FfiFrame* frame) {
  return handle(frame, kCpu);
}

__attribute__((visibility("default"))) FfiError* amdattn_xla_rocm(FfiFrame* frame) {
  return handle(frame, kRocm);
}
