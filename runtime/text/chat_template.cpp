#include "runtime/text/chat_template.h"

#include <algorithm>
#include <array>
#include <map>

#include "runtime/base/error.h"
#include "runtime/base/is_there.h"
#include "runtime/base/json.h"
#include "runtime/text/jinja/json_values.h"
#include "runtime/text/jinja/walk.h"
#include "runtime/text/text_find.h"
#include "runtime/text/unicode_text.h"

namespace ferry {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kThinkOpen = "<think>";
constexpr std::string_view kThinkClose = "</think>";

/// Written behind the last message's text, to find in the prompt where that ends (as transformers does it). Where a template
/// strips the text, the blank goes.
constexpr std::string_view kEndMark = "CONTINUE_FINAL_MESSAGE_TAG ";

bool has(std::string_view text, std::string_view what) { return find_text(text, what) != std::string_view::npos; }

/// The object in a file, empty if there is no such file.
json object_in(const std::filesystem::path& path) {
  if (!is_there(path)) return json::object();
  json object = read_json_file(path);
  if (!object.is_object()) throw_invalid(path.string() + " is not a JSON object");
  return object;
}

/// The text that a special token stands for: a string, or an added token with its content.
std::optional<std::string> token_text(const json& token) {
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object() && token.contains("content") && token["content"].is_string())
    return token["content"].get<std::string>();
  return std::nullopt;
}

/// The special tokens that a checkpoint names, by the names that templates have for them.
ordered_json special_tokens_of(const std::filesystem::path& checkpoint_dir) {
  constexpr std::array<const char*, 7> kNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                 "pad_token", "cls_token", "mask_token"};
  ordered_json tokens = ordered_json::object();
  for (const char* file : {"special_tokens_map.json", "tokenizer_config.json"}) {  // the last one wins
    const json config = object_in(checkpoint_dir / file);
    for (const char* name : kNames)
      if (const auto text = token_text(config.value(name, json()))) tokens[name] = *text;
    const json more = config.value("extra_special_tokens", json());
    if (!more.is_object()) continue;
    for (const auto& [name, token] : more.items())
      if (const auto text = token_text(token)) tokens[name] = *text;
  }
  return tokens;
}

/// The texts of the templates in tokenizer_config.json by their names.
std::map<std::string, std::string> templates_of_config(const std::filesystem::path& path) {
  const json config = object_in(path);
  const json chat_template = config.value("chat_template", json());
  if (chat_template.is_null()) return {};
  if (chat_template.is_string()) return {{"default", chat_template.get<std::string>()}};
  if (!chat_template.is_array()) throw_invalid(path.string() + ": chat_template must be a string or a list");
  std::map<std::string, std::string> templates;
  for (const json& entry : chat_template) {
    if (!entry.is_object()) continue;
    const json name = entry.value("name", json()), text = entry.value("template", json());
    if (name.is_string() && text.is_string()) templates.emplace(name.get<std::string>(), text.get<std::string>());
  }
  return templates;
}

/// A list of parts as one text.
std::string flat_text(const ordered_json& parts, std::size_t message_idx) {
  std::string text;
  for (const ordered_json& part : parts) {
    const bool is_text = part.is_object() && part.contains("text") && part["text"].is_string();
    if (!is_text) {
      throw_invalid("chat: message " + std::to_string(message_idx) +
                    " has a part that is no text, which the checkpoint's chat template does not take");
    }
    if (&part != &parts.front()) text += "\n";
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

/// A message as templates expect it (transformers' chat_template_utils.py): what is null is absent, and reasoning has both of
/// its names.
ordered_json plain_message(const ordered_json& message, std::size_t message_idx, bool takes_parts) {
  if (!message.is_object()) throw_invalid("chat: message " + std::to_string(message_idx) + " is not an object");
  ordered_json plain = ordered_json::object();
  for (const auto& [key, value] : message.items()) {
    if (value.is_null()) continue;
    const bool flattens = key == "content" && value.is_array() && !takes_parts;
    plain[key] = flattens ? ordered_json(flat_text(value, message_idx)) : value;
  }
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    if (!plain.contains(name)) continue;
    const ordered_json reasoning = plain[name];
    if (!plain.contains("thinking")) plain["thinking"] = reasoning;
    plain["reasoning_content"] = reasoning;
    break;
  }
  return plain;
}

/// Marks the end of the last message's text, which it returns.
std::string mark_end(ordered_json& message) {
  const auto mark = [](ordered_json& text) {
    std::string unmarked = text.get<std::string>();
    text = unmarked + std::string(kEndMark);
    return unmarked;
  };
  const auto content = message.find("content");
  if (content != message.end() && content->is_string()) return mark(*content);
  if (content != message.end() && content->is_array()) {
    for (auto part = content->rbegin(); part != content->rend(); ++part)
      if (part->is_object() && part->contains("text") && (*part)["text"].is_string()) return mark((*part)["text"]);
  }
  throw_invalid("chat: continue_final_message needs a last message with text");
}

/// `prompt` up to the end of the last message's `text`, which is marked there.
std::string cut_at_mark(std::string prompt, const std::string& text) {
  const std::string_view mark = strip_white_space(kEndMark);
  const std::size_t at = prompt.rfind(mark);
  if (at == std::string::npos || !has(prompt, strip_white_space(text))) {
    throw_invalid(
        "chat: continue_final_message is not possible, the checkpoint's chat template does not write the last message as it "
        "is");
  }
  const bool keeps_blanks = std::string_view(prompt).substr(at).starts_with(kEndMark);
  prompt.resize(at);
  return keeps_blanks ? prompt : std::string(strip_white_space_right(prompt));
}

/// A template without enable_thinking does what it does: fine if that is what was asked for.
void check_thinking(bool wants_thinking, const std::string& prompt) {
  if (ends_in_thinking(prompt) == wants_thinking) return;
  const std::string wanted = wants_thinking ? "on" : "off", known = wants_thinking ? "off" : "on";
  throw_invalid("chat: thinking '" + wanted + "' is not possible, the checkpoint's chat template only knows '" + known + "'");
}

}  // namespace

