// What the virtual device does not support: each call says so once on stderr.
#include "hsa/api.h"

namespace vdev::hsa {

#define VDEV_UNSUPPORTED(name) \
  HSA_API name() { return refuse_call(#name); }

// Images and graphics.
VDEV_UNSUPPORTED(hsa_amd_image_create)
VDEV_UNSUPPORTED(hsa_ext_image_create)
VDEV_UNSUPPORTED(hsa_ext_image_create_with_layout)
VDEV_UNSUPPORTED(hsa_ext_image_data_get_info)
VDEV_UNSUPPORTED(hsa_ext_image_destroy)
VDEV_UNSUPPORTED(hsa_ext_image_export)
VDEV_UNSUPPORTED(hsa_ext_image_import)
VDEV_UNSUPPORTED(hsa_ext_sampler_create)
VDEV_UNSUPPORTED(hsa_ext_sampler_create_v2)
VDEV_UNSUPPORTED(hsa_ext_sampler_destroy)
VDEV_UNSUPPORTED(hsa_amd_interop_map_buffer)
VDEV_UNSUPPORTED(hsa_amd_interop_unmap_buffer)
// Storage and other devices.
VDEV_UNSUPPORTED(hsa_amd_ais_file_read)
VDEV_UNSUPPORTED(hsa_amd_ais_file_write)
VDEV_UNSUPPORTED(hsa_amd_portable_export_dmabuf)
// Other processes.
VDEV_UNSUPPORTED(hsa_amd_ipc_memory_create)
VDEV_UNSUPPORTED(hsa_amd_ipc_memory_attach)
VDEV_UNSUPPORTED(hsa_amd_ipc_memory_detach)
// Pageable memory, which hsa_system_get_info denies.
VDEV_UNSUPPORTED(hsa_amd_svm_attributes_get)
VDEV_UNSUPPORTED(hsa_amd_svm_attributes_set)
VDEV_UNSUPPORTED(hsa_amd_svm_prefetch_async)
// Variables that the application defines.
VDEV_UNSUPPORTED(hsa_executable_agent_global_variable_define)

}  // namespace vdev::hsa
