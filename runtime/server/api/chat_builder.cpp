#include "runtime/server/api/chat_builder.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/server/api/api_error.h"

namespace ferry::api {
namespace {

constexpr JsonLimits kArgumentLimits{.depth = 32, .bytes = 1 << 20, .values = 1 << 16, .members = 1024};

}  // namespace

ChatBuilder::ChatBuilder(ChatMessages& chat, std::string field, const ServerLimits& limits)
    : chat_(chat), field_(std::move(field)), limits_(limits) {}

void ChatBuilder::check_list(const ordered_json& list) const {
  if (!list.is_array()) refuse_form(field_, field_ + " is " + shown(list) + "; allowed: a list");
  if (list.empty()) refuse(field_, field_ + ": Validation error: " + field_ + " cannot be empty");
  if (std::ssize(list) <= limits_.chat_messages) return;
  refuse(field_, field_ + " has " + std::to_string(list.size()) + " messages; allowed: at most " +
                     std::to_string(limits_.chat_messages));
}

void ChatBuilder::count(const std::string& text) {
  num_bytes_ += std::ssize(text);
  if (num_bytes_ <= limits_.prompt_bytes) return;
  refuse(field_, field_ + " have more than " + std::to_string(limits_.prompt_bytes) + " bytes of text together");
}

ordered_json ChatBuilder::text_part(std::string text) {
  count(text);
  return {{"type", "text"}, {"text", std::move(text)}};
}

ordered_json ChatBuilder::picture_part(std::string url) {
  chat_.picture_urls.push_back(std::move(url));
  if (std::ssize(chat_.picture_urls) > limits_.pictures)
    refuse(field_, field_ + " have more than " + std::to_string(limits_.pictures) + " pictures together");
  return {{"type", "image"}};
}

ordered_json ChatBuilder::arguments(const ordered_json* arguments) {
  if (arguments == nullptr) return ordered_json::object();
  if (arguments->is_object()) return *arguments;
  std::string text = arguments->is_string() ? arguments->get<std::string>() : arguments->dump();
  count(text);
  if (text.empty()) return ordered_json::object();
  try {
    ordered_json read = parse_ordered_json(text, "arguments", kArgumentLimits);
    if (read.is_object()) return read;
  } catch (const Error&) {  // such as those of a call that was cut
  }
  return {{"arguments", std::move(text)}};
}

ordered_json ChatBuilder::call(const std::string& id, const std::string& name, ordered_json arguments) {
  return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", std::move(arguments)}}}};
}

ordered_json AssistantTurn::message() const {
  ordered_json message = {{"role", "assistant"}, {"content", content_of_parts(parts)}};
  for (const char* name : {"reasoning", "reasoning_content"}) {
    if (!reasoning.empty()) message[name] = reasoning;
  }
  if (!calls.empty()) message["tool_calls"] = calls;
  return message;
}

ordered_json content_of_parts(ordered_json parts) {
  if (parts.empty()) return "";
  const bool is_text = parts.size() == 1 && parts.front().at("type") == "text";
  return is_text ? parts.front().at("text") : parts;
}

std::string required_text(const RequestFields& fields, const char* name, const std::string& where) {
  auto text = fields.string(name);
  if (!text) refuse_form(where + "." + name, where + " has no " + name);
  return std::move(*text);
}

}  // namespace ferry::api
