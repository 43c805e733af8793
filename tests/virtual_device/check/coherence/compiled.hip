// What clang makes of atomics and fences: none of it may be reported. `data` is poisoned by the
// host with other values than the kernels write, so that a stale read shows in `out`.
#include "isa/device.h"

#define AGENT __HIP_MEMORY_SCOPE_AGENT
#define SYSTEM __HIP_MEMORY_SCOPE_SYSTEM
#define GROUP __HIP_MEMORY_SCOPE_WORKGROUP
#define KERNEL extern "C" __global__ WORKGROUP(256, 1) void
#define ARGUMENTS                                                   \
  [[maybe_unused]] uint32_t *data, [[maybe_unused]] uint32_t *flag, \
      [[maybe_unused]] uint32_t *out, [[maybe_unused]] uint32_t n

__device__ __forceinline__ uint32_t lane() { return Lane::in_workgroup(); }
__device__ __forceinline__ uint32_t workgroup() { return __builtin_amdgcn_workgroup_id_x(); }
__device__ __forceinline__ uint32_t value(uint32_t i) { return i * 2654435761u + 12345; }
// As __syncthreads().
__device__ __forceinline__ void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// Workgroup n writes, the others copy. `kRelease` and `kAcquire` are of the flag; fences of scope
// `kFence` stand before and behind it.
template <int kRelease, int kAcquire, int kScope, bool kRmw>
__device__ __forceinline__ void flag_message(uint32_t* data, uint32_t* flag, uint32_t* out,
                                             uint32_t n) {
  if (workgroup() == n) {
    data[lane()] = value(lane());
    barrier();
    if (lane() != 0) return;
    if constexpr (kRmw)
      __hip_atomic_fetch_add(flag, 1, kRelease, kScope);
    else
      __hip_atomic_store(flag, 1, kRelease, kScope);
  } else {
    if (lane() == 0) {
      uint32_t raised = 0;
      while (raised == 0) {
        if constexpr (kRmw)
          raised = __hip_atomic_fetch_add(flag, 0, kAcquire, kScope);
        else
          raised = __hip_atomic_load(flag, kAcquire, kScope);
      }
    }
    barrier();
    out[workgroup() * 256 + lane()] = data[255 - lane()];
  }
}
KERNEL release_acquire_agent(ARGUMENTS) {
  flag_message<__ATOMIC_RELEASE, __ATOMIC_ACQUIRE, AGENT, false>(data, flag, out, n);
}
KERNEL release_acquire_system(ARGUMENTS) {
  flag_message<__ATOMIC_RELEASE, __ATOMIC_ACQUIRE, SYSTEM, false>(data, flag, out, n);
}
KERNEL seq_cst_agent(ARGUMENTS) {
  flag_message<__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST, AGENT, false>(data, flag, out, n);
}
KERNEL rmw_agent(ARGUMENTS) {
  flag_message<__ATOMIC_RELEASE, __ATOMIC_ACQUIRE, AGENT, true>(data, flag, out, n);
}
KERNEL rmw_acq_rel_system(ARGUMENTS) {
  flag_message<__ATOMIC_ACQ_REL, __ATOMIC_ACQ_REL, SYSTEM, true>(data, flag, out, n);
}

// The flag is relaxed; fences by every lane, as __threadfence(), order it.
#define FENCED(kernel, scope, atomic_scope)                                         \
  KERNEL kernel(ARGUMENTS) {                                                        \
    if (workgroup() == n) {                                                         \
      data[lane()] = value(lane());                                                 \
      __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, scope);                              \
      barrier();                                                                    \
      if (lane() == 0) __hip_atomic_store(flag, 1, __ATOMIC_RELAXED, atomic_scope); \
    } else {                                                                        \
      if (lane() == 0)                                                              \
        while (__hip_atomic_load(flag, __ATOMIC_RELAXED, atomic_scope) == 0) {      \
        }                                                                           \
      barrier();                                                                    \
      __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, scope);                              \
      out[workgroup() * 256 + lane()] = data[255 - lane()];                         \
    }                                                                               \
  }
FENCED(fences_agent, "agent", AGENT)
FENCED(fences_system, "", SYSTEM)
FENCED(fences_agent_global_only, "agent-one-as", AGENT)

// Only the lane that raises the flag has fences.
KERNEL fence_by_leader(ARGUMENTS) {
  if (workgroup() == n) {
    data[lane()] = value(lane());
    barrier();
    if (lane() != 0) return;
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
    __hip_atomic_store(flag, 1, __ATOMIC_RELAXED, AGENT);
  } else {
    if (lane() == 0) {
      while (__hip_atomic_load(flag, __ATOMIC_RELAXED, AGENT) == 0) {
      }
      __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
    }
    barrier();
    out[workgroup() * 256 + lane()] = data[255 - lane()];
  }
}

