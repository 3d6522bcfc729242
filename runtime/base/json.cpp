#include "runtime/base/json.h"

#include <nlohmann/json.hpp>
#include <set>
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

/// Refuses keys that occur twice in an object. The depth is checked.
json parse_unique(std::string_view text, const std::string& name, int max_depth) {
  std::vector<std::set<std::string>> keys(static_cast<std::size_t>(max_depth) + 1);  // of the objects that are open, by depth
  const auto on_event = [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) keys[static_cast<std::size_t>(depth) + 1].clear();
    if (event == json::parse_event_t::key && !keys[static_cast<std::size_t>(depth)].insert(value.get<std::string>()).second) {
      throw_invalid(name + ": key " + in_quotes(value.get_ref<const std::string&>()) + " occurs twice");
    }
    return true;
  };
  return json::parse(text.begin(), text.end(), on_event);
}

/// Appends `value` as JSON and stops soon after kShownMax bytes, however large it is.
void append_shown(const json& value, std::string& out) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
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

}  // namespace

json parse_json(std::string_view text, const std::string& name, const JsonLimits& limits) {
  check_text(text, name, limits);
  try {
    if (limits.duplicates == DuplicateKeys::kLastWins) return json::parse(text.begin(), text.end());
    return parse_unique(text, name, limits.depth);
  } catch (const json::exception& e) {
    throw_invalid(name + ": not valid JSON: " + in_quotes(e.what()));
  }
}

json read_json_file(const std::filesystem::path& path, const JsonLimits& limits) {
  return parse_json(read_text_file(path, limits.bytes), path.string(), limits);
}

std::string shown(const json& value) {
  std::string text;
  append_shown(value, text);
  if (text.size() <= kShownMax) return text;
  return whole_characters(text, kShownMax - 3) + "...";
}

}  // namespace ferry
