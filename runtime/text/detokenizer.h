#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/types.h"
#include "runtime/text/tokenizer.h"

namespace ferry {

/// Which stop strings end a text, and what becomes of them.
struct StopRules {
  int64_t min_tokens = 0;  // one that ends in the text of the first so many tokens does not count
  enum class Text : uint8_t { kCut, kKept } text = Text::kCut;  // whether the string is part of the text
};

/// Turns one request's tokens into text while they arrive, and watches for its stop strings.
///
/// Every piece that comes out is well-formed UTF-8, and all pieces together are Tokenizer::decode() of all tokens, up to the
/// first stop string. Held back are the bytes of a character that is not complete yet (at most 3) and text that may turn out
/// to be the beginning of a stop string. The stop string that ends first counts; of those that end at the same place, the
/// longest. Where tokens begin and end makes no difference to that.
///
///     Detokenizer detokenizer(tokenizer, request.stop, SpecialTokens::kSkip);
///     for (each new token) {
///       send(detokenizer.push(token_id));
///       if (detokenizer.stopped()) break;
///     }
///     send(detokenizer.finish());
///
/// One thread at a time. The tokenizer must outlive the detokenizer.
class Detokenizer {
 public:
  /// Throws Error{kInvalidArgument} for a stop string that is empty, not UTF-8 or longer than 2^31 bytes. Each byte of one
  /// takes
  /// 5 bytes of memory.
  Detokenizer(const Tokenizer& tokenizer, std::vector<std::string> stop_strings, SpecialTokens special, StopRules rules = {});

  /// Takes the next token; returns the text that became safe to show, often empty. After a stop string: always empty.
  std::string push(TokenId token_id);

  /// True once a stop string was found. The text before it, or up to its end, has been returned; what follows never will be.
  bool stopped() const { return stopped_; }
  /// The one that was found; empty if none was.
  const std::string& stop_string() const { return stop_string_; }

  /// No token follows: returns what is held back, an incomplete character as U+FFFD. Empty after a stop string.
  std::string finish();

 private:
  /// A stop string and how much of it the text ends with: a Knuth-Morris-Pratt automaton, so that each byte costs O(1).
  struct StopMatcher {
    std::string pattern;
    std::vector<uint32_t> border;  // [pattern.size()], longest proper border of the first i + 1 bytes
    size_t num_matched = 0;        // bytes of `pattern` that the text so far ends with

    /// Whether the text now ends with the whole of it.
    bool feed(char c);
  };

  const StopMatcher* feed_stops(char c);
  /// Takes `text` (whole characters) in; returns what can be shown.
  std::string advance(std::string_view text);

  const Tokenizer* tokenizer_;
  SpecialTokens special_;
  std::vector<StopMatcher> stops_;
  std::string partial_character_;  // bytes that may become a character
  std::string held_text_;          // whole characters that a stop string may begin with
  StopRules rules_;
  int64_t num_tokens_ = 0;  // pushed
  bool stopped_ = false;
  std::string stop_string_;
};

}  // namespace ferry
