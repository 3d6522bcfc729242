#include "runtime/text/detokenizer.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/text/unicode_text.h"

namespace ferry {
namespace {

std::vector<uint32_t> border_lengths(std::string_view pattern) {
  std::vector<uint32_t> border(pattern.size(), 0);
  uint32_t length = 0;
  for (size_t i = 1; i < pattern.size(); ++i) {
    while (length > 0 && pattern[i] != pattern[length]) length = border[length - 1];
    if (pattern[i] == pattern[length]) ++length;
    border[i] = length;
  }
  return border;
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, std::vector<std::string> stop_strings, SpecialTokens special,
                         StopRules rules)
    : tokenizer_(&tokenizer), special_(special), rules_(rules) {
  for (std::string& stop : stop_strings) {
    if (stop.empty()) throw_invalid("stop: a stop string is empty, it must have at least one character");
    if (!is_utf8(stop)) throw_invalid("stop: a stop string is not well-formed UTF-8");
    if (stop.size() > INT32_MAX)
      throw_invalid("stop: a stop string has " + std::to_string(stop.size()) + " bytes; allowed: 2147483647");
    std::vector<uint32_t> border = border_lengths(stop);
    stops_.push_back({std::move(stop), std::move(border), 0});
  }
}

bool Detokenizer::StopMatcher::feed(char c) {
  while (num_matched > 0 && pattern[num_matched] != c) num_matched = border[num_matched - 1];
  if (pattern[num_matched] == c) ++num_matched;
  return num_matched == pattern.size();
}

/// The stop string that ends with `c`, the longest of them; null if none does, or none counts yet.
const Detokenizer::StopMatcher* Detokenizer::feed_stops(char c) {
  const StopMatcher* found = nullptr;
  for (StopMatcher& stop : stops_) {
    if (stop.feed(c) && (found == nullptr || stop.pattern.size() > found->pattern.size())) found = &stop;
  }
  if (found == nullptr || num_tokens_ > rules_.min_tokens) return found;
  for (StopMatcher& stop : stops_) {
    if (stop.num_matched == stop.pattern.size()) stop.num_matched = stop.border.back();
  }
  return nullptr;
}

std::string Detokenizer::advance(std::string_view text) {
  if (stops_.empty()) return std::string(text);
  for (const char c : text) {
    held_text_.push_back(c);
    const StopMatcher* found = feed_stops(c);
    if (found == nullptr) continue;
    stopped_ = true;
    stop_string_ = found->pattern;
    if (rules_.text == StopRules::Text::kCut) held_text_.resize(held_text_.size() - stop_string_.size());
    return std::exchange(held_text_, {});
  }
  size_t num_held = 0;
  for (const StopMatcher& stop : stops_) num_held = std::max(num_held, stop.num_matched);
  std::string shown = held_text_.substr(0, held_text_.size() - num_held);
  held_text_.erase(0, shown.size());
  return shown;
}

std::string Detokenizer::push(TokenId token_id) {
  ++num_tokens_;
  if (stopped_ || (special_ == SpecialTokens::kSkip && tokenizer_->is_special(token_id))) return {};
  partial_character_.append(tokenizer_->token_bytes(token_id));
  std::string text;
  const size_t num_read = append_utf8_lossy(partial_character_, CutCharacter::kKeepBack, text);
  partial_character_.erase(0, num_read);
  return advance(text);
}

std::string Detokenizer::finish() {
  if (stopped_) return {};
  std::string shown = advance(repair_utf8(std::exchange(partial_character_, {})));
  if (!stopped_) shown += std::exchange(held_text_, {});
  return shown;
}

}  // namespace ferry
