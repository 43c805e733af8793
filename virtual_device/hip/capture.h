// Stream capture: calls on a capturing stream become nodes of a graph.
#pragma once

#include "hip/runtime.h"

namespace vdev::hip {

// The three return false when the stream is not concerned by a capture, and refuse the call when
// the capture forbids it.
bool capture_command(Runtime& runtime, Stream& stream, Command& command);
bool capture_event_record(Runtime& runtime, Stream& stream, Event& event);
bool capture_event_wait(Runtime& runtime, Stream& stream, Event& event);

// The host must not wait for an event that was last recorded in a capture.
void forbid_captured_event(Runtime& runtime, const Event& event);
// Refuses to wait for a capturing stream.
void forbid_capturing_stream(Runtime& runtime, const Stream& stream);
// Ends the part that a stream which is destroyed had in a capture.
void abandon_capture(Runtime& runtime, Stream& stream);

}  // namespace vdev::hip
