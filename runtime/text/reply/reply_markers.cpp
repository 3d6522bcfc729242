#include "runtime/text/reply/reply_markers.h"

#include <algorithm>
#include <string>

namespace ferry {
namespace {

constexpr std::array<std::string_view, kNumReplyTags> kTexts = {"<think>",    "</think>",    "<tool_call>", "</tool_call>",
                                                                "<function=", "</function>", "<parameter=", "</parameter>"};

}  // namespace

std::string_view text_of(ReplyTag tag) { return kTexts[static_cast<std::size_t>(tag)]; }

ReplyMarkers::ReplyMarkers(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {
  for (std::size_t i = 0; i < ids_.size(); ++i) ids_[i] = tokenizer.id_of(kTexts[i]);
}

std::optional<ReplyTag> ReplyMarkers::tag_of(TokenId token_id) const {
  const auto found = std::find(ids_.begin(), ids_.end(), std::optional(token_id));
  if (found == ids_.end()) return std::nullopt;
  return static_cast<ReplyTag>(found - ids_.begin());
}

std::optional<TokenId> ReplyMarkers::id_of(ReplyTag tag) const {
  const auto index = static_cast<std::size_t>(tag);
  return index < ids_.size() ? ids_[index] : std::nullopt;
}

bool ReplyMarkers::ends_in_reasoning(std::span<const TokenId> prompt) const {
  std::size_t begin = prompt.size();
  for (; begin > 0; --begin) {
    const std::optional<ReplyTag> tag = tag_of(prompt[begin - 1]);
    if (tag == ReplyTag::kThinkBegin) return true;
    if (tag == ReplyTag::kThinkEnd) return false;
    if (!tag && tokenizer_->is_special(prompt[begin - 1])) break;
  }
  if (is_token(ReplyTag::kThinkBegin)) return false;
  const std::string tail = tokenizer_->decode(prompt.subspan(begin), SpecialTokens::kSkip);
  const std::size_t opened = tail.rfind(text_of(ReplyTag::kThinkBegin));
  if (opened == std::string::npos) return false;
  return tail.find(text_of(ReplyTag::kThinkEnd), opened) == std::string::npos;
}

}  // namespace ferry
