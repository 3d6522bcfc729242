#pragma once

#include <algorithm>
#include <cstddef>

#include "tests/fuzz/targets.h"

namespace ferry::fuzz {

/// An input as numbers and bytes, one behind the other; behind its end there are zeros.
class Script {
 public:
  explicit Script(Input input) : rest_(input) {}

  bool has_ended() const { return rest_.empty(); }
  std::size_t number() {
    const std::size_t value = rest_.empty() ? 0 : rest_.front();
    rest_ = rest_.subspan(rest_.empty() ? 0 : 1);
    return value;
  }
  /// Fewer at the end.
  Input bytes(std::size_t count) {
    const Input taken = rest_.first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

 private:
  Input rest_;
};

}  // namespace ferry::fuzz
