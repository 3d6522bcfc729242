#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// Searches whose time grows with the two texts together, not with their product as that of std::string's own does.

namespace ferry {

/// Returns where `wanted` is first in `text` at or after `from`; std::string_view::npos if it is not there.
std::size_t find_text(std::string_view text, std::string_view wanted, std::size_t from = 0);

/// Finds a text from the end of another one. Both must outlive it.
class LastFinder {
 public:
  /// Copies both if `wanted` is long.
  LastFinder(std::string_view text, std::string_view wanted);

  /// Returns where `wanted` is last in the first `end` bytes of the text; std::string_view::npos if it is not there.
  std::size_t find(std::size_t end) const;

 private:
  const std::string_view text_, wanted_;
  std::string reversed_text_, reversed_wanted_;  // of a long one
};

}  // namespace ferry
