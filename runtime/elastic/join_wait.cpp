#include "runtime/elastic/join_wait.h"

namespace ferry {

void JoinWait::begin(std::chrono::milliseconds limit) {
  start_ = clock_.now();
  limit_ = limit;
  next_line_ = start_ + kLinePeriod;
}

std::optional<std::string> JoinWait::take_line() {
  using std::chrono::duration_cast;
  using std::chrono::seconds;
  const Clock::Time now = clock_.now();
  if (!next_line_ || now < *next_line_) return std::nullopt;
  next_line_ = now + kLinePeriod;
  return "waits for a coordinator at " + address_ + ": " + std::to_string(duration_cast<seconds>(now - start_).count()) +
         " of " + std::to_string(std::chrono::ceil<seconds>(limit_).count()) + " s";
}

}  // namespace ferry
