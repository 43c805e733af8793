// Recording and awaiting events.
#pragma once

#include "hip/runtime.h"

namespace vdev::hip {

// Both are captured when the stream is capturing.
void record_event(Runtime& runtime, const std::shared_ptr<Stream>& stream,
                  const std::shared_ptr<Event>& event);
void wait_for_event(Runtime& runtime, const std::shared_ptr<Stream>& stream,
                    const std::shared_ptr<Event>& event);

// The latest recording, null when there is none.
std::shared_ptr<EventRecord> last_record(Event& event);
// Makes `record`, which `point` will complete, the latest recording.
void set_record(Event& event, std::shared_ptr<EventRecord> record, const Point& point);
void stamp(const Runtime& runtime, EventRecord& record);

}  // namespace vdev::hip
