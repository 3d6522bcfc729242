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
constexpr std::string_view kTrimmedAnswer = "content.split('</think>')[-1] | trim";

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

/// Takes every `what` out of `text`; true if there was one.
bool take_out(std::string& text, std::string_view what) {
  const size_t old_size = text.size();
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at)) text.erase(at, what.size());
  return text.size() < old_size;
}

/// True if the first thing that the template writes is bos_token, with nothing behind it. Throws NotRecognised if it is used in
/// another way.
bool begins_with_bos_token(std::string_view text) {
  constexpr std::string_view kName = "bos_token";
  if (!has(text, kName)) return false;
  for (const std::string_view form :
       {"{{- bos_token -}}", "{{ bos_token -}}", "{{- bos_token }}", "{{ bos_token }}", "{{bos_token}}"}) {
    if (!text.starts_with(form)) continue;
    const std::string_view rest = text.substr(form.size());
    const std::string_view next = rest.substr(std::min(rest.find_first_not_of(" \n\t"), rest.size()));
    const bool next_strips = next.size() > 2 && next[0] == '{' && next[2] == '-';
    const bool is_alone = form.ends_with("-}}") || next.size() == rest.size() || next_strips;
    if (is_alone && !has(rest, kName)) return true;
  }
  throw NotRecognised{"where it writes bos_token is not known"};
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

/// The object in a file, empty if there is no such file.
json read_object(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return json::object();
  json object = read_json_file(path);
  if (!object.is_object()) throw_invalid(path.string() + " is not a JSON object");
  return object;
}

/// The text that bos_token stands for: a string, or an added token with its content; empty if it stands for none.
std::string bos_token_of(const std::filesystem::path& checkpoint_dir) {
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    json token = read_object(checkpoint_dir / file).value("bos_token", json());
    if (token.is_object()) token = token.value("content", json());
    if (token.is_string()) return token.get<std::string>();
  }
  return "";
}

/// The template's text in tokenizer_config.json, or nothing.
std::optional<std::string> template_of_config(const std::filesystem::path& path) {
  const json config = read_object(path);
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
  if (std::filesystem::exists(jinja_path)) return parse(read_text_file(jinja_path), bos_token_of(checkpoint_dir));
  const std::optional<std::string> jinja = template_of_config(checkpoint_dir / "tokenizer_config.json");
  return jinja ? parse(*jinja, bos_token_of(checkpoint_dir)) : ChatTemplate();
}

ChatTemplate ChatTemplate::parse(std::string_view jinja, std::string_view bos_token) {
  ChatTemplate result;
  result.has_template_ = true;
  try {
    result.recognise(plain_form(jinja), bos_token);
  } catch (const NotRecognised& reason) {
    result.unsupported_reason_ = "chat: the checkpoint's chat template is not of the Qwen ChatML form: " + reason.why;
  }
  return result;
}

void ChatTemplate::recognise(std::string_view text, std::string_view bos_token) {
  if (!has(text, "<|im_end|>") || !writes_role_headers(text)) throw NotRecognised{"it writes no <|im_start|>{role} headers"};
  const size_t generation = text.rfind("add_generation_prompt");
  const std::string_view generation_part = text.substr(std::min(generation, text.size()));
  if (!has(generation_part, kAssistantStart)) throw NotRecognised{"it has no assistant generation prompt"};
  if (has_default_system_prompt(text)) throw NotRecognised{"it has a default system prompt"};
  if (has(text, "reasoning_effort")) throw NotRecognised{"it has reasoning_effort"};
  if (begins_with_bos_token(text)) bos_token_ = bos_token;
  std::string message_part(text.substr(0, generation));
  take_out(message_part, "'<think>' + message.thinking + '</think>'");  // messages have no such field
  omits_empty_system_prompt_ = has(message_part, "if ns.system_prompt -%}") || has(message_part, "if ns.system_prompt %}");
  const bool trims_answer = take_out(message_part, kTrimmedAnswer);
  trims_content_ = uses_trim(message_part);
  history_ = trims_answer ? recognise_trimming_history(message_part) : recognise_history(message_part);
  keeps_empty_reasoning_ = !has(message_part, "loop.last or (not loop.last and reasoning_content)");
  think_prompts_ = recognise_think_prompts(generation_part);
}

