#include "runtime/text/reply/reply_machine.h"

#include <algorithm>
#include <utility>

namespace ferry {
namespace {

constexpr std::string_view kWhiteSpace = " \t\n\r\f\v";
constexpr std::size_t kMaxNameBytes = 256;  // what is longer is no name

bool is_blank(std::string_view text) { return text.find_first_not_of(kWhiteSpace) == std::string_view::npos; }

/// Bytes of `text` before the white space at its end.
std::size_t length_without_space(std::string_view text) { return text.find_last_not_of(kWhiteSpace) + 1; }

std::size_t leading_space(std::string_view text) { return std::min(text.find_first_not_of(kWhiteSpace), text.size()); }

std::string_view stripped(std::string_view text) {
  text.remove_prefix(leading_space(text));
  return text.substr(0, length_without_space(text));
}

bool is_of_think_block(ReplyTag tag) { return tag == ReplyTag::kThinkBegin || tag == ReplyTag::kThinkEnd; }

}  // namespace

ReplyMachine::ReplyMachine(const ReplyMarkers& markers, const Options& options)
    : markers_(markers), options_(options), state_(options.starts_in_reasoning ? State::kReasoning : State::kContent) {}

bool ReplyMachine::heeds(ReplyTag tag) const { return finds_calls() || is_of_think_block(tag); }

ReplyPart ReplyMachine::part() const {
  if (state_ == State::kReasoning) return ReplyPart::kReasoning;
  const bool in_arguments = state_ == State::kArguments || state_ == State::kParameterName || state_ == State::kValue;
  return in_arguments && call_is_told() ? ReplyPart::kCallArguments : ReplyPart::kContent;
}

void ReplyMachine::text(std::string_view text) {
  pending_ += text;
  while (step()) {
  }
}

void ReplyMachine::marker(ReplyTag tag) {
  if (state_ == State::kName) {
    end_name(pending_.size(), /*closed=*/false);
  } else if (state_ == State::kParameterName) {
    pending_.clear();
    state_ = State::kArguments;
  } else {
    on_plain(take_pending(pending_.size()));
  }
  on_tag(tag);
}

void ReplyMachine::finish(bool is_cut) {
  const std::string rest = take_pending(pending_.size());
  switch (state_) {
    case State::kReasoning:
    case State::kContent: on_plain(rest); break;
    case State::kName:
      if (outside_ == State::kContent) give_back(opening_ + rest);
      break;
    case State::kValue:
    case State::kArguments:
    case State::kParameterName:
      if (is_cut && !options_.closes_cut_calls) {
        cut_call();
      } else {
        if (state_ == State::kValue) end_value();
        end_call(State::kBetween);
      }
      break;
    case State::kPreamble:
    case State::kBetween: break;
  }
  const bool space_counts = state_ == State::kContent && !follows_call_ && (content_said_ || !content_is_trimmed_);
  if (space_counts) tell(ReplyPart::kContent, held_space_);
  held_space_.clear();
}

std::string ReplyMachine::take_pending(std::size_t num_bytes) {
  std::string taken = pending_.substr(0, num_bytes);
  pending_.erase(0, num_bytes);
  return taken;
}

ReplyMachine::Match ReplyMachine::match_tag(std::string_view text, ReplyTag& tag) const {
  for (int i = 0; i < kNumReplyTags; ++i) {
    tag = static_cast<ReplyTag>(i);
    if (markers_.is_token(tag) || !heeds(tag)) continue;
    const std::string_view tag_text = text_of(tag);
    if (text.starts_with(tag_text)) return Match::kWhole;
    if (tag_text.starts_with(text)) return Match::kPartial;
  }
  return Match::kNone;
}

bool ReplyMachine::step() {
  if (pending_.empty()) return false;
  if (state_ == State::kName || state_ == State::kParameterName) return step_name();
  const std::size_t begin = pending_.find('<');
  if (begin == std::string::npos) {
    on_plain(take_pending(pending_.size()));
    return false;
  }
  ReplyTag tag{};
  switch (match_tag(std::string_view(pending_).substr(begin), tag)) {
    case Match::kNone: on_plain(take_pending(begin + 1)); return true;
    case Match::kPartial: on_plain(take_pending(begin)); return false;
    case Match::kWhole: break;
  }
  on_plain(take_pending(begin));
  take_pending(text_of(tag).size());
  on_tag(tag);
  return true;
}

/// A name ends at >, or, where that was forgotten, at the line's end or at the next tag.
bool ReplyMachine::step_name() {
  const std::size_t end = pending_.find_first_of(">\n<");
  const bool is_function = state_ == State::kName;
  if (std::min(end, pending_.size()) > kMaxNameBytes) {
    if (is_function) end_name(kMaxNameBytes, /*closed=*/false);
    state_ = is_function ? state_ : State::kArguments;
    return true;
  }
  if (end == std::string::npos) return false;
  if (pending_[end] == '<') {
    ReplyTag tag{};
    if (match_tag(std::string_view(pending_).substr(end), tag) == Match::kPartial) return false;
    if (is_function) {
      end_name(end, /*closed=*/false);
    } else {
      take_pending(end);
      state_ = State::kArguments;
    }
    return true;
  }
  const bool closed = pending_[end] == '>';
  if (closed) pending_.erase(end, 1);
  if (is_function) {
    end_name(end, closed);
  } else {
    end_parameter_name(end);
  }
  return true;
}

void ReplyMachine::end_name(std::size_t num_bytes, bool closed) {
  const std::string written = take_pending(num_bytes);
  const std::string_view name = stripped(written);
  const bool is_call = options_.tools->find(name) != nullptr || (closed && outside_ != State::kContent && !name.empty());
  if (is_call) {
    begin_call(name);
  } else {
    give_back(opening_ + written + (closed ? ">" : ""));
  }
}

void ReplyMachine::end_parameter_name(std::size_t num_bytes) {
  const std::string written = take_pending(num_bytes);
  const std::string_view name = stripped(written);
  state_ = State::kArguments;
  if (name.empty()) return;
  state_ = State::kValue;
  value_begun_ = false;
  value_ends_line_ = false;
  std::string json;
  writer_.begin(name, json);
  tell_arguments(json);
}

void ReplyMachine::on_plain(std::string_view text) {
  if (text.empty()) return;
  switch (state_) {
    case State::kReasoning: say_reasoning(text); break;
    case State::kContent: say_content(text); break;
    case State::kPreamble:
      if (is_blank(text)) {
        opening_ += text;
      } else {
        give_back(opening_ + std::string(text));
      }
      break;
    case State::kValue: say_value(text); break;
    case State::kBetween:
      if (is_blank(text)) {
        held_space_ += text;
      } else {
        state_ = State::kContent;
        say_content(text);
      }
      break;
    case State::kName:
    case State::kArguments:
    case State::kParameterName: break;  // means nothing there
  }
}

void ReplyMachine::on_tag(ReplyTag tag) {
  switch (state_) {
    case State::kReasoning: on_tag_in_reasoning(tag); break;
    case State::kContent: on_tag_in_content(tag); break;
    case State::kPreamble: on_tag_in_preamble(tag); break;
    case State::kArguments: on_tag_in_arguments(tag); break;
    case State::kValue: on_tag_in_value(tag); break;
    case State::kBetween: on_tag_in_between(tag); break;
    case State::kName:
    case State::kParameterName: break;  // a name has ended before
  }
}

void ReplyMachine::on_tag_in_reasoning(ReplyTag tag) {
  if (tag == ReplyTag::kThinkBegin) return;
  if (tag == ReplyTag::kThinkEnd) {
    end_reasoning();
  } else if (tag == ReplyTag::kCallBegin) {
    end_reasoning();
    open_preamble();
  } else {
    say_reasoning(text_of(tag));
  }
}

void ReplyMachine::on_tag_in_content(ReplyTag tag) {
  if (tag == ReplyTag::kCallEnd) return;
  if (tag == ReplyTag::kThinkEnd) {
    if (!content_said_) end_reasoning();
  } else if (tag == ReplyTag::kThinkBegin && !content_said_ && num_begun_ == 0) {
    held_space_.clear();
    state_ = State::kReasoning;
  } else if (tag == ReplyTag::kCallBegin) {
    open_preamble();
  } else if (tag == ReplyTag::kFunctionBegin) {
    opening_.clear();
    open_name(State::kContent);
  } else {
    say_content(text_of(tag));
  }
}

void ReplyMachine::on_tag_in_preamble(ReplyTag tag) {
  if (is_of_think_block(tag)) return;
  if (tag == ReplyTag::kFunctionBegin) {
    open_name(State::kPreamble);
  } else if (tag == ReplyTag::kCallBegin) {
    open_preamble();
  } else if (tag == ReplyTag::kCallEnd) {
    state_ = State::kContent;
  } else {
    give_back(opening_ + std::string(text_of(tag)));
  }
}

void ReplyMachine::on_tag_in_arguments(ReplyTag tag) {
  switch (tag) {
    case ReplyTag::kParameterBegin: state_ = State::kParameterName; break;
    case ReplyTag::kFunctionEnd: end_call(State::kBetween); break;
    case ReplyTag::kCallBegin:
    case ReplyTag::kCallEnd:
    case ReplyTag::kFunctionBegin:
      end_call(State::kBetween);
      on_tag_in_between(tag);
      break;
    case ReplyTag::kThinkBegin:
    case ReplyTag::kThinkEnd:
    case ReplyTag::kParameterEnd: break;
  }
}

void ReplyMachine::on_tag_in_value(ReplyTag tag) {
  if (is_of_think_block(tag)) {
    say_value(text_of(tag));
    return;
  }
  end_value();
  on_tag_in_arguments(tag);
}

void ReplyMachine::on_tag_in_between(ReplyTag tag) {
  if (tag == ReplyTag::kCallBegin) {
    open_preamble();
  } else if (tag == ReplyTag::kFunctionBegin) {
    opening_.clear();
    open_name(State::kBetween);
  } else if (tag == ReplyTag::kCallEnd) {
    held_space_.clear();
    state_ = State::kContent;
  }
}

void ReplyMachine::end_reasoning() {
  held_space_.clear();
  reasoning_said_ = false;
  content_is_trimmed_ = true;
  state_ = State::kContent;
}

void ReplyMachine::open_preamble() {
  opening_ = text_of(ReplyTag::kCallBegin);
  state_ = State::kPreamble;
}

void ReplyMachine::open_name(State outside) {
  opening_ += text_of(ReplyTag::kFunctionBegin);
  outside_ = outside;
  state_ = State::kName;
}

void ReplyMachine::give_back(std::string_view text) {
  state_ = State::kContent;
  say_content(text);
  opening_.clear();
}

void ReplyMachine::begin_call(std::string_view name) {
  held_space_.clear();
  content_is_trimmed_ = true;
  state_ = State::kArguments;
  writer_ = ArgumentsWriter(options_.tools->find(name));
  ++num_begun_;
  if (!call_is_told()) return;
  ++num_told_;
  deltas_.push_back({.part = ReplyPart::kCallBegin, .call_idx = call_idx(), .text = std::string(name)});
}

void ReplyMachine::end_call(State next) {
  std::string json;
  writer_.close(json);
  tell_arguments(json);
  if (call_is_told()) deltas_.push_back({.part = ReplyPart::kCallEnd, .call_idx = call_idx()});
  state_ = next;
  follows_call_ = true;
}

void ReplyMachine::cut_call() {
  std::string json;
  writer_.cut(json);
  tell_arguments(json);
  if (call_is_told()) deltas_.push_back({.part = ReplyPart::kCallEnd, .call_idx = call_idx()});
  state_ = State::kBetween;
}

void ReplyMachine::end_value() {
  std::string json;
  writer_.end(json);
  tell_arguments(json);
  state_ = State::kArguments;
}

void ReplyMachine::say_reasoning(std::string_view text) {
  std::string said = std::exchange(held_space_, {}) + std::string(text);
  if (!reasoning_said_) said.erase(0, leading_space(said));
  held_space_ = said.substr(length_without_space(said));
  said.resize(length_without_space(said));
  reasoning_said_ = reasoning_said_ || !said.empty();
  tell(ReplyPart::kReasoning, said);
}

void ReplyMachine::say_content(std::string_view text) {
  std::string said = std::exchange(held_space_, {}) + std::string(text);
  if (!content_said_ && content_is_trimmed_) said.erase(0, leading_space(said));
  if (!content_said_ || finds_calls()) {
    held_space_ = said.substr(length_without_space(said));
    said.resize(length_without_space(said));
  }
  if (said.empty()) return;
  content_said_ = true;
  follows_call_ = false;
  tell(ReplyPart::kContent, said);
}

void ReplyMachine::say_value(std::string_view text) {
  if (!value_begun_ && text.starts_with('\n')) text.remove_prefix(1);
  value_begun_ = true;
  if (text.empty()) return;
  std::string piece = value_ends_line_ ? "\n" : "";
  value_ends_line_ = text.ends_with('\n');
  if (value_ends_line_) text.remove_suffix(1);
  piece += text;
  std::string json;
  writer_.value(piece, json);
  tell_arguments(json);
}

void ReplyMachine::tell(ReplyPart part, std::string_view text) {
  if (!text.empty()) deltas_.push_back({.part = part, .text = std::string(text)});
}

void ReplyMachine::tell_arguments(std::string_view json) {
  if (json.empty() || !call_is_told()) return;
  deltas_.push_back({.part = ReplyPart::kCallArguments, .call_idx = call_idx(), .text = std::string(json)});
}

}  // namespace ferry
