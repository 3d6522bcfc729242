#include "runtime/server/anthropic/message_reader.h"

#include <string_view>
#include <utility>

#include "runtime/base/json.h"
#include "runtime/server/api/answer.h"
#include "runtime/server/api/api_error.h"

namespace ferry::api::anthropic {
namespace {

/// A client puts a changing line of accounting before its system prompt, which is not for the model, and would cost every hit
/// of the prefix cache.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header";

class TurnReader {
 public:
  explicit TurnReader(ChatBuilder& builder) : builder_(builder) {}

  /// `content` is a text, or a list of blocks of text.
  void read_system(const ordered_json& content, const std::string& where) {
    ordered_json parts = ordered_json::array();
    each_block(content, where, [&](const std::string& type, const RequestFields& block, const std::string& path) {
      if (type != "text") refuse_type(type, path, "text");
      std::string text = required_text(block, "text", path);
      if (!text.starts_with(kBillingHeader)) parts.push_back(builder_.text_part(std::move(text)));
    });
    if (!parts.empty()) builder_.add({{"role", "system"}, {"content", content_of_parts(std::move(parts))}});
  }

  void read(const ordered_json& message, const std::string& where) {
    if (!message.is_object()) refuse_form(where, where + " is " + shown(message) + "; allowed: an object");
    const RequestFields fields(message, where + ".");
    const std::string role = required_text(fields, "role", where);
    const ordered_json* content = fields.find("content");
    if (content == nullptr) refuse_form(where + ".content", where + " has no content");
    if (role == "user") return read_user(*content, where + ".content");
    if (role == "assistant") return read_assistant(*content, where + ".content");
    if (role == "system") return read_system(*content, where + ".content");
    refuse(where + ".role", where + ".role is " + shown(ordered_json(role)) + "; allowed: user, assistant, system");
  }

 private:
  [[noreturn]] static void refuse_type(const std::string& type, const std::string& where, const char* allowed) {
    refuse(where + ".type", where + " is of type " + shown(ordered_json(type)) + "; allowed: " + allowed);
  }

  /// Calls `take` with type, fields and path of each block; a text is one block of text.
  template <class Take>
  static void each_block(const ordered_json& content, const std::string& where, Take&& take) {
    if (content.is_string()) {
      const ordered_json block = {{"type", "text"}, {"text", content}};
      return take("text", RequestFields(block, where + "."), where);
    }
    if (!content.is_array()) refuse_form(where, where + " is " + shown(content) + "; allowed: text, or a list of blocks");
    for (std::size_t i = 0; i < content.size(); ++i) {
      const std::string path = ChatBuilder::at(where, i);
      if (!content[i].is_object()) refuse_form(path, path + " is " + shown(content[i]) + "; allowed: a block");
      const RequestFields block(content[i], path + ".");
      take(required_text(block, "type", path), block, path);
    }
  }

  /// What the user says between results of tools is a message; each result is one.
  void read_user(const ordered_json& content, const std::string& where) {
    ordered_json parts = ordered_json::array();
    const auto flush = [&] {
      if (!parts.empty())
        builder_.add({{"role", "user"}, {"content", content_of_parts(std::exchange(parts, ordered_json::array()))}});
    };
    each_block(content, where, [&](const std::string& type, const RequestFields& block, const std::string& path) {
      if (type == "tool_result") {
        flush();
        return read_result(block, path);
      }
      parts.push_back(part_of(type, block, path, "text, image, tool_result"));
    });
    flush();
  }

  ordered_json part_of(const std::string& type, const RequestFields& block, const std::string& path, const char* allowed) {
    if (type == "text") return builder_.text_part(required_text(block, "text", path));
    if (type != "image") refuse_type(type, path, allowed);
    return builder_.picture_part(url_of(block, path));
  }

  static std::string url_of(const RequestFields& block, const std::string& path) {
    const std::string where = path + ".source";
    const auto source = block.object("source");
    if (!source) refuse_form(where, path + " has no source");
    const std::string type = required_text(*source, "type", where);
    if (type == "url") return required_text(*source, "url", where);
    if (type != "base64") refuse_type(type, where, "base64, url");
    return "data:" + required_text(*source, "media_type", where) + ";base64," + required_text(*source, "data", where);
  }

  /// Templates know of no error: it is said in the result.
  void read_result(const RequestFields& block, const std::string& path) {
    ordered_json parts = ordered_json::array();
    if (block.flag("is_error", false)) parts.push_back(builder_.text_part("Error: "));
    if (const ordered_json* content = block.find("content")) {
      each_block(*content, path + ".content",
                 [&](const std::string& type, const RequestFields& inner, const std::string& inner_path) {
                   parts.push_back(part_of(type, inner, inner_path, "text, image"));
                 });
    }
    builder_.add({{"role", "tool"},
                  {"tool_call_id", required_text(block, "tool_use_id", path)},
                  {"content", content_of_parts(std::move(parts))}});
  }

  void read_assistant(const ordered_json& content, const std::string& where) {
    AssistantTurn turn;
    each_block(content, where, [&](const std::string& type, const RequestFields& block, const std::string& path) {
      if (type == "text") {
        turn.parts.push_back(builder_.text_part(required_text(block, "text", path)));
      } else if (type == "thinking") {
        const std::string thought = required_text(block, "thinking", path);
        builder_.count(thought);
        turn.reasoning += thought;
      } else if (type == "tool_use") {
        turn.calls.push_back(
            ChatBuilder::call(required_text(block, "id", path), required_text(block, "name", path), input_of(block, path)));
      } else {
        refuse_type(type, path, "text, thinking, tool_use");
      }
    });
    builder_.add(turn.message());
  }

  ordered_json input_of(const RequestFields& block, const std::string& path) {
    const ordered_json* input = block.find("input");
    if (input == nullptr || !input->is_object()) refuse_form(path + ".input", path + " has no input that is an object");
    builder_.count(dump(*input));
    return *input;
  }

  ChatBuilder& builder_;
};

}  // namespace

ChatMessages read_conversation(const RequestFields& fields, const ServerLimits& limits) {
  const ordered_json* messages = fields.find("messages");
  if (messages == nullptr) refuse_form("messages", "missing field `messages`");
  ChatMessages chat;
  ChatBuilder builder(chat, "messages", limits);
  builder.check_list(*messages);
  TurnReader reader(builder);
  if (const ordered_json* system = fields.find("system")) reader.read_system(*system, "system");
  for (std::size_t i = 0; i < messages->size(); ++i) reader.read((*messages)[i], ChatBuilder::at("messages", i));
  return chat;
}

}  // namespace ferry::api::anthropic
