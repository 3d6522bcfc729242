#include "runtime/server/profile_control.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>

#include "profiler/export/capture_files.h"
#include "runtime/base/error.h"
#include "runtime/server/profile_request.h"

namespace ferry {
namespace {

constexpr int kWriterNice = 10;  // files give way to steps

/// "20261122T031500.123", of the local clock.
std::string time_name() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char text[32], name[48];
  std::strftime(text, sizeof text, "%Y%m%dT%H%M%S", &parts);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::snprintf(name, sizeof name, "%s.%03d", text, static_cast<int>(ms));
  return name;
}

/// Whether a rank was lost before it could hand in its part.
bool is_partial(const Capture& capture) {
  return std::any_of(capture.ranks.begin(), capture.ranks.end(), [](const RankCapture& rank) { return rank.threads.empty(); });
}

}  // namespace

ProfileControl::ProfileControl(CaptureSource& source, std::filesystem::path root, bool keep_last_steps)
    : source_(source), folder_(std::move(root)), keep_last_steps_(keep_last_steps) {
  source_.set_on_capture([this](Capture capture) { receive(std::move(capture)); });
  writer_ = std::thread([this] { run_writer(); });
}

ProfileControl::~ProfileControl() {
  source_.set_on_capture({});
  {
    const std::scoped_lock lock(mutex_);
    is_leaving_ = true;
  }
  changed_.notify_all();
  writer_.join();
}

/// Takes the folder for a capture that is about to begin.
std::filesystem::path ProfileControl::begin(const std::filesystem::path& directory) {
  const std::scoped_lock lock(mutex_);
  if (status_.state != State::kIdle) {
    throw Error(ErrorCode::kFailedPrecondition, status_.state == State::kRecording
                                                    ? "a capture is running already, into " + status_.directory.string()
                                                    : "a capture is still being written to " + status_.directory.string());
  }
  std::filesystem::path folder = folder_.claim(directory.empty() ? std::filesystem::path(time_name()) : directory);
  status_ = {.state = State::kRecording, .directory = folder, .error = {}};
  return folder;
}

std::filesystem::path ProfileControl::start(const TracePlan& plan, const std::filesystem::path& directory) {
  check_plan(plan);
  const std::filesystem::path folder = begin(directory);
  try {
    source_.start(plan);
  } catch (const Error& error) {
    const std::scoped_lock lock(mutex_);
    status_ = {.state = State::kIdle, .directory = folder, .error = error.what()};
    throw;
  }
  return folder;
}

std::filesystem::path ProfileControl::stop(bool wait) {
  {
    const std::scoped_lock lock(mutex_);
    if (status_.state == State::kIdle) throw Error(ErrorCode::kFailedPrecondition, "no capture is running; start one first");
  }
  try {
    source_.stop();
  } catch (const Error& error) {
    // It may have ended by itself after its number of steps.
    if (error.code() != ErrorCode::kFailedPrecondition) throw;
  }
  std::unique_lock lock(mutex_);
  return end(lock, wait);
}

std::filesystem::path ProfileControl::save(const std::filesystem::path& directory, bool wait) {
  const std::filesystem::path folder = begin(directory);
  try {
    source_.save_snapshot();
  } catch (const Error& error) {
    const std::scoped_lock lock(mutex_);
    status_ = {.state = State::kIdle, .directory = folder, .error = error.what()};
    throw;
  }
  std::unique_lock lock(mutex_);
  return end(lock, wait);
}

/// The capture has ended; under mutex_.
std::filesystem::path ProfileControl::end(std::unique_lock<std::mutex>& lock, bool wait) {
  if (status_.state == State::kRecording) status_.state = State::kWriting;
  const std::filesystem::path folder = status_.directory;
  if (wait) {
    changed_.wait(lock, [this] { return status_.state == State::kIdle || is_leaving_; });
    if (!status_.error.empty()) throw Error(ErrorCode::kFailedPrecondition, status_.error);
  }
  return folder;
}

ProfileControl::Status ProfileControl::status() const {
  const std::scoped_lock lock(mutex_);
  return status_;
}

/// On the engine's thread.
void ProfileControl::receive(Capture capture) {
  const std::scoped_lock lock(mutex_);
  if (status_.state == State::kIdle) {  // nobody asked: a rank was lost
    if (!keep_last_steps_) return;
    status_.directory = folder_.root() / ("lost-" + time_name());
  }
  status_.state = State::kWriting;
  pending_ = std::move(capture);
  changed_.notify_all();
}

void ProfileControl::run_writer() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kWriterNice);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return pending_.has_value() || is_leaving_; });
    if (!pending_) return;
    Capture capture = *std::exchange(pending_, std::nullopt);
    lock.unlock();
    write(std::move(capture));
    lock.lock();
  }
}

void ProfileControl::write(Capture capture) {
  std::filesystem::path directory;
  {
    const std::scoped_lock lock(mutex_);
    directory = status_.directory;
  }
  std::string error;
  try {
    if (is_partial(capture)) {  // this process is about to end: the rest can be made from the capture
      write_capture(directory, capture);
      std::fprintf(stderr, "ferry: what this rank recorded is in %s; `ferry trace report` makes the rest\n", directory.c_str());
    } else {
      write_capture_files(directory, std::move(capture));
      std::fprintf(stderr, "ferry: timeline in %s\n", directory.c_str());
    }
  } catch (const std::exception& e) {  // not only Error: memory may run out
    error = e.what();
    std::fprintf(stderr, "ferry: the capture was not written: %s\n", e.what());
  }
  const std::scoped_lock lock(mutex_);
  status_ = {.state = State::kIdle, .directory = directory, .error = error};
  changed_.notify_all();
}

}  // namespace ferry
