#pragma once

#include <chrono>
#include <optional>

namespace ferry {

constexpr int kMaxTimeoutFactor = 100;
/// Reads the text of FERRY_TIMEOUT_FACTOR, which is null if the variable is not set. Returns a whole number from 1 up to
/// kMaxTimeoutFactor. Returns nothing if the text is something else.
std::optional<int> parse_timeout_factor(const char* text);

/// Sets the factor of scaled_timeout(). The program calls this before it starts anything.
void set_timeout_factor(int factor);
/// The factor, 1 by default. Any thread may call it.
int timeout_factor();

/// Multiplies a timeout that no option sets. Hosts that suspend processes for seconds need longer ones. Any thread may call it.
template <class Rep, class Period>
std::chrono::duration<Rep, Period> scaled_timeout(std::chrono::duration<Rep, Period> usual) {
  return usual * timeout_factor();
}

}  // namespace ferry
