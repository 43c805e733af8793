/* A HIP runtime without a GPU behind it: just enough to be chosen, bound and described. */
#include <stdlib.h>
#include <string.h>

#ifndef ARCH
#define ARCH "gfx942:sramecc+:xnack-"
#endif
#ifndef NAME
#define NAME "AMD Instinct MI300X"
#endif
#ifndef NUM_DEVICES
#define NUM_DEVICES 1
#endif

static __thread int last_error;

static int result(int code) {
  if (code) last_error = code;
  return code;
}

int hipInit(unsigned flags) { return (void)flags, 0; }

int hipGetDeviceCount(int* count) {
#ifdef ABORTS
  abort();
#endif
  *count = NUM_DEVICES;
  return result(NUM_DEVICES ? 0 : 100);
}

int hipSetDevice(int device) { return result(device >= 0 && device < NUM_DEVICES ? 0 : 101); }
int hipGetDevice(int* device) { return *device = 0; }

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
  (void)attribute, (void)device;
  *value = 8;
  return 0;
}

int hipGetDevicePropertiesR0600(char* prop, int device) {
  if (device) return result(101);
  memset(prop, 0, 1472); /* sizeof(hipDeviceProp_tR0600) */
  strcpy(prop, NAME);
  *(size_t*)(prop + 288) = (size_t)192 << 30; /* totalGlobalMem */
  *(size_t*)(prop + 296) = 65536;             /* sharedMemPerBlock */
  *(int*)(prop + 388) = 304;                  /* multiProcessorCount */
  strcpy(prop + 1160, ARCH);                  /* gcnArchName */
  return 0;
}
