#include "runtime/text/reply/reply_parser.h"

#include <algorithm>
#include <utility>

namespace ferry {
namespace {

bool may_be_joined(const ReplyDelta& left, const ReplyDelta& right) {
  const bool is_piece = right.part != ReplyPart::kCallBegin && right.part != ReplyPart::kCallEnd;
  return is_piece && left.part == right.part && left.call_idx == right.call_idx;
}

/// Tokens alone, which the next delta can take along; those of a thought stay apart.
bool is_carried_on(const ReplyDelta& left, const ReplyDelta& right) {
  return left.part == ReplyPart::kContent && left.text.empty() && right.part != ReplyPart::kReasoning;
}

}  // namespace

ReplyParser::ReplyParser(const Tokenizer& tokenizer, const Options& options)
    : markers_(tokenizer),
      spelling_(tokenizer, {}, options.special),
      machine_(markers_, {.tools = options.tools,
                          .parallel_calls = options.parallel_calls,
                          .starts_in_reasoning = options.starts_in_reasoning,
                          .closes_cut_calls = options.closes_cut_calls}) {}

std::vector<ReplyDelta> ReplyParser::push(std::span<const TokenId> token_ids, std::string_view text) {
  for (const TokenId token_id : token_ids) {
    const std::size_t num_bytes = spelling_.push(token_id).size();
    spelled_ += num_bytes;
    std::optional<ReplyTag> tag = markers_.tag_of(token_id);
    if (tag && !machine_.heeds(*tag)) tag.reset();
    // In front of a tag there may be the rest of a character that never became whole.
    const std::size_t own_bytes = tag && num_bytes > 0 ? text_of(*tag).size() : num_bytes;
    queue_.push_back({.text_begin = spelled_ - own_bytes, .text_end = spelled_, .tag = tag});
  }
  text_ += text;
  while (!queue_.empty() && queue_.front().text_end <= num_received()) {
    feed_token(queue_.front(), /*cut=*/false);
    queue_.pop_front();
  }
  const bool waits_for_tag = !queue_.empty() && queue_.front().tag;
  feed_text(waits_for_tag ? std::min(queue_.front().text_begin, num_received()) : num_received());
  return take_deltas();
}

std::vector<ReplyDelta> ReplyParser::finish(bool is_cut) {
  feed_text(num_received());
  for (; !queue_.empty(); queue_.pop_front()) feed_token(queue_.front(), /*cut=*/true);
  machine_.finish(is_cut);
  return take_deltas();
}

void ReplyParser::feed_text(std::size_t end) {
  if (end <= fed_) return;
  const std::string text = text_.substr(0, end - fed_);
  text_.erase(0, text.size());
  fed_ = end;
  machine_.text(text);
}

void ReplyParser::feed_token(const QueuedToken& token, bool cut) {
  const std::size_t first_delta = machine_.deltas().size();
  const ReplyPart before = machine_.part();
  const bool is_marker = token.tag && !cut;
  feed_text(is_marker ? token.text_begin : std::min(token.text_end, num_received()));
  if (is_marker) {
    text_.erase(0, token.text_end - token.text_begin);
    fed_ = token.text_end;
    machine_.marker(*token.tag);
  }
  tell_token(before, is_marker && *token.tag == ReplyTag::kCallBegin, first_delta);
}

void ReplyParser::tell_token(ReplyPart before, bool opens_call, std::size_t first_delta) {
  std::vector<ReplyDelta>& deltas = machine_.deltas();
  const ReplyPart after = machine_.part();
  const bool left_reasoning = before == ReplyPart::kReasoning && after != ReplyPart::kReasoning;
  if (after == ReplyPart::kReasoning || (left_reasoning && !opens_call)) {
    ++reasoning_tokens_;
    const auto place = deltas.begin() + static_cast<std::ptrdiff_t>(first_delta);
    const bool is_told = place != deltas.end() && place->part == ReplyPart::kReasoning;
    const auto delta = is_told ? place : deltas.insert(place, {.part = ReplyPart::kReasoning});
    ++delta->num_tokens;
    return;
  }
  if (deltas.size() == first_delta || deltas.back().part == ReplyPart::kReasoning) {
    deltas.push_back({.part = after, .call_idx = after == ReplyPart::kCallArguments ? machine_.call_idx() : -1});
  }
  ++deltas.back().num_tokens;
}

std::vector<ReplyDelta> ReplyParser::take_deltas() {
  std::vector<ReplyDelta> joined;
  for (ReplyDelta& delta : std::exchange(machine_.deltas(), {})) {
    if (!joined.empty() && may_be_joined(joined.back(), delta)) {
      joined.back().text += delta.text;
      joined.back().num_tokens += delta.num_tokens;
    } else if (!joined.empty() && is_carried_on(joined.back(), delta)) {
      delta.num_tokens += joined.back().num_tokens;
      joined.back() = std::move(delta);
    } else {
      joined.push_back(std::move(delta));
    }
  }
  return joined;
}

void ReplyMessage::add(const ReplyDelta& delta) {
  switch (delta.part) {
    case ReplyPart::kReasoning: reasoning += delta.text; break;
    case ReplyPart::kContent: content += delta.text; break;
    case ReplyPart::kCallBegin: calls.push_back({.name = delta.text}); break;
    case ReplyPart::kCallArguments: calls.at(static_cast<std::size_t>(delta.call_idx)).arguments += delta.text; break;
    case ReplyPart::kCallEnd: {
      Call& call = calls.at(static_cast<std::size_t>(delta.call_idx));
      call.arguments = without_repeated_keys(call.arguments);
      break;
    }
  }
}

}  // namespace ferry
