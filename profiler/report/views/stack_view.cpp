#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "profiler/report/stacks/stack_times.h"
#include "profiler/report/views/cells.h"
#include "profiler/report/views/views.h"

namespace ferry {
namespace {

constexpr std::size_t kMaxFoldedStacks = 4000;  // of the table for the page; the files for other tools have all

double cpu_ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

std::string with_missing(const ReportInput& input, std::string note) {
  const std::string missing = missing_stacks(input);
  return missing.empty() ? note : note + " Missing: " + missing + ".";
}

struct FunctionTime {
  int64_t self_ns = 0, total_ns = 0, samples = 0;
};

/// "outermost;…;innermost", as tools that fold stacks write them: a semicolon in a name becomes a colon.
std::string fold(const StackCapture& stacks, uint32_t stack) {
  std::string folded;
  const std::vector<uint32_t>& frames = stacks.stacks[stack];
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    std::string name = stacks.frames[*frame].function;
    std::ranges::replace(name, ';', ':');
    folded += (folded.empty() ? "" : ";") + name;
  }
  return folded;
}

}  // namespace

Table make_stack_view(const ReportInput& input) {
  Table table{
      .id = "stack",
      .title = "Functions on the CPU",
      .note = with_missing(input,
                           "CPU time of the ranks' threads by function, from sampled stacks. Self: the function itself; "
                           "total: with what it called."),
      .columns = {{"rank"}, {"phase"}, {"function"}, {"module"}, {"self_ms", 3}, {"total_ms", 3}, {"samples"}}};
  using Key = std::tuple<int32_t, int32_t, std::string, std::string>;
  std::map<Key, FunctionTime> functions;
  for (const StackTime& time : find_stack_times(input)) {
    const StackCapture& stacks = input.capture.ranks[time.at].stacks;
    const std::vector<uint32_t>& frames = stacks.stacks[time.stack];
    const auto function = [&](uint32_t frame) -> FunctionTime& {
      return functions[{time.rank, time.phase, stacks.frames[frame].function, stacks.frames[frame].module}];
    };
    if (!frames.empty()) function(frames.front()).self_ns += time.ns;
    for (const uint32_t frame : std::set<uint32_t>(frames.begin(), frames.end())) {  // once, however often it calls itself
      function(frame).total_ns += time.ns;
      function(frame).samples += time.samples;
    }
  }
  std::vector<std::pair<Key, FunctionTime>> sorted(functions.begin(), functions.end());
  std::ranges::stable_sort(sorted, [](const auto& x, const auto& y) {
    return std::pair(x.second.self_ns, x.second.total_ns) > std::pair(y.second.self_ns, y.second.total_ns);
  });
  for (const auto& [key, time] : sorted) {
    const auto& [rank, phase, name, module] = key;
    table.rows.push_back(
        {int64_t{rank}, stack_phase_name(phase), name, module, cpu_ms(time.self_ns), cpu_ms(time.total_ns), time.samples});
  }
  return table;
}

Table make_folded_stack_view(const ReportInput& input) {
  Table table{.id = "folded_stack",
              .title = "Stacks on the CPU",
              .note = with_missing(input,
                                   "CPU time by stack, the outermost function first. stacks.pb.gz (pprof) and "
                                   "stacks.speedscope.json have the same for other tools."),
              .columns = {{"rank"}, {"phase"}, {"stack"}, {"cpu_ms", 3}, {"samples"}}};
  std::vector<StackTime> times = find_stack_times(input);
  std::ranges::stable_sort(times, std::greater{}, &StackTime::ns);
  if (times.size() > kMaxFoldedStacks) {
    int64_t left_out = 0;
    for (std::size_t i = kMaxFoldedStacks; i < times.size(); ++i) left_out += times[i].ns;
    table.note += " The " + std::to_string(kMaxFoldedStacks) + " longest; the others, " + std::to_string(left_out / 1'000'000) +
                  " ms, are left out.";
    times.resize(kMaxFoldedStacks);
  }
  for (const StackTime& time : times)
    table.rows.push_back({int64_t{time.rank}, stack_phase_name(time.phase),
                          fold(input.capture.ranks[time.at].stacks, time.stack), cpu_ms(time.ns), time.samples});
  return table;
}

}  // namespace ferry
