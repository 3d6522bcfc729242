#include "runtime/base/available_memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "runtime/base/error.h"
#include "runtime/base/lazy_pages.h"

namespace ferry {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

/// The number after `key` in a file of lines "key number"; 0 if there is none.
int64_t keyed_number(const std::filesystem::path& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    if (fields >> word >> number && word == key) return number;
  }
  return 0;
}

/// The number that a file consists of; nothing for "max" or if it cannot be read.
std::optional<int64_t> only_number(const std::filesystem::path& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

/// What one control group leaves. Cached file pages count as used there, but give way.
int64_t left_in_group(const std::filesystem::path& group) {
  const std::optional<int64_t> limit = only_number(group / "memory.max");
  const std::optional<int64_t> used = only_number(group / "memory.current");
  if (!limit || !used) return kUnlimited;
  const int64_t cached =
      keyed_number(group / "memory.stat", "inactive_file") + keyed_number(group / "memory.stat", "active_file");
  return std::max<int64_t>(0, *limit - *used + cached);
}

/// The least that the process's control group and those above it leave.
int64_t left_in_groups() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line) && !line.starts_with("0::/")) {
  }
  if (!line.starts_with("0::/")) return kUnlimited;
  const std::filesystem::path root = "/sys/fs/cgroup";
  int64_t left = kUnlimited;
  for (std::filesystem::path group = root / line.substr(4);; group = group.parent_path()) {
    left = std::min(left, left_in_group(group));
    if (group == root || !group.has_relative_path() || group == group.parent_path()) return left;
  }
}

struct SizeUnit {
  int shift;
  const char* name;
};

/// The largest of which there are at least ten.
SizeUnit unit_of(int64_t bytes) {
  constexpr int64_t kTen = 10;
  if (bytes >= kTen << 40) return {40, " TiB"};
  if (bytes >= kTen << 30) return {30, " GiB"};
  return {20, " MiB"};
}

}  // namespace

int64_t available_memory_bytes() {
  const int64_t kib = keyed_number("/proc/meminfo", "MemAvailable:");
  return std::min(kib > 0 ? kib * 1024 : kUnlimited, left_in_groups());
}

std::string size_text(int64_t bytes) {
  const SizeUnit unit = unit_of(bytes);
  return std::to_string(bytes >> unit.shift) + unit.name;
}

std::string size_that_holds(int64_t bytes) {
  const SizeUnit unit = unit_of(bytes);
  const bool is_whole = bytes % (int64_t{1} << unit.shift) == 0;
  return std::to_string((bytes >> unit.shift) + (is_whole ? 0 : 1)) + unit.name;
}

void require_memory(int64_t bytes, const std::string& what) {
  constexpr int64_t kReserve = int64_t{256} << 20;  // for what is allocated without asking, by this and other processes
  const int64_t known = std::max<int64_t>(0, available_memory_bytes() - untouched_bytes());
  const int64_t available = known - std::min(kReserve, known / 8);
  if (bytes <= available) return;
  throw Error(ErrorCode::kResourceExhausted,
              what + " needs " + size_text(bytes) + " of memory; available: " + size_text(available));
}

}  // namespace ferry
