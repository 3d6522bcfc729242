#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "profiler/counters/counter_readings.h"
#include "profiler/section_bytes.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"

namespace ferry {

using nlohmann::json;

namespace {

// A section: bytes of its JSON header, the header, and one row a reading with a value for each counter of its `columns`.
constexpr JsonLimits kHeaderJson{.depth = 4, .bytes = 64 << 10, .values = 1024};
constexpr std::size_t kMaxColumns = 256;
constexpr uint8_t kScaledFlag = 1, kPartFlag = 2;

struct Row {
  uint64_t begin;
  uint64_t end;
  uint32_t step;
  int32_t tid;
  Zone zone;
  uint8_t flags;
  uint8_t reserved[6];
};
static_assert(sizeof(Row) == 32);

Error damaged(const std::string& source, const std::string& what) {
  return {ErrorCode::kInvalidArgument, source + ": " + what + "; allowed: counters that Ferry wrote"};
}

std::optional<std::size_t> find_counter(std::string_view name) {
  for (std::size_t c = 0; c < kNumCounters; ++c) {
    if (name == kCounters[c].name) return c;
  }
  return std::nullopt;
}

std::vector<std::size_t> find_columns(const CounterCapture& counters) {
  std::vector<std::size_t> columns;
  for (std::size_t c = 0; c < kNumCounters; ++c) {
    const auto has_value = [c](const CounterReading& reading) { return reading.values[c] != kNotCounted; };
    if (std::ranges::any_of(counters.readings, has_value)) columns.push_back(c);
  }
  return columns;
}

json header_of(const CounterCapture& counters, std::span<const std::size_t> columns) {
  json header = {{"sources", json::array()}, {"columns", json::array()}, {"num_lost", counters.num_lost}};
  if (counters.num_threads_left_out > 0) header["num_threads_left_out"] = counters.num_threads_left_out;
  for (const CounterSource& source : counters.sources) {
    header["sources"].push_back({{"name", kCounters[static_cast<std::size_t>(source.counter)].name},
                                 {"source", source.source},
                                 {"absent", source.absent}});
  }
  for (const std::size_t column : columns) header["columns"].push_back(kCounters[column].name);
  return header;
}

void take_sources(const json& header, const std::string& source, CounterCapture& counters) {
  for (const json& one : header.at("sources")) {
    const auto counter = find_counter(one.at("name").get<std::string>());
    if (!counter) continue;
    const auto is_it = [&](const CounterSource& known) { return known.counter == static_cast<Counter>(*counter); };
    if (std::ranges::any_of(counters.sources, is_it))
      throw damaged(source, std::string("two sources of ") + kCounters[*counter].name);
    counters.sources.push_back({static_cast<Counter>(*counter), one.at("source"), one.at("absent")});
  }
}

/// The counter of each column; none where this version knows no such counter.
std::vector<std::optional<std::size_t>> take_columns(const json& header, const std::string& source) {
  std::vector<std::optional<std::size_t>> columns;
  for (const json& name : header.at("columns")) {
    const auto counter = find_counter(name.get<std::string>());
    if (counter && std::ranges::find(columns, counter) != columns.end())
      throw damaged(source, std::string("two columns of ") + kCounters[*counter].name);
    columns.push_back(counter);
  }
  if (columns.size() > kMaxColumns) throw damaged(source, std::to_string(columns.size()) + " columns");
  return columns;
}

CounterReading take_reading(std::span<const std::byte>& rest, std::span<const std::optional<std::size_t>> columns,
                            const std::string& source) {
  const Row row = take_raw<Row>(rest);
  if (static_cast<int>(row.zone) >= kNumZones || row.end < row.begin)
    throw damaged(source, "a reading of zone " + std::to_string(static_cast<int>(row.zone)) +
                              " that ends before it begins or is unknown");
  CounterReading reading{.begin = row.begin,
                         .end = row.end,
                         .step = row.step,
                         .tid = row.tid,
                         .zone = row.zone,
                         .is_part = (row.flags & kPartFlag) != 0,
                         .is_scaled = (row.flags & kScaledFlag) != 0};
  reading.values.fill(kNotCounted);
  for (const std::optional<std::size_t> column : columns) {
    const auto value = take_raw<uint64_t>(rest);
    if (column) reading.values[*column] = value;
  }
  return reading;
}

}  // namespace

std::vector<std::byte> encode_counters(const CounterCapture& counters) {
  if (counters == CounterCapture{}) return {};
  const std::vector<std::size_t> columns = find_columns(counters);
  const std::string header = header_of(counters, columns).dump(-1, ' ', false, json::error_handler_t::replace);
  std::vector<std::byte> bytes;
  bytes.reserve(sizeof(uint64_t) + header.size() +
                counters.readings.size() * (sizeof(Row) + columns.size() * sizeof(uint64_t)));
  append_raw(bytes, uint64_t{header.size()});
  const auto text = std::as_bytes(std::span(header));
  bytes.insert(bytes.end(), text.begin(), text.end());
  for (const CounterReading& reading : counters.readings) {
    const int flags = (reading.is_scaled ? kScaledFlag : 0) | (reading.is_part ? kPartFlag : 0);
    append_raw(bytes,
               Row{reading.begin, reading.end, reading.step, reading.tid, reading.zone, static_cast<uint8_t>(flags), {}});
    for (const std::size_t column : columns) append_raw(bytes, reading.values[column]);
  }
  return bytes;
}

CounterCapture decode_counters(std::span<const std::byte> bytes, const std::string& source) {
  if (bytes.size() < sizeof(uint64_t)) throw damaged(source, std::to_string(bytes.size()) + " bytes are too few");
  const auto header_bytes = take_raw<uint64_t>(bytes);
  if (header_bytes > bytes.size()) throw damaged(source, "its header is cut off");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), header_bytes);
  std::span<const std::byte> rest = bytes.subspan(header_bytes);
  CounterCapture counters;
  try {
    const json header = parse_json(text, source, kHeaderJson);
    take_sources(header, source, counters);
    header.at("num_lost").get_to(counters.num_lost);
    counters.num_threads_left_out = header.value("num_threads_left_out", uint64_t{0});
    const auto columns = take_columns(header, source);
    const std::size_t row_bytes = sizeof(Row) + columns.size() * sizeof(uint64_t);
    if (rest.size() % row_bytes != 0) throw damaged(source, std::to_string(rest.size() % row_bytes) + " bytes behind its rows");
    if (rest.size() / row_bytes > kMaxCounterReadings)
      throw damaged(source, std::to_string(rest.size() / row_bytes) + " readings; " + std::to_string(kMaxCounterReadings) +
                                " are kept at most");
    while (!rest.empty()) counters.readings.push_back(take_reading(rest, columns, source));
  } catch (const json::exception& error) {
    throw damaged(source, std::string("a header that cannot be read: ") + error.what());
  }
  return counters;
}

}  // namespace ferry
