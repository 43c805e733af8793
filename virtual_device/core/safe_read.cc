#include "core/safe_read.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace vdev {
namespace {

constexpr u64 kPage = 4096;
// Up to here pages are faulted in, as the access would do anyway; for more it costs as much as the
// access.
constexpr u64 kProbedBytes = u64{4} << 20;
constexpr int kPopulateRead = 22, kPopulateWrite = 23;  // MADV_POPULATE_*, Linux 5.14

// Asks the list of mappings, which is slow and always right.
bool is_mapped(u64 first, u64 last, HostAccess access) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(std::fopen("/proc/self/maps", "re"),
                                                             std::fclose);
  if (!maps) return false;
  char line[512];
  bool at_start = true;
  while (std::fgets(line, sizeof line, maps.get())) {
    unsigned long long begin = 0, end = 0;
    char rights[5] = {};
    const bool is_row = at_start && std::sscanf(line, "%llx-%llx %4s", &begin, &end, rights) == 3;
    at_start = std::strchr(line, '\n') != nullptr;  // a long path takes several reads
    if (!is_row || end <= first) continue;
    if (begin > first || rights[0] != 'r') return false;
    if (access == HostAccess::kWrite && rights[1] != 'w') return false;
    if (end > last) return true;
    first = end;
  }
  return false;
}

}  // namespace

bool is_accessible(const void* pointer, u64 bytes, HostAccess access) {
  const u64 first = reinterpret_cast<u64>(pointer), last = first + bytes - 1;
  if (bytes == 0) return true;
  if (first == 0 || last < first) return false;
  const u64 end = (last / kPage + 1) * kPage;
  const u64 page = std::max(first / kPage * kPage, end - std::min(end, kProbedBytes));
  const int advice = access == HostAccess::kRead ? kPopulateRead : kPopulateWrite;
  const bool populated = madvise(reinterpret_cast<void*>(page), end - page, advice) == 0;
  if (populated && page <= first) return true;
  // EFAULT: a mapped file has become shorter. All else may be a kernel that lacks the advice.
  if (!populated && errno == EFAULT) return false;
  return is_mapped(first, last, access);
}

bool is_text(const char* text, u64 limit) {
  for (u64 done = 0; done < limit;) {
    const u64 room = kPage - reinterpret_cast<u64>(text + done) % kPage;
    if (!is_accessible(text + done, room, HostAccess::kRead)) return false;
    if (std::memchr(text + done, 0, room)) return true;
    done += room;
  }
  return false;
}

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
