#pragma once

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

namespace ferry {

/// How long any test waits for anything. It is so long that only a fault outlasts it, also on a busy machine. A test that
/// passes does not take it.
inline constexpr std::chrono::minutes kTestLimit{10};

/// Returns as soon as `condition()` is true. After kTestLimit it fails the test, by an exception that says what it waited for
/// and the state that it saw, as `describe_state` tells it. Use it where nothing notifies: another process, a socket, a file.
template <typename Condition>
void eventually(Condition condition, const std::string& what, const std::function<std::string()>& describe_state = {}) {
  const auto end = std::chrono::steady_clock::now() + kTestLimit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) {
      throw std::runtime_error("waited " + std::to_string(kTestLimit.count()) + " minutes for: " + what +
                               (describe_state ? "; the state is: " + describe_state() : std::string()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace ferry
