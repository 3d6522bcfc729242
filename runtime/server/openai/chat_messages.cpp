#include "runtime/server/openai/chat_messages.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/server/api/api_error.h"
#include "runtime/server/api/chat_builder.h"

namespace ferry::api::openai {
namespace {

/// Reads one message. Text is counted, so that a conversation has a bound.
class MessageReader {
 public:
  explicit MessageReader(ChatBuilder& builder) : builder_(builder) {}

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
      builder_.count(*reasoning);
      read["reasoning"] = *reasoning;
      read["reasoning_content"] = *reasoning;
    }
    if (const ordered_json* calls = fields.find("tool_calls")) {
      ordered_json read_calls = calls_of(*calls, where + ".tool_calls");
      if (!read_calls.empty()) read["tool_calls"] = std::move(read_calls);
    }
    builder_.add(std::move(read));
  }

 private:
  ordered_json content_of(const RequestFields& fields, const std::string& where) {
    const ordered_json* content = fields.find("content");
    if (content == nullptr) return nullptr;
    if (content->is_string()) {
      builder_.count(content->get_ref<const std::string&>());
      return *content;
    }
    if (!content->is_array()) fields.refuse_kind("content", "text, or a list of parts");
    ordered_json parts = ordered_json::array();
    for (std::size_t i = 0; i < content->size(); ++i)
      parts.push_back(part_of((*content)[i], ChatBuilder::at(where + ".content", i)));
    return parts;
  }

  ordered_json part_of(const ordered_json& part, const std::string& where) {
    if (part.is_string()) return builder_.text_part(part.get<std::string>());
    if (!part.is_object()) refuse_form(where, where + " is " + shown(part) + "; allowed: a part");
    const RequestFields fields(part, where + ".");
    const std::string type = fields.string("type").value_or(fields.has("image_url") ? "image_url" : "text");
    if (type == "text") return builder_.text_part(required_text(fields, "text", where));
    if (type == "refusal") return builder_.text_part(required_text(fields, "refusal", where));
    if (type != "image_url")
      refuse(where, where + " is of type " + shown(ordered_json(type)) + "; allowed: text, refusal, image_url");
    return builder_.picture_part(url_of(fields, where));
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
    for (std::size_t i = 0; i < calls.size(); ++i) read.push_back(call_of(calls[i], ChatBuilder::at(where, i)));
    return read;
  }

  ordered_json call_of(const ordered_json& call, const std::string& where) {
    if (!call.is_object()) refuse_form(where, where + " is " + shown(call) + "; allowed: an object");
    const auto function = RequestFields(call, where + ".").object("function");
    const auto name = function ? function->string("name") : std::nullopt;
    if (!name) refuse_form(where + ".function", where + " has no function.name");
    ordered_json read = call;
    read["function"]["arguments"] = builder_.arguments(function->find("arguments"));
    return read;
  }

  ChatBuilder& builder_;
};

}  // namespace

ChatMessages read_messages(const ordered_json& messages, const ServerLimits& limits) {
  ChatMessages chat;
  ChatBuilder builder(chat, "messages", limits);
  builder.check_list(messages);
  MessageReader reader(builder);
  for (std::size_t i = 0; i < messages.size(); ++i) reader.read(messages[i], ChatBuilder::at("messages", i));
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

}  // namespace ferry::api::openai
