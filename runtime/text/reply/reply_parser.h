#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/types.h"
#include "runtime/text/detokenizer.h"
#include "runtime/text/reply/reply_machine.h"
#include "runtime/text/reply/reply_markers.h"
#include "runtime/text/tokenizer.h"

namespace ferry {

/// Takes a reply of the Qwen family apart while it arrives: thoughts, content and calls of tools.
///
///     ReplyParser parser(tokenizer, {.tools = &tools, .starts_in_reasoning = markers.ends_in_reasoning(prompt)});
///     for (each event) {
///       for (const ReplyDelta& delta : parser.push(event.token_ids, event.text)) send(delta);
///       if (event.finish_reason != FinishReason::kNone) {
///         for (const ReplyDelta& delta : parser.finish()) send(delta);
///       }
///     }
///
/// Every token is told with exactly one delta, in order: `num_tokens` of the deltas take the tokens that were pushed one after
/// another. A token whose text is held back by whoever looks for stop strings is told once its text is there, at the latest by
/// finish(). How tokens and text are cut into pushes makes no difference to the text, the calls and the tokens of a part, only
/// to how many deltas they come in.
///
/// One thread at a time. The tokenizer and the tools must outlive it.
class ReplyParser {
 public:
  struct Options {
    const ToolSet* tools = nullptr;                // null or empty: nothing is taken for a call
    bool parallel_calls = true;                    // false: calls after the first are dropped
    bool starts_in_reasoning = false;              // ReplyMarkers::ends_in_reasoning() of the prompt
    SpecialTokens special = SpecialTokens::kSkip;  // whether the text shows special tokens
    /// A call of a reply that is cut gets the end that its arguments lack, so that they are JSON. False: they stay as the model
    /// wrote them, so that a client sees that something is missing.
    bool closes_cut_calls = true;
  };

  ReplyParser(const Tokenizer& tokenizer, const Options& options);

  /// Takes the next tokens and the text that has become certain, as events bring them; text may come later than its tokens.
  std::vector<ReplyDelta> push(std::span<const TokenId> token_ids, std::string_view text);

  /// Nothing follows. `is_cut`: the model would have gone on, had it been let. A call that it left open without being cut is
  /// closed. Called once.
  std::vector<ReplyDelta> finish(bool is_cut = false);

  /// Tokens up to and with </think>, of those that were told.
  int32_t reasoning_tokens() const { return reasoning_tokens_; }
  /// Calls that were told of.
  int32_t num_calls() const { return machine_.num_calls(); }

 private:
  struct QueuedToken {
    std::size_t text_begin = 0;   // of its text in the reply's, bytes
    std::size_t text_end = 0;     // the same as text_begin if it is a part of a character, or not shown
    std::optional<ReplyTag> tag;  // what it is a marker of
  };

  std::size_t num_received() const { return fed_ + text_.size(); }
  /// Hands on what is there of the reply up to `end`, a place in the whole text.
  void feed_text(std::size_t end);
  /// Hands on a token whose text is there, or, with `cut`, will never be.
  void feed_token(const QueuedToken& token, bool cut);
  /// Adds a token to the deltas from first_delta on, which it told; `before` is the part that it was met in.
  void tell_token(ReplyPart before, bool opens_call, std::size_t first_delta);
  std::vector<ReplyDelta> take_deltas();

  ReplyMarkers markers_;
  Detokenizer spelling_;  // of the tokens alone: says where in the text a token is
  ReplyMachine machine_;
  std::deque<QueuedToken> queue_;  // tokens that were not told
  std::size_t spelled_ = 0;        // bytes of text of all tokens
  std::size_t fed_ = 0;            // bytes of text that the machine has
  std::string text_;               // what came behind these
  int32_t reasoning_tokens_ = 0;
};

/// A reply as a whole.
struct ReplyMessage {
  struct Call {
    std::string name;
    std::string arguments;  // JSON, an object with each key once; the beginning of one if the reply was cut and not closed

    bool operator==(const Call&) const = default;
  };
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;

  void add(const ReplyDelta& delta);
  bool operator==(const ReplyMessage&) const = default;
};

}  // namespace ferry
