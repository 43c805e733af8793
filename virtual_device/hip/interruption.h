// Notices that somebody interrupts the process (SIGINT) while a thread waits inside this library.
#pragma once

namespace vdev::hip {

// While one exists, SIGINT is noted on its way to the handler that the application has installed,
// which answers it when the call returns: Python runs its handlers between two instructions of the
// main thread. Where SIGINT has no handler nothing changes.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  // Whether it came since this object was made.
  bool occurred() const;

  // Whether this is the thread that answers signals, the main one.
  static bool is_answered_here();

 private:
  unsigned seen_ = 0;
  bool installed_ = false;
};

}  // namespace vdev::hip
