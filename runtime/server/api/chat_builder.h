#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/server/api/request_fields.h"

namespace ferry::api {

/// A conversation as the chat template takes it, and what its messages show beside text.
struct ChatMessages {
  ordered_json messages = ordered_json::array();
  std::vector<std::string> picture_urls;  // of the image parts, in order
};

/// Gathers the parts of a conversation in the form that templates take, and counts them, so that it has a bound whichever API
/// it came by. All but at() and call() throw ApiError.
class ChatBuilder {
 public:
  /// `field` is where the conversation stands in the request.
  ChatBuilder(ChatMessages& chat, std::string field, const ServerLimits& limits);

  /// Refuses a list that is none, is empty or is too long.
  void check_list(const ordered_json& list) const;
  /// `text` counts as the conversation's.
  void count(const std::string& text);
  ordered_json text_part(std::string text);
  ordered_json picture_part(std::string url);
  /// Reads the arguments of a call, which are an object or its text. Anything else, such as the beginning of an object, becomes
  /// one argument, "arguments", with that text.
  ordered_json arguments(const ordered_json* arguments);
  void add(ordered_json message) { chat_.messages.push_back(std::move(message)); }

  /// A call of a message's `tool_calls`.
  static ordered_json call(const std::string& id, const std::string& name, ordered_json arguments);
  /// "messages[3]".
  static std::string at(const std::string& where, std::size_t index) { return where + "[" + std::to_string(index) + "]"; }

 private:
  ChatMessages& chat_;
  const std::string field_;
  const ServerLimits& limits_;
  int64_t num_bytes_ = 0;
};

/// An assistant's message of which the pieces come one by one.
struct AssistantTurn {
  std::string reasoning;
  ordered_json parts = ordered_json::array();
  ordered_json calls = ordered_json::array();

  bool empty() const { return reasoning.empty() && parts.empty() && calls.empty(); }
  ordered_json message() const;
};

/// Parts as a message's content: one that is text is that text.
ordered_json content_of_parts(ordered_json parts);
/// A text that an object has to have.
std::string required_text(const RequestFields& fields, const char* name, const std::string& where);

}  // namespace ferry::api
