#include "profiler/own_cores.h"

#include <sched.h>

#include <charconv>

namespace ferry {
namespace {

/// Takes a number off the front; -1 if there is none.
int take_number(std::string_view& text) {
  int value = -1;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || value < 0 || value >= kMostCores) return -1;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

}  // namespace

std::string own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return "";
  std::string list;
  for (int first = 0; first < CPU_SETSIZE; ++first) {
    if (!CPU_ISSET(first, &set)) continue;
    int last = first;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) ++last;
    list += (list.empty() ? "" : ",") + std::to_string(first);
    if (last > first) list += "-" + std::to_string(last);
    first = last;
  }
  return list;
}

std::set<int> parse_cores(std::string_view list) {
  std::set<int> cores;
  while (!list.empty()) {
    const int first = take_number(list);
    int last = first;
    if (!list.empty() && list.front() == '-') {
      list.remove_prefix(1);
      last = take_number(list);
    }
    if (first < 0 || last < first) return {};
    for (int core = first; core <= last; ++core) cores.insert(core);
    if (list.empty()) break;
    if (list.front() != ',') return {};
    list.remove_prefix(1);
  }
  return cores;
}

}  // namespace ferry
