#include "profiler/archive/step_history.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/pending_file.h"

namespace ferry {

using nlohmann::json;

namespace {

constexpr JsonLimits kDayJson{.depth = 6, .bytes = int64_t{64} << 20, .values = int64_t{1} << 23};
constexpr int64_t kMostSteps = int64_t{1} << 33;  // of a class in an hour: sums over all files stay far from overflow
constexpr std::size_t kMaxFiles = 64;             // the latest
constexpr double kLongest = 1e9;                  // seconds

int64_t hour_of(int64_t time_s) { return time_s / StepHistory::kHour; }
int64_t day_of(int64_t time_s) { return time_s / StepHistory::kDay; }

Error damaged_day(const std::string& source, const std::string& what) {
  return {ErrorCode::kInvalidArgument, source + ": " + what + "; allowed: a day of steps that Ferry wrote"};
}

void require_day(bool is_true, const std::string& source, const char* what) {
  if (!is_true) throw damaged_day(source, what);
}

int64_t number_in(const json& value, int64_t least, int64_t most, const std::string& source, const char* what) {
  require_day(value.is_number_integer(), source, what);
  const auto number = value.get<int64_t>();
  require_day(number >= least && number <= most, source, what);
  return number;
}

/// [class, count, class, count, …] of a kind.
StepSketch sketch_from(const json& kind, const std::string& source) {
  const json& flat = kind.at("counts");
  require_day(flat.is_array() && flat.size() % 2 == 0 && flat.size() <= 2 * (StepSketch::kMaxClass + std::size_t{1}), source,
              "counts");
  std::vector<StepSketch::Count> counts;
  int64_t next = 0;
  for (std::size_t i = 0; i < flat.size(); i += 2) {
    const int64_t step_class = number_in(flat[i], next, StepSketch::kMaxClass, source, "a class of lengths");
    counts.emplace_back(static_cast<int16_t>(step_class), number_in(flat[i + 1], 1, kMostSteps, source, "a count of steps"));
    next = step_class + 1;
  }
  const auto longest = kind.at("longest_s").get<double>();
  require_day(longest >= 0 && longest <= kLongest, source, "longest_s");
  return {std::move(counts), longest};
}

json sketch_json(const StepKind& kind, const StepSketch& sketch) {
  json counts = json::array();
  for (const auto& [step_class, number] : sketch.counts()) {
    counts.push_back(step_class);
    counts.push_back(number);
  }
  return {{"phase", static_cast<int>(kind.phase)},
          {"rows", kind.rows},
          {"keys", kind.keys},
          {"longest_s", sketch.longest()},
          {"counts", std::move(counts)}};
}

void add_counts(CountsByReason& sum, const CountsByReason& counts) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += counts[i];
}

/// By hour of the day that begins with the hour `first`; older files have none.
std::map<int64_t, CountsByReason> left_out_from(const json& day, int64_t first, const std::string& source) {
  std::map<int64_t, CountsByReason> left_out;
  if (!day.contains("left_out")) return left_out;
  for (const json& hour : day.at("left_out")) {
    constexpr int64_t kHours = StepHistory::kDay / StepHistory::kHour;
    CountsByReason counts{};
    const json& read = hour.at("counts");
    require_day(read.is_array() && read.size() == counts.size(), source, "counts of steps that were left out");
    for (std::size_t i = 0; i < counts.size(); ++i)
      counts[i] = number_in(read[i], 0, kMostSteps, source, "a count of steps that were left out");
    const int64_t of = number_in(hour.at("hour"), first, first + kHours - 1, source, "an hour of another day");
    require_day(left_out.emplace(of, counts).second, source, "an hour twice");
  }
  return left_out;
}

std::filesystem::path day_path(const std::filesystem::path& folder, int64_t day) {
  return folder / ("steps-" + std::to_string(day) + ".json");
}

/// The day of a file of that name; nothing for any other file.
std::optional<int64_t> day_of_file(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with("steps-") || !name.ends_with(".json")) return std::nullopt;
  const char *begin = name.data() + 6, *end = name.data() + name.size() - 5;
  int64_t day = 0;
  const auto [stop, error] = std::from_chars(begin, end, day);
  if (error != std::errc() || stop != end || day < 0) return std::nullopt;
  return day;
}

std::vector<std::filesystem::path> day_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code code;
  for (std::filesystem::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
    if (day_of_file(entry->path())) files.push_back(entry->path());
  }
  std::ranges::sort(files, std::greater<>{}, [](const std::filesystem::path& path) { return *day_of_file(path); });
  return files;
}

}  // namespace

void StepHistory::add(const StepKind& kind, double seconds, int64_t time_s) {
  Kinds& kinds = hours_[hour_of(time_s)];
  const bool has_room = kinds.size() < kMaxKinds || kinds.contains(kind);
  kinds[has_room ? kind : other_kind(kind.phase)].add(seconds);
}

void StepHistory::add_left_out(KeptFor why, int64_t count, int64_t time_s) {
  if (count > 0) left_out_[hour_of(time_s)][static_cast<std::size_t>(why)] += count;
}

