// Loops of launches through the function pointers of a HIP runtime, timed without an interpreter.
#include <stdint.h>
#include <time.h>

typedef int (*Launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned group_x, unsigned group_y, unsigned group_z, unsigned lds,
                      void* stream, void** params, void** extra);
typedef int (*Replay)(void* graph, void* stream);
typedef int (*Wait)(void* stream);

static double now_ns(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

// Nanoseconds of the calling thread's own time that a launch takes; negative: a call failed.
double time_launches(Launch launch, Wait wait, void* function, void* stream, void** params,
                     void** extra, int count) {
  const double begin = now_ns(CLOCK_THREAD_CPUTIME_ID);
  for (int i = 0; i < count; ++i)
    if (launch(function, 1, 1, 1, 64, 1, 1, 0, stream, params, extra) != 0) return -1;
  const double end = now_ns(CLOCK_THREAD_CPUTIME_ID);
  return wait(stream) == 0 ? (end - begin) / count : -1;
}

// The same of the replays of a graph.
double time_replays(Replay replay, Wait wait, void* graph, void* stream, int count) {
  const double begin = now_ns(CLOCK_THREAD_CPUTIME_ID);
  for (int i = 0; i < count; ++i)
    if (replay(graph, stream) != 0) return -1;
  const double end = now_ns(CLOCK_THREAD_CPUTIME_ID);
  return wait(stream) == 0 ? (end - begin) / count : -1;
}

// Nanoseconds from a launch to the end of waiting for it, of any clock's time.
double time_round_trips(Launch launch, Wait wait, void* function, void* stream, void** params,
                        int count) {
  const double begin = now_ns(CLOCK_MONOTONIC);
  for (int i = 0; i < count; ++i) {
    if (launch(function, 1, 1, 1, 64, 1, 1, 0, stream, params, 0) != 0) return -1;
    if (wait(stream) != 0) return -1;
  }
  return (now_ns(CLOCK_MONOTONIC) - begin) / count;
}
