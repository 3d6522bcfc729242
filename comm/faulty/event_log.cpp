#include "comm/faulty/event_log.h"

#include <cstdio>

namespace ferry {

void EventLog::add(std::chrono::nanoseconds time, const std::string& line, const std::string& detail) {
  char stamp[32];
  std::snprintf(stamp, sizeof stamp, "%14.6f ms  ", static_cast<double>(time.count()) * 1e-6);
  lines_.push_back(stamp + line);
  for (const char c : lines_.back()) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  lines_.back() += detail;
  if (echo_ == Echo::kStderr) std::fprintf(stderr, "%s\n", lines_.back().c_str());
}

}  // namespace ferry
