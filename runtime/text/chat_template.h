#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

/// A conversation to be written as a prompt.
struct ChatInput {
  /// Objects in OpenAI's form: `role`, `content` (a string, or a list of {"type": "text", "text": …}, {"type": "image"} and
  /// {"type": "video"}), `tool_calls` with arguments that are objects, `reasoning_content`, and what else a template asks for.
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools = nullptr;                            // a list of functions in OpenAI's form, or null
  nlohmann::ordered_json kwargs = nlohmann::ordered_json::object();  // further variables of the template
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the prompt ends where the last message's text does
  /// Whether the model is to think before it answers: the template's variable enable_thinking; refused where the template can
  /// only do the opposite. Absent: as kwargs and the template have it.
  std::optional<bool> thinking;
};

/// Turns a conversation into the prompt that the checkpoint was trained on.
///
/// Jinja is not interpreted. Qwen's templates and their like all write the same form,
/// `<|im_start|>{role}\n{content}<|im_end|>\n` and then `<|im_start|>assistant\n`; where they differ (a token before it all,
/// trimming, the think block, what becomes of earlier reasoning) is read off the template's text. A template that is not
/// recognised as one of these is refused rather than guessed at.
class ChatTemplate {
 public:
  /// Reads chat_template.jinja, else `chat_template` of tokenizer_config.json (a string, or a list of {name, template} of which
  /// "default" counts), and `bos_token` of that file, else of special_tokens_map.json. Succeeds without a template and with one
  /// that is not supported: such a checkpoint still completes plain text. Throws Error{kInvalidArgument} for a file that cannot
  /// be understood.
  static ChatTemplate load(const std::filesystem::path& checkpoint_dir);

  /// Recognises a template from its Jinja text. `bos_token` is what it writes at the very beginning, if it does.
  static ChatTemplate parse(std::string_view jinja, std::string_view bos_token = "");

  /// Why render() will refuse every conversation; empty if it will not.
  const std::string& unsupported_reason() const { return unsupported_reason_; }

  /// The prompt for the next assistant turn; tokenise it with Tokenizer::encode, not encode_prompt. It ends inside an open
  /// think block when the model is to think. `check_in` is called now and then; what it throws ends the call. Throws Error{kInvalidArgument} for a conversation that the templates refuse (no
  /// messages, a system message that is not the first, no user query, an unknown role), for tool messages, and for a kind of
  /// thinking that the template cannot ask for; {kFailedPrecondition} when there is no template, {kUnimplemented} when it is
  /// not supported.
  std::string render(const ChatInput& input, const std::function<void()>& check_in = {}) const;

 private:
  /// One turn of a conversation.
  struct Message {
    std::string role;     // "system", "user" or "assistant"
    std::string content;  // UTF-8
  };

  /// What is written for assistant turns of the past.
  enum class History {
    kAsIs,            // the content
    kDropReasoning,   // what follows the last </think>
    kKeepAfterQuery,  // with a think block after the last user query, else what follows the last </think>
    kKeepAll,         // with a think block always
    kKeepLastTurn,    // the content in the last assistant turn, before it what follows the last </think>, trimmed
    kKeepAfterUser,   // the content after the last user message, before it what follows the last </think>, trimmed
  };

  /// Where in a conversation a message stands.
  struct Place {
    bool is_after_query = false;  // the last one of the user's that is no tool's answer
    bool is_after_user = false;   // the last message of the user's
    bool is_last_turn = false;    // the last one of the assistant's
    bool is_last = false;
  };

  /// What each kind of Thinking writes after `<|im_start|>assistant\n`; nothing where the template cannot ask for it.
  struct ThinkPrompts {
    std::optional<std::string> by_default;
    std::optional<std::string> on;
    std::optional<std::string> off;
  };

  static ThinkPrompts recognise_think_prompts(std::string_view generation_part);
  static History recognise_history(std::string_view message_part);
  static History recognise_trimming_history(std::string message_part);
  void recognise(std::string_view text, std::string_view bos_token);

  static std::vector<Message> messages_of(const ChatInput& input);
  static bool is_query(const Message& message, std::string_view content);
  static void check_role(const Message& message, size_t message_idx);
  std::string assistant_turn(std::string_view content, const Place& place) const;

  bool has_template_ = false;
  std::string unsupported_reason_;
  std::string bos_token_;  // what is written before it all
  bool omits_empty_system_prompt_ = false;
  bool trims_content_ = false;
  History history_ = History::kAsIs;
  bool keeps_empty_reasoning_ = true;  // false: an empty think block is left out unless the turn is the last one
  ThinkPrompts think_prompts_;
};

/// Whether a rendered prompt ends inside a think block: `<think>` was written last, and neither `</think>` nor the token of a
/// turn's end (`<|…|>`) behind it.
bool ends_in_thinking(std::string_view prompt);

}  // namespace ferry
