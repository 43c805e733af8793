#include "hip/interruption.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace vdev::hip {
namespace {

// Only the main thread waits with an Interruption, and one at a time.
std::atomic<unsigned> num_interruptions{0};
struct sigaction application{};

void note(int number, siginfo_t* info, void* context) {
  num_interruptions.fetch_add(1, std::memory_order_relaxed);
  if (application.sa_flags & SA_SIGINFO) {
    application.sa_sigaction(number, info, context);
  } else {
    application.sa_handler(number);
  }
}

}  // namespace

bool Interruption::is_answered_here() { return getpid() == syscall(SYS_gettid); }

Interruption::Interruption() : seen_(num_interruptions.load(std::memory_order_relaxed)) {
  struct sigaction current{};
  if (sigaction(SIGINT, nullptr, &current) != 0) return;
  if (current.sa_handler == SIG_DFL || current.sa_handler == SIG_IGN) return;
  if (current.sa_flags & SA_SIGINFO && current.sa_sigaction == note) return;
  application = current;
  current.sa_sigaction = note;
  current.sa_flags |= SA_SIGINFO;
  installed_ = sigaction(SIGINT, &current, nullptr) == 0;
}

Interruption::~Interruption() {
  struct sigaction current{};
  // Somebody else's handler that came in the meantime stays.
  if (installed_ && sigaction(SIGINT, nullptr, &current) == 0 && current.sa_sigaction == note) {
    sigaction(SIGINT, &application, nullptr);
  }
}

bool Interruption::occurred() const {
  return num_interruptions.load(std::memory_order_relaxed) != seen_;
}

}  // namespace vdev::hip
