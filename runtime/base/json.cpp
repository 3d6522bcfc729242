#include "runtime/base/json.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/quoting.h"
#include "runtime/base/text_file.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr std::size_t kShownMax = 120;  // bytes of a value in a message

/// Sizes, and that the parser will see all of the text: it takes a NUL byte for the end.
/// Brackets and commas are counted before parsing: a parser with callbacks would need twice the time for a large tokenizer, and
/// what stands in memory by then is the text alone.
void check_text(std::string_view text, const std::string& name, const JsonLimits& limits) {
  const auto refuse = [&](const std::string& what, int64_t most) {
    throw_invalid(name + ": JSON " + what + " " + std::to_string(most));
  };
  if (static_cast<int64_t>(text.size()) > limits.bytes)
    refuse("has " + std::to_string(text.size()) + " bytes; allowed: at most", limits.bytes);
  int depth = 0;
  int64_t num_values = 1;  // or more than there are: an empty list counts as two
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\') ++i;  // whatever follows, it does not end the string
    if (c == '"') in_string = !in_string;
    if (c == '\0') throw_invalid(name + ": JSON has a NUL byte at position " + std::to_string(i));
    if (in_string) continue;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (c == '[' || c == '{' || c == ',') ++num_values;
    if (depth > limits.depth) refuse("is nested deeper than", limits.depth);
  }
  if (num_values > limits.values) refuse("has more values than", limits.values);
}

/// No object has too many members. Of text that passed check_text, so that its depth is bounded.
void check_members(std::string_view text, const std::string& name, int64_t most) {
  struct Open {
    bool is_object;
    int64_t num_commas = 0;
  };
  std::vector<Open> open;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\') ++i;
    if (c == '"') in_string = !in_string;
    if (in_string) continue;
    if (c == '[' || c == '{') open.push_back({.is_object = c == '{'});
    if ((c == ']' || c == '}') && !open.empty()) open.pop_back();
    if (c != ',' || open.empty()) continue;
    if (++open.back().num_commas >= most && open.back().is_object)
      throw_invalid(name + ": JSON has an object of more members than " + std::to_string(most));
  }
}

/// Refuses keys that occur twice in an object. It makes no values: the library's own callbacks look through all that an object
/// has so far after each of its members, which takes minutes for the header of a large checkpoint.
class UniqueKeys : public nlohmann::json_sax<json> {
 public:
  explicit UniqueKeys(const std::string& name) : name_(name) {}

  bool start_object(std::size_t /*elements*/) override {
    keys_.emplace_back();
    return true;
  }
  bool key(string_t& key) override {
    if (!keys_.back().insert(key).second) throw_invalid(name_ + ": key " + in_quotes(key) + " occurs twice");
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_array(std::size_t /*elements*/) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/, const json::exception& /*error*/) override {
    return false;  // the parser that makes the values says it better
  }

 private:
  const std::string& name_;
  std::vector<std::unordered_set<std::string>> keys_;  // of the objects that are open
};

/// Appends `value` as JSON and stops soon after kShownMax bytes, however large it is.
template <class Json>
void append_shown(const Json& value, std::string& out) {
  if (value.is_string()) {
    const auto& text = value.template get_ref<const std::string&>();
    out += json(text.substr(0, kShownMax)).dump(-1, ' ', false, json::error_handler_t::replace);
  } else if (!value.is_structured()) {
    out += value.dump();
  } else {
    const bool is_object = value.is_object();
    out += is_object ? '{' : '[';
    for (auto it = value.begin(); it != value.end() && out.size() <= kShownMax; ++it) {
      if (it != value.begin()) out += ',';
      if (is_object) append_shown(json(it.key().substr(0, kShownMax)), out);
      if (is_object) out += ':';
      append_shown(*it, out);
    }
    out += is_object ? '}' : ']';
  }
}

template <class Json>
std::string shown_of(const Json& value) {
  std::string text;
  append_shown(value, text);
  if (text.size() <= kShownMax) return text;
  return whole_characters(text, kShownMax - 3) + "...";
}

/// What the parser says behind "[json.exception.parse_error.101] ", which may quote all of a long string.
std::string without_code(std::string_view text) {
  constexpr std::size_t kSaidMax = 300;  // bytes
  const std::size_t end = text.starts_with('[') ? text.find("] ") : std::string_view::npos;
  return whole_characters(end == std::string_view::npos ? text : text.substr(end + 2), kSaidMax);
}

template <class Json>
Json parse(std::string_view text, const std::string& name, const JsonLimits& limits) {
  check_text(text, name, limits);
  if (limits.members < INT64_MAX) check_members(text, name, limits.members);
  try {
    UniqueKeys unique(name);
    if (limits.duplicates == DuplicateKeys::kRefuse) json::sax_parse(text.begin(), text.end(), &unique);
    return Json::parse(text.begin(), text.end());
  } catch (const json::exception& e) {
    throw_invalid(name + ": not valid JSON: " + without_code(e.what()));
  }
}

}  // namespace

json parse_json(std::string_view text, const std::string& name, const JsonLimits& limits) {
  return parse<json>(text, name, limits);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& name, const JsonLimits& limits) {
  return parse<nlohmann::ordered_json>(text, name, limits);
}

json read_json_file(const std::filesystem::path& path, const JsonLimits& limits) {
  return parse_json(read_text_file(path, limits.bytes), path.string(), limits);
}

std::string shown(const json& value) { return shown_of(value); }
std::string shown(const nlohmann::ordered_json& value) { return shown_of(value); }

}  // namespace ferry
