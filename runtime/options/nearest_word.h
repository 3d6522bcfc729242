#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ferry {

/// Returns which of `words` was meant by `word`: the one that needs the fewest changes, where a change adds, drops or replaces
/// a character or swaps two neighbours. Returns nothing if all need more than one for three characters of `word`.
std::optional<std::string> nearest_word(std::string_view word, std::span<const std::string> words);

}  // namespace ferry
