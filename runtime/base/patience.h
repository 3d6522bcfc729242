#pragma once

#include <chrono>
#include <optional>

namespace ferry {

constexpr int kMostPatience = 100;
/// How many times as long as usual a process waits for others, by the text of FERRY_PATIENCE (null if it is not set): a whole
/// number from 1 to kMostPatience. Returns nothing if it is something else.
std::optional<int> parse_patience(const char* text);

/// From here on patient() lengthens times so often. The program calls it before it starts anything.
void set_patience(int times);
/// 1 if it was not set. Any thread may call it.
int patience();

/// The longer time for a `usual` one that no option sets. Hosts that hold processes up for seconds need it.
template <class Rep, class Period>
std::chrono::duration<Rep, Period> patient(std::chrono::duration<Rep, Period> usual) {
  return usual * patience();
}

}  // namespace ferry
