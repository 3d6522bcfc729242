#include "runtime/server/log/request_line.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "runtime/base/quoting.h"

namespace ferry {
namespace {

using nlohmann::ordered_json;
using std::chrono::system_clock;

constexpr std::size_t kMaxTextBytes = 256;  // of what a client may choose; escaped it is up to six times as long

/// "2026-11-30T08:12:34.567Z"
std::string time_text(system_clock::time_point time) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
  const std::time_t seconds = ms / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char date[32], text[48];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text, sizeof text, "%s.%03dZ", date, static_cast<int>(ms % 1000));
  return text;
}

ordered_json string_or_null(const std::string& text) {
  return text.empty() ? ordered_json() : ordered_json(whole_characters(text, kMaxTextBytes));
}

/// To the microsecond.
ordered_json seconds_json(const std::optional<double>& seconds) {
  return seconds ? ordered_json(std::round(*seconds * 1e6) / 1e6) : ordered_json();
}

ordered_json fields_of(const EndedRequest& request) {
  const RequestFigures& figures = request.figures;
  const bool has_tokens = figures.num_choices > 0;
  const auto count = [&](int64_t number) { return has_tokens ? ordered_json(number) : ordered_json(); };
  return {{"time", time_text(request.time)},
          {"port", request.port},
          {"method", string_or_null(request.method)},
          {"route", string_or_null(request.route)},
          {"status", request.status},
          {"id", string_or_null(figures.id)},
          {"key", string_or_null(request.key)},
          {"choices", count(figures.num_choices)},
          {"prompt_tokens", count(figures.prompt_tokens)},
          {"cached_tokens", count(figures.cached_tokens)},
          {"completion_tokens", count(figures.completion_tokens)},
          {"queue_s", seconds_json(figures.queue_s)},
          {"first_token_s", seconds_json(figures.first_token_s)},
          {"total_s", seconds_json(request.total_s)}};
}

ordered_json gap_fields(system_clock::time_point time, int64_t num_lines) {
  return {{"time", time_text(time)}, {"dropped_lines", num_lines}};
}

/// In ASCII: no character of a client's can end the line or turn what stands behind it.
std::string dumped(const ordered_json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace);
}

std::string as_json(const ordered_json& fields) { return dumped(fields) + "\n"; }

/// A text without spaces, quotes and the like stands as it is, every other one as JSON has it.
std::string as_text(const ordered_json& fields) {
  std::string line;
  for (const auto& [name, value] : fields.items()) {
    if (value.is_null()) continue;
    const std::string quoted = dumped(value);
    const auto is_plain = [](char c) { return c > ' ' && c <= '~' && c != '"' && c != '\\' && c != '='; };
    const auto* text = value.get_ptr<const std::string*>();
    const bool stays = text != nullptr && std::all_of(text->begin(), text->end(), is_plain);
    line += (line.empty() ? "" : " ") + name + "=" + (stays ? *text : quoted);
  }
  return line + "\n";
}

}  // namespace

std::string json_line(const EndedRequest& request) { return as_json(fields_of(request)); }
std::string text_line(const EndedRequest& request) { return as_text(fields_of(request)); }

std::string json_gap(system_clock::time_point time, int64_t num_lines) { return as_json(gap_fields(time, num_lines)); }
std::string text_gap(system_clock::time_point time, int64_t num_lines) { return as_text(gap_fields(time, num_lines)); }

}  // namespace ferry
