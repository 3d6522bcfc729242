#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/types.h"

namespace ferry::api {

using nlohmann::ordered_json;

/// Writes JSON as text from its beginning to its end, so that no tree is needed of what is large. Commas come by themselves:
///
///   JsonText json;
///   json.begin_object();
///   json.member("id", "cmpl-1");
///   json.key("logprobs").begin_array().number(-0.5).end_array();
///   json.end_object();
///   std::string text = json.take();
///
/// The caller keeps brackets and keys in order.
class JsonText {
 public:
  /// With room for a text of so many bytes, which then does not have to move while it grows.
  explicit JsonText(std::size_t num_bytes = 0) { text_.reserve(num_bytes); }

  JsonText& begin_object() { return begin('{'); }
  JsonText& end_object() { return end('}'); }
  JsonText& begin_array() { return begin('['); }
  JsonText& end_array() { return end(']'); }
  /// Its value follows.
  JsonText& key(std::string_view name);

  JsonText& string(std::string_view utf8);  // which must be UTF-8
  JsonText& number(double number);          // finite; as short as it can be read back
  JsonText& integer(int64_t number);
  JsonText& null();
  JsonText& member(std::string_view name, const ordered_json& value);

  /// Returns all that was written.
  std::string take() { return std::move(text_); }

 private:
  JsonText& begin(char bracket);
  JsonText& end(char bracket);
  void separate();
  void append_quoted(std::string_view utf8);

  std::string text_;
  bool needs_comma_ = false;  // before the next value
};

/// A list of numbers.
void write_token_ids(std::span<const TokenId> ids, JsonText& json);

}  // namespace ferry::api
