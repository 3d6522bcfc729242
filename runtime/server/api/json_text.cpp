#include "runtime/server/api/json_text.h"

#include <algorithm>
#include <charconv>

#include "runtime/server/api/answer.h"

namespace ferry::api {
namespace {

constexpr std::size_t kNumberBytes = 32;  // of the longest number

}  // namespace

void JsonText::separate() {
  if (needs_comma_) text_ += ',';
  needs_comma_ = true;
}

JsonText& JsonText::begin(char bracket) {
  separate();
  text_ += bracket;
  needs_comma_ = false;
  return *this;
}

JsonText& JsonText::end(char bracket) {
  text_ += bracket;
  needs_comma_ = true;
  return *this;
}

JsonText& JsonText::key(std::string_view name) {
  separate();
  append_quoted(name);
  text_ += ':';
  needs_comma_ = false;
  return *this;
}

JsonText& JsonText::member(std::string_view name, const ordered_json& value) {
  key(name).separate();
  text_ += dump(value);
  return *this;
}

JsonText& JsonText::string(std::string_view utf8) {
  separate();
  append_quoted(utf8);
  return *this;
}

/// A whole number keeps a fraction, by which readers know its kind.
JsonText& JsonText::number(double number) {
  separate();
  char text[kNumberBytes];
  const char* const stop = std::to_chars(text, text + sizeof text, number).ptr;
  text_.append(text, static_cast<std::size_t>(stop - text));
  if (std::none_of(static_cast<const char*>(text), stop, [](char c) { return c == '.' || c == 'e'; })) text_ += ".0";
  return *this;
}

JsonText& JsonText::integer(int64_t number) {
  separate();
  char text[kNumberBytes];
  text_.append(text, std::to_chars(text, text + sizeof text, number).ptr);
  return *this;
}

JsonText& JsonText::null() {
  separate();
  text_ += "null";
  return *this;
}

/// Escapes what has to be (RFC 8259 §7), as nlohmann::json does.
void JsonText::append_quoted(std::string_view utf8) {
  constexpr char kDigits[] = "0123456789abcdef";
  text_ += '"';
  for (const char c : utf8) {
    switch (c) {
      case '"': text_ += "\\\""; break;
      case '\\': text_ += "\\\\"; break;
      case '\b': text_ += "\\b"; break;
      case '\f': text_ += "\\f"; break;
      case '\n': text_ += "\\n"; break;
      case '\r': text_ += "\\r"; break;
      case '\t': text_ += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) >= ' ') {
          text_ += c;
        } else {
          text_ += "\\u00";
          text_ += kDigits[static_cast<unsigned char>(c) >> 4U];
          text_ += kDigits[static_cast<unsigned char>(c) & 15U];
        }
    }
  }
  text_ += '"';
}

void write_token_ids(std::span<const TokenId> ids, JsonText& json) {
  json.begin_array();
  for (const TokenId id : ids) json.integer(id);
  json.end_array();
}

}  // namespace ferry::api
