#include "profiler/counters/pmu_events.h"

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

namespace ferry {
namespace {

constexpr std::size_t kMaxFileBytes = 4096;
constexpr int kMaxCpus = 4096;

/// The first line of a small file, "" if it cannot be read.
std::string read_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line(kMaxFileBytes, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<std::size_t>(file.gcount()));
  return line.substr(0, line.find('\n'));
}

template <class Number>
std::optional<Number> parse(std::string_view text, int base = 10) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<uint64_t> parse_value(std::string_view text) {
  return text.starts_with("0x") ? parse<uint64_t>(text.substr(2), 16) : parse<uint64_t>(text);
}

/// Puts `value` into the bits that a file of the device's format folder names: "config:0-7,21".
bool place(const std::string& format, uint64_t value, PmuEvent& event) {
  const std::size_t colon = format.find(':');
  if (colon == std::string::npos) return false;
  const std::string field = format.substr(0, colon);
  if (field != "config" && field != "config1") return false;
  uint64_t& config = field == "config" ? event.config : event.config1;
  for (const int bit : parse_cpu_list(format.substr(colon + 1))) {
    if (bit > 63) return false;
    config |= (value & 1) << bit;
    value >>= 1;
  }
  return value == 0;
}

/// Adds "event=0x04" or "edge", as a file of the events folder has them.
bool add_term(const std::filesystem::path& device, const std::string& term, PmuEvent& event) {
  const std::size_t equals = term.find('=');
  const std::string name = term.substr(0, equals);
  const std::optional<uint64_t> value =
      equals == std::string::npos ? 1 : parse_value(std::string_view(term).substr(equals + 1));
  if (!value || name.empty() || name.find('/') != std::string::npos) return false;
  return place(read_line(device / "format" / name), *value, event);
}

}  // namespace

std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> cpus;
  std::istringstream ranges(text);
  for (std::string range; std::getline(ranges, range, ',');) {
    const std::size_t dash = range.find('-');
    const auto first = parse<int>(std::string_view(range).substr(0, dash));
    const auto last = dash == std::string::npos ? first : parse<int>(std::string_view(range).substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMaxCpus) return {};
    for (int cpu = *first; cpu <= *last && cpus.size() < static_cast<std::size_t>(kMaxCpus); ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::optional<PmuEvent> find_pmu_event(const std::filesystem::path& device, const std::string& name) {
  PmuEvent event;
  const auto type = parse<uint32_t>(read_line(device / "type"));
  const std::string terms = read_line(device / "events" / name);
  if (!type || terms.empty()) return std::nullopt;
  event.type = *type;
  std::istringstream list(terms);
  for (std::string term; std::getline(list, term, ',');) {
    if (!add_term(device, term, event)) return std::nullopt;
  }
  event.cpus = parse_cpu_list(read_line(device / "cpumask"));
  if (event.cpus.empty()) event.cpus = {0};
  const std::string scale = read_line(device / "events" / (name + ".scale"));
  if (!scale.empty()) event.scale = std::strtod(scale.c_str(), nullptr);
  event.unit = read_line(device / "events" / (name + ".unit"));
  return event;
}

}  // namespace ferry
