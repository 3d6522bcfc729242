#include "profiler/report/timeline/report_input.h"

#include <utility>

#include "profiler/report/critical_path/critical_path.h"

namespace ferry {

ReportInput::ReportInput(Capture recorded)
    : capture(std::move(recorded)),
      timeline(make_timeline(capture)),
      activity(find_activity(timeline, static_cast<int32_t>(capture.ranks.size()))),
      critical_path(find_critical_path(*this)) {}  // which reads what is made before

}  // namespace ferry