// The flag is the upper half of 8 bytes, and polled alone.
KERNEL half_a_flag(ARGUMENTS) {
  if (workgroup() == n) {
    data[lane()] = value(lane());
    barrier();
    if (lane() == 0) __hip_atomic_store((unsigned long*)flag, 1ul << 32, __ATOMIC_RELEASE, AGENT);
  } else {
    if (lane() == 0)
      while (__hip_atomic_load(flag + 1, __ATOMIC_ACQUIRE, AGENT) == 0) {
      }
    barrier();
    out[workgroup() * 256 + lane()] = data[255 - lane()];
  }
}

KERNEL volatile_flag(ARGUMENTS) {
  volatile uint32_t* raised = flag;
  if (workgroup() == n) {
    data[lane()] = value(lane());
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
    barrier();
    if (lane() == 0) *raised = 1;
  } else {
    if (lane() == 0)
      while (*raised == 0) {
      }
    barrier();
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
    out[workgroup() * 256 + lane()] = data[255 - lane()];
  }
}

// Data that are atomics themselves need no order for being free of races.
KERNEL relaxed_data(ARGUMENTS) {
  if (workgroup() == n) {
    __hip_atomic_store(&data[lane()], value(lane()), __ATOMIC_RELAXED, AGENT);
  } else {
    uint32_t seen;
    while ((seen = __hip_atomic_load(&data[255 - lane()], __ATOMIC_RELAXED, AGENT)) !=
           value(255 - lane())) {
    }
    out[workgroup() * 256 + lane()] = seen;
  }
}

// Data and flag in 8 bytes that are written and read at once.
KERNEL flag_in_the_data(ARGUMENTS) {
  auto* pairs = (unsigned long*)data;
  if (workgroup() == n) {
    __hip_atomic_store(&pairs[lane()], 1ul << 32 | value(lane()), __ATOMIC_RELAXED, SYSTEM);
  } else {
    unsigned long pair;
    while ((pair = __hip_atomic_load(&pairs[255 - lane()], __ATOMIC_RELAXED, SYSTEM)) >> 32 != 1) {
    }
    out[workgroup() * 256 + lane()] = pair;
  }
}

// Waves of one workgroup through workgroup-scope atomics, without s_barrier.
KERNEL waves_by_flag(ARGUMENTS) {
  const uint32_t wave = Lane::wave(), mine = workgroup() * 256;
  if (wave == n) {
    for (uint32_t i = Lane::in_wave(); i < 256; i += 64) data[mine + i] = value(i);
    __hip_atomic_store(&flag[workgroup()], 1, __ATOMIC_RELEASE, GROUP);
  } else {
    while (__hip_atomic_load(&flag[workgroup()], __ATOMIC_ACQUIRE, GROUP) == 0) {
    }
    out[mine + lane()] = data[mine + 255 - lane()];
  }
}
KERNEL waves_by_counter(ARGUMENTS) {
  const uint32_t wave = Lane::wave(), mine = workgroup() * 256;
  if (wave == n) {
    for (uint32_t i = Lane::in_wave(); i < 256; i += 64) data[mine + i] = value(i);
    if (Lane::in_wave() == 0)
      __hip_atomic_fetch_add(&flag[workgroup()], 1, __ATOMIC_RELEASE, GROUP);
  } else {
    while (__hip_atomic_load(&flag[workgroup()], __ATOMIC_ACQUIRE, GROUP) == 0) {
    }
    out[mine + lane()] = data[mine + 255 - lane()];
  }
}
// In turns, with s_barrier only: every wave writes what another one read.
KERNEL waves_by_barrier(ARGUMENTS) {
  const uint32_t mine = workgroup() * 256;
  for (uint32_t round = 0; round < n; ++round) {
    data[mine + (lane() + 64 * round) % 256] = value(round) + lane();
    barrier();
    out[mine + lane()] = data[mine + 255 - lane()];
    barrier();
  }
}

// Each workgroup waits for the one before it and adds to what it left.
KERNEL relay(ARGUMENTS) {
  const uint32_t me = workgroup();
  if (lane() == 0)
    while (__hip_atomic_load(flag, __ATOMIC_ACQUIRE, AGENT) != me) {
    }
  barrier();
  // Written by the workgroup before the last one: known only through the last one.
  out[me * 256 + lane()] = me < 2 ? value(lane()) : data[(me - 2) * 256 + 255 - lane()];
  data[me * 256 + lane()] = value(lane()) + me * n;
  barrier();
  if (lane() == 0) __hip_atomic_store(flag, me + 1, __ATOMIC_RELEASE, AGENT);
}

// Split-K: n workgroups write partial sums, the last one to arrive adds them up and lowers the
// semaphore for the next launch with a plain store.
KERNEL last_arrival(ARGUMENTS) {
  __shared__ uint32_t last;
  const uint32_t me = workgroup();
  data[me * 256 + lane()] = value(me * 256 + lane());
  barrier();
  if (lane() == 0) last = __hip_atomic_fetch_add(flag, 1, __ATOMIC_ACQ_REL, AGENT) == n - 1;
  barrier();
  if (!last) return;
  uint32_t sum = 0;
  for (uint32_t i = 0; i < n; ++i) sum += data[i * 256 + 255 - lane()];
  out[lane()] = sum;
  if (lane() == 0) *flag = 0;
}
// As __threadfence() and a relaxed atomicInc, which lowers the semaphore by itself.
KERNEL last_arrival_fenced(ARGUMENTS) {
  __shared__ uint32_t last;
  const uint32_t me = workgroup();
  data[me * 256 + lane()] = value(me * 256 + lane());
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
  barrier();
  if (lane() == 0)
    last = __builtin_amdgcn_atomic_inc32(flag, n - 1, __ATOMIC_RELAXED, "agent") == n - 1;
  barrier();
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
  if (!last) return;
  uint32_t sum = 0;
  for (uint32_t i = 0; i < n; ++i) sum += data[i * 256 + 255 - lane()];
  out[lane()] = sum;
}

