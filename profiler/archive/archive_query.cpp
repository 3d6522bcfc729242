#include "profiler/archive/archive_query.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "profiler/archive/joined_steps.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

/// A run of a server may have several files: all but the number behind the last '-' is the run's.
std::string run_of(const SegmentEntry& entry) { return entry.run.substr(0, entry.run.rfind('-')); }

int64_t distance(const SegmentEntry& entry, int64_t at_ns) { return std::abs(entry.time_ns - at_ns); }

/// The most telling first: by length if the slowest are wanted, else anomalies, then those that are nearest.
void order(std::vector<SegmentEntry>& steps, const ArchiveQuery& query) {
  const int64_t at_ns = query.at_ns.value_or(query.to_ns);
  std::ranges::stable_sort(steps, [&](const SegmentEntry& a, const SegmentEntry& b) {
    if (query.num_slowest > 0) return a.facts.seconds > b.facts.seconds;
    return std::pair(!is_anomaly(a.why), distance(a, at_ns)) < std::pair(!is_anomaly(b.why), distance(b, at_ns));
  });
}

void sort_by_time(std::vector<SegmentEntry>& steps) { std::ranges::sort(steps, {}, &SegmentEntry::time_ns); }

/// Steps of one file of a run that cannot be read.
struct LeftOut {
  std::string why;  // the first of them
  int64_t num_steps = 0;
};

void say(const LeftOut& left_out) {
  const std::string others = left_out.num_steps > 1 ? "; and " + std::to_string(left_out.num_steps - 1) + " more steps" : "";
  std::fprintf(stderr, "ferry: warning: left out: %s%s\n", left_out.why.c_str(), others.c_str());
}

}  // namespace

ArchiveAnswer answer(const std::vector<SegmentEntry>& steps, const ArchiveQuery& query) {
  ArchiveAnswer found;
  const auto is_of_phase = [&](const SegmentEntry& e) { return !query.phase || e.facts.phase == *query.phase; };
  for (const SegmentEntry& entry : steps) {
    if (entry.time_ns >= query.from_ns && entry.time_ns <= query.to_ns && is_of_phase(entry)) found.steps.push_back(entry);
  }
  if (found.steps.empty() && query.at_ns) {
    std::ranges::copy_if(steps, std::back_inserter(found.steps), is_of_phase);
    std::ranges::stable_sort(found.steps, {}, [&](const SegmentEntry& e) { return distance(e, *query.at_ns); });
    found.steps.resize(std::min(found.steps.size(), kNearest));
    sort_by_time(found.steps);
    found.is_elsewhere = !found.steps.empty();
  }
  std::vector<SegmentEntry> ordered = found.steps;
  order(ordered, query);
  const std::size_t most = query.num_slowest > 0 ? std::min(query.num_slowest, kMaxChosen) : kMaxChosen;
  for (SegmentEntry& entry : ordered) {
    if (found.chosen.size() < most && run_of(entry) == run_of(ordered.front())) found.chosen.push_back(entry);
  }
  sort_by_time(found.chosen);
  return found;
}

std::optional<Capture> read_chosen(const std::filesystem::path& folder, const std::vector<SegmentEntry>& chosen) {
  std::vector<Capture> captures;
  std::map<std::string, LeftOut> left_out;  // by the file of their run
  for (const SegmentEntry& entry : chosen) {
    try {
      captures.push_back(read_segment(folder / entry.file));
    } catch (const Error& error) {
      LeftOut& of_run = left_out[entry.run];
      if (++of_run.num_steps == 1) of_run.why = one_line(error.what());
    }
  }
  for (const auto& [run, of_run] : left_out) say(of_run);
  if (captures.empty()) return std::nullopt;
  // Workers come and go: only steps of the same ranks can be one capture, and the latest ones are it.
  const std::size_t num_ranks = captures.back().ranks.size();
  std::erase_if(captures, [&](const Capture& c) { return c.ranks.size() != num_ranks; });
  return join_steps(std::move(captures));
}

}  // namespace ferry
