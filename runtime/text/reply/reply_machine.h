#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/reply/arguments_writer.h"
#include "runtime/text/reply/reply_markers.h"
#include "runtime/text/reply/tool_set.h"

namespace ferry {

enum class ReplyPart { kReasoning, kContent, kCallBegin, kCallArguments, kCallEnd };

/// What became known of a reply.
struct ReplyDelta {
  ReplyPart part = ReplyPart::kContent;
  int32_t call_idx = -1;   // of the kCall… ones; counts from 0
  std::string text;        // of kCallBegin the function's name, of kCallArguments a piece of JSON; may be empty
  int32_t num_tokens = 0;  // how many tokens are told with it
};

/// The state machine over a reply's text and markers:
///
///     REASONING -</think>-> CONTENT -<tool_call>-> PREAMBLE -<function=-> NAME ->-> ARGUMENTS -</function>-> BETWEEN
///                           CONTENT <-----------------------------------------------</tool_call>------------ BETWEEN
///     ARGUMENTS -<parameter=-> PARAMETER NAME ->-> VALUE -</parameter>-> ARGUMENTS
///
/// and what models do instead: <tool_call> inside a thought ends it; a second </think> is dropped; <function=NAME> with the
/// name of a tool needs no <tool_call>; the begin or end of a call or function ends all that is open, the next <parameter= the
/// value before it. White space at the edges of thoughts, behind </think> and around calls is dropped, and so is one line
/// break at each end of a value. What looks like the beginning of a call and is none is content.
class ReplyMachine {
 public:
  struct Options {
    const ToolSet* tools = nullptr;  // null or empty: nothing is taken for a call
    bool parallel_calls = true;      // false: calls after the first are dropped
    bool starts_in_reasoning = false;
    bool closes_cut_calls = true;  // see ReplyParser::Options
  };

  /// `markers` says which tags come as tokens, by marker(); the others are found in the text.
  ReplyMachine(const ReplyMarkers& markers, const Options& options);

  void text(std::string_view text);
  /// A tag that is a token, one that it heeds.
  void marker(ReplyTag tag);
  /// Nothing follows. `is_cut`: more would have.
  void finish(bool is_cut);

  /// False for the tags of calls where there are no tools: they are text.
  bool heeds(ReplyTag tag) const;

  /// What became known, for the caller to take.
  std::vector<ReplyDelta>& deltas() { return deltas_; }

  /// What a token that tells nothing belongs to: kReasoning, kContent or, inside a call's arguments, kCallArguments.
  ReplyPart part() const;
  /// Of the call that began last.
  int32_t call_idx() const { return num_begun_ - 1; }
  int32_t num_calls() const { return num_told_; }

 private:
  enum class State { kReasoning, kContent, kPreamble, kName, kArguments, kParameterName, kValue, kBetween };
  enum class Match { kNone, kPartial, kWhole };

  /// Takes one piece off the front of pending_: text without a tag, a tag, or a name. False if more text is needed.
  bool step();
  bool step_name();
  Match match_tag(std::string_view text, ReplyTag& tag) const;
  std::string take_pending(std::size_t num_bytes);

  void on_plain(std::string_view text);
  void on_tag(ReplyTag tag);
  void on_tag_in_reasoning(ReplyTag tag);
  void on_tag_in_content(ReplyTag tag);
  void on_tag_in_preamble(ReplyTag tag);
  void on_tag_in_arguments(ReplyTag tag);
  void on_tag_in_value(ReplyTag tag);
  void on_tag_in_between(ReplyTag tag);

  void end_reasoning();
  void open_preamble();
  void open_name(State outside);
  /// Takes num_bytes of pending_ for a name; `closed` if > stood behind it.
  void end_name(std::size_t num_bytes, bool closed);
  void end_parameter_name(std::size_t num_bytes);
  void give_back(std::string_view text);
  void begin_call(std::string_view name);
  void end_call(State next);
  void cut_call();
  void end_value();
  bool finds_calls() const { return options_.tools != nullptr && !options_.tools->empty(); }
  bool call_is_told() const { return options_.parallel_calls || num_begun_ == 1; }

  void say_reasoning(std::string_view text);
  void say_content(std::string_view text);
  void say_value(std::string_view text);
  void tell(ReplyPart part, std::string_view text);
  void tell_arguments(std::string_view json);

  ReplyMarkers markers_;
  Options options_;
  std::vector<ReplyDelta> deltas_;
  State state_;
  std::string pending_;  // text that was not taken, since it may be a part of a tag or of a name

  std::string held_space_;           // white space that only counts if more of the same part follows
  bool reasoning_said_ = false;      // there was text in this thought
  bool content_said_ = false;        // there was content
  bool content_is_trimmed_ = false;  // white space before the first content is dropped
  bool follows_call_ = false;        // nothing was said since the last call

  State outside_ = State::kContent;  // of a name: kContent if <function= stood there without <tool_call>
  std::string opening_;              // the text of a call that has no name yet; content, if it turns out to be none
  int32_t num_begun_ = 0;
  int32_t num_told_ = 0;
  ArgumentsWriter writer_;
  bool value_begun_ = false;
  bool value_ends_line_ = false;  // a line break was held back
};

}  // namespace ferry
