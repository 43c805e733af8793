// The steps that attention's main loop is made of: their names, and which unit of the SIMD they
// take. Plain C++. What a step does is in attn/steps.h.
#pragma once

enum class Step {
  kScore,      // matrix: S^T += K Q^T, of the next unit
  kOutput,     // matrix: O^T += V^T P^T, of the unit before
  kAddUnit,    // row sum += sum of the unit before
  kAddSample,  // and likewise of its sampled probabilities
  kCapRate,    // softcap: score * rate,
  kCapExp,     // the exponential,
  kCapAdd,     // plus 1,
  kCapRcp,     // the reciprocal
  kScale,      // x = score * scale - reference
  kExp,        // p = 2^x
  kSum,        // sum of the unit += p
  kRound,      // p += half a unit of its last place in the 16-bit type
  kSample,     // one of the probabilities as it is rounded
  kPack,       // a pair to the 16-bit type, truncated
  kExceeds,    // does the sum ask for another reference, and for rescaling?
  kTranspose,  // V: a pair of rows
  kFlipReadV,  // addresses to the other stage
  kFlipWriteV,
  kFlipReadK,
  kReadV,  // LDS: operands
  kReadK,
  kWriteV,
  kLoadV,         // memory to registers
  kSetM0,         // memory to LDS: where to,
  kLoadK,         // and the load
  kPrefetch,      // memory to the L2: a block further on,
  kNextPrefetch,  // vector: and the one after it
  kFlipM0,
  kFlipFlips,  // which bits of a stage change next
  kNextBlock,  // descriptors, an instruction at a time
  kWaitV,      // operands have been read
  kWaitK,
  kWaitStaged,  // V is there from memory
  kWaitBlock,   // what this wave loads and writes is in LDS
  kBarrier,
};
inline constexpr int kStepNames = int(Step::kBarrier) + 1;

inline constexpr int kSampled = 5;  // of a lane's probabilities of a unit

enum class Unit { kMatrix, kVector, kTrans, kLds, kMemory, kScalar, kWait };
struct StepTraits {
  const char* name;
  Unit unit;
};
inline constexpr StepTraits kTraits[] = {
    {"score", Unit::kMatrix},         {"output", Unit::kMatrix},
    {"add_unit", Unit::kVector},      {"add_sample", Unit::kVector},
    {"cap_rate", Unit::kVector},      {"cap_exp", Unit::kTrans},
    {"cap_add", Unit::kVector},       {"cap_rcp", Unit::kTrans},
    {"scale", Unit::kVector},         {"exp", Unit::kTrans},
    {"sum", Unit::kVector},           {"round", Unit::kVector},
    {"sample", Unit::kVector},        {"pack", Unit::kVector},
    {"exceeds", Unit::kVector},       {"transpose_v", Unit::kVector},
    {"flip_read_v", Unit::kVector},   {"flip_write_v", Unit::kVector},
    {"flip_read_k", Unit::kVector},   {"read_v", Unit::kLds},
    {"read_k", Unit::kLds},           {"write_v", Unit::kLds},
    {"load_v", Unit::kMemory},        {"set_m0", Unit::kScalar},
    {"load_k", Unit::kMemory},        {"prefetch", Unit::kMemory},
    {"next_prefetch", Unit::kVector}, {"flip_m0", Unit::kScalar},
    {"flip_flips", Unit::kScalar},    {"next_block", Unit::kScalar},
    {"wait_v", Unit::kWait},          {"wait_k", Unit::kWait},
    {"wait_staged", Unit::kWait},     {"wait_block", Unit::kWait},
    {"barrier", Unit::kWait},
};
constexpr StepTraits traits(Step step) { return kTraits[int(step)]; }

struct Item {
  Step step;
  int n;
  int window;  // not before this matrix instruction
};
template <int kCapacity>
struct Items {
  Item item[kCapacity];
  int count = 0;
  constexpr void add(Step step, int n = 0, int window = 0) { item[count++] = {step, n, window}; }
};

struct Placed {
  Step step;
  int n;  // of a wait: what may still be under way
  int slot;
};
