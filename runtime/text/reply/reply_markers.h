#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/base/types.h"
#include "runtime/text/tokenizer.h"

namespace ferry {

/// What structures a reply of the Qwen family. The first four are tokens of their own where a vocabulary has them.
enum class ReplyTag {
  kThinkBegin,
  kThinkEnd,
  kCallBegin,
  kCallEnd,
  kFunctionBegin,
  kFunctionEnd,
  kParameterBegin,
  kParameterEnd,
};

inline constexpr int kNumReplyTags = 8;
inline constexpr int kNumMarkers = 4;  // tags that may be tokens

/// As it is written: "<think>", "<function=", …
std::string_view text_of(ReplyTag tag);

/// Which tags a vocabulary has as tokens. Such a tag is that token and nothing else: the same text spelled by other tokens is
/// text. A tag that is no token is found by its text.
class ReplyMarkers {
 public:
  explicit ReplyMarkers(const Tokenizer& tokenizer);

  std::optional<ReplyTag> tag_of(TokenId token_id) const;
  bool is_token(ReplyTag tag) const { return id_of(tag).has_value(); }
  std::optional<TokenId> id_of(ReplyTag tag) const;

  /// True if `prompt` ends inside an open think block: what opens one stands behind the last special token (<|im_start|>), so
  /// that words of the conversation count for nothing, and nothing closes it.
  bool ends_in_reasoning(std::span<const TokenId> prompt) const;

 private:
  const Tokenizer* tokenizer_;
  std::array<std::optional<TokenId>, kNumMarkers> ids_;
};

}  // namespace ferry
