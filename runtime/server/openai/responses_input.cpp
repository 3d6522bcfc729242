#include "runtime/server/openai/responses_input.h"

#include <utility>

#include "runtime/base/json.h"
#include "runtime/server/api/api_error.h"

namespace ferry::api::openai {
namespace {

class ItemReader {
 public:
  explicit ItemReader(ChatBuilder& builder) : builder_(builder) {}

  void read_instructions(std::string text) { system_.push_back(builder_.text_part(std::move(text))); }

  void read(const ordered_json& item, const std::string& where) {
    if (!item.is_object()) refuse_form(where, where + " is " + shown(item) + "; allowed: an item");
    const RequestFields fields(item, where + ".");
    const std::string type = fields.string("type").value_or("message");
    if (type == "message") return read_message(fields, where);
    if (type == "reasoning") return read_thought(fields, where);
    if (type == "function_call") return read_call(fields, where);
    if (type == "function_call_output") return read_output(fields, where);
    refuse(where + ".type", where + " is of type " + shown(ordered_json(type)) +
                                "; allowed: message, reasoning, function_call, function_call_output");
  }

  /// What has not become a message yet does.
  void finish() {
    end_system();
    end_turn();
  }

 private:
  void end_system() {
    is_behind_system_ = true;
    if (system_.empty()) return;
    builder_.add({{"role", "system"}, {"content", content_of_parts(std::exchange(system_, ordered_json::array()))}});
  }
  void end_turn() {
    if (!turn_.empty()) builder_.add(std::exchange(turn_, {}).message());
  }
  /// The assistant's turn, of which something comes that stands before calls.
  AssistantTurn& turn() {
    end_system();
    return turn_;
  }

  void read_message(const RequestFields& fields, const std::string& where) {
    std::string role = required_text(fields, "role", where);
    if (role == "developer") role = "system";
    if (role != "user" && role != "system" && role != "assistant") {
      refuse(where + ".role",
             where + ".role is " + shown(ordered_json(role)) + "; allowed: user, system, developer, assistant");
    }
    ordered_json parts = parts_of(fields.find("content"), where + ".content");
    if (role == "assistant") {
      if (!turn().parts.empty() || !turn().calls.empty()) end_turn();
      turn().parts = std::move(parts);
      return;
    }
    end_turn();
    if (role == "system" && !is_behind_system_) {
      for (ordered_json& part : parts) system_.push_back(std::move(part));
      return;
    }
    end_system();
    builder_.add({{"role", role}, {"content", content_of_parts(std::move(parts))}});
  }

  ordered_json parts_of(const ordered_json* content, const std::string& where) {
    if (content == nullptr) refuse_form(where, where + " is missing");
    ordered_json parts = ordered_json::array();
    if (content->is_string()) {
      parts.push_back(builder_.text_part(content->get<std::string>()));
      return parts;
    }
    if (!content->is_array()) refuse_form(where, where + " is " + shown(*content) + "; allowed: text, or a list of parts");
    for (std::size_t i = 0; i < content->size(); ++i) parts.push_back(part_of((*content)[i], ChatBuilder::at(where, i)));
    return parts;
  }

  ordered_json part_of(const ordered_json& part, const std::string& where) {
    if (!part.is_object()) refuse_form(where, where + " is " + shown(part) + "; allowed: a part");
    const RequestFields fields(part, where + ".");
    const std::string type = required_text(fields, "type", where);
    if (type == "input_text" || type == "output_text") return builder_.text_part(required_text(fields, "text", where));
    if (type == "refusal") return builder_.text_part(required_text(fields, "refusal", where));
    if (type == "input_image") return builder_.picture_part(required_text(fields, "image_url", where));
    refuse(where + ".type",
           where + " is of type " + shown(ordered_json(type)) + "; allowed: input_text, input_image, output_text, refusal");
  }

  /// The thought itself where it is told, as this server tells it; else what was to be given back of it, or its summary.
  void read_thought(const RequestFields& fields, const std::string& where) {
    std::string thought = texts_of(fields, "content", where);
    if (thought.empty()) thought = fields.string("encrypted_content").value_or("");
    if (thought.empty()) thought = texts_of(fields, "summary", where);
    builder_.count(thought);
    if (!turn().parts.empty() || !turn().calls.empty()) end_turn();
    turn().reasoning += thought;
  }

  static std::string texts_of(const RequestFields& fields, const char* name, const std::string& where) {
    const ordered_json* list = fields.find(name);
    if (list == nullptr) return "";
    if (!list->is_array()) fields.refuse_kind(name, "a list of texts");
    std::string text;
    for (std::size_t i = 0; i < list->size(); ++i) {
      const std::string path = ChatBuilder::at(where + "." + name, i);
      if (!(*list)[i].is_object()) refuse_form(path, path + " is " + shown((*list)[i]) + "; allowed: a text");
      text += required_text(RequestFields((*list)[i], path + "."), "text", path);
    }
    return text;
  }

  void read_call(const RequestFields& fields, const std::string& where) {
    ordered_json arguments = builder_.arguments(fields.find("arguments"));
    turn().calls.push_back(
        ChatBuilder::call(required_text(fields, "call_id", where), required_text(fields, "name", where), std::move(arguments)));
  }

  void read_output(const RequestFields& fields, const std::string& where) {
    finish();
    builder_.add({{"role", "tool"},
                  {"tool_call_id", required_text(fields, "call_id", where)},
                  {"content", content_of_parts(parts_of(fields.find("output"), where + ".output"))}});
  }

  ChatBuilder& builder_;
  ordered_json system_ = ordered_json::array();
  bool is_behind_system_ = false;
  AssistantTurn turn_;
};

}  // namespace

ChatMessages read_responses_input(const RequestFields& fields, const ServerLimits& limits) {
  const ordered_json* input = fields.find("input");
  if (input == nullptr) refuse_form("input", "missing field `input`");
  ChatMessages chat;
  ChatBuilder builder(chat, "input", limits);
  ItemReader reader(builder);
  if (auto instructions = fields.string("instructions")) reader.read_instructions(std::move(*instructions));
  if (input->is_string()) {
    reader.read({{"role", "user"}, {"content", *input}}, "input");
  } else {
    builder.check_list(*input);
    for (std::size_t i = 0; i < input->size(); ++i) reader.read((*input)[i], ChatBuilder::at("input", i));
  }
  reader.finish();
  return chat;
}

}  // namespace ferry::api::openai
