#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/jinja/heap.h"

// Python's str methods, as far as filters have them too.

namespace ferry::jinja {

/// Of ASCII.
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Bytes of memory that a change of case takes at most for each byte of a text.
inline constexpr std::size_t kCasedBytes = 6;

enum class Ends { kLeft, kRight, kBoth };

/// Without the characters of `characters` at the ends.
std::string_view strip_characters(std::string_view text, std::string_view characters, Ends ends);

/// str.replace(); a negative count is all.
std::string replaced(std::string_view text, std::string_view before, std::string_view after, int64_t count, Heap& heap);

/// str.splitlines(keepends).
std::vector<std::string_view> lines_of(std::string_view text, bool keeps_ends, Heap& heap);

/// str.split() and .rsplit() at white space, with a count that is not negative; at most `most` cuts.
std::vector<std::string_view> split_at_space(std::string_view text, int64_t most, Ends from, Heap& heap);
/// The same at a separator, which is not empty.
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t most, Ends from, Heap& heap);

/// str.center().
std::string centered(const std::string& text, int64_t width, const std::string& fill, Heap& heap);
/// `fill`, so often that `text` has `width` characters with it.
std::string filling(const std::string& text, int64_t width, const std::string& fill, Heap& heap);

}  // namespace ferry::jinja
