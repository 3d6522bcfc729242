#include "runtime/text/reply/arguments_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr std::string_view kJsonSpace = " \t\n\r";
constexpr JsonLimits kValueLimits{.depth = 128}, kArgumentLimits{.depth = 129};

/// Appends `text` as the inside of a JSON string; characters beyond ASCII stay as they are.
void append_escaped(std::string_view text, std::string& out) {
  static constexpr char kHex[] = "0123456789abcdef";
  static constexpr std::string_view kShort = "\"\\\b\f\n\r\t";
  static constexpr std::string_view kShortNames = "\"\\bfnrt";
  for (const char c : text) {
    const std::size_t place = kShort.find(c);
    if (place != std::string_view::npos) {
      out += '\\';
      out += kShortNames[place];
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += kHex[static_cast<unsigned char>(c) >> 4];
      out += kHex[static_cast<unsigned char>(c) & 0xF];
    } else {
      out += c;
    }
  }
}

std::string_view without_json_space(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kJsonSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kJsonSpace) - begin + 1);
}

JsonTypes types_of_value(const json& value) {
  if (value.is_string()) return kJsonString;
  if (value.is_number_integer()) return kJsonInteger | kJsonNumber;
  if (value.is_number()) {
    const auto number = value.get<double>();
    return number == static_cast<double>(static_cast<int64_t>(std::clamp(number, -1e15, 1e15))) ? kJsonInteger | kJsonNumber
                                                                                                : kJsonNumber;
  }
  if (value.is_boolean()) return kJsonBoolean;
  if (value.is_null()) return kJsonNull;
  return value.is_object() ? kJsonObject : kJsonArray;
}

/// `text` as JSON of one of `types`, or nothing if it is to be a string.
std::optional<std::string> as_json(std::string_view text, JsonTypes types) {
  text = without_json_space(text);
  if ((types & kJsonBoolean) != 0 && text == "True") return "true";
  if ((types & kJsonBoolean) != 0 && text == "False") return "false";
  if ((types & kJsonNull) != 0 && text == "None") return "null";
  try {
    const JsonTypes found = types_of_value(parse_json(text, "value", kValueLimits));
    const bool wanted = (types & kJsonString) == 0 || (found & types & ~kJsonString) != 0;
    return wanted ? std::optional(std::string(text)) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool is_json(std::string_view text) {
  try {
    parse_json(text, "arguments", kArgumentLimits);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// The choice that `text` is, white space around both not counted; else `text`.
std::string as_choice(const std::string& text, const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), text) != choices.end()) return text;
  const std::string_view word = without_json_space(text);
  const auto is_meant = [&](const std::string& choice) { return without_json_space(choice) == word; };
  const auto found = std::find_if(choices.begin(), choices.end(), is_meant);
  return found == choices.end() ? text : *found;
}

bool may_become_null(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(kJsonSpace), text.size());
  const std::string_view word = text.substr(begin, text.find_last_not_of(kJsonSpace) + 1 - begin);
  if (begin + word.size() < text.size()) return word.empty() || word == "null" || word == "None";
  return std::string_view("null").starts_with(word) || std::string_view("None").starts_with(word);
}

/// The end of the JSON value that begins at `begin`: where a comma or the object's bracket follows it.
std::size_t end_of_value(std::string_view text, std::size_t begin) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\') ++i;
    if (c == '"') in_string = !in_string;
    if (in_string) continue;
    if (depth == 0 && (c == ',' || c == '}' || c == ':')) return i;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
  }
  return text.size();
}

}  // namespace

void ArgumentsWriter::begin(std::string_view name, std::string& out) {
  in_value_ = true;
  types_ = tool_ == nullptr ? JsonTypes{0} : tool_->types_of(name);
  choices_ = tool_ == nullptr ? nullptr : tool_->choices_of(name);
  kept_.clear();
  key_ = has_members_ ? ", \"" : "{\"";
  has_members_ = true;
  append_escaped(name, key_);
  key_ += "\": ";
  const auto others = static_cast<JsonTypes>(types_ & ~kJsonString);
  mode_ = Mode::kWholeValue;
  if (choices_ != nullptr) return;
  if (others == kJsonNull && types_ != others) mode_ = Mode::kMaybeNull;
  if (others == 0) open_string(out);
}

void ArgumentsWriter::open_string(std::string& out) {
  mode_ = Mode::kString;
  out += key_;
  out += '"';
  append_escaped(kept_, out);
}

void ArgumentsWriter::value(std::string_view text, std::string& out) {
  if (mode_ == Mode::kString) {
    append_escaped(text, out);
    return;
  }
  kept_ += text;
  if (mode_ == Mode::kMaybeNull && !may_become_null(kept_)) open_string(out);
}

void ArgumentsWriter::end(std::string& out) {
  if (mode_ != Mode::kString) {
    if (const std::optional<std::string> whole = as_json(kept_, types_)) {
      out += key_;
      out += *whole;
      in_value_ = false;
      return;
    }
    if (choices_ != nullptr) kept_ = as_choice(kept_, *choices_);
    open_string(out);
  }
  out += '"';
  in_value_ = false;
}

void ArgumentsWriter::close(std::string& out) {
  if (in_value_) end(out);
  out += has_members_ ? "}" : "{}";
}

void ArgumentsWriter::cut(std::string& out) {
  if (in_value_ && mode_ != Mode::kString) out += key_ + kept_;
}

std::string without_repeated_keys(const std::string& arguments) {
  if (!is_json(arguments)) return arguments;  // cut
  struct Member {
    std::string_view key;
    std::string_view value;
  };
  std::vector<Member> members;
  const std::string_view text = arguments;
  for (std::size_t at = 1; at < text.size() && text[at] == '"';) {
    const std::size_t colon = end_of_value(text, at);
    const std::size_t end = end_of_value(text, colon + 2);
    const Member member{text.substr(at, colon - at), text.substr(colon + 2, end - colon - 2)};
    const auto found = std::find_if(members.begin(), members.end(), [&](const Member& m) { return m.key == member.key; });
    if (found == members.end()) {
      members.push_back(member);
    } else {
      found->value = member.value;
    }
    at = end + 2;
  }
  std::string result = "{";
  for (const Member& member : members) {
    if (result.size() > 1) result += ", ";
    result.append(member.key).append(": ").append(member.value);
  }
  return result + "}";
}

}  // namespace ferry
