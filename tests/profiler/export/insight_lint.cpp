#include "tests/profiler/export/insight_lint.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

namespace ferry {
namespace {

using nlohmann::json;
using Place = std::pair<int64_t, int64_t>;  // pid, tid

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
const std::set<std::string> kPhases = {"M", "X", "I", "C", "s", "t", "f"};

/// Whether a brace stands inside a string of the line.
bool has_quoted_brace(const std::string& line) {
  bool is_quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (is_quoted && line[i] == '\\') {
      ++i;
    } else if (line[i] == '"') {
      is_quoted = !is_quoted;
    } else if (is_quoted && (line[i] == '{' || line[i] == '}')) {
      return true;
    }
  }
  return false;
}

/// Whether a JSON number without sign and with exactly three decimals comes first.
bool has_three_decimals(const std::string& text) {
  const std::size_t point = text.find_first_not_of("0123456789");
  if (point == 0 || point == std::string::npos || text[point] != '.') return false;
  const std::size_t end = text.find_first_not_of("0123456789", point + 1);
  return end == point + 4 && (text[end] == ',' || text[end] == '}');
}

struct Span {
  int64_t begin = 0, end = 0;  // ns
};

class Linter {
 public:
  explicit Linter(const std::string& text) : text_(text) {}

  std::vector<std::string> run() {
    check_head();
    check_blocks();
    std::istringstream lines(text_.substr(std::min(text_.size(), text_.find('[') + 1)));
    std::string line;
    while (std::getline(lines, line)) {
      ++number_;
      if (line.empty()) continue;
      if (line.front() == ']') break;
      if (line.back() == ',') line.pop_back();
      check_line(line);
    }
    for (auto& [place, spans] : slices_) check_nesting(place, spans);
    check_names();
    for (const auto& [key, ends] : flows_) {
      if (ends.first != 1 || ends.second != 1) complain("flow '" + key + "' does not have one start and one end");
    }
    return std::move(complaints_);
  }

 private:
  void complain(const std::string& what) { complaints_.push_back("line " + std::to_string(number_) + ": " + what); }

  void check_head() {
    const std::size_t bracket = text_.find('[');
    if (bracket == std::string::npos) return complain("no array");
    const std::string head = text_.substr(0, bracket);
    if (!head.empty() && (head.find("traceEvents") == std::string::npos || bracket > kBlockBytes))
      complain("neither a bare array nor traceEvents near the front");
    if (head.find("profilingType") != std::string::npos && head.find("op") != std::string::npos)
      complain("the head makes the reader take it for a simulator's trace");
  }

  /// Files are cut into blocks at events, which are searched for by "ph".
  void check_blocks() {
    std::size_t last = 0;
    for (std::size_t at = text_.find("\"ph\""); at != std::string::npos; at = text_.find("\"ph\"", at + 1)) {
      if (at - last > kBlockBytes) complain("no event within 1 MiB");
      last = at;
    }
    if (text_.size() - last > kBlockBytes) complain("the last event is not within the last 1 MiB");
  }

  void check_line(const std::string& line) {
    if (has_quoted_brace(line)) complain("a brace in a string: " + line);
    const json event = json::parse(line, nullptr, false);
    if (!event.is_object()) return complain("not one event: " + line);
    const std::string phase = event.value("ph", "");
    if (!kPhases.contains(phase)) return complain("phase '" + phase + "' is ignored");
    if (!event.contains("name") || !event["name"].is_string() || event["name"] == "") complain("no name: " + line);
    if (!check_ids(event)) return;
    const Place place{event["pid"].get<int64_t>(), event["tid"].get<int64_t>()};
    if (phase == "M") return note_metadata(event, place);
    if (!check_times(line, event)) return;
    if (phase == "X" && event.contains("ts") && event.contains("dur")) {
      const int64_t begin = std::llround(event["ts"].get<double>() * 1000);
      slices_[place].push_back({begin, begin + std::llround(event["dur"].get<double>() * 1000)});
    } else if (phase == "X") {
      complain("a slice without ts or dur");
    } else if (phase == "C") {
      counted_.insert(place.first);
      if (!event.contains("args") || !event["args"].is_object() || event["args"].empty()) complain("a counter without values");
    } else if (phase == "s" || phase == "f") {
      note_flow(event, phase == "s");
    }
  }