/// Of a template that takes the trimmed answer out of a content with a </think>; that place is no longer in `message_part`.
ChatTemplate::History ChatTemplate::recognise_trimming_history(std::string message_part) {
  take_out(message_part, "'</think>' in content");
  const auto off_by_default = [&](const std::string& option) {
    return has(message_part, "set " + option + " = " + option + " | default(false)");
  };
  if (!has(message_part, "think>")) {
    const bool keeps_turn = has(message_part, "not keep_past_thinking and loop.index0 != ns.last_assistant_index -%}");
    if (keeps_turn && off_by_default("keep_past_thinking")) return History::kKeepLastTurn;
    const bool keeps_after = has(message_part, "if not (preserve_thinking or loop.index0 > ns.last_user_index) -%}");
    if (keeps_after && off_by_default("preserve_thinking")) return History::kKeepAfterUser;
  }
  throw NotRecognised{"what it does with earlier reasoning is not known"};
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

std::string ChatTemplate::assistant_turn(std::string_view content, const Place& place) const {
  if (history_ == History::kAsIs) return std::string(content);
  if (history_ == History::kKeepLastTurn || history_ == History::kKeepAfterUser) {
    const size_t close = content.rfind(kThinkClose);
    const bool is_kept = history_ == History::kKeepLastTurn ? place.is_last_turn : place.is_after_user;
    if (is_kept || close == std::string_view::npos) return std::string(content);
    return std::string(strip_white_space(content.substr(close + kThinkClose.size())));
  }
  const SplitContent parts = split_reasoning(content);
  if (history_ == History::kDropReasoning) return std::string(parts.answer);
  const bool wants_reasoning = history_ == History::kKeepAll || place.is_after_query;
  if (!wants_reasoning) return std::string(parts.answer);
  if (!keeps_empty_reasoning_ && !place.is_last && parts.reasoning.empty()) return std::string(parts.answer);
  const std::string_view reasoning =
      trims_content_ ? strip_white_space(parts.reasoning) : strip_line_breaks_right(strip_line_breaks_left(parts.reasoning));
  std::string turn(kOpenPrompt);
  turn.append(reasoning).append("\n").append(kThinkClose).append("\n\n");
  return turn.append(strip_line_breaks_left(parts.answer));
}

/// A user turn that asks something: not one that only carries a tool's answer.
bool ChatTemplate::is_query(const Message& message, std::string_view content) {
  const bool is_tool_response = content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
  return message.role == "user" && !is_tool_response;
}

void ChatTemplate::check_role(const Message& message, size_t message_idx) {
  const std::string where = "chat: message " + std::to_string(message_idx) + " has the role '" + message.role + "'";
  if (message.role == "tool") throw_invalid(where + ": tool messages are not supported, only system, user and assistant");
  if (message.role == "system" && message_idx != 0) throw_invalid(where + ": a system message must be the first one");
  if (message.role != "system" && message.role != "user" && message.role != "assistant") {
    throw_invalid(where + ", allowed are system, user and assistant");
  }
}

std::vector<ChatTemplate::Message> ChatTemplate::messages_of(const ChatInput& input) {
  std::vector<Message> messages;
  for (const auto& message : input.messages) {
    Message& added = messages.emplace_back(Message{.role = message.value("role", ""), .content = ""});
    const auto content = message.value("content", nlohmann::ordered_json(""));
    if (content.is_string()) added.content = content.get<std::string>();
    if (!content.is_array()) continue;
    for (const auto& part : content) added.content += part.value("text", "");
  }
  return messages;
}

std::string ChatTemplate::render(const ChatInput& input, const std::function<void()>& /*check_in*/) const {
  const std::vector<Message> messages = messages_of(input);
  std::optional<bool> thinking = input.thinking;
  if (const auto asked = input.kwargs.find("enable_thinking"); !thinking && asked != input.kwargs.end() && asked->is_boolean())
    thinking = asked->get<bool>();
  if (!has_template_)
    throw Error(ErrorCode::kFailedPrecondition, "chat: the checkpoint has no chat template, use a plain prompt");
  if (!unsupported_reason_.empty()) throw Error(ErrorCode::kUnimplemented, unsupported_reason_);
  if (messages.empty()) throw_invalid("chat: no messages, at least one user message is needed");
  std::optional<size_t> last_query_idx;
  size_t last_user_idx = 0;
  size_t last_turn_idx = 0;
  std::vector<std::string_view> contents;
  for (size_t i = 0; i < messages.size(); ++i) {
    check_role(messages[i], i);
    contents.push_back(trims_content_ ? strip_white_space(messages[i].content) : std::string_view(messages[i].content));
    if (is_query(messages[i], contents.back())) last_query_idx = i;
    if (messages[i].role == "user") last_user_idx = i;
    if (messages[i].role == "assistant") last_turn_idx = i;
  }
  if (!last_query_idx) throw_invalid("chat: no user query among the messages, at least one user message is needed");
  const std::optional<std::string>& think_prompt = !thinking   ? think_prompts_.by_default
                                                   : *thinking ? think_prompts_.on
                                                               : think_prompts_.off;
  if (!think_prompt) {
    throw_invalid(std::string("chat: thinking '") + (*thinking ? "on" : "off") +
                  "' is not possible, the checkpoint's chat template only knows '" + (*thinking ? "off" : "on") + "'");
  }
  std::string prompt = bos_token_;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == "system" && omits_empty_system_prompt_ && contents[i].empty()) continue;
    prompt.append("<|im_start|>").append(messages[i].role).append("\n");
    if (messages[i].role == "assistant") {
      prompt.append(assistant_turn(contents[i], {.is_after_query = i > *last_query_idx,
                                                 .is_after_user = i > last_user_idx,
                                                 .is_last_turn = i == last_turn_idx,
                                                 .is_last = i + 1 == messages.size()}));
    } else {
      prompt.append(contents[i]);
    }
    prompt.append("<|im_end|>\n");
  }
  return prompt.append(kAssistantStart).append(*think_prompt);
}

bool ends_in_thinking(std::string_view prompt) {
  const size_t open = prompt.rfind(kThinkOpen);
  if (open == std::string_view::npos) return false;
  const std::string_view after = prompt.substr(open + kThinkOpen.size());
  return !has(after, kThinkClose) && !has(after, "<|");
}

}  // namespace ferry
