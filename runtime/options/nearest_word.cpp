#include "runtime/options/nearest_word.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ferry {
namespace {

/// The number of changes from one to the other: the optimal string alignment distance.
std::size_t num_changes(std::string_view from, std::string_view to) {
  std::vector<std::size_t> before(to.size() + 1), above(to.size() + 1), row(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1)});
      const bool is_swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (is_swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above.back();
}

}  // namespace

std::optional<std::string> nearest_word(std::string_view word, std::span<const std::string> words) {
  constexpr std::size_t kLongest = 64;  // characters, of any of our words
  if (word.size() > kLongest) return std::nullopt;
  std::size_t fewest = word.size() / 3 + 1;
  std::optional<std::string> nearest;
  for (const std::string& each : words) {
    const std::size_t changes = num_changes(word, each);
    if (changes >= fewest) continue;
    fewest = changes;
    nearest = each;
  }
  return nearest;
}

}  // namespace ferry