  bool check_ids(const json& event) {
    for (const char* const key : {"pid", "tid"}) {
      if (!event.contains(key) || !event[key].is_number_integer()) {
        complain(std::string("no integer ") + key);
        return false;
      }
    }
    if (event["pid"] < 0 || event["pid"] >= int64_t{1} << 32) complain("pid out of range: " + event["pid"].dump());
    if (event["tid"] < 0 || event["tid"] >= int64_t{1} << 31) complain("tid out of range: " + event["tid"].dump());
    return true;
  }

  bool check_times(const std::string& line, const json& event) {
    for (const std::string key : {"ts", "dur"}) {
      if (!event.contains(key)) continue;
      const std::size_t at = line.find("\"" + key + "\":");
      if (at == std::string::npos || !has_three_decimals(line.substr(at + key.size() + 3)))
        complain(key + " has not exactly three decimals: " + line);
      if (!event[key].is_number()) return false;
    }
    if (!event.contains("ts") || event["ts"] <= 0) complain("no time, or time 0: " + line);
    return true;
  }

  void note_metadata(const json& event, const Place& place) {
    const json& args = event["args"];
    if (event["name"] == "process_name") processes_.insert(place.first);
    if (event["name"] == "thread_name") threads_.insert(place);
    if (event["name"] == "process_sort_index" && args.value("sort_index", int64_t{-1}) != (place.first >> 5 & 31))
      complain("the process id does not hold the sort index: " + event.dump());
    if (event["name"] == "process_labels") {
      const std::string device = (place.first & 31) == 31 ? "CPU" : "NPU " + std::to_string(place.first & 31);
      if (args.value("labels", "") != device) complain("the process id does not hold the device: " + event.dump());
    }
  }

  void note_flow(const json& event, bool is_start) {
    if (!event.contains("id") || !event["id"].is_number_integer() || event["id"] >= int64_t{1} << 53)
      return complain("a flow without a proper id");
    auto& ends = flows_[event["name"].get<std::string>() + " " + event.value("cat", "") + " " + event["id"].dump()];
    ++(is_start ? ends.first : ends.second);
  }

  void check_nesting(const Place& place, std::vector<Span>& spans) {
    std::sort(spans.begin(), spans.end(),
              [](const Span& x, const Span& y) { return std::pair(x.begin, -x.end) < std::pair(y.begin, -y.end); });
    std::vector<int64_t> open;
    for (const Span& span : spans) {
      while (!open.empty() && open.back() <= span.begin) open.pop_back();
      if (!open.empty() && open.back() < span.end)
        complain("slices overlap on " + std::to_string(place.first) + "/" + std::to_string(place.second) + " at " +
                 std::to_string(span.begin) + " ns");
      open.push_back(span.end);
    }
  }

  void check_names() {
    for (const auto& [place, spans] : slices_) {
      if (!threads_.contains(place)) complain("lane " + std::to_string(place.second) + " has no name");
      if (!processes_.contains(place.first)) complain("process " + std::to_string(place.first) + " has no name");
    }
    for (const int64_t pid : counted_) {
      if (!processes_.contains(pid)) complain("process " + std::to_string(pid) + " has no name");
    }
  }

  const std::string& text_;
  int64_t number_ = 0;
  std::vector<std::string> complaints_;
  std::map<Place, std::vector<Span>> slices_;
  std::set<int64_t> processes_, counted_;
  std::set<Place> threads_;
  std::map<std::string, std::pair<int, int>> flows_;
};

}  // namespace

std::vector<std::string> lint_insight_trace(const std::string& text) { return Linter(text).run(); }

}  // namespace ferry
