#include "comm/faulty/event_log.h"

#include <cstdio>

namespace ferry {

void EventLog::add(std::chrono::nanoseconds time, const std::string& line, const std::string& detail) {
  char stamp[32];
  std::snprintf(stamp, sizeof stamp, "%14.6f ms  ", static_cast<double>(time.count()) * 1e-6);
  const std::string text = stamp + line;
  for (const char c : text) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  if (echo_ == Echo::kStderr) std::fprintf(stderr, "%s%s\n", text.c_str(), detail.c_str());
}

}  // namespace ferry