void StepHistory::forget(int64_t now_s) {
  const int64_t first = hour_of(now_s - kMaxDays * kDay);
  hours_.erase(hours_.begin(), hours_.lower_bound(first));
  left_out_.erase(left_out_.begin(), left_out_.lower_bound(first));
}

CountsByReason StepHistory::left_out(int64_t from_s, int64_t to_s) const {
  CountsByReason sum{};
  const auto end = left_out_.lower_bound(hour_of(to_s + kHour - 1));
  for (auto hour = left_out_.lower_bound(hour_of(from_s)); hour != end && hour != left_out_.end(); ++hour)
    add_counts(sum, hour->second);
  return sum;
}

StepHistory::Kinds StepHistory::kinds(int64_t from_s, int64_t to_s) const {
  Kinds all;
  const auto end = hours_.lower_bound(hour_of(to_s + kHour - 1));
  for (auto hour = hours_.lower_bound(hour_of(from_s)); hour != end && hour != hours_.end(); ++hour) {
    for (const auto& [kind, sketch] : hour->second) all[kind].add(sketch);
  }
  return all;
}

StepSketch StepHistory::phase(Phase phase, int64_t from_s, int64_t to_s) const {
  StepSketch sum;
  for (const auto& [kind, sketch] : kinds(from_s, to_s)) {
    if (kind.phase == phase) sum.add(sketch);
  }
  return sum;
}

std::string StepHistory::day_text(int64_t time_s) const {
  const int64_t first = day_of(time_s) * (kDay / kHour);
  json hours = json::array();
  for (auto hour = hours_.lower_bound(first); hour != hours_.end() && hour->first < first + kDay / kHour; ++hour) {
    json kinds = json::array();
    for (const auto& [kind, sketch] : hour->second) kinds.push_back(sketch_json(kind, sketch));
    hours.push_back({{"hour", hour->first}, {"kinds", std::move(kinds)}});
  }
  json left_out = json::array();
  for (auto hour = left_out_.lower_bound(first); hour != left_out_.end() && hour->first < first + kDay / kHour; ++hour)
    left_out.push_back({{"hour", hour->first}, {"counts", hour->second}});
  const json day = {{"format", 1}, {"day", day_of(time_s)}, {"hours", std::move(hours)}, {"left_out", std::move(left_out)}};
  return day.dump() + "\n";
}

void StepHistory::add_day(std::string_view text, const std::string& source) try {
  const json read = parse_json(text, source, kDayJson);
  require_day(read.at("format") == 1, source, "format");
  const int64_t first = number_in(read.at("day"), 0, int64_t{1} << 32, source, "day") * (kDay / kHour);
  std::map<int64_t, Kinds> hours;
  for (const json& hour : read.at("hours")) {
    Kinds& kinds = hours[number_in(hour.at("hour"), first, first + kDay / kHour - 1, source, "an hour of another day")];
    require_day(hour.at("kinds").size() <= kMaxKinds + 3, source, "more kinds of steps than are kept");
    for (const json& read_kind : hour.at("kinds")) {
      const StepKind kind{.phase = static_cast<Phase>(number_in(read_kind.at("phase"), 0, 2, source, "phase")),
                          .rows = static_cast<uint8_t>(number_in(read_kind.at("rows"), 0, 255, source, "rows")),
                          .keys = static_cast<uint8_t>(number_in(read_kind.at("keys"), 0, 255, source, "keys"))};
      kinds[kind].add(sketch_from(read_kind, source));
    }
  }
  const std::map<int64_t, CountsByReason> left_out = left_out_from(read, first, source);
  for (const auto& [hour, counts] : left_out) add_counts(left_out_[hour], counts);
  for (const auto& [hour, kinds] : hours) {
    for (const auto& [kind, sketch] : kinds) hours_[hour][kind].add(sketch);
  }
} catch (const json::exception& error) {
  throw damaged_day(source, error.what());
}

StepHistory read_history(const std::filesystem::path& folder) {
  StepHistory history;
  std::vector<std::filesystem::path> files = day_files(folder);
  files.resize(std::min(files.size(), kMaxFiles));
  for (const std::filesystem::path& path : files) {
    try {
      history.add_day(read_text_file(path, kDayJson.bytes), path.string());
    } catch (const Error& error) {
      std::fprintf(stderr, "ferry: warning: left out: %s\n", one_line(error.what()).c_str());
    }
  }
  return history;
}

void write_history(const std::filesystem::path& folder, const StepHistory& history, int64_t now_s) {
  constexpr int64_t kYoung = 600;  // seconds
  const auto write = [&](int64_t time_s) {
    const std::string text = history.day_text(time_s);
    PendingFile file(day_path(folder, day_of(time_s)));
    file.write(std::as_bytes(std::span(text)));
    file.commit();
  };
  write(now_s);
  if (day_of(now_s - kYoung) != day_of(now_s)) write(now_s - kYoung);
  for (const std::filesystem::path& path : day_files(folder)) {
    std::error_code code;
    if (*day_of_file(path) < day_of(now_s) - StepHistory::kMaxDays) std::filesystem::remove(path, code);
  }
}

}  // namespace ferry
