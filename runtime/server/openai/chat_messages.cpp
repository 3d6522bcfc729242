#include "runtime/server/openai/chat_messages.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/server/openai/api_error.h"

namespace ferry::openai {
namespace {

constexpr JsonLimits kArgumentLimits{.depth = 32, .bytes = 1 << 20, .values = 1 << 16, .members = 1024};

std::string at(const std::string& where, std::size_t index) { return where + "[" + std::to_string(index) + "]"; }

/// Reads one message. Text is counted, so that a conversation has a bound.
class MessageReader {
 public:
  MessageReader(ChatMessages& chat, const ServerLimits& limits) : chat_(chat), limits_(limits) {}

  void read(const ordered_json& message, const std::string& where) {
    if (!message.is_object()) refuse_form(where, where + " is " + shown(message) + "; allowed: an object");
    const RequestFields fields(message, where + ".");
    const auto role = fields.string("role");
    if (!role) refuse_form(where + ".role", where + " has no role");
    ordered_json read = {{"role", *role}, {"content", content_of(fields, where)}};
    for (const char* name : {"name", "tool_call_id"}) {
      if (auto text = fields.string(name)) read[name] = std::move(*text);
    }
    const auto reasoning = fields.has("reasoning") ? fields.string("reasoning") : fields.string("reasoning_content");
    if (reasoning) {
      count(*reasoning);
      read["reasoning"] = *reasoning;
      read["reasoning_content"] = *reasoning;
    }
    if (const ordered_json* calls = fields.find("tool_calls")) {
      ordered_json read_calls = calls_of(*calls, where + ".tool_calls");
      if (!read_calls.empty()) read["tool_calls"] = std::move(read_calls);
    }
    chat_.messages.push_back(std::move(read));
  }

 private:
  void count(const std::string& text) {
    num_bytes_ += std::ssize(text);
    if (num_bytes_ <= limits_.prompt_bytes) return;
    refuse("messages", "messages have more than " + std::to_string(limits_.prompt_bytes) + " bytes of text together");
  }

  ordered_json content_of(const RequestFields& fields, const std::string& where) {
    const ordered_json* content = fields.find("content");
    if (content == nullptr) return nullptr;
    if (content->is_string()) {
      count(content->get_ref<const std::string&>());
      return *content;
    }
    if (!content->is_array()) fields.refuse_kind("content", "text, or a list of parts");
    ordered_json parts = ordered_json::array();
    for (std::size_t i = 0; i < content->size(); ++i) parts.push_back(part_of((*content)[i], at(where + ".content", i)));
    return parts;
  }

  ordered_json part_of(const ordered_json& part, const std::string& where) {
    if (part.is_string()) return text_part(part.get<std::string>());
    if (!part.is_object()) refuse_form(where, where + " is " + shown(part) + "; allowed: a part");
    const RequestFields fields(part, where + ".");
    const std::string type = fields.string("type").value_or(fields.has("image_url") ? "image_url" : "text");
    if (type == "text") return text_part(required_text(fields, "text", where));
    if (type == "refusal") return text_part(required_text(fields, "refusal", where));
    if (type != "image_url")
      refuse(where, where + " is of type " + shown(ordered_json(type)) + "; allowed: text, refusal, image_url");
    chat_.picture_urls.push_back(url_of(fields, where));
    if (std::ssize(chat_.picture_urls) > limits_.pictures)
      refuse("messages", "messages have more than " + std::to_string(limits_.pictures) + " pictures together");
    return {{"type", "image"}};
  }

  ordered_json text_part(std::string text) {
    count(text);
    return {{"type", "text"}, {"text", std::move(text)}};
  }

  static std::string required_text(const RequestFields& fields, const char* name, const std::string& where) {
    auto text = fields.string(name);
    if (!text) refuse_form(where + "." + name, where + " has no " + name);
    return std::move(*text);
  }

  /// {"url": …, "detail": …} or the URL alone; detail asks for a size, which the server chooses.
  static std::string url_of(const RequestFields& fields, const std::string& where) {
    const ordered_json* image = fields.find("image_url");
    std::string url;
    if (image != nullptr && image->is_string()) url = image->get<std::string>();
    if (image != nullptr && image->is_object()) url = RequestFields(*image, where + ".image_url.").string("url").value_or("");
    if (url.empty()) refuse_form(where + ".image_url", where + " has no image_url.url");
    return url;
  }

  ordered_json calls_of(const ordered_json& calls, const std::string& where) {
    if (!calls.is_array()) refuse_form(where, where + " is " + shown(calls) + "; allowed: a list");
    ordered_json read = ordered_json::array();
    for (std::size_t i = 0; i < calls.size(); ++i) read.push_back(call_of(calls[i], at(where, i)));
    return read;
  }

  ordered_json call_of(const ordered_json& call, const std::string& where) {
    if (!call.is_object()) refuse_form(where, where + " is " + shown(call) + "; allowed: an object");
    const auto function = RequestFields(call, where + ".").object("function");
    const auto name = function ? function->string("name") : std::nullopt;
    if (!name) refuse_form(where + ".function", where + " has no function.name");
    ordered_json read = call;
    read["function"]["arguments"] = arguments_of(function->find("arguments"), where + ".function.arguments");
    return read;
  }

  ordered_json arguments_of(const ordered_json* arguments, const std::string& where) {
    if (arguments == nullptr) return ordered_json::object();
    if (!arguments->is_string()) return *arguments;
    const auto& text = arguments->get_ref<const std::string&>();
    count(text);
    if (text.empty()) return ordered_json::object();
    try {
      return parse_ordered_json(text, where, kArgumentLimits);
    } catch (const Error& error) {
      refuse(where, error.what());
    }
  }

  ChatMessages& chat_;
  const ServerLimits& limits_;
  int64_t num_bytes_ = 0;
};

}  // namespace

ChatMessages read_messages(const ordered_json& messages, const ServerLimits& limits) {
  if (!messages.is_array()) refuse_form("messages", "messages is " + shown(messages) + "; allowed: a list");
  if (messages.empty()) refuse("messages", "messages: Validation error: messages cannot be empty");
  if (std::ssize(messages) > limits.chat_messages) {
    refuse("messages", "messages has " + std::to_string(messages.size()) + " messages; allowed: at most " +
                           std::to_string(limits.chat_messages));
  }
  ChatMessages chat;
  MessageReader reader(chat, limits);
  for (std::size_t i = 0; i < messages.size(); ++i) reader.read(messages[i], at("messages", i));
  return chat;
}

std::string text_of(const ordered_json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (!content.is_array()) return text;
  for (const ordered_json& part : content) {
    const auto found = part.find("text");
    if (found != part.end()) text += (text.empty() ? "" : "\n") + found->get<std::string>();
  }
  return text;
}

}  // namespace ferry::openai
