#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace ferry {

/// Rewrites a regex from Oniguruma's syntax (Ruby flavour, as tokenizer.json has it) to one that means the same to PCRE2.
///
/// `\s` and `\S` become the Unicode property White_Space (PCRE2 would add U+180E), and \p{L}, \p{M}, \p{N} get the characters
/// that Unicode 15 and 16 added (PCRE2 10.42 knows Unicode 14). Throws Error{kUnimplemented} for what the two engines
/// understand differently and tokenizers do not use: anchors, look-behind, named groups, `\w`, nested classes and the like.
std::string oniguruma_to_pcre2(std::string_view pattern);

/// Cuts text into the pieces within which byte-pair merges happen: every match of a regex is a piece, and so is whatever lies
/// between two matches (Hugging Face's Split with behaviour "Isolated"). Read-only once made, so any thread may split.
class PreTokenizer {
 public:
  /// `pattern` is in Oniguruma's syntax. Throws Error{kInvalidArgument} if it does not compile, {kUnimplemented} as above.
  explicit PreTokenizer(const std::string& pattern);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  /// Calls `take` with the pieces of `text` in order; together they are all of it, and none is empty. `text` must be
  /// well-formed UTF-8; the pieces point into it. Time is linear in the text, whatever the regex. Throws
  /// Error{kResourceExhausted} that names the regex if all matches together take more steps than are allowed for the text's
  /// length, and whatever `take` and `check_in` throw. The latter, which may be empty, is called every few milliseconds of
  /// matching that takes long.
  void split(std::string_view text, const std::function<void(std::string_view)>& take,
             const std::function<void()>& check_in = {}) const;

 private:
  struct Regex;
  std::unique_ptr<const Regex> regex_;
};

}  // namespace ferry
