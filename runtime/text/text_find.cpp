#include "runtime/text/text_find.h"

#include <cstring>

namespace ferry {
namespace {

constexpr std::size_t kShortBytes = 32;  // compared at each place of a text, they are found soon enough

}  // namespace

std::size_t find_text(std::string_view text, std::string_view wanted, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (wanted.empty()) return from;
  const void* const found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  return found == nullptr ? std::string_view::npos : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

LastFinder::LastFinder(std::string_view text, std::string_view wanted) : text_(text), wanted_(wanted) {
  if (wanted.size() <= kShortBytes || wanted.size() > text.size()) return;
  reversed_text_.assign(text.rbegin(), text.rend());
  reversed_wanted_.assign(wanted.rbegin(), wanted.rend());
}

std::size_t LastFinder::find(std::size_t end) const {
  if (reversed_wanted_.empty()) return text_.substr(0, end).rfind(wanted_);
  const std::size_t found = find_text(reversed_text_, reversed_wanted_, text_.size() - end);
  return found == std::string_view::npos ? found : text_.size() - found - wanted_.size();
}

}  // namespace ferry