// Everybody accumulates with relaxed atomics; the last one to arrive reads plainly.
KERNEL accumulate(ARGUMENTS) {
  __shared__ uint32_t last;
  __hip_atomic_fetch_add(&data[lane()], value(workgroup() * 256 + lane()), __ATOMIC_RELAXED, AGENT);
  barrier();
  if (lane() == 0) last = __hip_atomic_fetch_add(flag, 1, __ATOMIC_ACQ_REL, AGENT) == n - 1;
  barrier();
  if (last) out[lane()] = data[255 - lane()];
}

// Phases with all workgroups between: each reads what its neighbour wrote, then they change places.
KERNEL grid_barrier(ARGUMENTS) {
  const uint32_t me = workgroup();
  for (uint32_t phase = 0; phase < 3; ++phase) {
    data[(me + phase) % n * 256 + lane()] = value(phase * 1024 + me * 256 + lane());
    for (uint32_t half = 1; half <= 2; ++half) {
      barrier();
      if (lane() == 0) {
        __hip_atomic_fetch_add(flag, 1, __ATOMIC_RELEASE, AGENT);
        while (__hip_atomic_load(flag, __ATOMIC_ACQUIRE, AGENT) < (2 * phase + half) * n) {
        }
      }
      barrier();
      if (half == 1)
        out[(phase * n + me) * 256 + lane()] = data[(me + phase + 1) % n * 256 + 255 - lane()];
    }
  }
}

// A spin lock guards plain data.
KERNEL spin_lock(ARGUMENTS) {
  for (uint32_t i = 0; i < n; ++i) {
    if (lane() == 0) {
      uint32_t free = 0;
      while (!__hip_atomic_compare_exchange_strong(flag, &free, 1u, __ATOMIC_ACQUIRE,
                                                   __ATOMIC_RELAXED, AGENT))
        free = 0;
      data[0] += value(workgroup());
      data[1] = workgroup();
      __hip_atomic_store(flag, 0, __ATOMIC_RELEASE, AGENT);
    }
  }
}

KERNEL histogram(ARGUMENTS) {
  for (uint32_t i = lane(); i < n; i += 256)
    __hip_atomic_fetch_add(&out[value(workgroup() * n + i) >> 24], 1u, __ATOMIC_RELAXED, AGENT);
}
// The hardware lacks this atomic: a plain load, then compare-and-swap until nobody came between.
KERNEL atomic_by_loop(ARGUMENTS) {
  __hip_atomic_fetch_add((_Float16*)out + lane() % n, (_Float16)1, __ATOMIC_RELAXED, AGENT);
}
// Work is handed out by a counter.
KERNEL tickets(ARGUMENTS) {
  __shared__ uint32_t ticket;
  for (;;) {
    if (lane() == 0) ticket = __hip_atomic_fetch_add(flag, 1, __ATOMIC_RELAXED, AGENT);
    barrier();
    const uint32_t mine = ticket;
    barrier();
    if (mine >= n) return;
    out[mine * 256 + lane()] = value(mine * 256 + lane());
  }
}

// Workgroups that write different parts of the same dwords.
KERNEL halves(ARGUMENTS) {
  if (lane() < n) ((uint16_t*)out)[lane() * 2 + workgroup()] = value(lane() * 2 + workgroup());
}
KERNEL bytes(ARGUMENTS) {
  if (lane() < n) ((uint8_t*)out)[lane() * 4 + workgroup()] = value(lane() * 4 + workgroup());
}
// ... and read their own back.
KERNEL halves_in_place(ARGUMENTS) {
  auto* const mine = (uint16_t*)out + lane() * 2 + workgroup();
  if (lane() < n) *mine = *mine + 1;
  barrier();
  if (lane() < n) *mine = *mine + value(lane());
}

// A uniform address after the acquire: the compiler may be tempted to use a scalar load.
KERNEL uniform_data(const uint32_t* __restrict read, uint32_t* data, uint32_t* flag, uint32_t* out,
                    uint32_t n) {
  if (workgroup() == n) {
    if (lane() != 0) return;
    data[0] = value(1);
    __hip_atomic_store(flag, 1, __ATOMIC_RELEASE, AGENT);
  } else {
    while (__hip_atomic_load(flag, __ATOMIC_ACQUIRE, AGENT) == 0) {
    }
    out[workgroup() * 256 + lane()] = data[0] + read[0];
  }
}
