#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/text/jinja/template.h"

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

/// Turns a conversation into the prompt that the checkpoint was trained on, by the checkpoint's own Jinja template
/// (runtime/text/README.md says what of Jinja there is). Any thread may call any method.
class ChatTemplate {
 public:
  /// Reads chat_template.jinja, else `chat_template` of tokenizer_config.json: a string, or a list of {name, template} of which
  /// "default" counts, and "tool_use" for conversations with tools. Special tokens (`bos_token` and the like), which templates
  /// have as variables, come from that file or else from special_tokens_map.json. Succeeds without a template and with one that
  /// cannot be understood: such a checkpoint still completes plain text. Throws Error{kInvalidArgument} for a file that cannot
  /// be read.
  static ChatTemplate load(const std::filesystem::path& checkpoint_dir);

  /// A template from its text; `special_tokens` is an object of strings by their names.
  static ChatTemplate parse(std::string_view jinja, nlohmann::ordered_json special_tokens = nlohmann::ordered_json::object());

  /// Why render() will refuse every conversation without tools; empty if it will not.
  const std::string& unsupported_reason() const { return default_.unsupported_reason; }

  /// Whether the template looks through the parts of a message's content. Otherwise render() makes one text of them, with line
  /// breaks between, and refuses pictures and videos.
  bool takes_parts() const { return default_.takes_parts; }

  /// The prompt; tokenise it with Tokenizer::encode, not encode_prompt. `check_in` is called now and then; what it throws ends
  /// the call. Throws Error{kInvalidArgument} with the template's own words for a conversation that it refuses, with what went
  /// wrong and in which line where it fails, and for a kind of thinking that it cannot ask for; {kFailedPrecondition} when
  /// there is no template, {kUnimplemented} when it cannot be understood.
  std::string render(const ChatInput& input, const std::function<void()>& check_in = {}) const;

 private:
  /// One of the checkpoint's templates.
  struct Variant {
    explicit Variant(std::string_view jinja);
    Variant() = default;

    std::optional<jinja::Template> program;  // nothing if there is none, or if it cannot be understood
    std::string unsupported_reason;
    bool takes_parts = false;
    bool knows_enable_thinking = false;
  };

  const Variant& variant_for(const ChatInput& input) const;
  std::string render(const Variant& variant, const ChatInput& input, const std::function<void()>& check_in) const;

  Variant default_;
  std::optional<Variant> tool_use_;
  nlohmann::ordered_json special_tokens_ = nlohmann::ordered_json::object();
};

/// Whether a rendered prompt ends inside a think block: `<think>` was written last, and neither `</think>` nor the token of a
/// turn's end (`<|…|>`) behind it.
bool ends_in_thinking(std::string_view prompt);

}  // namespace ferry
