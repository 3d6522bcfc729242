#include "profiler/report/timeline/report_input.h"

#include <utility>

namespace ferry {

ReportInput::ReportInput(Capture recorded)
    : capture(std::move(recorded)),
      timeline(make_timeline(capture)),
      activity(find_activity(timeline, static_cast<int32_t>(capture.ranks.size()))) {}

}  // namespace ferry
