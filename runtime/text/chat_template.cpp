#include "runtime/text/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/text/unicode_text.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr std::string_view kThinkOpen = "<think>";
constexpr std::string_view kThinkClose = "</think>";
constexpr std::string_view kOpenPrompt = "<think>\n";
constexpr std::string_view kEmptyPrompt = "<think>\n\n</think>\n\n";
constexpr std::string_view kAssistantStart = "<|im_start|>assistant\n";

/// Thrown and caught in this file: the template is not one that is known.
struct NotRecognised {
  std::string why;
};

bool has(std::string_view text, std::string_view what) { return text.find(what) != std::string_view::npos; }

/// The template with the escape \n in its string literals made a line break and double quotes made single ones, so that one
/// search finds both ways of writing either.
std::string plain_form(std::string_view jinja) {
  std::string out;
  out.reserve(jinja.size());
  for (size_t i = 0; i < jinja.size(); ++i) {
    if (jinja.substr(i).starts_with("\\n")) {
      out.push_back('\n');
      ++i;
    } else if (jinja[i] != '\r') {
      out.push_back(jinja[i] == '"' ? '\'' : jinja[i]);
    }
  }
  return out;
}

/// True if somewhere `<|im_start|>` is followed by a message's role and that by a line break, with only Jinja between them.
bool writes_role_headers(std::string_view text) {
  constexpr std::string_view kStart = "<|im_start|>";
  constexpr size_t kMaxRoleDistance = 40;  // bytes; "' + message['role'] + '" and the like
  constexpr size_t kMaxLineDistance = 16;
  for (size_t at = text.find(kStart); at != std::string_view::npos; at = text.find(kStart, at + 1)) {
    const std::string_view after = text.substr(at + kStart.size());
    const size_t role = after.substr(0, kMaxRoleDistance).find("role");
    if (role != std::string_view::npos && has(after.substr(role, kMaxLineDistance), "\n")) return true;
  }
  return false;
}

/// True if the filter `trim` is used.
bool uses_trim(std::string_view text) {
  for (size_t at = text.find("trim"); at != std::string_view::npos; at = text.find("trim", at + 1)) {
    size_t before = at;
    while (before > 0 && text[before - 1] == ' ') --before;
    if (before > 0 && text[before - 1] == '|') return true;
  }
  return false;
}

/// True if the template writes a system prompt of its own: words right after the system header, in the same literal.
bool has_default_system_prompt(std::string_view text) {
  constexpr std::string_view kHeader = "<|im_start|>system\n";
  for (size_t at = text.find(kHeader); at != std::string_view::npos; at = text.find(kHeader, at + 1)) {
    const std::string_view after = text.substr(at + kHeader.size(), 1);
    if (!after.empty() && after != "'" && after != "{") return true;
  }
  return false;
}

std::string_view strip_line_breaks_left(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  return text;
}

std::string_view strip_line_breaks_right(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);  // npos + 1 is 0: nothing but line breaks
}

/// An assistant's content in its two parts.
struct SplitContent {
  std::string_view reasoning;
  std::string_view answer;
};

/// The reasoning is what stands between the last <think> before the first </think>, and that; the answer follows the last
/// </think>. (Jinja: split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n'), split('</think>')[-1].lstrip('\n'))
SplitContent split_reasoning(std::string_view content) {
  const size_t first_close = content.find(kThinkClose);
  if (first_close == std::string_view::npos) return {{}, content};
  std::string_view reasoning = strip_line_breaks_right(content.substr(0, first_close));
  const size_t open = reasoning.rfind(kThinkOpen);
  if (open != std::string_view::npos) reasoning = reasoning.substr(open + kThinkOpen.size());
  const std::string_view answer = content.substr(content.rfind(kThinkClose) + kThinkClose.size());
  return {strip_line_breaks_left(reasoning), strip_line_breaks_left(answer)};
}

/// A user turn that asks something: not one that only carries a tool's answer.
bool is_query(const ChatMessage& message, std::string_view content) {
  const bool is_tool_response = content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
  return message.role == "user" && !is_tool_response;
}

