#pragma once

#include <memory>
#include <utility>

#include "runtime/coordinator.h"
#include "runtime/server/log/request_note.h"

namespace ferry {

/// Leaves the figures of one call's requests in a note, by the events that they get. One thread at a time.
class NotedRequests {
 public:
  /// `note` may be null: then nothing is noted.
  explicit NotedRequests(std::shared_ptr<RequestNote> note) : note_(std::move(note)) {}

  /// `sink`, which also notes what it gets. To be called for each request of the call, in their order, before it is submitted.
  EventSink observe(const Request& request, EventSink sink);

 private:
  const std::shared_ptr<RequestNote> note_;
  const Siblings* last_siblings_ = nullptr;
};

}  // namespace ferry
