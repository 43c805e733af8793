// Readings of what is not known of the hardware: what the model has in place of the architecture's
// table when it is told to. All zero: as the table has it. amdattn/arch/readings.py names them,
// with what speaks for and against each.
#pragma once

#include "core/types.h"

namespace vdev::timing {

struct Readings {
  u32 trans_exclusive = 0;  // 1: what coexecution.h has open waits for the matrix unit
  u32 lds_published = 0;    // 1: the LDS is read at its published rate, not the one measured
  // VALU slots that a matrix instruction takes besides its own, and one more; of those of up to
  // four passes alone, where it is not zero.
  u32 mfma_lost_slots = 0;
  u32 short_mfma_lost_slots = 0;
  u32 wait_clk = 0;            // of s_waitcnt, besides its slot
  u32 three_source_slots = 0;  // VALU slots more of three vector sources while the LDS hands over
  u32 hbm_channels = 0;        // of an XCD's share, by turns of 256 bytes; 0: one
  u32 translation_ns = 0;      // of the first access of an XCD to 64 KiB
  u32 write_back_ns = 0;       // of buffer_wbl2, besides what it writes back
};

struct ReadingOption {
  const char* key;
  u32 Readings::* value;
  u32 most;
};
inline constexpr ReadingOption kReadingOptions[] = {
    {"trans_exclusive", &Readings::trans_exclusive, 1},
    {"lds_published", &Readings::lds_published, 1},
    {"mfma_lost_slots", &Readings::mfma_lost_slots, 3},
    {"short_mfma_lost_slots", &Readings::short_mfma_lost_slots, 3},
    {"wait_clk", &Readings::wait_clk, 1000},
    {"three_source_slots", &Readings::three_source_slots, 4},
    {"hbm_channels", &Readings::hbm_channels, 128},
    {"translation_ns", &Readings::translation_ns, 10000},
    {"write_back_ns", &Readings::write_back_ns, 100000},
};

}  // namespace vdev::timing