void check_role(const ChatMessage& message, size_t message_idx) {
  const std::string where = "chat: message " + std::to_string(message_idx) + " has the role '" + message.role + "'";
  if (message.role == "tool") throw_invalid(where + ": tool messages are not supported, only system, user and assistant");
  if (message.role == "system" && message_idx != 0) throw_invalid(where + ": a system message must be the first one");
  if (message.role != "system" && message.role != "user" && message.role != "assistant") {
    throw_invalid(where + ", allowed are system, user and assistant");
  }
}

/// The template's text in tokenizer_config.json, or nothing.
std::optional<std::string> template_of_config(const std::filesystem::path& path) {
  const json config = read_json_file(path);
  if (!config.is_object()) throw_invalid(path.string() + " is not a JSON object");
  const json chat_template = config.value("chat_template", json());
  if (chat_template.is_null()) return std::nullopt;
  if (chat_template.is_string()) return chat_template.get<std::string>();
  if (!chat_template.is_array()) throw_invalid(path.string() + ": chat_template must be a string or a list");
  for (const json& entry : chat_template) {
    if (!entry.is_object() || entry.value("name", json()) != "default") continue;
    const json text = entry.value("template", json());
    if (text.is_string()) return text.get<std::string>();
  }
  return std::nullopt;
}

}  // namespace

ChatTemplate ChatTemplate::load(const std::filesystem::path& checkpoint_dir) {
  const std::filesystem::path jinja_path = checkpoint_dir / "chat_template.jinja";
  if (std::filesystem::exists(jinja_path)) return parse(read_text_file(jinja_path));
  const std::filesystem::path config_path = checkpoint_dir / "tokenizer_config.json";
  if (!std::filesystem::exists(config_path)) return {};
  const std::optional<std::string> jinja = template_of_config(config_path);
  return jinja ? parse(*jinja) : ChatTemplate();
}

ChatTemplate ChatTemplate::parse(std::string_view jinja) {
  ChatTemplate result;
  result.has_template_ = true;
  const std::string text = plain_form(jinja);
  try {
    if (!has(text, "<|im_end|>") || !writes_role_headers(text)) throw NotRecognised{"it writes no <|im_start|>{role} headers"};
    const size_t generation = text.rfind("add_generation_prompt");
    const std::string_view generation_part = std::string_view(text).substr(std::min(generation, text.size()));
    if (!has(generation_part, kAssistantStart)) throw NotRecognised{"it has no assistant generation prompt"};
    if (has_default_system_prompt(text)) throw NotRecognised{"it has a default system prompt"};
    if (has(text, "reasoning_effort")) throw NotRecognised{"it has reasoning_effort"};
    const std::string_view message_part = std::string_view(text).substr(0, generation);
    result.trims_content_ = uses_trim(message_part);
    result.history_ = recognise_history(message_part);
    result.keeps_empty_reasoning_ = !has(message_part, "loop.last or (not loop.last and reasoning_content)");
    result.think_prompts_ = recognise_think_prompts(generation_part);
  } catch (const NotRecognised& reason) {
    result.unsupported_reason_ = "chat: the checkpoint's chat template is not of the Qwen ChatML form: " + reason.why;
  }
  return result;
}

ChatTemplate::History ChatTemplate::recognise_history(std::string_view message_part) {
  const bool writes_think = has(message_part, kOpenPrompt);
  const bool splits = has(message_part, "split('</think>')");
  if (!splits && !has(message_part, "think>")) return History::kAsIs;
  if (splits && !writes_think) return History::kDropReasoning;
  if (!splits || !has(message_part, "loop.index0 > ns.last_query_index")) {
    throw NotRecognised{"what it does with earlier reasoning is not known"};
  }
  if (!has(message_part, "preserve_thinking")) return History::kKeepAfterQuery;
  if (has(message_part, "preserve_thinking is defined and preserve_thinking is true")) return History::kKeepAfterQuery;
  if (has(message_part, "preserve_thinking is undefined or preserve_thinking is true")) return History::kKeepAll;
  throw NotRecognised{"its default for preserve_thinking is not known"};
}

