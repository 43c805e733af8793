#include "core/safe_read.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace vdev {

u64 read_safely(void* dst, const void* src, u64 bytes) {
  u64 done = 0;
  while (done < bytes) {
    const iovec local{static_cast<char*>(dst) + done, bytes - done};
    const iovec remote{const_cast<char*>(static_cast<const char*>(src)) + done, bytes - done};
    const ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (got > 0) {
      done += static_cast<u64>(got);
    } else if (got < 0 && (errno == ENOSYS || errno == EPERM)) {
      std::memcpy(static_cast<char*>(dst) + done, static_cast<const char*>(src) + done,
                  bytes - done);
      done = bytes;
    } else {
      break;
    }
  }
  return done;
}

}  // namespace vdev