ChatTemplate::Variant::Variant(std::string_view jinja) {
  try {
    program = jinja::Template::parse(jinja);
  } catch (const Error& error) {
    unsupported_reason = error.what();
    return;
  }
  takes_parts = jinja::loops_over(program->block(), "content");
  knows_enable_thinking = jinja::uses_variable(program->block(), "enable_thinking");
}

ChatTemplate ChatTemplate::load(const std::filesystem::path& checkpoint_dir) {
  ChatTemplate loaded;
  loaded.special_tokens_ = special_tokens_of(checkpoint_dir);
  const std::filesystem::path jinja_path = checkpoint_dir / "chat_template.jinja";
  if (is_there(jinja_path)) {
    loaded.default_ = Variant(read_text_file(jinja_path));
    return loaded;
  }
  const std::map<std::string, std::string> templates = templates_of_config(checkpoint_dir / "tokenizer_config.json");
  if (const auto found = templates.find("default"); found != templates.end()) loaded.default_ = Variant(found->second);
  if (const auto found = templates.find("tool_use"); found != templates.end()) loaded.tool_use_ = Variant(found->second);
  return loaded;
}

ChatTemplate ChatTemplate::parse(std::string_view jinja, ordered_json special_tokens) {
  ChatTemplate parsed;
  parsed.default_ = Variant(jinja);
  parsed.special_tokens_ = std::move(special_tokens);
  return parsed;
}

const ChatTemplate::Variant& ChatTemplate::variant_for(const ChatInput& input) const {
  const Variant& variant = tool_use_ && !input.tools.is_null() ? *tool_use_ : default_;
  if (!variant.unsupported_reason.empty()) throw Error(ErrorCode::kUnimplemented, variant.unsupported_reason);
  if (!variant.program)
    throw Error(ErrorCode::kFailedPrecondition, "chat: the checkpoint has no chat template, use a plain prompt");
  return variant;
}

std::string ChatTemplate::render(const ChatInput& input, const std::function<void()>& check_in) const {
  const Variant& variant = variant_for(input);
  if (!input.messages.is_array() || input.messages.empty()) throw_invalid("chat: no messages, at least one is needed");
  if (!input.kwargs.is_object()) throw_invalid("chat: the template's arguments are not an object");
  for (const char* name : {"messages", "tools", "add_generation_prompt"})
    if (input.kwargs.contains(name)) throw_invalid(std::string("chat: '") + name + "' cannot be an argument of the template");
  if (input.continue_final_message && input.add_generation_prompt)
    throw_invalid("chat: continue_final_message and add_generation_prompt exclude each other");
  std::string prompt = render(variant, input, check_in);
  if (input.thinking && !variant.knows_enable_thinking) check_thinking(*input.thinking, prompt);
  return prompt;
}

std::string ChatTemplate::render(const Variant& variant, const ChatInput& input, const std::function<void()>& check_in) const {
  ordered_json messages = ordered_json::array();
  for (const ordered_json& message : input.messages)
    messages.push_back(plain_message(message, messages.size(), variant.takes_parts));
  const std::string last_text = input.continue_final_message ? mark_end(messages.back()) : "";
  ordered_json variables = special_tokens_;
  variables.update(input.kwargs);
  if (input.thinking) variables["enable_thinking"] = *input.thinking;
  variables["messages"] = std::move(messages);
  variables["tools"] = input.tools;
  if (!variables.contains("documents")) variables["documents"] = nullptr;
  variables["add_generation_prompt"] = input.add_generation_prompt;
  const auto make_variables = [&](jinja::Heap& heap) {
    jinja::Template::Variables values;
    for (const auto& [name, value] : variables.items()) values.emplace_back(name, jinja::value_of(value, heap));
    return values;
  };
  std::string prompt = variant.program->render(make_variables, {.check_in = check_in});
  return input.continue_final_message ? cut_at_mark(std::move(prompt), last_text) : prompt;
}

bool ends_in_thinking(std::string_view prompt) {
  const std::size_t open = prompt.rfind(kThinkOpen);
  if (open == std::string_view::npos) return false;
  const std::string_view after = prompt.substr(open + kThinkOpen.size());
  return !has(after, kThinkClose) && !has(after, "<|");
}

}  // namespace ferry
