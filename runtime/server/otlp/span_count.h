#pragma once

#include <cstdint>

namespace ferry {

/// What became of requests' spans since the start.
struct SpanCount {
  int64_t sent = 0;
  int64_t dropped_full = 0;    // the queue was full
  int64_t dropped_unsent = 0;  // the collector did not take them, or rejected them
};

}  // namespace ferry
