#include "timing/coexecution.h"

namespace vdev::timing {

UnitTimes::UnitTimes(const Arch& arch, bool trans_exclusive) {
  for (const Coexecution& row : arch.processor.coexecution)
    times_[static_cast<size_t>(row.unit)] = {
        row.clk ? arch.timing.*row.clk : 0, row.after,
        row.beside == Beside::kExclusive || (row.beside == Beside::kOpen && trans_exclusive)};
}

}  // namespace vdev::timing