ChatTemplate::ThinkPrompts ChatTemplate::recognise_think_prompts(std::string_view generation_part) {
  const std::string quoted_open = std::string(kOpenPrompt) + "'";
  const std::string quoted_empty = std::string(kEmptyPrompt) + "'";
  const size_t open = generation_part.find(quoted_open);
  const size_t empty = generation_part.find(quoted_empty);
  const bool has_open = open != std::string_view::npos;
  const bool has_empty = empty != std::string_view::npos;
  const auto num_blocks = static_cast<size_t>(has_open) + static_cast<size_t>(has_empty);
  size_t num_think = 0;
  for (size_t at = generation_part.find("think>"); at != std::string_view::npos; at = generation_part.find("think>", at + 1)) {
    ++num_think;
  }
  if (num_think != num_blocks + static_cast<size_t>(has_empty)) throw NotRecognised{"its think block is not a known one"};
  const std::string open_prompt(kOpenPrompt);
  const std::string empty_prompt(kEmptyPrompt);
  if (!has(generation_part, "enable_thinking")) {
    if (has_open && has_empty) throw NotRecognised{"it chooses between think blocks in an unknown way"};
    if (has_open) return {open_prompt, open_prompt, std::nullopt};
    return {has_empty ? empty_prompt : "", std::nullopt, has_empty ? empty_prompt : ""};
  }
  const bool off_if_false = has(generation_part, "if enable_thinking is defined and enable_thinking is false %}");
  const bool on_if_true = has(generation_part, "if enable_thinking is defined and enable_thinking is true %}");
  if (off_if_false && !on_if_true && has_empty && (!has_open || empty < open)) {
    const std::string thinking = has_open ? open_prompt : "";
    return {thinking, thinking, empty_prompt};
  }
  if (on_if_true && !off_if_false && has_open && has_empty && open < empty) return {empty_prompt, open_prompt, empty_prompt};
  throw NotRecognised{"what it does with enable_thinking is not known"};
}

std::string ChatTemplate::assistant_turn(std::string_view content, bool is_after_query, bool is_last) const {
  if (history_ == History::kAsIs) return std::string(content);
  const SplitContent parts = split_reasoning(content);
  if (history_ == History::kDropReasoning) return std::string(parts.answer);
  const bool wants_reasoning = history_ == History::kKeepAll || is_after_query;
  if (!wants_reasoning) return std::string(parts.answer);
  if (!keeps_empty_reasoning_ && !is_last && parts.reasoning.empty()) return std::string(parts.answer);
  const std::string_view reasoning =
      trims_content_ ? strip_white_space(parts.reasoning) : strip_line_breaks_right(strip_line_breaks_left(parts.reasoning));
  std::string turn(kOpenPrompt);
  turn.append(reasoning).append("\n").append(kThinkClose).append("\n\n");
  return turn.append(strip_line_breaks_left(parts.answer));
}

std::string ChatTemplate::render(std::span<const ChatMessage> messages, Thinking thinking) const {
  if (!has_template_)
    throw Error(ErrorCode::kFailedPrecondition, "chat: the checkpoint has no chat template, use a plain prompt");
  if (!unsupported_reason_.empty()) throw Error(ErrorCode::kUnimplemented, unsupported_reason_);
  if (messages.empty()) throw_invalid("chat: no messages, at least one user message is needed");
  std::optional<size_t> last_query_idx;
  std::vector<std::string_view> contents;
  for (size_t i = 0; i < messages.size(); ++i) {
    check_role(messages[i], i);
    contents.push_back(trims_content_ ? strip_white_space(messages[i].content) : std::string_view(messages[i].content));
    if (is_query(messages[i], contents.back())) last_query_idx = i;
  }
  if (!last_query_idx) throw_invalid("chat: no user query among the messages, at least one user message is needed");
  const std::optional<std::string>& think_prompt = thinking == Thinking::kDefault ? think_prompts_.by_default
                                                   : thinking == Thinking::kOn    ? think_prompts_.on
                                                                                  : think_prompts_.off;
  if (!think_prompt) {
    throw_invalid(std::string("chat: thinking '") + (thinking == Thinking::kOn ? "on" : "off") +
                  "' is not possible, the checkpoint's chat template only knows '" +
                  (thinking == Thinking::kOn ? "off" : "on") + "'");
  }
  std::string prompt;
  for (size_t i = 0; i < messages.size(); ++i) {
    prompt.append("<|im_start|>").append(messages[i].role).append("\n");
    if (messages[i].role == "assistant") {
      prompt.append(assistant_turn(contents[i], i > *last_query_idx, i + 1 == messages.size()));
    } else {
      prompt.append(contents[i]);
    }
    prompt.append("<|im_end|>\n");
  }
  return prompt.append(kAssistantStart).append(*think_prompt);
}

}  // namespace ferry
