// Whether the process's device is decided already.
#pragma once

namespace vdev {

// By play(), or by whoever asked for it.
bool is_machine_decided();

}  // namespace vdev
