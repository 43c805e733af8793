// What the environment says: which device, and whether checked mode or the model watches it.
#pragma once

namespace vdev {
class Process;
}

namespace vdev::hsa {

// AMDATTN_DEVICE names the device, unless somebody has said before what it is. Throws
// std::runtime_error where there is no such device.
void choose_device();
// "gpus=2" of AMDATTN_OPTIONS: so many of it. Before the device exists.
void choose_gpus();

// AMDATTN_FINDINGS and AMDATTN_PROFILES name files; what was found until the process ends is
// written there, as JSON; AMDATTN_CODE_OBJECTS a folder for the code objects that findings name,
// each called by its number. AMDATTN_OPTIONS sets options of the library: "seed=3,clock_mhz=2100".
// Launches that run when the process ends are aborted after a while.
void watch_by_environment(Process& process);

// Writes them now, once: after a fault the process may not come to its end.
void write_results_of_fault(Process& process);

}  // namespace vdev::hsa
