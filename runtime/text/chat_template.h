#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ferry {

/// One turn of a conversation.
struct ChatMessage {
  std::string role;     // "system", "user" or "assistant"
  std::string content;  // UTF-8
};

/// Whether the model is to think before it answers.
enum class Thinking {
  kDefault,  // what the checkpoint's template does when it is not told
  kOn,
  kOff,
};

/// Turns a conversation into the prompt that the checkpoint was trained on.
///
/// Jinja is not interpreted. Qwen's templates all write the same form, `<|im_start|>{role}\n{content}<|im_end|>\n` and then
/// `<|im_start|>assistant\n`; where they differ (trimming, the think block, what becomes of earlier reasoning) is read off the
/// template's text. A template that is not recognised as one of these is refused rather than guessed at.
class ChatTemplate {
 public:
  /// Reads chat_template.jinja, else `chat_template` of tokenizer_config.json (a string, or a list of {name, template} of which
  /// "default" counts). Succeeds without a template and with one that is not supported: such a checkpoint still completes
  /// plain text. Throws Error{kInvalidArgument} for a file that cannot be understood.
  static ChatTemplate load(const std::filesystem::path& checkpoint_dir);

  /// Recognises a template from its Jinja text.
  static ChatTemplate parse(std::string_view jinja);

  /// Why render() will refuse every conversation; empty if it will not.
  const std::string& unsupported_reason() const { return unsupported_reason_; }

  /// The prompt for the next assistant turn; tokenise it with Tokenizer::encode. It ends inside an open think block when the
  /// model is to think. Throws Error{kInvalidArgument} for a conversation that the templates refuse (no messages, a system
  /// message that is not the first, no user query, an unknown role), for tool messages, and for a kind of thinking that the
  /// template cannot ask for; {kFailedPrecondition} when there is no template, {kUnimplemented} when it is not supported.
  std::string render(std::span<const ChatMessage> messages, Thinking thinking) const;

 private:
  /// What is written for assistant turns of the past.
  enum class History {
    kAsIs,            // the content
    kDropReasoning,   // what follows the last </think>
    kKeepAfterQuery,  // with a think block after the last user query, else what follows the last </think>
    kKeepAll,         // with a think block always
  };

  /// What each kind of Thinking writes after `<|im_start|>assistant\n`; nothing where the template cannot ask for it.
  struct ThinkPrompts {
    std::optional<std::string> by_default;
    std::optional<std::string> on;
    std::optional<std::string> off;
  };

  static ThinkPrompts recognise_think_prompts(std::string_view generation_part);
  static History recognise_history(std::string_view message_part);

  std::string assistant_turn(std::string_view content, bool is_after_query, bool is_last) const;

  bool has_template_ = false;
  std::string unsupported_reason_;
  bool trims_content_ = false;
  History history_ = History::kAsIs;
  bool keeps_empty_reasoning_ = true;  // false: an empty think block is left out unless the turn is the last one
  ThinkPrompts think_prompts_;
};

}  // namespace ferry
