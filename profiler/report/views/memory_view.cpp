#include <algorithm>

#include "profiler/memory/memory_samples.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/memory_lines.h"
#include "profiler/report/views/views.h"

namespace ferry {
namespace {

constexpr std::size_t kMostMoments = 500;  // of a rank's timeline
constexpr std::size_t kLeastMoments = 20;  // of as many ranks as there may be
constexpr std::size_t kMostRows = 8000;    // of all ranks' timelines; the page holds as many, so that each rank has its part

using Line = MemoryLine;

int64_t resident_bytes(const MemorySample& sample) { return sample.total(MemoryRole::kResident); }

std::vector<Line> find_all(const std::vector<MemorySample>& samples) {
  std::vector<Line> lines = find_memory_stack(samples);
  for (std::size_t k = 0; k < kNumMemoryKinds; ++k) {
    const MemoryRole role = kMemoryKinds[k].role;
    const auto is_something = [k](const MemorySample& sample) { return sample.bytes[k] > 0; };
    const bool is_beside = role == MemoryRole::kReserved || role == MemoryRole::kUsed || role == MemoryRole::kDevice;
    if (is_beside && std::ranges::any_of(samples, is_something))
      lines.push_back(
          {kMemoryKinds[k].name, memory_role_name(role), [k](const MemorySample& sample) { return sample.bytes[k]; }});
  }
  lines.push_back({"rss", "system", resident_bytes});
  return lines;
}

/// At most `most`: of as many stretches of time, the moment of the largest resident set.
std::vector<MemorySample> thin(const std::vector<MemorySample>& samples, std::size_t most) {
  if (samples.size() <= most) return samples;
  std::vector<MemorySample> kept;
  for (std::size_t i = 0; i < most; ++i) {
    const auto begin = samples.begin() + static_cast<std::ptrdiff_t>(i * samples.size() / most);
    const auto end = samples.begin() + static_cast<std::ptrdiff_t>((i + 1) * samples.size() / most);
    kept.push_back(*std::max_element(
        begin, end, [](const MemorySample& x, const MemorySample& y) { return resident_bytes(x) < resident_bytes(y); }));
  }
  return kept;
}

/// How many moments of each rank are told.
std::size_t count_moments(const std::vector<RankCapture>& ranks) {
  std::size_t num_lines = 1;  // of all ranks at one moment
  for (const RankCapture& rank : ranks) {
    if (!rank.memory.samples.empty()) num_lines += find_memory_stack(rank.memory.samples).size();
  }
  return std::clamp(kMostRows / num_lines, kLeastMoments, kMostMoments);
}

Table::Cell bytes_cell(int64_t bytes) { return bytes == kNotKnown ? Table::Cell() : Table::Cell(bytes); }

double milliseconds(int64_t ns) { return static_cast<double>(ns) / 1e6; }

}  // namespace

Table make_memory_view(const ReportInput& input) {
  Table table{.id = "memory",
              .title = "Memory",
              .note =
                  "What each rank's memory was used for. held: pages of its own that lie in memory; with those of files "
                  "(packed weights, the program) and shared ones they add up to rss. heap: small things. unaccounted: stacks, "
                  "libraries. reserved: what may be held without anybody asking again; used: what requests have of that. "
                  "device: on a GPU, beside all of these.",
              .columns = {{"rank"},
                          {"kind"},
                          {"role"},
                          {"first_bytes"},
                          {"peak_bytes"},
                          {"peak_at_ms", 1},
                          {"last_bytes"},
                          {"peak_share_of_rss", 4}}};
  for (const RankCapture& rank : input.capture.ranks) {
    const std::vector<MemorySample>& samples = rank.memory.samples;
    if (samples.empty()) continue;
    for (const Line& line : find_all(samples)) {
      const auto peak = std::ranges::max_element(samples, {}, line.bytes);
      const int64_t bytes = line.bytes(*peak);
      table.rows.push_back({int64_t{rank.rank}, line.name, line.role, bytes_cell(line.bytes(samples.front())),
                            bytes_cell(bytes), milliseconds(input.timeline.to_ns(rank, peak->ticks)),
                            bytes_cell(line.bytes(samples.back())),
                            ratio_cell(static_cast<double>(bytes), static_cast<double>(resident_bytes(*peak)))});
    }
  }
  return table;
}

Table make_memory_timeline(const ReportInput& input) {
  Table table{.id = "memory_timeline",
              .title = "Memory over time",
              .note =
                  "At each moment, the kinds of a rank add up to its resident set. Of many samples at most 500 moments a rank "
                  "are kept, and fewer of many ranks: those of the largest resident sets.",
              .columns = {{"rank"}, {"at_ms", 1}, {"kind"}, {"bytes"}}};
  const std::size_t most = count_moments(input.capture.ranks);
  for (const RankCapture& rank : input.capture.ranks) {
    const std::vector<MemorySample> samples = thin(rank.memory.samples, most);
    const std::vector<Line> lines = find_memory_stack(samples);
    for (const MemorySample& sample : samples) {
      const double at_ms = milliseconds(input.timeline.to_ns(rank, sample.ticks));
      for (const Line& line : lines)
        table.rows.push_back({int64_t{rank.rank}, at_ms, line.name, bytes_cell(line.bytes(sample))});
    }
  }
  return table;
}

}  // namespace ferry
