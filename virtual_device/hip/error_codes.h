// hipError_t: every code, with the text of hipGetErrorString.
#pragma once

// X(name, value, text)
#define VDEV_HIP_ERRORS(X)                                                                     \
  X(hipSuccess, 0, "success")                                                                  \
  X(hipErrorInvalidValue, 1, "an argument is invalid")                                         \
  X(hipErrorOutOfMemory, 2, "out of memory")                                                   \
  X(hipErrorNotInitialized, 3, "the runtime is not initialized")                               \
  X(hipErrorDeinitialized, 4, "the runtime has shut down")                                     \
  X(hipErrorProfilerDisabled, 5, "profiling is disabled")                                      \
  X(hipErrorProfilerNotInitialized, 6, "the profiler is not initialized")                      \
  X(hipErrorProfilerAlreadyStarted, 7, "the profiler runs already")                            \
  X(hipErrorProfilerAlreadyStopped, 8, "the profiler has stopped already")                     \
  X(hipErrorInvalidConfiguration, 9, "the launch configuration is invalid")                    \
  X(hipErrorInvalidPitchValue, 12, "the pitch is invalid")                                     \
  X(hipErrorInvalidSymbol, 13, "unknown device symbol")                                        \
  X(hipErrorInvalidDevicePointer, 17, "not a device pointer")                                  \
  X(hipErrorInvalidMemcpyDirection, 21, "the direction of the copy does not fit its pointers") \
  X(hipErrorInsufficientDriver, 35, "the driver is too old for this runtime")                  \
  X(hipErrorMissingConfiguration, 52, "the launch was not configured")                         \
  X(hipErrorPriorLaunchFailure, 53, "an earlier launch failed")                                \
  X(hipErrorInvalidDeviceFunction, 98, "not a device function")                                \
  X(hipErrorNoDevice, 100, "no device")                                                        \
  X(hipErrorInvalidDevice, 101, "no device of that ordinal")                                   \
  X(hipErrorInvalidImage, 200, "not a valid code object for this device")                      \
  X(hipErrorInvalidContext, 201, "not a valid context")                                        \
  X(hipErrorContextAlreadyCurrent, 202, "the context is current already")                      \
  X(hipErrorMapFailed, 205, "mapping failed")                                                  \
  X(hipErrorUnmapFailed, 206, "unmapping failed")                                              \
  X(hipErrorArrayIsMapped, 207, "the array is mapped")                                         \
  X(hipErrorAlreadyMapped, 208, "mapped already")                                              \
  X(hipErrorNoBinaryForGpu, 209, "the image holds no code for this device")                    \
  X(hipErrorAlreadyAcquired, 210, "acquired already")                                          \
  X(hipErrorNotMapped, 211, "not mapped")                                                      \
  X(hipErrorNotMappedAsArray, 212, "not mapped as an array")                                   \
  X(hipErrorNotMappedAsPointer, 213, "not mapped as a pointer")                                \
  X(hipErrorECCNotCorrectable, 214, "memory error that ECC cannot correct")                    \
  X(hipErrorUnsupportedLimit, 215, "the device has no such limit")                             \
  X(hipErrorContextAlreadyInUse, 216, "the context is used by another thread")                 \
  X(hipErrorPeerAccessUnsupported, 217, "the devices cannot access each other")                \
  X(hipErrorInvalidKernelFile, 218, "not a kernel file")                                       \
  X(hipErrorInvalidGraphicsContext, 219, "not a graphics context")                             \
  X(hipErrorInvalidSource, 300, "invalid source")                                              \
  X(hipErrorFileNotFound, 301, "no such file")                                                 \
  X(hipErrorSharedObjectSymbolNotFound, 302, "no such symbol in the shared object")            \
  X(hipErrorSharedObjectInitFailed, 303, "the shared object could not be set up")              \
  X(hipErrorOperatingSystem, 304, "an operating system call failed")                           \
  X(hipErrorInvalidHandle, 400, "not a live handle")                                           \
  X(hipErrorIllegalState, 401, "not possible in the present state")                            \
  X(hipErrorNotFound, 500, "no such name")                                                     \
  X(hipErrorNotReady, 600, "not finished yet")                                                 \
  X(hipErrorIllegalAddress, 700, "a kernel or copy accessed memory it does not own")           \
  X(hipErrorLaunchOutOfResources, 701, "the launch needs more resources than there are")       \
  X(hipErrorLaunchTimeOut, 702, "a kernel made no progress and was stopped")                   \
  X(hipErrorPeerAccessAlreadyEnabled, 704, "peer access is enabled already")                   \
  X(hipErrorPeerAccessNotEnabled, 705, "peer access is not enabled")                           \
  X(hipErrorSetOnActiveProcess, 708, "cannot be changed any more")                             \
  X(hipErrorContextIsDestroyed, 709, "the context no longer exists")                           \
  X(hipErrorAssert, 710, "an assertion in a kernel failed")                                    \
  X(hipErrorHostMemoryAlreadyRegistered, 712, "host memory is registered already")             \
  X(hipErrorHostMemoryNotRegistered, 713, "host memory is not registered")                     \
  X(hipErrorLaunchFailure, 719, "a kernel failed")                                             \
  X(hipErrorCooperativeLaunchTooLarge, 720, "the workgroups do not all fit at the same time")  \
  X(hipErrorNotSupported, 801, "not supported by the virtual device")                          \
  X(hipErrorStreamCaptureUnsupported, 900, "not permitted while a stream is capturing")        \
  X(hipErrorStreamCaptureInvalidated, 901, "the capture failed earlier")                       \
  X(hipErrorStreamCaptureMerge, 902, "would merge two captures")                               \
  X(hipErrorStreamCaptureUnmatched, 903, "the capture did not begin on this stream")           \
  X(hipErrorStreamCaptureUnjoined, 904, "a stream forked from the capture was not joined")     \
  X(hipErrorStreamCaptureIsolation, 905, "would depend on work that is not captured")          \
  X(hipErrorStreamCaptureImplicit, 906, "the null stream would wait for a capturing stream")   \
  X(hipErrorCapturedEvent, 907, "the event was recorded in a capture")                         \
  X(hipErrorStreamCaptureWrongThread, 908, "another thread began the capture")                 \
  X(hipErrorGraphExecUpdateFailure, 910, "the graph differs too much for an update")           \
  X(hipErrorInvalidChannelDescriptor, 911, "invalid channel descriptor")                       \
  X(hipErrorInvalidTexture, 912, "invalid texture")                                            \
  X(hipErrorInvalidResourceType, 914, "invalid resource type")                                 \
  X(hipErrorInvalidResourceConfiguration, 915, "invalid resource configuration")               \
  X(hipErrorStreamDetached, 916, "the stream is detached")                                     \
  X(hipErrorUnknown, 999, "unknown error")                                                     \
  X(hipErrorRuntimeMemory, 1052, "a memory call of the runtime failed")                        \
  X(hipErrorRuntimeOther, 1053, "a call of the runtime failed")                                \
  X(hipErrorInvalidClusterSize, 1054, "invalid cluster size")                                  \
  X(hipErrorTbd, 1055, "unspecified error")

enum hipError_t : int {
#define VDEV_ENUMERATOR(name, value, text) name = value,
  VDEV_HIP_ERRORS(VDEV_ENUMERATOR)
#undef VDEV_ENUMERATOR
};
