#include "tests/support/asleep.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "runtime/base/file_descriptor.h"
#include "tests/support/eventually.h"

namespace ferry::test {
namespace {

/// How often each thread of a process has left its core, by itself or not, if all of them sleep. Nothing if one does not.
using Switches = std::map<std::string, std::string>;

/// The whole of a small file, without a stream of stdio: a thread that is looked at may hold the lock of them all.
std::string contents(const std::filesystem::path& path) {
  std::string text(4096, '\0');
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const ssize_t bytes = file.get() < 0 ? 0 : read(file.get(), text.data(), text.size());
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  return text;
}

/// What /proc tells of one thread: how often it has left its core, if it sleeps. A thread that has ended meanwhile is none.
std::optional<std::string> switches_of_sleeper(const std::filesystem::path& thread) {
  const std::string status = contents(thread / "status");
  const std::size_t state = status.find("State:\t"), switches = status.find("voluntary_ctxt_switches:");
  if (state == std::string::npos || switches == std::string::npos) return "";
  if (!status.substr(state).starts_with("State:\tS")) return {};
  return status.substr(switches);
}

std::optional<Switches> switches_if_all_sleep(pid_t process, pid_t except) {
  Switches all;
  std::error_code error;
  const std::filesystem::path tasks = "/proc/" + std::to_string(process) + "/task";
  for (auto entry = std::filesystem::directory_iterator(tasks, error); entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name == std::to_string(except)) continue;
    std::optional<std::string> switches = switches_of_sleeper(entry->path());
    if (!switches) return {};
    all.emplace(name, std::move(*switches));
  }
  return all;
}

}  // namespace

void await_asleep(pid_t thread) {
  const std::filesystem::path place = "/proc/self/task/" + std::to_string(thread);
  eventually([&] { return switches_of_sleeper(place).has_value(); }, "thread " + std::to_string(thread) + " to sleep");
}

bool is_quiet(pid_t process, pid_t except) {
  const std::optional<Switches> first = switches_if_all_sleep(process, except);
  return first && first == switches_if_all_sleep(process, except);  // nobody has run between the two looks
}

void await_quiet() {
  const pid_t self = gettid();
  eventually([&] { return is_quiet(getpid(), self); }, "all other threads of this process to sleep");
}

}  // namespace ferry::test
